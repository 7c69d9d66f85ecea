//! Traits whose methods a proxy locks, in the ways that the authors of services write them.

mod blocking;
mod choices;
mod dynamic;
mod futures;
mod generic;
mod library;
mod lifetimes;
mod mocked;
mod receivers;
mod seckill;
mod supertraits;

use std::sync::atomic::{AtomicU64, Ordering};

use lock_runtime::{LockError, LockManager};
use tests::server::Server;

/// An application's own error type.
#[derive(Debug)]
enum ShopError {
    SoldOut,
    Lock(LockError),
}

impl From<LockError> for ShopError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

/// Runs the test with locks in memory and on a server.
async fn everywhere(test: impl AsyncFn(LockManager)) {
    test(LockManager::in_memory()).await;
    let server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    test(locks.clone()).await;
    locks.shutdown().await;
}

/// A number that is read, and written later, so that writes in between are lost.
#[derive(Debug, Default)]
struct Stock(AtomicU64);

impl Stock {
    fn of(pieces: u64) -> Self {
        Self(AtomicU64::new(pieces))
    }

    fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    async fn take_one(&self) -> Result<u64, ShopError> {
        let left = self.left().checked_sub(1).ok_or(ShopError::SoldOut)?;
        tokio::task::yield_now().await;
        self.0.store(left, Ordering::Relaxed);
        Ok(left)
    }

    fn take_one_slowly(&self) -> u64 {
        let left = self.left() - 1;
        std::thread::sleep(std::time::Duration::from_millis(2));
        self.0.store(left, Ordering::Relaxed);
        left
    }
}
