//! The order of the attributes on a trait.

use proc_macro2::TokenTree;
use quote::ToTokens;
use syn::Attribute;

use crate::any_token;
use crate::cache_lock::parse::AboveAsyncTrait;
use crate::mistakes::Mistakes;

/// `#[automock]` copies all attributes that it sees to the mock. Above `#[async_trait]` it sees ours, which moves below that one: the mock
/// would have the locks, and a dozen errors. So `#[automock]` moves below, too.
pub(in crate::cache_lock) fn check_mock_comes_last(above: &mut AboveAsyncTrait, mistakes: &mut Mistakes) {
    let is_name = |token: TokenTree| matches!(token, TokenTree::Ident(name) if name == "automock");
    let is_mock = |attribute: &mut Attribute| any_token(attribute.meta.to_token_stream(), &is_name);
    for mock in above.first.extract_if(.., is_mock) {
        mistakes.at(
            &mock,
            "above `#[async_trait]` this would copy the locks to the mock: put it below, where an expectation returns \
             `Box::pin(async { … })`",
        );
        above.below.push(mock);
    }
}
