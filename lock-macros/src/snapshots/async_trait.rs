impl Shop {
    #[allow(clippy::type_complexity)]
    fn buy<'life0, 'async_trait>(
        &'life0 self,
        __arg1: Path<u64>,
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
        Box::pin(async move {
            if let ::core::option::Option::Some(__ret) = ::core::option::Option::None::<
                Result<u64, ShopError>,
            > {
                #[allow(unreachable_code)] return __ret;
            }
            let __self = self;
            let Path(id) = {
                let __arg1 = __arg1;
                __arg1
            };
            let __options = ::lock_runtime::__private::LockOptions::new("shop", &(id));
            let __manager = ::lock_runtime::__private::Some(
                ::lock_runtime::__private::ManagerRef::manager(&(__self.locks)),
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
                            #[allow(clippy::used_underscore_binding)]
                            let _ = &__self;
                            #[allow(unreachable_code)]
                            if let ::lock_runtime::__private::Some(__never) = ::lock_runtime::__private::None::<
                                Result<u64, ShopError>,
                            > {
                                return __never;
                            }
                            { #![allow()] __self.buy_now(id).await }
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
