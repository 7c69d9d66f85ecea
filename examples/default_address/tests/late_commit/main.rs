//! A dropped body's last message still arrives: a COMMIT that is on its way when the caller goes away, on Postgres behind a slow network.
//!
//! `docs/guide/transactions.md` says what to do about it. Each solution of that page is played here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "so fails a test")]

mod network;
mod postgres;

use std::time::Duration;

use lock_runtime::{FencingToken, LockError, LockManager, cache_lock};
use network::Network;
use postgres::Postgres;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgExecutor, PgPool};

const ROUNDS: i64 = 20;
const ITEM: i64 = 7;

/// The longest that a test waits for an event.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
#[expect(dead_code, reason = "a test that fails shows what is inside")]
enum Failure {
    Lock(LockError),
    Database(sqlx::Error),
    Fenced,
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

/// Two processes that sell one item from one database. The second has a slow network, which the test closes and opens.
struct Shop {
    network: Network,
    /// The database behind that network, on one connection: later messages arrive after earlier ones.
    far: PgPool,
    near: PgPool,
    locks: LockManager,
    far_locks: LockManager,
    _postgres: Postgres,
}

impl Shop {
    async fn open() -> Self {
        let postgres = Postgres::start();
        let network = Network::before(postgres.port()).await;
        let pool = async |port, connections| {
            let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(PATIENCE);
            // So the statement gets stuck, and not a ping before it.
            let pool = pool.test_before_acquire(false);
            pool.connect(&format!("postgres://postgres@127.0.0.1:{port}/postgres")).await.unwrap()
        };
        let (far, near) = (pool(network.port(), 1).await, pool(postgres.port(), 4).await);
        let items =
            "CREATE TABLE items (id BIGINT PRIMARY KEY, stock BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)";
        sqlx::query(items).execute(&near).await.unwrap();
        sqlx::query("INSERT INTO items (id, stock) VALUES ($1, 0)").bind(ITEM).execute(&near).await.unwrap();
        let locks = LockManager::in_memory();
        let far_locks = LockManager::builder().in_memory_with(&locks).unwrap();
        Self { network, far, near, locks, far_locks, _postgres: postgres }
    }

    async fn restock(&self) {
        sqlx::query("UPDATE items SET stock = 3 WHERE id = $1").bind(ITEM).execute(&self.near).await.unwrap();
    }

    async fn stock(&self) -> i64 {
        stock(&self.near).await.unwrap()
    }

    /// Waits until `how_many` other connections of the server are in this `state`.
    async fn wait_for(&self, how_many: i64, state: &str) {
        let question = format!("SELECT count(*) FROM pg_stat_activity WHERE {state} AND pid <> pg_backend_pid()");
        let seen = async {
            while sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(&*question)).fetch_one(&self.near).await.unwrap()
                != how_many
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.expect("the server does not get there");
    }

    /// Waits until the stock differs from `before`.
    async fn wait_until_changed(&self, before: i64) {
        let changed = async {
            while self.stock().await == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, changed).await.expect("the COMMIT arrives");
    }

