//! The `note` option: what a holder says about itself.

use lock_runtime::{LockManager, cache_lock};

use crate::behaviour::Result;

const NIGHTLY: &str = "nightly";

struct Shop {
    locks: LockManager,
}

async fn note_of(locks: &LockManager, key: &str) -> Option<String> {
    locks.inspect("note", key).await.unwrap().expect("it is held").note
}

/// The note uses an argument that moves into the body.
#[cache_lock(prefix = "note", key = "text", manager = locks, note = user)]
async fn of_an_argument(locks: &LockManager, user: String) -> Result<(String, Option<String>)> {
    Ok((user, note_of(locks, "text").await))
}

#[cache_lock(prefix = "note", key = "computed", manager = locks, note = format!("for {user}"))]
async fn computed(locks: &LockManager, user: &str) -> Result<Option<String>> {
    Ok(note_of(locks, "computed").await)
}

#[cache_lock(prefix = "note", key = "const", manager = locks, note = NIGHTLY)]
async fn of_a_constant(locks: &LockManager) -> Result<Option<String>> {
    Ok(note_of(locks, "const").await)
}

#[cache_lock(prefix = "note", manager = &self.locks, note = "of the block")]
impl Shop {
    #[cache_lock(key = "inherited")]
    async fn inherits(&self) -> Result<Option<String>> {
        Ok(note_of(&self.locks, "inherited").await)
    }

    #[cache_lock(key = "own", note = "its own")]
    async fn has_its_own(&self) -> Result<Option<String>> {
        Ok(note_of(&self.locks, "own").await)
    }
}

#[cache_lock(proxy = LockedExport)]
trait Export {
    #[cache_lock(prefix = "note", key = "proxy", note = customer)]
    async fn export(&self, customer: &str) -> Result<Option<String>>;
}

impl Export for Shop {
    async fn export(&self, _customer: &str) -> Result<Option<String>> {
        Ok(note_of(&self.locks, "proxy").await)
    }
}

#[tokio::test]
async fn a_fn_says_what_its_lock_is_for() {
    let locks = LockManager::in_memory();
    let user = "ada".to_owned();
    assert_eq!(of_an_argument(&locks, user).await.unwrap(), ("ada".to_owned(), Some("ada".to_owned())));
    assert_eq!(computed(&locks, "ben").await.unwrap().as_deref(), Some("for ben"));
    assert_eq!(of_a_constant(&locks).await.unwrap().as_deref(), Some("nightly"));
    let shop = Shop { locks: locks.clone() };
    assert_eq!(shop.inherits().await.unwrap().as_deref(), Some("of the block"));
    assert_eq!(shop.has_its_own().await.unwrap().as_deref(), Some("its own"));
    let exported = LockedExport::with_manager(shop, locks).export("eve").await;
    assert_eq!(exported.unwrap().as_deref(), Some("eve"));
}
