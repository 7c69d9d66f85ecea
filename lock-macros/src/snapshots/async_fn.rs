/// Sells one.
#[tracing::instrument]
pub async fn sec_kill(user_id: &str, mut commodity_id: u64) -> Result<u64, ShopError> {
    let __options = ::lock_runtime::__private::LockOptions::new(
            "seckill",
            &(commodity_id),
        )
        .timeout_ms(2000u64)
        .expire_s(1000u64);
    let __manager = ::lock_runtime::__private::None;
    let __outcome = 'lock: {
        let __held = match ::lock_runtime::__private::enter(__options, __manager).await {
            ::lock_runtime::__private::Ok(__held) => __held,
            ::lock_runtime::__private::Err(__error) => {
                break 'lock { ::lock_runtime::__private::Err(__error) };
            }
        };
        #[allow(unused_assignments)]
        let __outcome = ::lock_runtime::__private::Held::protect(
                &__held,
                async move {
                    #[allow(clippy::used_underscore_binding)]
                    let _ = &commodity_id;
                    #[allow(clippy::used_underscore_binding)]
                    let user_id = &user_id;
                    #[allow(unreachable_code)]
                    if let ::lock_runtime::__private::Some(__never) = ::lock_runtime::__private::None::<
                        Result<u64, ShopError>,
                    > {
                        return __never;
                    }
                    {
                        #![allow()]
                        let price = price(commodity_id).await?;
                        Ok(price)
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
            <Result<
                u64,
                ShopError,
            > as ::lock_runtime::__private::FromLockError>::from_lock_error(__error)
        }
    }
}
