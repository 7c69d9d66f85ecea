/// A flash sale.
#[cfg(feature = "sale")]
pub trait Seckill {
    async fn sec_kill(&self, user: &str, commodity_id: u64) -> Result<u64, ShopError>;
    async fn stock(&self, _: u64) -> Result<u64, ShopError>;
}
#[cfg(feature = "sale")]
///[`Seckill`] with its locks: each locked method holds its lock while the implementation runs.
///
/// A flash sale.
#[derive(
    ::lock_runtime::__private::core::clone::Clone,
    ::lock_runtime::__private::core::fmt::Debug
)]
pub struct LockedSeckill<T> {
    inner: T,
    manager: ::lock_runtime::__private::core::option::Option<
        ::lock_runtime::LockManager,
    >,
}
#[cfg(feature = "sale")]
#[allow(dead_code)]
impl<T> LockedSeckill<T> {
    /// Puts the locks around an implementation. They come from the manager of the enclosing `LockManager::scope`, else from
    /// the installed manager.
    #[must_use]
    pub const fn new(__inner: T) -> Self {
        Self {
            inner: __inner,
            manager: ::lock_runtime::__private::None,
        }
    }
    /// Puts the locks of this manager around an implementation.
    #[must_use]
    pub fn with_manager(__inner: T, __manager: ::lock_runtime::LockManager) -> Self {
        Self {
            inner: __inner,
            manager: ::lock_runtime::__private::Some(__manager),
        }
    }
    /// The implementation, without locks.
    #[must_use]
    pub fn inner(&self) -> &T {
        &self.inner
    }
    /// Gives the implementation back.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.inner
    }
}
#[cfg(feature = "sale")]
#[allow(deprecated, clippy::future_not_send, clippy::used_underscore_binding)]
impl<T> Seckill for LockedSeckill<T>
where
    T: Seckill,
{
    async fn sec_kill(&self, user: &str, commodity_id: u64) -> Result<u64, ShopError> {
        let __options = ::lock_runtime::__private::LockOptions::new(
                "seckill",
                &(commodity_id),
            )
            .timeout_ms(2000u64);
        let __manager = ::lock_runtime::__private::core::clone::Clone::clone(
            &self.manager,
        );
        let __outcome = 'lock: {
            let __held = match ::lock_runtime::__private::enter(__options, __manager)
                .await
            {
                ::lock_runtime::__private::Ok(__held) => __held,
                ::lock_runtime::__private::Err(__error) => {
                    break 'lock { ::lock_runtime::__private::Err(__error) };
                }
            };
            let __outcome = ::lock_runtime::__private::Held::protect(
                    &__held,
                    async move {
                        #[allow(clippy::used_underscore_binding)]
                        let _ = &commodity_id;
                        #[allow(clippy::used_underscore_binding)]
                        let _ = &user;
                        #[allow(unreachable_code)]
                        if let ::lock_runtime::__private::Some(__never) = ::lock_runtime::__private::None::<
                            Result<u64, ShopError>,
                        > {
                            return __never;
                        }
                        {
                            #![allow()]
                            <T as Seckill>::sec_kill(&self.inner, user, commodity_id)
                                .await
                        }
                    },
                )
                .await;
            ::lock_runtime::__private::Held::finish(__held, __outcome).await
        };
        match __outcome {
            ::lock_runtime::__private::Ok(__value) => __value,
            #[allow(
                clippy::redundant_closure,
                clippy::redundant_closure_for_method_calls
            )]
            ::lock_runtime::__private::Err(__error) => {
                <Result<
                    u64,
                    ShopError,
                > as ::lock_runtime::__private::FromLockError>::from_lock_error(__error)
            }
        }
    }
    async fn stock(&self, __arg1: u64) -> Result<u64, ShopError> {
        <T as Seckill>::stock(&self.inner, __arg1).await
    }
}
