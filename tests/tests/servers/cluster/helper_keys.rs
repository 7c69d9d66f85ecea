//! Other clients' values at the helper keys of a lock, on the master of its slot.

use std::time::{Duration, Instant};

use tests::cluster::Cluster;
use tests::patience::{NOISE, eventually};

use super::{LONG, held, key_on, manager, name, queue};

/// Plays every way to end a hold.
#[tokio::test]
async fn a_lock_is_free_whatever_is_at_its_helper_keys_when_its_owner_releases_it() {
    let cluster = Cluster::start();
    let (north, south) = (manager(&cluster).await, manager(&cluster).await);
    for (master, is_dropped) in [(0, false), (1, true)] {
        let key = key_on(&cluster, master);
        let (node, fence) = (cluster.node(master), format!("{{p:{key}}}:fence"));
        node.tell(&format!("SET {} x", queue(&key)));
        // A free lock is granted, also with a fencing token.
        super::fenced(&north, &key, LONG).await.release().await.unwrap();
        let guard = held(&north, &key).await;
        node.tell(&format!("DEL {fence}"));
        node.tell(&format!("RPUSH {fence} x"));
        let error = south.lock("p", &key).timeout(LONG).acquire().await.unwrap_err();
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
        let released = Instant::now();
        if is_dropped {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }
        eventually("it is free", Duration::from_secs(1) + NOISE, || node.owner(&name(&key)).is_none()).await;
        assert!(released.elapsed() < Duration::from_secs(1), "{:?}", released.elapsed());
        assert!(south.lock("p", &key).try_acquire().await.unwrap().is_some());
        assert_eq!(node.ask::<String>(&format!("GET {}", queue(&key))), "x");
        assert_eq!(node.ask::<Vec<String>>(&format!("LRANGE {fence} 0 -1")), ["x"]);
    }
}
