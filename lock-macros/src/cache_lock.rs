//! `#[cache_lock(...)]`: what was written ([`parse`]), what it means ([`model`]), what it becomes ([`expand`]).

use proc_macro2::TokenStream;
use quote::quote;

use crate::mistakes::Mistakes;

mod expand;
mod model;
mod parse;

/// The attribute as a pure function. It never panics, and on a mistake it keeps the fn as it was, so that its callers
/// and editors go on working.
pub(crate) fn expansion(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let options = parse::options(options, &mut mistakes);
    let function = match parse::function(item) {
        Ok(function) => function,
        Err(not_a_fn) => {
            mistakes.add(not_a_fn.mistake);
            let (item, errors) = (not_a_fn.item, mistakes.into_compile_errors());
            return quote!(#item #errors);
        }
    };
    match model::model(options, &function, &mut mistakes) {
        Some(lock) if mistakes.is_empty() => expand::expand(&lock, &function),
        _ => {
            let errors = mistakes.into_compile_errors();
            quote!(#function #errors)
        }
    }
}
