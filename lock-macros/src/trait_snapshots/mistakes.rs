trait Shop {
    async fn buy(&self, id: u64) -> Result<u64, ShopError>;
    async fn pay(&self, id: u64) -> Result<u64, ShopError>;
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
    T: Shop,
{
    async fn buy(&self, id: u64) -> Result<u64, ShopError> {
        <T as Shop>::buy(&self.inner, id).await
    }
    async fn pay(&self, id: u64) -> Result<u64, ShopError> {
        <T as Shop>::pay(&self.inner, id).await
    }
}
::core::compile_error! {
    "`guard` binds a name in a body, and a proxy has none: put `#[cache_lock(guard = …)]` on the fn that implements this method"
}
::core::compile_error! {
    "`timeout_ms` takes an integer: for a text with a unit write `timeout = \"2s\"`"
}
::core::compile_error! {
    "this mark does nothing: put `#[cache_lock(…)]` above the method, or remove the mark"
}
