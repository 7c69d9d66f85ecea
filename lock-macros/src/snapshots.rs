//! The expansions of every fn shape as plain Rust files, to be read in review.
//!
//! `UPDATE_EXPECT=1 cargo test -p lock-macros` rewrites them.

#![allow(clippy::unwrap_used, reason = "a test that can't parse its own input should say so")]

use expect_test::{ExpectFile, expect_file};
use proc_macro2::TokenStream;
use quote::quote;

use crate::{cache_lock, lock_key};

#[expect(clippy::needless_pass_by_value, reason = "the callers read better without borrows")]
pub(crate) fn check(expansion: TokenStream, expected: ExpectFile) {
    expected.assert_eq(&prettyplease::unparse(&syn::parse2(expansion).unwrap()));
}

/// In an impl block, because methods are Rust only there.
fn method(expansion: &TokenStream) -> TokenStream {
    quote!(impl Shop { #expansion })
}

#[test]
fn an_async_fn() {
    let options = quote!(prefix = "seckill", key = commodity_id, timeout_ms = 2000, expire_s = 1000);
    let item = quote! {
        /// Sells one.
        #[tracing::instrument]
        pub async fn sec_kill(user_id: &str, mut commodity_id: u64) -> Result<u64, ShopError> {
            let price = price(commodity_id).await?;
            Ok(price)
        }
    };
    check(cache_lock::expansion(options, item), expect_file!["snapshots/async_fn.rs"]);
}

#[test]
fn an_async_fn_with_constants() {
    let options =
        quote!(prefix = names::ORDER, key = id, timeout_s = TIMEOUT, expire_ms = EXPIRE, renew, permits = PERMITS);
    let item = quote! {
        async fn pay(id: u64) -> Result<(), ShopError> {}
    };
    check(cache_lock::expansion(options, item), expect_file!["snapshots/constants.rs"]);
}

#[test]
fn a_fn_with_marked_arguments_and_default_prefix() {
    let item = quote! {
        async fn pay<'a, T: LockKey>(
            #[locked_complex_object(field = "order.id")] request: &'a PayRequest,
            #[locked_object] Path(shop): Path<T>,
        ) -> Result<impl Iterator<Item = &'a Receipt>, ShopError>
        where
            T: Send,
        {
            Ok(request.pay(shop).await?.iter())
        }
    };
    check(cache_lock::expansion(TokenStream::new(), item), expect_file!["snapshots/marked_arguments.rs"]);
}

#[test]
fn a_method_with_every_option() {
    let options = quote! {
        prefix = Self::PREFIX, key = (self.id(), order.id), timeout = "2s", expire = self.expire, linger_ms = 500,
        renew = true, max_hold = "5m", at_least_s = 50, lock_delay = "5s", mode = "write", note = order.customer, on_lost = "continue",
        on_busy = "replace", manager = self.locks, guard = guard, fenced = token, crate = shop::locks,
        on_fail = |err| Receipt::failed(err)
    };
    let item = quote! {
        async fn buy(&mut self, order: Order) -> Receipt {
            self.store.write(token, order).await
        }
    };
    check(method(&cache_lock::expansion(options, item)), expect_file!["snapshots/every_option.rs"]);
}

#[test]
fn a_fn_that_is_not_async() {
    let options = quote!(prefix = "catalog", key = id, mode = "read", linger_s = 1, fenced = token);
    let item = quote! {
        fn rebuild(id: u64) -> Result<(), ShopError> {
            write(id, token)?;
            Ok(())
        }
    };
    check(cache_lock::expansion(options, item), expect_file!["snapshots/blocking.rs"]);
}

#[test]
fn a_fn_with_several_keys() {
    let options = quote!(prefix = "account", keys = [from, &order.to, (1, to)], fenced = tokens);
    let item = quote! {
        async fn transfer(from: u64, to: u64) -> Result<(), BankError> {}
    };
    check(cache_lock::expansion(options, item), expect_file!["snapshots/several_keys.rs"]);
}

#[test]
fn a_method_with_keys_in_a_field() {
    let item = quote! {
        async fn buy(&self) -> Result<(), BankError> {}
    };
    check(
        method(&cache_lock::expansion(quote!(keys = self.seats), item)),
        expect_file!["snapshots/keys_in_a_field.rs"],
    );
}

#[test]
fn a_fn_that_returns_nothing() {
    let item = quote! {
        async fn sweep() {
            sweep_all().await;
        }
    };
    let options = quote!(prefix = "sweep", key = "all", timeout_ms = 0, on_fail = ());
    check(cache_lock::expansion(options, item), expect_file!["snapshots/returns_nothing.rs"]);
}

#[test]
fn a_method_that_async_trait_has_rewritten() {
    let item = quote! {
        #[allow(clippy::type_complexity)]
        fn buy<'life0, 'async_trait>(
            &'life0 self,
            #[locked_object] __arg1: Path<u64>,
        ) -> ::core::pin::Pin<
            Box<dyn ::core::future::Future<Output = Result<u64, ShopError>> + ::core::marker::Send + 'async_trait>,
        >
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(async move {
                if let ::core::option::Option::Some(__ret) = ::core::option::Option::None::<Result<u64, ShopError>> {
                    #[allow(unreachable_code)]
                    return __ret;
                }
                let __self = self;
                let Path(id) = {
                    let __arg1 = __arg1;
                    __arg1
                };
                let __ret: Result<u64, ShopError> = { __self.buy_now(id).await };
                #[allow(unreachable_code)]
                __ret
            })
        }
    };
    let options = quote!(prefix = "shop", manager = self.locks);
    check(method(&cache_lock::expansion(options, item)), expect_file!["snapshots/async_trait.rs"]);
}

