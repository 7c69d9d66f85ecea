async fn pay(id: u64) -> Result<(), ShopError> {
    const _: () = ::lock_runtime::__private::check_prefix(names::ORDER);
    const _: () = ::lock_runtime::__private::check_expire_ms((EXPIRE) as _);
    const _: () = ::lock_runtime::__private::check_permits((PERMITS) as _);
    let __options = ::lock_runtime::__private::LockOptions::new(names::ORDER, &(id))
        .timeout_s(TIMEOUT)
        .expire_ms(EXPIRE)
        .renew(true)
        .permits(PERMITS);
    let __manager = ::lock_runtime::__private::None;
    let __outcome = 'lock: {
        let __held = match ::lock_runtime::__private::enter(__options, __manager).await {
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
                        Result<(), ShopError>,
                    > {
                        return __never;
                    }
                    { #![allow()] }
                },
            )
            .await;
        ::lock_runtime::__private::Held::finish(__held, __outcome).await
    };
    match __outcome {
        ::lock_runtime::__private::Ok(__value) => __value,
        #[allow(clippy::redundant_closure, clippy::redundant_closure_for_method_calls)]
        ::lock_runtime::__private::Err(__error) => {
            <Result<
                (),
                ShopError,
            > as ::lock_runtime::__private::FromLockError>::from_lock_error(__error)
        }
    }
}
