//! Fns that return futures, and generic ones: what they borrow, and which futures are `Send`.

#![deny(warnings)]

use std::pin::Pin;

use axum::extract::Path;
use lock_runtime::{LockError, LockKey, LockManager, cache_lock};

type Result<T> = std::result::Result<T, LockError>;
type Boxed<T> = Box<dyn Fn() -> T + Send>;

#[cache_lock(prefix = "futures", key = a)]
fn mutable_arguments(mut a: u64, Path(mut b): Path<u64>) -> impl Future<Output = Result<u64>> {
    a += 1;
    b += 1;
    async move {
        a += 1;
        Ok(a + b)
    }
}

#[cache_lock(prefix = "futures")]
fn marked_arguments(
    #[locked_object] Path(id): Path<u64>,
    #[locked_complex_object(field = "0")] pair: (u64, String),
) -> Pin<Box<dyn Future<Output = Result<String>> + Send>> {
    let text = format!("{id}{}", pair.1);
    Box::pin(async move { Ok(text + &pair.1) })
}

#[cache_lock(prefix = "futures", key = id, guard = guard, fenced = token)]
fn borrowed_arguments<'a>(id: &'a u64, text: &'a mut String) -> impl Future<Output = Result<&'a str>> + Send + 'a {
    text.push_str(guard.key());
    async move {
        tokio::task::yield_now().await;
        let _ = (id, token);
        Ok(text.as_str())
    }
}

async fn other(id: u64) -> Result<u64> {
    tokio::task::yield_now().await;
    Ok(id)
}

#[cache_lock(prefix = "futures", key = id)]
fn delegates(id: u64) -> impl Future<Output = Result<u64>> {
    other(id)
}

#[cache_lock(prefix = "futures", key = id)]
fn delegates_boxed(id: u64) -> Pin<Box<dyn Future<Output = Result<u64>> + Send>> {
    Box::pin(other(id))
}

struct Shop {
    items: Vec<u64>,
    locks: LockManager,
}

impl Shop {
    #[cache_lock(prefix = "futures", key = self.items.len(), manager = self.locks, on_fail = Ok(0))]
    fn boxed<'a>(&'a mut self, item: &'a mut u64) -> Pin<Box<dyn Future<Output = Result<usize>> + Send + 'a>> {
        self.items.push(*item);
        *item += 1;
        Box::pin(async move {
            self.items.push(*item);
            Ok(self.items.len())
        })
    }

    #[cache_lock(prefix = "futures", key = self.items.len(), manager = self.locks)]
    fn by_mut(&mut self) -> impl Future<Output = Result<Option<&mut u64>>> + Send {
        self.items.push(1);
        async { Ok(self.items.first_mut()) }
    }

    #[cache_lock(prefix = "futures", key = self.items.len(), manager = self.locks)]
    fn by_value(mut self) -> impl Future<Output = Result<Self>> + Send {
        self.items.push(1);
        async { Ok(self) }
    }

    #[cache_lock(prefix = "futures", key = self.items.len())]
    fn of_impl(&self) -> impl Future<Output = Result<impl Iterator<Item = &u64>>> {
        async { Ok(self.items.iter()) }
    }
}

#[cache_lock(prefix = "futures", key = key, timeout_s = 1)]
async fn callback<K, F, T>(key: K, call: F) -> Result<T>
where
    K: LockKey,
    F: AsyncFnOnce(&K) -> T,
{
    Ok(call(&key).await)
}

#[cache_lock(prefix = "futures", key = key)]
async fn higher_ranked<F>(key: u64, call: F) -> Result<usize>
where
    F: for<'a> Fn(&'a str) -> Pin<Box<dyn Future<Output = usize> + Send + 'a>>,
{
    let text = String::from("abc");
    Ok(call(&text).await)
}

#[cache_lock(prefix = "futures", key = id)]
#[cache_lock(prefix = "futures:second", key = (id, 1))]
async fn two_locks(id: u64) -> Result<u64> {
    Ok(id)
}

