trait Shop {
    fn buy(&self, id: u64) -> impl Future<Output = Result<u64, ShopError>> + Send;
    fn pay<'a>(
        &'a mut self,
        id: u64,
    ) -> Pin<Box<dyn Future<Output = Result<u64, ShopError>> + Send + 'a>>;
    fn open() -> impl Future<Output = Self>;
}
///[`Shop`] with its locks: each locked method holds its lock while the implementation runs.
///
#[derive(
    ::lock_runtime::__private::core::clone::Clone,
    ::lock_runtime::__private::core::fmt::Debug
)]
struct LockedShop<T> {
    inner: T,
    manager: ::lock_runtime::__private::core::option::Option<
        ::lock_runtime::LockManager,
    >,
}
#[allow(dead_code)]
impl<T> LockedShop<T> {
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
impl<T> Shop for LockedShop<T>
where
    T: Shop + ::lock_runtime::__private::core::marker::Sync
        + ::lock_runtime::__private::core::marker::Send,
{
    fn buy(&self, id: u64) -> impl Future<Output = Result<u64, ShopError>> + Send {
        let __options = ::lock_runtime::__private::LockOptions::new("shop", &(id));
        let __manager = ::lock_runtime::__private::core::clone::Clone::clone(
            &self.manager,
        );
        async move {
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
                                _,
                            >(move || { <T as Shop>::buy(&self.inner, id) })
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
        }
    }
    fn pay<'a>(
        &'a mut self,
        id: u64,
    ) -> Pin<Box<dyn Future<Output = Result<u64, ShopError>> + Send + 'a>> {
        let __options = ::lock_runtime::__private::LockOptions::new("shop", &(id));
        let __manager = ::lock_runtime::__private::core::clone::Clone::clone(
            &self.manager,
        );
        ::lock_runtime::__private::std::boxed::Box::pin(async move {
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
                                Pin<
                                    Box<dyn Future<Output = Result<u64, ShopError>> + Send + '_>,
                                >,
                            >(move || { <T as Shop>::pay(&mut self.inner, id) })
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
    fn open() -> impl Future<Output = Self> {
        let __manager = ::lock_runtime::__private::None;
        let __future = <T as Shop>::open();
        async move {
            (|__inner| LockedShop {
                inner: __inner,
                manager: __manager,
            })(__future.await)
        }
    }
}
