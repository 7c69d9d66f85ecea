//! The expansion uses full paths for everything: this file has no prelude, and its `std`, `core`, `alloc` and `tokio`
//! are empty modules.

#![no_implicit_prelude]

/// The runtime, re-exported by a crate of the user.
mod reexport {
    pub(crate) mod deep {
        pub(crate) use ::lock_runtime as locks;
    }
}

/// Names that a macro must not pick up by accident.
#[allow(unused, non_upper_case_globals, reason = "these are traps that nothing should use")]
mod shadowed {
    pub(crate) mod std {}
    pub(crate) mod core {}
    pub(crate) mod alloc {}
    pub(crate) mod tokio {}
    pub(crate) mod lock_runtime {}
    pub(crate) struct Option;
    pub(crate) struct Result;
    pub(crate) struct Box;
    pub(crate) struct Pin;
    pub(crate) struct String;
    pub(crate) struct Ok;
    pub(crate) struct Err;
    pub(crate) struct Some;
    pub(crate) struct None;
    pub(crate) struct LockKey;
    pub(crate) struct LockError;
    pub(crate) struct LockGuard;
    pub(crate) struct LockManager;
    pub(crate) struct FencingToken;
    pub(crate) struct LockOptions;
    pub(crate) struct Held;
    pub(crate) const spec: () = ();
    pub(crate) const held: () = ();
    pub(crate) const outcome: () = ();
    pub(crate) const error: () = ();
    pub(crate) const body: () = ();
    pub(crate) const manager: () = ();
    pub(crate) const value: () = ();
    pub(crate) const never: () = ();
    pub(crate) const name: () = ();
    pub(crate) const part0: () = ();
}

#[allow(non_upper_case_globals, unused_imports, reason = "the traps are named after the expansion's locals")]
mod locked {
    use super::shadowed::*;
    use super::shadowed::{Err, None, Ok, Option, Result, Some};

    pub(crate) type Outcome<T> = ::std::result::Result<T, ::lock_runtime::LockError>;

    #[::lock_runtime::cache_lock(key = id)]
    pub(crate) async fn default_prefix(id: u64) -> Outcome<u64> {
        ::std::result::Result::Ok(id)
    }

    #[::lock_runtime::cache_lock(prefix = "hygiene", key = (id, "x"), timeout = "1s", expire_s = 5, renew, fenced = token,
        guard = guard, on_lost = "cancel", on_fail = ::std::result::Result::Err(::std::borrow::ToOwned::to_owned("busy")))]
    pub(crate) async fn all_options(id: u64) -> ::std::result::Result<u64, ::std::string::String> {
        let _ = (guard.key(), token);
        ::std::result::Result::Ok(id)
    }

    #[::lock_runtime::cache_lock(prefix = "hygiene", key = id, on_fail = |_| 0)]
    pub(crate) fn future(id: u64) -> impl ::std::future::Future<Output = u64> {
        let id = id + 1;
        async move { id }
    }

    #[::lock_runtime::cache_lock(prefix = "hygiene", key = id)]
    pub(crate) fn boxed(
        id: u64,
    ) -> ::std::pin::Pin<::std::boxed::Box<dyn ::std::future::Future<Output = Outcome<u64>>>> {
        let id = id + 1;
        ::std::boxed::Box::pin(async move { ::std::result::Result::Ok(id) })
    }

    #[derive(::lock_runtime::LockKey)]
    pub(crate) enum Room {
        Numbered(u32),
        Lobby,
    }

    #[derive(::lock_runtime::LockKey)]
    #[lock_key(crate = crate::hygiene::reexport::deep::locks)]
    pub(crate) struct Seat<T> {
        #[lock_key]
        pub(crate) number: T,
        #[allow(dead_code, reason = "this field is no part of the key")]
        pub(crate) price: u64,
    }

    #[::lock_runtime::cache_lock(prefix = "hygiene", crate = crate::hygiene::reexport::deep::locks)]
    pub(crate) async fn renamed(
        #[locked_object] seat: &Seat<u32>,
        #[locked_complex_object(field = "number")] same: &Seat<u32>,
        #[locked_object] room: Room,
    ) -> Outcome<u32> {
        let _ = room;
        ::std::result::Result::Ok(seat.number + same.number)
    }
}

