//! The expansions of traits and `impl` blocks; `snapshots.rs` has those of fns.

use expect_test::expect_file;
use quote::quote;

use crate::cache_lock;
use crate::snapshots::check;

#[test]
fn options_of_a_block_go_to_its_locked_fns() {
    let options = quote!(prefix = "shop", manager = &self.locks, timeout_ms = 500, mode = "read");
    let item = quote! {
        /// Sells.
        impl<T: Send> Shop<T> {
            const ITEMS: u64 = 1;
            #[cache_lock(key = id, timeout = "2s")]
            async fn buy(&self, id: u64) -> Result<(), ShopError> {}
            #[lock_runtime::cache_lock(permits = 4)]
            async fn render(&self, #[locked_object] id: u64) -> Result<(), ShopError> {}
            #[cache_lock]
            async fn look(&self, #[locked_object] id: u64) -> Result<(), ShopError> {}
            async fn stock(&self) -> u64 {
                1
            }
        }
    };
    check(cache_lock::expansion(options, item), expect_file!["trait_snapshots/block.rs"]);
}

#[test]
fn a_trait_with_async_methods() {
    let item = quote! {
        /// A flash sale.
        #[cfg(feature = "sale")]
        pub trait Seckill {
            #[cache_lock(prefix = "seckill", timeout_ms = 2000)]
            async fn sec_kill(&self, user: &str, #[locked_object] commodity_id: u64) -> Result<u64, ShopError>;
            async fn stock(&self, _: u64) -> Result<u64, ShopError>;
        }
    };
    check(cache_lock::expansion(quote!(proxy = LockedSeckill), item), expect_file!["trait_snapshots/async_methods.rs"]);
}

#[test]
fn a_trait_above_async_trait() {
    let item = quote! {
        #[doc(hidden)]
        #[async_trait::async_trait(?Send)]
        #[automock]
        pub(crate) trait Seckill {
            #[cache_lock(key = id)]
            async fn sec_kill(&self, id: u64) -> Result<u64, ShopError>;
        }
    };
    let options = quote!(proxy = LockedSeckill, crate = shop::locks);
    check(cache_lock::expansion(options, item), expect_file!["trait_snapshots/above_async_trait.rs"]);
}

#[test]
fn a_trait_above_one_that_makes_its_futures_send() {
    let item = quote! {
        #[trait_variant::make(Send)]
        trait Seckill {
            #[cache_lock(key = id)]
            async fn sec_kill(&self, id: u64) -> Result<u64, ShopError>;
        }
    };
    check(cache_lock::expansion(quote!(proxy = Locked), item), expect_file!["trait_snapshots/above_trait_variant.rs"]);
}

#[test]
fn a_trait_that_async_trait_has_rewritten() {
    let item = quote! {
        trait Seckill: Send + Sync {
            #[cache_lock(prefix = "seckill")]
            #[must_use]
            #[allow(clippy::type_complexity)]
            fn sec_kill<'life0, 'async_trait>(
                &'life0 self,
                #[locked_object] id: u64,
            ) -> ::core::pin::Pin<
                Box<dyn ::core::future::Future<Output = Result<u64, ShopError>> + ::core::marker::Send + 'async_trait>,
            >
            where
                'life0: 'async_trait,
                Self: 'async_trait;
        }
    };
    check(cache_lock::expansion(quote!(proxy = Locked), item), expect_file!["trait_snapshots/async_trait.rs"]);
}

#[test]
fn a_generic_trait_with_supertraits() {
    let item = quote! {
        pub(crate) trait Repository<'a, T: LockKey, const N: usize = 4>: Named<T> + Send
        where
            T: Clone,
        {
            type Row: Send;
            type Rows<'r>: Iterator<Item = &'r Self::Row>
            where
                Self: 'r;
            const LIMIT: usize = N;
            fn open(path: &str) -> Result<Self, ShopError>
            where
                Self: Sized;
            #[cache_lock(key = (id, self.name()))]
            async fn put<R: Into<Self::Row>>(&mut self, id: T, mut row: R) -> Result<(), ShopError> {
                self.put_now(id, row.into()).await
            }
            async fn merge(self, other: Self) -> Option<Self>;
            fn share(self: Box<Self>, other: &Self) -> usize;
        }
    };
    let options = quote!(proxy = LockedRepository, prefix = "repository");
    check(cache_lock::expansion(options, item), expect_file!["trait_snapshots/generic.rs"]);
}

#[test]
fn a_trait_with_blocking_methods() {
    let item = quote! {
        unsafe trait Catalog {
            #[cache_lock(prefix = "catalog", key = id, mode = "read", manager = locks())]
            unsafe fn rebuild(self: Arc<Self>, id: u64) -> Result<(), ShopError>;
        }
    };
    check(cache_lock::expansion(quote!(proxy = LockedCatalog), item), expect_file!["trait_snapshots/blocking.rs"]);
}

#[test]
fn a_trait_with_returned_futures() {
    let item = quote! {
        trait Shop {
            #[cache_lock(prefix = "shop", key = id)]
            fn buy(&self, id: u64) -> impl Future<Output = Result<u64, ShopError>> + Send;
            #[cache_lock(prefix = "shop", key = id)]
            fn pay<'a>(&'a mut self, id: u64) -> Pin<Box<dyn Future<Output = Result<u64, ShopError>> + Send + 'a>>;
            fn open() -> impl Future<Output = Self>;
        }
    };
    check(cache_lock::expansion(quote!(proxy = LockedShop), item), expect_file!["trait_snapshots/futures.rs"]);
}

#[test]
fn a_mistake_keeps_the_trait_and_its_proxy_without_locks() {
    let item = quote! {
        trait Shop {
            #[cache_lock(key = id, guard = guard, timeout_ms = "2s")]
            async fn buy(&self, id: u64) -> Result<u64, ShopError>;
            async fn pay(&self, #[locked_object] id: u64) -> Result<u64, ShopError>;
        }
    };
    check(cache_lock::expansion(quote!(proxy = LockedShop), item), expect_file!["trait_snapshots/mistakes.rs"]);
}

/// Their fns would take another lock than the options above say.
#[test]
fn what_the_options_above_do_not_reach_is_refused() {
    let block = quote! {
        impl Shop {
            #![allow(unused)]
            #[cfg_attr(feature = "locks", allow(unused), lock_runtime::cache_lock(key = id))]
            pub async fn buy(&self, id: u64) -> Result<(), ShopError> {}
            const ITEMS: [u64; { 1 }] = items!();
            #[cfg_attr(all(unix, test), cfg_attr(true, cache_lock(key = id)))]
            async fn pay(&self, id: u64) -> Result<(), ShopError> {}
            #[cfg_attr(cache_lock, allow(unused))]
            async fn look<const N: usize>(&self) -> Items<{ N }> {}
            shop::more_fns! {}
        }
    };
    let of_block = cache_lock::expansion(quote!(prefix = "shop"), block).to_string();
    assert_eq!(of_block.matches("whether this counts is not known here").count(), 2, "{of_block}");
    assert_eq!(of_block.matches("don't reach the fns that this makes").count(), 1, "{of_block}");
    assert_eq!(of_block.matches("compile_error").count(), 3, "{of_block}");

    let interface = quote! {
        trait Shop {
            #[cfg_attr(feature = "locks", cache_lock(key = id))]
            async fn buy(&self, id: u64) -> Result<(), ShopError>;
        }
    };
    let of_trait = cache_lock::expansion(quote!(proxy = LockedShop), interface).to_string();
    assert_eq!(of_trait.matches("whether this counts is not known here").count(), 1, "{of_trait}");
    assert_eq!(of_trait.matches("compile_error").count(), 1, "{of_trait}");
    assert!(!of_trait.contains("cfg_attr"), "{of_trait}");
}
