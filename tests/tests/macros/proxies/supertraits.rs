//! A trait with supertraits and provided methods.

use std::fmt::{self, Debug, Display};

use lock_runtime::{LockError, LockManager, cache_lock};

trait Named {
    fn name(&self) -> String;
}

#[cache_lock(proxy = LockedService)]
trait Service: Named + Display + Debug + Clone + Send + Sync + 'static {
    #[cache_lock(prefix = "supertraits", key = (self.name(), id), timeout_ms = 0)]
    async fn call(&self, id: u64) -> Result<String, LockError> {
        Ok(format!("the trait's version: {id}"))
    }

    #[cache_lock(prefix = "supertraits", key = "provided")]
    async fn provided(&self, (a, _): (u64, u64)) -> Result<u64, LockError> {
        Ok(a)
    }
}

#[derive(Clone, Debug)]
struct Own;

impl Named for Own {
    fn name(&self) -> String {
        "own".to_owned()
    }
}

impl Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Service for Own {
    async fn call(&self, id: u64) -> Result<String, LockError> {
        Ok(format!("{self}'s own version: {id}"))
    }
}

/// What the supertraits are to the proxy is up to its user.
impl<T: Named> Named for LockedService<T> {
    fn name(&self) -> String {
        format!("locked {}", self.inner().name())
    }
}

impl<T: Display> Display for LockedService<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self.inner(), f)
    }
}

fn of_any<T: Service>(inner: T, locks: LockManager) -> impl Service
where
    LockedService<T>: Named + Display,
{
    LockedService::with_manager(inner, locks)
}

#[tokio::test]
async fn the_implementations_own_version_is_called() {
    let locks = LockManager::in_memory();
    let service = of_any(Own, locks.clone());
    assert_eq!(service.call(1).await.unwrap(), "own's own version: 1");
    assert_eq!(service.clone().provided((2, 3)).await.unwrap(), 2);
    let _held = locks.lock("supertraits", &("locked own", 1)).acquire().await.unwrap();
    assert!(service.call(1).await.unwrap_err().is_timeout());
    assert_eq!(service.call(2).await.unwrap(), "own's own version: 2");
}
