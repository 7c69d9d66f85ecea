//! `#[derive(LockKey)]`: what was written ([`parse`]), what it means ([`model`]), what it becomes ([`expand`]).

use proc_macro2::TokenStream;
use quote::quote;

use crate::mistakes::Mistakes;

mod expand;
mod model;
mod parse;

/// The derive as a pure function. It never panics. On a mistake it still implements the trait, so users of the type see no further error.
pub(crate) fn expansion(item: TokenStream) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let item = match parse::item(item, &mut mistakes) {
        Ok(item) => item,
        Err(not_a_type) => return not_a_type.to_compile_error(),
    };
    let keyed = model::model(&item, &mut mistakes);
    let implementation = expand::expand(&keyed, &item);
    let errors = mistakes.into_compile_errors();
    quote!(#implementation #errors)
}
