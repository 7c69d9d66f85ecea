trait Seckill: Send + Sync {
    #[must_use]
    #[allow(clippy::type_complexity)]
    fn sec_kill<'life0, 'async_trait>(
        &'life0 self,
        id: u64,
    ) -> ::core::pin::Pin<
        Box<
            dyn ::core::future::Future<
                Output = Result<u64, ShopError>,
            > + ::core::marker::Send + 'async_trait,
        >,
    >
    where
        'life0: 'async_trait,
        Self: 'async_trait;
}
///[`Seckill`] with its locks: each locked method holds its lock while the implementation runs.
///
#[derive(
    ::lock_runtime::__private::core::clone::Clone,
    ::lock_runtime::__private::core::fmt::Debug
)]
struct Locked<T> {
    inner: T,
    manager: ::lock_runtime::__private::core::option::Option<
        ::lock_runtime::LockManager,
    >,
}
#[allow(dead_code)]
impl<T> Locked<T> {
    /// Puts the locks around an implementation. They come from the manager of the enclosing `LockManager::scope`, else from
    /// the installed manager.
    #[must_use]
    const fn new(__inner: T) -> Self {
        Self {
            inner: __inner,
            manager: ::lock_runtime::__private::None,
        }
    }
    /// Puts the locks of this manager around an implementation.
    #[must_use]
    fn with_manager(__inner: T, __manager: ::lock_runtime::LockManager) -> Self {
        Self {
            inner: __inner,
            manager: ::lock_runtime::__private::Some(__manager),
        }
    }
    /// The implementation, without locks.
    #[must_use]
    fn inner(&self) -> &T {
        &self.inner
    }
    /// Gives the implementation back.
    #[must_use]
    fn into_inner(self) -> T {
        self.inner
    }
}
#[allow(deprecated, clippy::future_not_send, clippy::used_underscore_binding)]
impl<T> Seckill for Locked<T>
where
    T: Seckill + ::lock_runtime::__private::core::marker::Sync,
    Self: Send + Sync,
{
    #[allow(clippy::type_complexity)]
    fn sec_kill<'life0, 'async_trait>(
        &'life0 self,
        id: u64,
    ) -> ::core::pin::Pin<
        Box<
            dyn ::core::future::Future<
                Output = Result<u64, ShopError>,
            > + ::core::marker::Send + 'async_trait,
        >,
    >
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        ::lock_runtime::__private::std::boxed::Box::pin(async move {
            let __options = ::lock_runtime::__private::LockOptions::new(
                "seckill",
                &(id),
            );
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
                            let _ = &id;
                            ::lock_runtime::__private::start::<
                                Result<u64, ShopError>,
                                ::core::pin::Pin<
                                    Box<
                                        dyn ::core::future::Future<
                                            Output = Result<u64, ShopError>,
                                        > + ::core::marker::Send + '_,
                                    >,
                                >,
                            >(move || { <T as Seckill>::sec_kill(&self.inner, id) })
                                .await
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
                    > as ::lock_runtime::__private::FromLockError>::from_lock_error(
                        __error,
                    )
                }
            }
        })
    }
}
