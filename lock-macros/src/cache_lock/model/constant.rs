//! Values known at compile time, which the compiler checks.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Expr, Ident, Path};

use super::bindings::mentions;
use super::{is_argument, plain};
use crate::cache_lock::parse::Function;

pub(in crate::cache_lock) struct Checked {
    pub(in crate::cache_lock) value: TokenStream,
    pub(in crate::cache_lock) place: Place,
}

#[derive(Clone, Copy)]
pub(in crate::cache_lock) enum Place {
    /// In an item: already checked by `cargo check`. An item can't use generic parameters.
    Item,
    /// In the fn's body, which can use the generic parameters around it: checked when the fn is compiled.
    Body,
}

/// Where the compiler can check the value. `None` unless it is written like the path of a `const`: in `Self::EXPIRE` and `T::EXPIRE` the
/// first part may be generic. In a method a single word in capitals may be a const parameter of the `impl` or the trait around it.
pub(super) fn place_of_check(value: &Expr, function: &Function) -> Option<Place> {
    let Expr::Path(written) = plain(value) else { return None };
    let Path { segments, .. } = &written.path;
    let (first, last) = (segments.first()?, segments.last()?);
    let is_in_capitals = |name: String| name.contains(char::is_uppercase) && !name.contains(char::is_lowercase);
    let is_known = written.qself.is_none()
        && segments.iter().all(|part| part.arguments.is_none())
        && is_in_capitals(last.ident.to_string())
        && (segments.len() == 1 || first.ident.to_string().starts_with(char::is_lowercase))
        && !is_argument(written.path.get_ident(), function)
        && !function.signature.generics.const_params().any(|parameter| written.path.is_ident(&parameter.ident));
    is_known.then(|| if segments.len() == 1 && is_member(function) { Place::Body } else { Place::Item })
}

/// Whether the fn is certainly in an `impl` or a trait.
fn is_member(function: &Function) -> bool {
    let is_said = |tokens: TokenStream| mentions(tokens, &Ident::new("Self", proc_macro2::Span::call_site()));
    function.signature.receiver().is_some()
        || is_said(function.signature.to_token_stream())
        || function.body.as_ref().is_some_and(|body| is_said(body.tokens.clone()))
}