#[test]
fn a_fn_that_returns_a_boxed_future() {
    let item = quote! {
        fn buy<'a>(&'a self, id: u64) -> Pin<Box<dyn Future<Output = Result<u64, ShopError>> + Send + 'a>> {
            let price = self.price(id);
            Box::pin(async move { self.pay(price?).await })
        }
    };
    let options = quote!(prefix = "shop", key = id, guard = guard);
    check(method(&cache_lock::expansion(options, item)), expect_file!["snapshots/boxed_future.rs"]);
}

#[test]
fn a_fn_that_returns_an_impl_future() {
    let item = quote! {
        fn buy(id: u64) -> impl Future<Output = Result<u64, ShopError>> + Send {
            let price = price(id);
            async move { pay(price?).await }
        }
    };
    let options = quote!(prefix = "shop", key = id);
    check(cache_lock::expansion(options, item), expect_file!["snapshots/impl_future.rs"]);
}

#[test]
fn a_fn_that_is_one_async_block() {
    let item = quote! {
        fn buy(id: u64) -> impl Future<Output = Result<u64, ShopError>> + Send {
            async move { pay(price(id)?).await }
        }
    };
    let options = quote!(prefix = "shop", key = id);
    check(cache_lock::expansion(options, item), expect_file!["snapshots/one_async_block.rs"]);
}

#[test]
fn a_mistake_keeps_the_fn_without_its_marks() {
    let item = quote! {
        pub async fn buy(#[locked_object] id: u64, #[cfg(test)] other: u64) -> u64 {
            id
        }
    };
    let options = quote!(shards = 4, timeout_ms = "2s");
    check(cache_lock::expansion(options, item), expect_file!["snapshots/mistakes.rs"]);
}

/// In the body the guard, or the token, would take the argument's place.
#[test]
fn no_argument_loses_its_name_to_the_guard_or_the_token() {
    let item = quote! {
        async fn buy(id: u64, Path((amount, _)): Path<(u64, u64)>) -> Result<String, ShopError> {
            Ok(format!("{id}: {amount}"))
        }
    };
    let expansion = cache_lock::expansion(quote!(key = id, guard = id, fenced = amount), item).to_string();
    assert!(expansion.contains("`id` is an argument already"), "{expansion}");
    assert!(expansion.contains("`amount` is an argument already"), "{expansion}");
}

/// The compiler finds this mistake, unless part of the type is inferred.
#[test]
fn a_future_behind_an_alias_is_looked_for_whatever_its_lifetime() {
    let checks = |output: TokenStream| {
        let item = quote!(fn buy(id: &u64) -> #output { todo!() });
        cache_lock::expansion(quote!(key = id), item).to_string().contains("Returned ::")
    };
    assert!(checks(quote!(Later<'_, Result<u64, ShopError>>)));
    assert!(checks(quote!(Later<'static, Result<u64, ShopError>>)));
    assert!(!checks(quote!(Result<_, ShopError>)), "it can't be named");
}

#[test]
fn a_derived_struct() {
    let item = quote! {
        struct Seat<'a, T: Train> where T: Copy {
            #[lock_key]
            train: &'a T,
            #[lock_key]
            number: u32,
            price: u64,
        }
    };
    check(lock_key::expansion(item), expect_file!["snapshots/derived_struct.rs"]);
}

#[test]
fn a_derived_enum() {
    let item = quote! {
        enum Room {
            Lobby,
            Numbered(u32),
            r#Suite { #[lock_key] floor: u8, #[lock_key] wing: char, beds: u8 },
        }
    };
    check(lock_key::expansion(item), expect_file!["snapshots/derived_enum.rs"]);
}

/// Every input gets an answer: when a macro panics, the compiler's own error is of no help.
#[test]
fn no_input_panics() {
    let items = [
        "",
        "fn",
        "fn f",
        "async fn f()",
        "async fn f() {",
        "async fn f();",
        "struct S;",
        "async fn f(self, #[locked_object] ..) {}",
        "async fn f(#[locked_complex_object(field = \"a..b\")] a: u8) {}",
        "fn f() -> Pin<Box<dyn Future>> {}",
        "fn f() -> impl Future<Output = ()> {}",
        "fn f<'async_trait>() -> Pin<Box<dyn Future<Output = ()>>> { Box::pin(async move {}) }",
        "unsafe extern \"C\" async fn f() {}",
        "const async unsafe extern \"C\" fn f() -> ! { loop {} }",
        "pub default async fn f() {} trailing",
        "enum E {}",
        "union U { a: u8 }",
        "enum E { A { b: u8, c: u8 } }",
        "#[lock_key(crate)] struct S(#[lock_key = 1] u8);",
    ];
    let options = [
        "",
        ",",
        ",,",
        "=",
        "key",
        "key =",
        "key = =",
        "= key",
        "key = id key = id",
        "crate = 1",
        "crate",
        "renew =",
        "prefix = crate",
        "guard = _",
        "fenced = a::b",
        "key = (,)",
        "timeout = \"\"",
        "timeout = \"é\"",
        "expire = \"5\"",
        "timeout_ms = 1u8",
        "on_fail = ||",
        "key = [",
        "expire_ms = 0x0",
        "timeout_s = 1_000",
        "prefix = b\"x\"",
        "on_lost",
        "on_busy",
        "mode =",
        "permits = -",
        "key = id, on_fail = ()",
    ];
    for item in items {
        let Ok(item) = item.parse::<TokenStream>() else {
            continue;
        };
        for options in options {
            let Ok(options) = options.parse::<TokenStream>() else {
                continue;
            };
            let _: TokenStream = cache_lock::expansion(options, item.clone());
        }
        let _: TokenStream = lock_key::expansion(item);
    }
}
