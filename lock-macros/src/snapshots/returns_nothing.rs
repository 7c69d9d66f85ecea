async fn sweep() {
    let __options = ::lock_runtime::__private::LockOptions::new("sweep", &("all"))
        .timeout_ms(0u64)
        .expects_failure();
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
                    #[allow(unreachable_code)]
                    if let ::lock_runtime::__private::Some(__never) = ::lock_runtime::__private::None::<
                        (),
                    > {
                        return __never;
                    }
                    {
                        #![allow()]
                        sweep_all().await;
                    }
                },
            )
            .await;
        ::lock_runtime::__private::Held::finish(__held, __outcome).await
    };
    match __outcome {
        ::lock_runtime::__private::Ok(__value) => __value,
        #[allow(clippy::redundant_closure, clippy::redundant_closure_for_method_calls)]
        ::lock_runtime::__private::Err(__error) => {
            let _ = __error;
            (())
        }
    }
}
