//! Options whose values are constants, in all places that a constant can be.

use std::time::Duration;

use lock_runtime::cache_lock;

use crate::shapes::{LOCKS, Result};

mod names {
    pub(crate) const ORDER: &str = "shapes:order";
    pub(crate) static STOCK: &str = "shapes:stock";
}

const EXPIRE: u8 = 200;
static TIMEOUT: i64 = 5;

trait Place {
    const PREFIX: &'static str;
    const EXPIRE: Duration;
}

struct Here;

impl Place for Here {
    const PREFIX: &'static str = "shapes:here";
    const EXPIRE: Duration = Duration::from_secs(5);
}

struct Shop<P>(P);

impl<P: Place> Shop<P> {
    #[cache_lock(prefix = P::PREFIX, key = "all", expire = P::EXPIRE, manager = *LOCKS)]
    async fn of_generic(&self) -> Result<()> {
        Ok(())
    }
}

impl Here {
    #[cache_lock(prefix = Self::PREFIX, key = "all", expire = Self::EXPIRE, manager = *LOCKS)]
    async fn of_type(&self) -> Result<()> {
        Ok(())
    }
}

#[cache_lock(prefix = names::ORDER, key = "all", timeout_s = TIMEOUT, expire_ms = EXPIRE, manager = *LOCKS)]
async fn of_module() -> Result<()> {
    Ok(())
}

#[cache_lock(prefix = names::STOCK, key = "all", expire_s = 60 * 60, manager = *LOCKS)]
async fn of_static() -> Result<()> {
    Ok(())
}

#[cache_lock(key = "all", expire_ms = PAUSE, manager = *LOCKS)]
#[allow(non_snake_case, reason = "an argument that looks like a constant")]
async fn of_argument(PAUSE: u32) -> Result<()> {
    assert_eq!(PAUSE, 300);
    Ok(())
}

#[cache_lock(key = "all", expire_ms = LEASE, manager = *LOCKS)]
async fn of_parameter<const LEASE: u64>() -> Result<()> {
    Ok(())
}

struct Pool<const SIZE: u32, const LEASE: u64>;

impl<const SIZE: u32, const LEASE: u64> Pool<SIZE, LEASE> {
    #[cache_lock(key = "pool", permits = SIZE, expire_ms = LEASE, manager = *LOCKS)]
    async fn of_block(&self) -> Result<u32> {
        Ok(SIZE)
    }

    #[cache_lock(key = "pool", permits = SIZE, max_hold_ms = LEASE, manager = *LOCKS)]
    async fn made() -> Result<Self> {
        Ok(Self)
    }

    /// Nothing in this fn shows that it is in an `impl`.
    #[cache_lock(key = "pool", permits = { SIZE }, expire_ms = { LEASE }, manager = *LOCKS)]
    async fn size() -> Result<u32> {
        Ok(SIZE)
    }
}

#[cache_lock(proxy = LockedOpening)]
trait Opening<const LEASE: u64> {
    #[cache_lock(key = "opening", expire_ms = LEASE, linger_ms = LEASE, timeout_ms = LEASE)]
    async fn open(&self) -> Result<u64>;
}

impl<const LEASE: u64> Opening<LEASE> for Here {
    async fn open(&self) -> Result<u64> {
        Ok(LEASE)
    }
}

#[tokio::test]
async fn constants_that_are_parameters_of_a_type_or_a_trait_are_taken() -> Result<()> {
    let pool = Pool::<3, 400>::made().await?;
    assert_eq!(pool.of_block().await? + Pool::<3, 400>::size().await?, 6);
    assert_eq!(Opening::<400>::open(&LockedOpening::with_manager(Here, (*LOCKS).clone())).await?, 400);
    Ok(())
}

#[tokio::test]
async fn constants_are_taken_from_where_they_are() -> Result<()> {
    Shop(Here).of_generic().await?;
    Here.of_type().await?;
    of_module().await?;
    of_static().await?;
    of_argument(300).await?;
    of_parameter::<400>().await
}
