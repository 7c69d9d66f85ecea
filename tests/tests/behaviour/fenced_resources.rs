//! The examples of docs/guarantees.md, "When to fence": the resource refuses a stale holder, and accepts a holder's
//! second write. The test reads the statements and the script from the page.

use std::time::Duration;

use lock_runtime::{FencingToken, LockManager};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, SqliteConnection};
use tests::server::Server;

/// The page's code blocks in this language.
fn examples<const COUNT: usize>(language: &str) -> [&'static str; COUNT] {
    let page = include_str!("../../../docs/guarantees.md");
    let blocks = page.split("```").filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    blocks.collect::<Vec<_>>().try_into().expect("the page has another number of examples than this test")
}

/// The tokens of two holders; the first one's lease expired while it was paused.
async fn stale_and_fresh(server: &Server) -> (FencingToken, FencingToken) {
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let other = LockManager::connect(&server.url()).await.unwrap();
    let request = manager.lock("stock", &7).fenced(true).expire(Duration::from_millis(50)).renew(false);
    let paused = request.acquire().await.unwrap();
    paused.lost().await;
    let next = other.lock("stock", &7).fenced(true).timeout(Duration::from_secs(10)).acquire().await.unwrap();
    let tokens = (paused.fencing_token().unwrap(), next.fencing_token().unwrap());
    next.release().await.unwrap();
    tokens
}

/// SQL has no unsigned numbers. The cast is safe, because a token is about the server's time in µs.
fn number(token: FencingToken) -> i64 {
    token.into()
}

/// A database with the examples' table.
async fn stock() -> SqliteConnection {
    let mut database = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let table = "CREATE TABLE stock (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)";
    database.execute(table).await.unwrap();
    database.execute("INSERT INTO stock (id, amount) VALUES (7, 10)").await.unwrap();
    database
}

#[tokio::test]
async fn a_row_refuses_a_stale_token_and_accepts_a_second_write() {
    let server = Server::start();
    let (stale, fresh) = stale_and_fresh(&server).await;
    let mut database = stock().await;
    let [statement, _] = examples("sql");
    for (token, amount, rows) in [(stale, 9, 1), (fresh, 8, 1), (fresh, 7, 1), (stale, 100, 0), (fresh, 6, 1)] {
        let update = sqlx::query(AssertSqlSafe(statement)).bind(amount).bind(number(token)).bind(7_i64);
        let done = update.execute(&mut database).await.unwrap();
        assert_eq!(done.rows_affected(), rows, "{token}: {amount}");
    }
    let amount: i64 = sqlx::query_scalar("SELECT amount FROM stock").fetch_one(&mut database).await.unwrap();
    assert_eq!(amount, 6);
}

#[tokio::test]
async fn what_a_holder_has_read_is_not_written_when_a_newer_holder_came_meanwhile() {
    let server = Server::start();
    let (stale, fresh) = stale_and_fresh(&server).await;
    let mut database = stock().await;
    let [_, statements] = examples("sql");
    let statements: Vec<_> = statements.lines().collect();
    let [raise, read, write] = statements[..] else { panic!("{statements:?}") };
    let steps = [(raise, stale, 1), (raise, fresh, 1), (write, stale, 0), (write, fresh, 1), (raise, stale, 0)];
    for (statement, token, rows) in steps {
        let step = sqlx::query(AssertSqlSafe(statement)).bind(9_i64).bind(number(token)).bind(7_i64);
        assert_eq!(step.execute(&mut database).await.unwrap().rows_affected(), rows, "{token}: {statement}");
    }
    let amount = sqlx::query_scalar(AssertSqlSafe(read)).bind(9_i64).bind(number(fresh)).bind(7_i64);
    let amount: i64 = amount.fetch_one(&mut database).await.unwrap();
    assert_eq!(amount, 9);
}

#[tokio::test]
async fn a_key_refuses_a_stale_token_and_accepts_a_second_write() {
    let server = Server::start();
    let (stale, fresh) = stale_and_fresh(&server).await;
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let [script] = examples("lua");
    for (token, amount, accepted) in [(stale, 9, 1), (fresh, 8, 1), (fresh, 7, 1), (stale, 100, 0), (fresh, 6, 1)] {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg("{stock:7}:amount").arg(u64::from(token)).arg(amount);
        let done: i64 = command.query_async(&mut connection).await.unwrap();
        assert_eq!(done, accepted, "{token}: {amount}");
    }
    assert_eq!(server.ask::<String>("HGET {stock:7}:amount value"), "6");
    assert_eq!(server.ask::<String>("HGET {stock:7}:amount fence"), fresh.to_string());
}
