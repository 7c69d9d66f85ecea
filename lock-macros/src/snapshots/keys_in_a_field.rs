impl Shop {
    async fn buy(&self) -> Result<(), BankError> {
        let __options = {
            use ::lock_runtime::__private::core::iter::IntoIterator as _;
            <::lock_runtime::__private::LockOptions>::all(
                ::lock_runtime::__private::core::concat!(
                    ::lock_runtime::__private::core::module_path!(), "::buy"
                ),
                (&(self.seats)).into_iter(),
            )
        };
        let __manager = ::lock_runtime::__private::None;
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
            #[allow(
                clippy::redundant_closure,
                clippy::redundant_closure_for_method_calls
            )]
            ::lock_runtime::__private::Err(__error) => {
                <Result<
                    (),
                    BankError,
                > as ::lock_runtime::__private::FromLockError>::from_lock_error(__error)
            }
        }
    }
}
