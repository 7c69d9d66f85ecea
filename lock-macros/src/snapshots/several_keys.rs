async fn transfer(from: u64, to: u64) -> Result<(), BankError> {
    let __options = <::lock_runtime::__private::LockOptions>::all(
            "account",
            [&(from), &(&order.to), &(&(1), &(to))],
        )
        .fenced(true);
    let __manager = ::lock_runtime::__private::None;
    let __outcome = 'lock: {
        let __held = match ::lock_runtime::__private::enter(__options, __manager).await {
            ::lock_runtime::__private::Ok(__held) => __held,
            ::lock_runtime::__private::Err(__error) => {
                break 'lock { ::lock_runtime::__private::Err(__error) };
            }
        };
        let tokens: ::lock_runtime::__private::std::vec::Vec<
            ::lock_runtime::FencingToken,
        > = ::lock_runtime::__private::Held::fencing_tokens(&__held);
        let __outcome = ::lock_runtime::__private::Held::protect(
                &__held,
                async move {
                    #[allow(clippy::used_underscore_binding)]
                    let _ = &to;
                    #[allow(clippy::used_underscore_binding)]
                    let _ = &from;
                    #[allow(unreachable_code)]
                    if let ::lock_runtime::__private::Some(__never) = ::lock_runtime::__private::None::<
                        Result<(), BankError>,
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
                BankError,
            > as ::lock_runtime::__private::FromLockError>::from_lock_error(__error)
        }
    }
}
