async fn pay<'a, T: LockKey>(
    request: &'a PayRequest,
    Path(shop): Path<T>,
) -> Result<impl Iterator<Item = &'a Receipt>, ShopError>
where
    T: Send,
{
    let __options = ::lock_runtime::__private::LockOptions::new(
        ::lock_runtime::__private::core::concat!(
            ::lock_runtime::__private::core::module_path!(), "::pay"
        ),
        &(&(request.order.id), &(shop)),
    );
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
                    let _ = &shop;
                    #[allow(clippy::used_underscore_binding)]
                    let _ = &request;
                    #[allow(unreachable_code)]
                    if let ::lock_runtime::__private::Some(__never) = ::lock_runtime::__private::None::<
                        Result<_, ShopError>,
                    > {
                        return __never;
                    }
                    { #![allow()] Ok(request.pay(shop).await?.iter()) }
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
                _,
                ShopError,
            > as ::lock_runtime::__private::FromLockError>::from_lock_error(__error)
        }
    }
}