#[cache_lock(prefix = "futures", key = id, on_fail = Box::new(|| 0))]
async fn trait_object(id: u64) -> Boxed<u64> {
    if id == 1 {
        return Box::new(|| 1);
    }
    Box::new(move || id)
}

#[cache_lock(prefix = "futures", key = id, on_fail = |_| Box::new(|| 0))]
async fn trait_object_from_closure(id: u64) -> Boxed<u64> {
    Box::new(move || id)
}

#[cache_lock(prefix = "futures", key = texts.first().map(String::as_str))]
async fn key_borrows_what_the_body_mutates(texts: &mut Vec<String>) -> Result<Option<&mut String>> {
    texts.push("b".to_owned());
    Ok(texts.last_mut())
}

#[cache_lock(prefix = "futures", key = other(id).await?)]
async fn awaited_key(id: u64) -> Result<u64> {
    Ok(id)
}

struct Tagged<T>(T);

impl<T: LockKey + Clone + Send + Sync> Tagged<T> {
    #[cache_lock(prefix = "futures", key = (self.0, other))]
    async fn set<'a>(&'a mut self, other: T) -> Result<&'a T> {
        self.0 = other;
        Ok(&self.0)
    }

    #[cache_lock(prefix = "futures", guard = guard)]
    async fn marked(#[locked_complex_object(field = "0")] &self, #[locked_object] second: u8) -> Result<String> {
        let _ = second;
        Ok(guard.key().to_owned())
    }
}

#[cache_lock(prefix = "futures", key = "all", manager = LockManager::in_memory(), on_fail = ())]
#[tokio::test]
async fn a_test_can_be_locked_itself() {}

#[tokio::test]
async fn borrows_end_where_they_did_before() -> Result<()> {
    let locks = LockManager::in_memory();
    let body = async {
        assert_eq!(mutable_arguments(1, Path(1)).await?, 5);
        assert_eq!(marked_arguments(Path(1), (2, "a".to_owned())).await?, "1aa");
        let mut text = String::new();
        assert_eq!(borrowed_arguments(&1, &mut text).await?, "futures:1");
        assert_eq!(delegates(1).await?, 1);
        let mut shop = Shop { items: Vec::new(), locks: locks.clone() };
        assert_eq!(shop.boxed(&mut 1).await?, 2);
        assert_eq!(shop.by_mut().await?, Some(&mut 1));
        shop = shop.by_value().await?;
        assert_eq!(shop.of_impl().await?.count(), 4);
        assert_eq!(two_locks(1).await?, 1);
        assert_eq!((trait_object(4).await)(), 4);
        assert_eq!((trait_object_from_closure(4).await)(), 4);
        let mut texts = vec!["a".to_owned()];
        assert_eq!(key_borrows_what_the_body_mutates(&mut texts).await?, Some(&mut "b".to_owned()));
        assert_eq!(awaited_key(1).await?, 1);
        assert_eq!(callback("k", async |key| key.len()).await?, 1);
        let mut tagged = Tagged("a");
        assert_eq!(*tagged.set("b").await?, "b");
        assert_eq!(tagged.marked(1).await?, "futures:b:1");
        Ok(())
    };
    locks.scope(body).await
}

#[tokio::test]
async fn what_could_be_spawned_before_still_can() {
    // A spawned task has no scope, so the calls fail. The test is that they compile.
    let busy = [
        tokio::spawn(delegates(1)).await,
        tokio::spawn(delegates_boxed(1)).await,
        tokio::spawn(two_locks(1)).await,
        tokio::spawn(mutable_arguments(1, Path(1))).await,
    ];
    for outcome in busy {
        assert!(matches!(outcome, Ok(Err(LockError::NotInstalled))));
    }
    let spawned = tokio::spawn(higher_ranked(1, |text| Box::pin(async move { text.len() }))).await;
    assert!(matches!(spawned, Ok(Err(LockError::NotInstalled))));
}
