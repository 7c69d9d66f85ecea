//! A library that depends on the runtime under another name, and a user of the library.

#![deny(missing_docs, unreachable_pub, warnings, clippy::pedantic)]

use lock_runtime::LockManager;

/// The library.
pub(crate) mod billing {
    pub(crate) mod dependencies {
        pub(crate) use ::lock_runtime as locks;
    }

    use dependencies::locks::{LockError, cache_lock};

    /// Sends invoices.
    #[cache_lock(proxy = LockedBilling, crate = crate::proxies::library::billing::dependencies::locks)]
    pub(crate) trait Billing {
        /// Sends the invoice of an order, once.
        #[cache_lock(prefix = "billing", timeout_ms = 0)]
        async fn invoice(&self, #[locked_object] order: u64) -> Result<bool, LockError>;

        /// A default that ignores its arguments.
        #[cache_lock(prefix = "billing", key = "reminder")]
        async fn remind(&self, _order: u64) -> Result<bool, LockError> {
            Ok(false)
        }

        /// The same without a lock.
        fn is_known(&self, _order: u64) -> bool {
            true
        }
    }
}

use billing::{Billing, LockedBilling};

struct Printer;

impl Billing for Printer {
    async fn invoice(&self, order: u64) -> Result<bool, lock_runtime::LockError> {
        Ok(order == 7)
    }
}

#[tokio::test]
async fn a_renamed_dependency_is_named_once() {
    let billing = LockedBilling::with_manager(Printer, LockManager::in_memory());
    assert!(billing.invoice(7).await.unwrap() && billing.is_known(7));
    assert!(!billing.remind(7).await.unwrap());
}
