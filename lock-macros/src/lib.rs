//! The attribute and derive of `lock-runtime`.

use proc_macro::TokenStream;

mod cache_lock;
mod lock_key;
mod mistakes;

/// PLACEHOLDER
#[proc_macro_attribute]
pub fn cache_lock(options: TokenStream, item: TokenStream) -> TokenStream {
    cache_lock::expansion(options.into(), item.into()).into()
}

/// PLACEHOLDER
#[proc_macro_derive(LockKey, attributes(lock_key))]
pub fn lock_key(item: TokenStream) -> TokenStream {
    lock_key::expansion(item.into()).into()
}
