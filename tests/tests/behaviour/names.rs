//! The names of locks, and which requests mean the same lock.

use std::time::Duration;

use lock_runtime::LockManager;
use tests::over_every_store;
use tests::stores::World;

over_every_store![
    different_keys_do_not_block_each_other,
    namespaces_are_separate,
    a_key_is_named_prefix_and_escaped_parts,
];

async fn different_keys_do_not_block_each_other(world: World) {
    let manager = world.manager().await;
    let mut guards = Vec::new();
    for key in 0..50 {
        guards.push(manager.lock("p", &key).timeout(Duration::ZERO).acquire().await.unwrap());
    }
    // Nor do equal keys under different prefixes, or different parts that look the same when joined.
    guards.push(manager.lock("q", &0).timeout(Duration::ZERO).acquire().await.unwrap());
    guards.push(manager.lock("p", &("a", "b:c")).timeout(Duration::ZERO).acquire().await.unwrap());
    guards.push(manager.lock("p", &("a:b", "c")).timeout(Duration::ZERO).acquire().await.unwrap());
}

async fn namespaces_are_separate(world: World) {
    let one = world.manager_with(LockManager::builder().namespace("one")).await;
    let two = world.manager_with(LockManager::builder().namespace("two")).await;
    let first = one.lock("p", "k").acquire().await.unwrap();
    let second = two.lock("p", "k").timeout(Duration::ZERO).acquire().await.unwrap();
    assert_eq!((first.key(), second.key()), ("one:p:k", "two:p:k"));
}

async fn a_key_is_named_prefix_and_escaped_parts(world: World) {
    let manager = world.manager_with(LockManager::builder().label("till-3")).await;
    let guard = manager
        .lock("p", &("a:b", 7_u8, '{'))
        .expire(Duration::from_millis(1500))
        .renew(false)
        .acquire()
        .await
        .unwrap();
    assert_eq!(guard.key(), "p:a%3Ab:7:%7B");
    world.agrees().await;
    if let Some(server) = world.server_of(guard.key()) {
        assert_eq!(server.ask::<String>("TYPE p:a%3Ab:7:%7B"), "string");
        let owner = server.owner(guard.key()).unwrap();
        assert!(owner.ends_with("@till-3"), "{owner}");
        let keys = server.keys();
        assert!((1..=1500).contains(&keys["p:a%3Ab:7:%7B"]), "{keys:?}");
        assert_eq!(keys.len(), 1, "{keys:?}");
    }
    guard.release().await.unwrap();
    world.agrees().await;
    if let Some(keys) = world.keys() {
        assert!(keys.is_empty());
    }
}