    /// Opens the network, and waits until the server has done everything that was on its way.
    async fn let_all_arrive(&self) {
        self.network.open();
        sqlx::query("SELECT 1").execute(&self.far).await.unwrap();
    }
}

async fn stock(database: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT stock FROM items WHERE id = $1").bind(ITEM).fetch_one(database).await
}

/// The transaction inside the lock, without a fence. Its COMMIT gets stuck in the network.
#[cache_lock(prefix = "sale", key = ITEM, manager = locks)]
async fn sell(locks: LockManager, database: PgPool, network: Network) -> Result<(), Failure> {
    let mut transaction = database.begin().await?;
    let sold = sqlx::query("UPDATE items SET stock = stock - 1 WHERE id = $1");
    sold.bind(ITEM).execute(&mut *transaction).await?;
    network.close();
    transaction.commit().await?;
    Ok(())
}

/// Raises the fence, then reads, as on the page.
async fn claim(database: &PgPool, token: FencingToken) -> Result<i64, Failure> {
    let mut transaction = database.begin().await?;
    let raise = sqlx::query("UPDATE items SET fence = $1 WHERE id = $2 AND fence <= $1");
    if raise.bind(i64::from(token)).bind(ITEM).execute(&mut *transaction).await?.rows_affected() == 0 {
        return Err(Failure::Fenced);
    }
    let stock = sqlx::query_scalar("SELECT stock FROM items WHERE id = $1").bind(ITEM).fetch_one(&mut *transaction);
    let stock = stock.await?;
    transaction.commit().await?;
    Ok(stock)
}

/// Writes only if nobody has raised the fence since, as on the page.
async fn store(database: impl PgExecutor<'_>, stock: i64, token: FencingToken) -> Result<(), Failure> {
    let write = sqlx::query("UPDATE items SET stock = $1 WHERE id = $2 AND fence = $3");
    let written = write.bind(stock).bind(ITEM).bind(i64::from(token)).execute(database).await?;
    if written.rows_affected() == 1 { Ok(()) } else { Err(Failure::Fenced) }
}

/// Writes without checking the fence.
async fn store_unfenced(database: impl PgExecutor<'_>, stock: i64) -> Result<(), Failure> {
    sqlx::query("UPDATE items SET stock = $1 WHERE id = $2").bind(stock).bind(ITEM).execute(database).await?;
    Ok(())
}

/// Its write gets stuck in the network.
#[cache_lock(prefix = "sale", key = ITEM, manager = locks, fenced = token)]
async fn sell_by_one_write(
    locks: LockManager,
    database: PgPool,
    network: Network,
    is_fenced: bool,
) -> Result<(), Failure> {
    let stock = claim(&database, token).await?;
    // The pool checks the claim's connection before it gives it out again. That is done once it has given it out.
    let mut connection = database.acquire().await?;
    network.close();
    if is_fenced {
        store(&mut *connection, stock - 1, token).await
    } else {
        store_unfenced(&mut *connection, stock - 1).await
    }
}

/// With the fence, in a transaction with more writes. Its COMMIT gets stuck in the network.
#[cache_lock(prefix = "sale", key = ITEM, manager = locks, fenced = token)]
async fn sell_fenced_in_a_transaction(locks: LockManager, database: PgPool, network: Network) -> Result<(), Failure> {
    let stock = claim(&database, token).await?;
    let mut transaction = database.begin().await?;
    let write = sqlx::query("UPDATE items SET stock = $1 WHERE id = $2 AND fence = $3");
    let written = write.bind(stock - 1).bind(ITEM).bind(i64::from(token)).execute(&mut *transaction).await?;
    if written.rows_affected() == 0 {
        return Err(Failure::Fenced);
    }
    network.close();
    transaction.commit().await?;
    Ok(())
}

/// Drops the caller when a message of `selling` is stuck in the network.
async fn hang_up(selling: impl Future<Output = Result<(), Failure>>, network: &Network) {
    tokio::select! {
        sold = selling => panic!("it is over before the network is closed: {sold:?}"),
        () = network.wait_until_stuck() => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_under_way_changes_the_row_under_the_next_holder() {
    let shop = Shop::open().await;
    let (mut open, mut changed) = (0, 0);
    for _ in 0..ROUNDS {
        shop.restock().await;
        hang_up(sell(shop.far_locks.clone(), shop.far.clone(), shop.network.clone()), &shop.network).await;

        let guard = shop.locks.lock("sale", &ITEM).timeout(PATIENCE).acquire().await.unwrap();
        shop.wait_for(1, "state = 'idle in transaction'").await;
        open += 1;
        let before = shop.stock().await;
        shop.network.open();
        shop.wait_until_changed(before).await;
        changed += i64::from(guard.is_valid());
        guard.release().await.unwrap();
        shop.let_all_arrive().await;
    }
    assert_eq!((open, changed), (ROUNDS, ROUNDS), "the next holder had the lock, and the row changed anyway");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_write_that_arrives_late_is_refused() {
    let shop = Shop::open().await;
    // From here on the server knows both statements. So the write gets stuck, and not the question what it means.
    store_unfenced(&shop.far, 3).await.unwrap();
    store(&shop.far, 3, FencingToken::from(0)).await.unwrap();
    let mut changed = [0, 0];
    for (is_fenced, changed) in [false, true].into_iter().zip(&mut changed) {
        for _ in 0..ROUNDS {
            shop.restock().await;
            let (locks, far, network) = (shop.far_locks.clone(), shop.far.clone(), shop.network.clone());
            hang_up(sell_by_one_write(locks, far, network, is_fenced), &shop.network).await;

            let guard = shop.locks.lock("sale", &ITEM).timeout(PATIENCE).fenced(true).acquire().await.unwrap();
            let token = guard.fencing_token().unwrap();
            let before = claim(&shop.near, token).await.unwrap();
            shop.let_all_arrive().await;
            *changed += i64::from(shop.stock().await != before);
            store(&shop.near, before - 1, token).await.unwrap();
            guard.release().await.unwrap();
            assert_eq!((before, shop.stock().await), (3, 2));
        }
    }
    assert_eq!(changed, [ROUNDS, 0], "without a check of the fence, and with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_the_late_commit_of_a_fenced_transaction() {
    let shop = Shop::open().await;
    let mut changed = 0;
    for _ in 0..ROUNDS {
        shop.restock().await;
        let selling = sell_fenced_in_a_transaction(shop.far_locks.clone(), shop.far.clone(), shop.network.clone());
        hang_up(selling, &shop.network).await;

        let guard = shop.locks.lock("sale", &ITEM).timeout(PATIENCE).fenced(true).acquire().await.unwrap();
        let token = guard.fencing_token().unwrap();
        let claiming = tokio::spawn({
            let near = shop.near.clone();
            async move { claim(&near, token).await }
        });
        shop.wait_for(1, "wait_event_type = 'Lock'").await;
        shop.network.open();
        let before = claiming.await.unwrap().unwrap();
        shop.let_all_arrive().await;
        changed += i64::from(shop.stock().await != before);
        store(&shop.near, before - 1, token).await.unwrap();
        guard.release().await.unwrap();
        assert_eq!((before, shop.stock().await), (2, 1), "both were sold, one after the other");
    }
    assert_eq!(changed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_fn_in_a_task_of_its_own_keeps_the_lock_until_the_commit() {
    let shop = Shop::open().await;
    let mut changed = 0;
    for _ in 0..ROUNDS {
        shop.restock().await;
        let selling = tokio::spawn(sell(shop.far_locks.clone(), shop.far.clone(), shop.network.clone()));
        hang_up(async { selling.await.unwrap() }, &shop.network).await;

        let sale = || shop.locks.lock("sale", &ITEM).timeout(PATIENCE);
        assert!(sale().try_acquire().await.unwrap().is_none(), "the caller is gone, and the body goes on");
        shop.network.open();
        let guard = sale().acquire().await.unwrap();
        let before = shop.stock().await;
        shop.let_all_arrive().await;
        changed += i64::from(shop.stock().await != before);
        guard.release().await.unwrap();
        assert_eq!(before, 2);
    }
    assert_eq!(changed, 0);
}
