//! The attribute and derive of `lock-runtime`.

use proc_macro::TokenStream;

/// stub
#[proc_macro_attribute]
pub fn cache_lock(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// stub
#[proc_macro_derive(LockKey, attributes(lock_key))]
pub fn lock_key(_item: TokenStream) -> TokenStream {
    TokenStream::new()
}
