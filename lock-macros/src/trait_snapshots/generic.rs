pub(crate) trait Repository<'a, T: LockKey, const N: usize = 4>: Named<T> + Send
where
    T: Clone,
{
    type Row: Send;
    type Rows<'r>: Iterator<Item = &'r Self::Row> where Self: 'r;
    const LIMIT: usize = N;
    fn open(path: &str) -> Result<Self, ShopError>
    where
        Self: Sized;
    async fn put<R: Into<Self::Row>>(
        &mut self,
        id: T,
        mut row: R,
    ) -> Result<(), ShopError> {
        self.put_now(id, row.into()).await
    }
    async fn merge(self, other: Self) -> Option<Self>;
    fn share(self: Box<Self>, other: &Self) -> usize;
}
///[`Repository`] with its locks: each locked method holds its lock while the implementation runs.
///
#[derive(
    ::lock_runtime::__private::core::clone::Clone,
    ::lock_runtime::__private::core::fmt::Debug
)]
pub(crate) struct LockedRepository<T> {
    inner: T,
    manager: ::lock_runtime::__private::core::option::Option<
        ::lock_runtime::LockManager,
    >,
}
#[allow(dead_code)]
impl<T> LockedRepository<T> {
    /// Puts the locks around an implementation. They come from the manager of the enclosing `LockManager::scope`, else from
    /// the installed manager.
    #[must_use]
    pub(crate) const fn new(__inner: T) -> Self {
        Self {
            inner: __inner,
            manager: ::lock_runtime::__private::None,
        }
    }
    /// Puts the locks of this manager around an implementation.
    #[must_use]
    pub(crate) fn with_manager(
        __inner: T,
        __manager: ::lock_runtime::LockManager,
    ) -> Self {
        Self {
            inner: __inner,
            manager: ::lock_runtime::__private::Some(__manager),
        }
    }
    /// The implementation, without locks.
    #[must_use]
    pub(crate) fn inner(&self) -> &T {
        &self.inner
    }
    /// Gives the implementation back.
    #[must_use]
    pub(crate) fn into_inner(self) -> T {
        self.inner
    }
}
#[allow(deprecated, clippy::future_not_send, clippy::used_underscore_binding)]
impl<'a, T: LockKey, const N: usize, Inner> Repository<'a, T, N>
for LockedRepository<Inner>
where
    T: Clone,
    Inner: Repository<'a, T, N>,
    Self: Named<T> + Send,
{
    type Row = <Inner as Repository<'a, T, N>>::Row;
    type Rows<'r> = <Inner as Repository<'a, T, N>>::Rows<'r> where Self: 'r;
    const LIMIT: usize = <Inner as Repository<'a, T, N>>::LIMIT;
    fn open(path: &str) -> Result<Self, ShopError>
    where
        Self: Sized,
    {
        let __manager = ::lock_runtime::__private::None;
        ::lock_runtime::__private::core::result::Result::map(
            <Inner as Repository<'a, T, N>>::open(path),
            |__inner| LockedRepository {
                inner: __inner,
                manager: __manager,
            },
        )
    }
    async fn put<R: Into<Self::Row>>(&mut self, id: T, row: R) -> Result<(), ShopError> {
        let __options = ::lock_runtime::__private::LockOptions::new(
            "repository",
            &(&(id), &(self.name())),
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
                        let _ = &row;
                        #[allow(clippy::used_underscore_binding)]
                        let _ = &id;
                        #[allow(unreachable_code)]
                        if let ::lock_runtime::__private::Some(__never) = ::lock_runtime::__private::None::<
                            Result<(), ShopError>,
                        > {
                            return __never;
                        }
                        {
                            #![allow()]
                            <Inner as Repository<
                                'a,
                                T,
                                N,
                            >>::put::<R>(&mut self.inner, id, row)
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
                    (),
                    ShopError,
                > as ::lock_runtime::__private::FromLockError>::from_lock_error(__error)
            }
        }
    }
    async fn merge(self, other: Self) -> Option<Self> {
        let __manager = ::lock_runtime::__private::core::clone::Clone::clone(
            &self.manager,
        );
        ::lock_runtime::__private::core::option::Option::map(
            <Inner as Repository<'a, T, N>>::merge(self.inner, other.inner).await,
            |__inner| LockedRepository {
                inner: __inner,
                manager: __manager,
            },
        )
    }
    fn share(self: Box<Self>, other: &Self) -> usize {
        <Inner as Repository<
            'a,
            T,
            N,
        >>::share(
            ::lock_runtime::__private::std::boxed::Box::new((*self).inner),
            &other.inner,
        )
    }
}
