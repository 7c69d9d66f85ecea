//! Options that move to another place, where the attribute is expanded again.

use proc_macro2::{Punct, Spacing, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::Path;

use crate::cache_lock::parse::{AboveAsyncTrait, Written};

// Input:
//     #[cache_lock(proxy = LockedShop)]
//     #[async_trait]
//     trait Shop { … }
//
// Output:
//     #[async_trait]
//     #[lock_runtime::cache_lock(proxy = LockedShop)]
//     trait Shop { … }
pub(in crate::cache_lock) fn below(above: &AboveAsyncTrait, runtime: &Path, options: &[Written]) -> TokenStream {
    let AboveAsyncTrait { first, below, rest } = above;
    quote!(#(#first)* #[#runtime::cache_lock(#(#options),*)] #(#below)* #rest)
}

// Input:
//     key = id
//
// Output:
//     key = id, prefix = "shop", timeout_ms = 500
pub(in crate::cache_lock) fn with_inherited(own: TokenStream, inherited: &[&Written]) -> TokenStream {
    let mut tokens = own;
    for option in inherited {
        let last = tokens.clone().into_iter().last();
        let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
        if let Some(last) = last.filter(|last| !is_comma(last)) {
            // Has the last token's span, for an option that ends too early.
            let mut comma = Punct::new(',', Spacing::Alone);
            comma.set_span(last.span());
            tokens.extend([TokenTree::Punct(comma)]);
        }
        option.to_tokens(&mut tokens);
    }
    tokens
}
