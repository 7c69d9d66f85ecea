//! Keys made from arguments in other ways than by their names.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use lock_runtime::{FencingToken, LockKey, LockManager, cache_lock};

use crate::behaviour::{Result, alone};

struct Order {
    id: u64,
    pair: (u64, (String, u64)),
}

#[cache_lock(prefix = "arguments", guard = guard)]
async fn unquoted(
    #[locked_complex_object(field = id)]
    #[locked_complex_object(field = pair.1.0)]
    order: &Order,
    #[locked_complex_object(field = 1.1)] pair: (u64, (u64, u64)),
) -> Result<String> {
    let _ = pair;
    assert_eq!(order.pair.0, 2);
    Ok(guard.key().to_owned())
}

/// Stands for a type of another crate that has no `LockKey`, but a `Display`.
#[derive(LockKey)]
struct Night<D> {
    #[lock_key(display)]
    day: D,
    #[lock_key]
    shop: u64,
}

#[cache_lock(prefix = "arguments", key = (night, peer), guard = guard)]
async fn displayed(night: &Night<std::fmt::Arguments<'_>>, peer: SocketAddr) -> Result<String> {
    Ok(guard.key().to_owned())
}

#[cache_lock(prefix = "arguments", keys = peers, guard = guard)]
async fn addresses(peers: &[IpAddr]) -> Result<Vec<String>> {
    Ok(guard.keys().into_iter().map(str::to_owned).collect())
}

/// A text that names no argument is the key itself.
#[cache_lock(prefix = "arguments", key = ("shop", id, "{ids}"), guard = guard)]
async fn words(id: u64, order: u64) -> Result<String> {
    Ok(format!("{} {order}", guard.key()))
}

#[tokio::test]
async fn each_way_is_a_key() {
    alone(async {
        let order = Order { id: 1, pair: (2, ("a".to_owned(), 3)) };
        assert_eq!(unquoted(&order, (4, (5, 6))).await.unwrap(), "arguments:1:a:6");
        let (day, peer) = (7, SocketAddr::from((Ipv4Addr::LOCALHOST, 80)));
        let night = Night { day: format_args!("{day}:30"), shop: 2 };
        assert_eq!(displayed(&night, peer).await.unwrap(), "arguments:7%3A30:2:127.0.0.1%3A80");
        let peers = [IpAddr::from([10, 0, 0, 2]), IpAddr::from([10, 0, 0, 1])];
        assert_eq!(addresses(&peers).await.unwrap().len(), 2);
        assert_eq!(words(3, 4).await.unwrap(), "arguments:shop:3:%7Bids%7D 4");
    })
    .await;
}

#[tokio::test]
#[expect(
    clippy::unnecessary_fallible_conversions,
    reason = "as in code that was written when the conversion could fail"
)]
async fn a_token_is_a_number_of_a_database() {
    let locks = LockManager::in_memory();
    let guard = locks.lock("arguments", "token").fenced(true).expire(Duration::from_secs(1)).acquire().await.unwrap();
    let token: FencingToken = guard.fencing_token().unwrap();
    let number: i64 = token.into();
    assert_eq!(i64::try_from(token), Ok(number));
    assert_eq!(FencingToken::try_from(number), Ok(token));
}
