//! A service that uses an annotated trait: its tests need no lock, and one test shows that in production it is locked.

use std::sync::Mutex;

use lock_runtime::{LockError, LockManager, cache_lock};

#[cache_lock(proxy = LockedAccounts)]
trait Accounts {
    #[cache_lock(prefix = "account", keys = [from, to], timeout_ms = 50)]
    async fn transfer(&self, from: u64, to: u64, amount: u64) -> Result<(), LockError>;
}

/// The code under test.
struct Payments<A> {
    accounts: A,
}

impl<A: Accounts> Payments<A> {
    async fn pay(&self, order: u64) -> Result<u64, LockError> {
        self.accounts.transfer(1, 2, order * 10).await?;
        Ok(order * 10)
    }
}

#[derive(Default)]
struct Recorded(Mutex<Vec<(u64, u64, u64)>>);

impl Accounts for Recorded {
    async fn transfer(&self, from: u64, to: u64, amount: u64) -> Result<(), LockError> {
        self.0.lock().unwrap().push((from, to, amount));
        Ok(())
    }
}

#[tokio::test]
async fn a_mock_needs_no_lock() {
    let payments = Payments { accounts: Recorded::default() };
    assert_eq!(payments.pay(3).await.unwrap(), 30);
    assert_eq!(*payments.accounts.0.lock().unwrap(), [(1, 2, 30)]);
}

#[tokio::test]
async fn where_it_runs_it_is_locked() {
    let locks = LockManager::in_memory();
    let payments = Payments { accounts: LockedAccounts::with_manager(Recorded::default(), locks.clone()) };
    payments.pay(3).await.unwrap();
    let _other = locks.lock("account", &2).acquire().await.unwrap();
    assert!(payments.pay(3).await.unwrap_err().is_timeout());
    assert_eq!(payments.accounts.inner().0.lock().unwrap().len(), 1);
}
