fn buy(id: u64) -> impl Future<Output = Result<u64, ShopError>> + Send {
    let __options = ::lock_runtime::__private::LockOptions::new("shop", &(id));
    let __manager = ::lock_runtime::__private::None;
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
                        #[allow(unreachable_code)]
                        if let ::lock_runtime::__private::Some(__never) = ::lock_runtime::__private::None::<
                            Result<u64, ShopError>,
                        > {
                            return __never;
                        }
                        { #![allow()] pay(price(id)?).await }
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
}