#[allow(non_upper_case_globals, unused_imports, reason = "the traps are named after the expansion's locals")]
mod proxied {
    use super::locked::Outcome;
    use super::shadowed::*;
    use super::shadowed::{Err, None, Ok, Option, Result, Some};

    #[::lock_runtime::cache_lock(proxy = LockedShop, prefix = "hygiene", crate = crate::hygiene::reexport::deep::locks)]
    pub(crate) trait Shop {
        type Item;
        #[::lock_runtime::cache_lock(key = inner)]
        async fn buy(&self, inner: u64, __inner: u64, _: u64) -> Outcome<u64>;
        #[::lock_runtime::cache_lock(key = __manager)]
        fn pay(&self, __manager: u64) -> impl ::std::future::Future<Output = Outcome<u64>> + ::std::marker::Send;
        fn open() -> ::std::result::Result<Self, u8>
        where
            Self: ::std::marker::Sized;
        fn share(self: ::std::boxed::Box<Self>) -> u64;
    }

    pub(crate) struct Plain;

    impl Shop for Plain {
        type Item = u8;

        async fn buy(&self, inner: u64, __inner: u64, _: u64) -> Outcome<u64> {
            ::std::result::Result::Ok(inner + __inner)
        }

        async fn pay(&self, __manager: u64) -> Outcome<u64> {
            ::std::result::Result::Ok(__manager)
        }

        fn open() -> ::std::result::Result<Self, u8> {
            ::std::result::Result::Ok(Plain)
        }

        fn share(self: ::std::boxed::Box<Self>) -> u64 {
            4
        }
    }

    #[::lock_runtime::cache_lock(proxy = LockedShared, prefix = "hygiene")]
    pub(crate) trait Shared {
        #[::lock_runtime::cache_lock(key = 1)]
        async fn run(self: ::std::sync::Arc<Self>) -> Outcome<u64>;
    }

    impl Shared for Plain {
        async fn run(self: ::std::sync::Arc<Self>) -> Outcome<u64> {
            ::std::result::Result::Ok(5)
        }
    }
}

/// The body may use the same names as the expansion.
mod same_names {
    use super::locked::Outcome;

    #[::lock_runtime::cache_lock(prefix = "hygiene", key = __options, guard = __held, manager = __manager)]
    pub(crate) async fn arguments_named_like_locals(
        __options: u64,
        __manager: &::lock_runtime::LockManager,
        __outcome: u64,
        __body: u64,
        __error: u64,
        __never: u64,
        __value: u64,
    ) -> Outcome<u64> {
        let _ = __held.key();
        ::std::result::Result::Ok(__options + __outcome + __body + __error + __never + __value)
    }
}

#[::core::prelude::v1::test]
fn nothing_of_the_users_scope_is_picked_up() -> locked::Outcome<()> {
    let locks = ::lock_runtime::LockManager::in_memory();
    let body = async {
        ::std::assert_eq!(locked::default_prefix(1).await?, 1);
        ::std::assert_eq!(locked::all_options(1).await, ::std::result::Result::Ok(1));
        ::std::assert_eq!(locked::future(1).await, 2);
        ::std::assert_eq!(locked::boxed(1).await?, 2);
        let seat = locked::Seat { number: 2, price: 0 };
        ::std::assert_eq!(locked::renamed(&seat, &seat, locked::Room::Lobby).await?, 4);
        ::std::assert_eq!(locked::renamed(&seat, &seat, locked::Room::Numbered(1)).await?, 4);
        ::std::assert_eq!(same_names::arguments_named_like_locals(1, &locks, 2, 3, 4, 5, 6).await?, 21);
        let shop = <proxied::LockedShop<proxied::Plain> as proxied::Shop>::open();
        let shop = ::std::result::Result::unwrap(shop);
        ::std::assert_eq!(proxied::Shop::buy(&shop, 1, 2, 3).await?, 3);
        ::std::assert_eq!(proxied::Shop::pay(&shop, 3).await?, 3);
        ::std::assert_eq!(proxied::Shop::share(::std::boxed::Box::new(shop)), 4);
        let shared = proxied::LockedShared::with_manager(proxied::Plain, ::std::clone::Clone::clone(&locks));
        ::std::assert_eq!(proxied::Shared::run(::std::sync::Arc::new(shared)).await?, 5);
        ::std::result::Result::Ok(())
    };
    let runtime = ::tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = ::std::result::Result::expect(runtime, "a runtime can be started");
    runtime.block_on(locks.scope(body))
}
