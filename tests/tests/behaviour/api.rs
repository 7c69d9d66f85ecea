//! The bounds of the public types: `Send`, `Sync`, `'static`, `Error`.

use std::error::Error;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::time::Duration;

use lock_runtime::{
    BackendError, Builder, FencingToken, InvalidKey, LockError, LockGuard, LockKey, LockManager, LockRequest,
    NameParts, OnLost,
};

fn is_shared<T: Send + Sync + Unpin + Debug + 'static>() {}

fn is_an_error<T: Error + Clone + Send + Sync + 'static>() {}

fn is_a_number<T: Copy + Ord + Hash + Display + Into<u64>>() {}

fn is_sent<T: Send>(_: &T) {}

fn is_kept<T: 'static>(_: &T) {}

#[test]
fn public_types_are_send_and_sync() {
    is_shared::<LockManager>();
    is_shared::<LockRequest>();
    is_shared::<LockGuard>();
    is_shared::<LockError>();
    is_shared::<BackendError>();
    is_shared::<InvalidKey>();
    is_shared::<Builder>();
    is_shared::<FencingToken>();
    is_shared::<OnLost>();
    is_shared::<NameParts>();
}

#[test]
fn errors_are_errors() {
    is_an_error::<LockError>();
    is_an_error::<BackendError>();
    is_an_error::<InvalidKey>();
}

#[test]
fn a_fencing_token_is_a_number() {
    is_a_number::<FencingToken>();
}

#[tokio::test]
async fn futures_can_be_spawned() {
    let manager = LockManager::in_memory();
    let request = || manager.lock("p", "k");
    let (acquire, try_acquire, run) = (request().acquire(), request().try_acquire(), request().run(async {}));
    is_sent(&acquire);
    is_kept(&acquire);
    is_sent(&try_acquire);
    is_kept(&try_acquire);
    is_sent(&run);
    is_kept(&run);
    is_sent(&manager.shutdown());
    is_sent(&manager.scope(async {}));
    is_sent(&LockManager::connect("redis://127.0.0.1"));
    is_sent(&LockManager::builder().connect());
    drop((try_acquire, run));
    if let Ok(guard) = acquire.await {
        is_sent(&guard.lost());
        is_sent(&guard.extend(Duration::from_secs(1)));
        is_sent(&guard.release());
    }
}

#[tokio::test]
async fn a_body_that_is_not_send_runs() {
    let manager = LockManager::in_memory();
    let counter = std::rc::Rc::new(std::cell::Cell::new(0));
    let inside = std::rc::Rc::clone(&counter);
    let outcome = manager.lock("p", "k").run(async move {
        tokio::task::yield_now().await;
        inside.set(1);
    });
    assert!(outcome.await.is_ok());
    assert_eq!(counter.get(), 1);
}

#[test]
fn keys_may_be_behind_any_pointer() {
    fn is_a_key<K: LockKey + ?Sized>() {}
    is_a_key::<str>();
    is_a_key::<dyn LockKey>();
    is_a_key::<&dyn LockKey>();
    is_a_key::<Box<dyn LockKey>>();
    is_a_key::<std::sync::Arc<str>>();
    is_a_key::<Option<&(String, u8)>>();
    is_a_key::<std::borrow::Cow<'_, str>>();
}
