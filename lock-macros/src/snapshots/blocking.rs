fn rebuild(id: u64) -> Result<(), ShopError> {
    {
        #[allow(unused_imports)]
        use ::lock_runtime::__private::NoFuture as _;
        ::lock_runtime::__private::Returned::<Result<(), ShopError>>::of().check();
        ::lock_runtime::__private::Returned::<Result<(), ShopError>>::of()
            .check_within();
    }
    let __options = ::lock_runtime::__private::LockOptions::new("catalog", &(id))
        .linger_s(1u64)
        .read()
        .fenced(true);
    let __manager = ::lock_runtime::__private::None;
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
        let token: ::lock_runtime::FencingToken = ::lock_runtime::__private::Held::fencing_token(
            &__held.held,
        );
        let __outcome = ::lock_runtime::__private::Held::run(
            &__held.held,
            move || {
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
                    write(id, token)?;
                    Ok(())
                }
            },
        );
        ::lock_runtime::__private::Blocking::finish(__held, __outcome)
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
