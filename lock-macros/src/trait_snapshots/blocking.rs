unsafe trait Catalog {
    unsafe fn rebuild(self: Arc<Self>, id: u64) -> Result<(), ShopError>;
}
///[`Catalog`] with its locks: each locked method holds its lock while the implementation runs.
///
#[derive(
    ::lock_runtime::__private::core::clone::Clone,
    ::lock_runtime::__private::core::fmt::Debug
)]
struct LockedCatalog<T> {
    inner: ::lock_runtime::__private::std::sync::Arc<T>,
    manager: ::lock_runtime::__private::core::option::Option<
        ::lock_runtime::LockManager,
    >,
}
#[allow(dead_code)]
impl<T> LockedCatalog<T> {
    /// Puts the locks around an implementation. They come from the manager of the enclosing `LockManager::scope`, else from
    /// the installed manager.
    #[must_use]
    fn new(__inner: T) -> Self {
        Self {
            inner: ::lock_runtime::__private::std::sync::Arc::new(__inner),
            manager: ::lock_runtime::__private::None,
        }
    }
    /// Puts the locks of this manager around an implementation.
    #[must_use]
    fn with_manager(__inner: T, __manager: ::lock_runtime::LockManager) -> Self {
        Self {
            inner: ::lock_runtime::__private::std::sync::Arc::new(__inner),
            manager: ::lock_runtime::__private::Some(__manager),
        }
    }
    /// The implementation, without locks.
    #[must_use]
    fn inner(&self) -> &T {
        &self.inner
    }
    /// Gives the implementation back.
    ///
    /// # Panics
    ///
    /// While anybody else has the implementation: a method that takes an `Arc` or `Rc` of it may have kept that.
    #[must_use]
    fn into_inner(self) -> T {
        ::lock_runtime::__private::unshared(
            ::lock_runtime::__private::std::sync::Arc::try_unwrap(self.inner),
        )
    }
}
#[allow(deprecated, clippy::future_not_send, clippy::used_underscore_binding)]
unsafe impl<T> Catalog for LockedCatalog<T>
where
    T: Catalog,
{
    unsafe fn rebuild(self: Arc<Self>, id: u64) -> Result<(), ShopError> {
        {
            #[allow(unused_imports)]
            use ::lock_runtime::__private::NoFuture as _;
            ::lock_runtime::__private::Returned::<Result<(), ShopError>>::of().check();
            ::lock_runtime::__private::Returned::<Result<(), ShopError>>::of()
                .check_within();
        }
        let __options = ::lock_runtime::__private::LockOptions::new("catalog", &(id))
            .read();
        let __manager = ::lock_runtime::__private::Some(
            ::lock_runtime::__private::ManagerRef::manager(&(locks())),
        );
        let __outcome = 'lock: {
            let __held = match ::lock_runtime::__private::enter_blocking(
                __options,
                __manager,
            ) {
                ::lock_runtime::__private::Ok(__held) => __held,
                ::lock_runtime::__private::Err(__error) => {
                    break 'lock { ::lock_runtime::__private::Err(__error) };
                }
            };
            let __outcome = ::lock_runtime::__private::Held::run(
                &__held.held,
                move || {
                    #[allow(clippy::used_underscore_binding)]
                    let _ = &id;
                    #[allow(clippy::used_underscore_binding)]
                    let _ = &self;
                    #[allow(unreachable_code)]
                    if let ::lock_runtime::__private::Some(__never) = ::lock_runtime::__private::None::<
                        Result<(), ShopError>,
                    > {
                        return __never;
                    }
                    {
                        #![allow()]
                        unsafe {
                            <T as Catalog>::rebuild(
                                ::lock_runtime::__private::core::clone::Clone::clone(
                                    &self.inner,
                                ),
                                id,
                            )
                        }
                    }
                },
            );
            ::lock_runtime::__private::Blocking::finish(__held, __outcome)
        };
        match __outcome {
            ::lock_runtime::__private::Ok(__value) => __value,
            #[allow(
                clippy::redundant_closure,
                clippy::redundant_closure_for_method_calls
            )]
            ::lock_runtime::__private::Err(__error) => {
                <Result<
                    (),
                    ShopError,
                > as ::lock_runtime::__private::FromLockError>::from_lock_error(__error)
            }
        }
    }
}
