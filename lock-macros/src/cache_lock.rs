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
    let Some(function) = mistakes.ok(parse::function(item.clone())) else {
        return item.into_iter().chain(mistakes.into_compile_errors()).collect();
    };
    match model::model(options, &function, &mut mistakes) {
        Some(lock) if mistakes.is_empty() => expand::expand(&lock, &function),
        _ => {
            let errors = mistakes.into_compile_errors();
            quote!(#function #errors)
        }
    }
}
