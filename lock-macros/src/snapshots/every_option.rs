impl Shop {
    async fn buy(&mut self, order: Order) -> Receipt {
        let __options = shop::locks::__private::LockOptions::new(
                Self::PREFIX,
                &(&(self.id()), &(order.id)),
            )
            .timeout_ms(2000u64)
            .expire(self.expire)
            .linger_ms(500u64)
            .max_hold_ms(300000u64)
            .at_least_s(50u64)
            .lock_delay_ms(5000u64)
            .renew(true)
            .note(&(order.customer))
            .fenced(true)
            .on_busy(shop::locks::OnBusy::Replace)
            .on_lost(shop::locks::OnLost::Continue)
            .expects_failure();
        let __manager = shop::locks::__private::Some(
            shop::locks::__private::ManagerRef::manager(&(self.locks)),
        );
        let __outcome = 'lock: {
            let __held = match shop::locks::__private::enter(__options, __manager).await
            {
                shop::locks::__private::Ok(__held) => __held,
                shop::locks::__private::Err(__error) => {
                    break 'lock { shop::locks::__private::Err(__error) };
                }
            };
            let guard: &shop::locks::LockGuard = shop::locks::__private::Held::guard(
                &__held,
            );
            let token: shop::locks::FencingToken = shop::locks::__private::Held::fencing_token(
                &__held,
            );
            let __outcome = shop::locks::__private::Held::protect(
                    &__held,
                    async move {
                        #[allow(clippy::used_underscore_binding)]
                        let _ = &order;
                        #[allow(unreachable_code)]
                        if let shop::locks::__private::Some(__never) = shop::locks::__private::None::<
                            Receipt,
                        > {
                            return __never;
                        }
                        { #![allow()] self.store.write(token, order).await }
                    },
                )
                .await;
            shop::locks::__private::Held::finish(__held, __outcome).await
        };
        match __outcome {
            shop::locks::__private::Ok(__value) => __value,
            #[allow(
                clippy::redundant_closure,
                clippy::redundant_closure_for_method_calls
            )]
            shop::locks::__private::Err(__error) => {
                shop::locks::__private::on_fail::<
                    Receipt,
                >(__error, |err| Receipt::failed(err))
            }
        }
    }
}
