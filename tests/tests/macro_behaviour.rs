//! What a locked fn does: each option, seen from outside.

#![allow(clippy::unwrap_used, reason = "a failed expectation is what a test is for")]

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::Path;
use axum::http::{Request, StatusCode};
use axum::response::IntoResponse;
use lock_runtime::{FencingToken, LockError, LockGuard, LockManager, cache_lock};
use tokio::time::{Instant, sleep};

type Result<T, E = LockError> = std::result::Result<T, E>;

/// The error of an application, as its author writes it.
#[derive(Debug)]
enum ShopError {
    SoldOut,
    Lock(LockError),
}

impl From<LockError> for ShopError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for ShopError {
    fn into_response(self) -> axum::response::Response {
        match self {
            Self::SoldOut => StatusCode::GONE,
            Self::Lock(_) => StatusCode::LOCKED,
        }
        .into_response()
    }
}

/// Inside a scope of its own, so that no other test is met.
async fn alone<T>(test: impl Future<Output = T>) -> T {
    LockManager::in_memory().scope(test).await
}

async fn hold(prefix: &str, key: &str) -> LockGuard {
    let locks = LockManager::current().unwrap();
    locks.lock(prefix, key).acquire().await.unwrap()
}

mod names {
    use super::*;

    const PREFIX: &str = "name:const";

    #[cache_lock(prefix = "name", key = key, guard = guard)]
    async fn literal(key: &str) -> Result<String> {
        Ok(guard.key().to_owned())
    }

    #[cache_lock(prefix = PREFIX, key = (a, b.0.len(), "x"), guard = guard)]
    async fn tuple(a: String, b: (String, u8)) -> Result<String> {
        drop((a, b));
        Ok(guard.key().to_owned())
    }

    #[cache_lock(key = 1, guard = guard)]
    async fn by_default() -> Result<String> {
        Ok(guard.key().to_owned())
    }

    #[cache_lock(prefix = "name", guard = guard)]
    async fn marked(
        #[locked_object] a: String,
        _between: u8,
        #[locked_complex_object(field = "1.0")] b: &(u8, (u32, u8)),
        #[locked_object] Path(c): Path<u8>,
    ) -> Result<String> {
        drop(a);
        let _ = (b, c);
        Ok(guard.key().to_owned())
    }

    #[cache_lock(prefix = "name", key = (a, a, a, a, a, a, a, a, a, (a, (a,))), guard = guard)]
    async fn many(a: u8) -> Result<String> {
        Ok(guard.key().to_owned())
    }

    #[tokio::test]
    async fn the_key_is_what_was_written_or_marked_in_order() {
        alone(async {
            assert_eq!(literal("a:b").await.unwrap(), "name:a%3Ab");
            assert_eq!(tuple("a".into(), ("bcd".into(), 1)).await.unwrap(), "name:const:a:3:x");
            assert_eq!(marked("a".into(), 0, &(1, (2, 3)), Path(4)).await.unwrap(), "name:a:2:4");
            assert_eq!(many(1).await.unwrap(), format!("name{}", ":1".repeat(11)));
        })
        .await;
    }

    #[tokio::test]
    async fn the_default_prefix_is_the_path_of_the_fn() {
        let expected = concat!(module_path!(), "::by_default:1");
        assert_eq!(alone(by_default()).await.unwrap(), expected);
    }
}

mod failures {
    use super::*;

    #[cache_lock(prefix = "fail", key = "k", timeout_ms = 0)]
    async fn converted() -> Result<u64, ShopError> {
        Ok(1)
    }

    #[cache_lock(prefix = "fail", key = "k", timeout = "0s", on_fail = fallback * 10)]
    async fn value(mut fallback: u64) -> u64 {
        fallback += 1;
        fallback
    }

    #[cache_lock(prefix = "fail", key = "k", timeout = Duration::ZERO, on_fail = |err: LockError| format!("{name}: {}", err.is_timeout()))]
    async fn closure(name: &str, moved: String) -> String {
        moved + name
    }

    #[cache_lock(prefix = "fail", key = key, on_fail = |error| Some(error))]
    async fn reported(key: Option<u8>, after: i64) -> Option<LockError> {
        let _ = after;
        key?;
        None
    }

    #[cache_lock(prefix = "fail", key = 1, timeout_s = seconds, on_fail = |error| Some(error))]
    async fn negative(seconds: i64) -> Option<LockError> {
        None
    }

    #[tokio::test]
    async fn a_busy_lock_becomes_the_error_or_the_value_that_was_asked_for() {
        alone(async {
            assert_eq!(value(4).await, 5);
            assert_eq!(closure("n", "m".into()).await, "mn");
            assert_eq!(converted().await.unwrap(), 1);
            let held = hold("fail", "k").await;
            assert_eq!(value(4).await, 40);
            assert_eq!(closure("n", "m".into()).await, "n: true");
            assert!(matches!(converted().await, Err(ShopError::Lock(error)) if error.is_timeout()));
            drop(held);
            assert_eq!(value(4).await, 5);
        })
        .await;
    }

    #[tokio::test]
    async fn a_key_or_time_that_makes_no_sense_runs_no_body() {
        alone(async {
            assert!(matches!(reported(None, 0).await, Some(LockError::InvalidKey { .. })));
            assert!(reported(Some(1), 0).await.is_none());
            assert!(matches!(negative(-1).await, Some(LockError::InvalidSetting { setting: "timeout_s", .. })));
        })
        .await;
    }

    #[tokio::test]
    async fn without_a_manager_the_fn_says_so() {
        assert!(matches!(converted().await, Err(ShopError::Lock(LockError::NotInstalled))));
    }

    #[tokio::test(start_paused = true)]
    async fn the_timeout_is_the_one_that_was_written() {
        #[cache_lock(prefix = "time", key = "k", timeout_ms = milliseconds)]
        async fn wait(milliseconds: u16) -> Result<()> {
            Ok(())
        }
        #[cache_lock(prefix = "time", key = "k", timeout_ms = 1_000 * 60 * 60 * 24 * 365)]
        async fn wait_for_a_year() -> Result<()> {
            Ok(())
        }
        alone(async {
            let _held = hold("time", "k").await;
            let start = Instant::now();
            assert!(wait(700).await.unwrap_err().is_timeout());
            let waited = start.elapsed();
            assert!(waited >= Duration::from_millis(700) && waited < Duration::from_millis(800), "{waited:?}");
            let waited = tokio::time::timeout(Duration::from_hours(6), wait_for_a_year()).await;
            assert!(waited.is_err());
        })
        .await;
    }
}

mod bodies {
    use super::*;

    #[cache_lock(prefix = "body", key = id)]
    async fn early(id: u64) -> Result<&'static str, ShopError> {
        if id == 0 {
            return Err(ShopError::SoldOut);
        }
        let text: u64 = "5".parse().map_err(|_| ShopError::SoldOut)?;
        if id == text {
            return Ok("early");
        }
        Err(ShopError::SoldOut)?;
        Ok("never")
    }

    #[cache_lock(prefix = "body", key = "one at a time", on_fail = ())]
    async fn step(inside: &AtomicU32, most: &AtomicU32) {
        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(now, Ordering::SeqCst);
        sleep(Duration::from_millis(1)).await;
        inside.fetch_sub(1, Ordering::SeqCst);
    }

    #[cache_lock(prefix = "body", key = id)]
    async fn not_send(id: Rc<u64>) -> Result<Rc<u64>> {
        let copy = Rc::clone(&id);
        tokio::task::yield_now().await;
        drop(id);
        Ok(copy)
    }

    #[cache_lock(prefix = "body", key = "k")]
    async fn outer(depth: u32) -> Result<u32> {
        if depth == 0 {
            return Ok(0);
        }
        Ok(Box::pin(outer(depth - 1)).await? + 1)
    }

    #[cache_lock(prefix = "body", key = "k", fenced = token, guard = guard)]
    async fn fenced() -> Result<FencingToken> {
        assert_eq!(guard.fencing_token(), Some(token));
        assert!(guard.is_valid());
        Ok(token)
    }

    #[tokio::test]
    async fn return_and_question_mark_leave_the_body_only() {
        alone(async {
            assert!(matches!(early(0).await, Err(ShopError::SoldOut)));
            assert_eq!(early(5).await.unwrap(), "early");
            assert!(matches!(early(6).await, Err(ShopError::SoldOut)));
            // Every one of them gave the lock back.
            for id in ["0", "5", "6"] {
                drop(hold("body", id).await);
            }
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_of_one_key_never_run_side_by_side() {
        alone(async {
            let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
            let step = || step(&inside, &most);
            // Boxed: four bodies with what surrounds them are much for one stack frame.
            tokio::join!(Box::pin(step()), Box::pin(step()), Box::pin(step()), Box::pin(step()));
            assert_eq!(most.into_inner(), 1);
        })
        .await;
    }

    #[tokio::test]
    async fn a_body_may_hold_what_no_other_thread_may_see() {
        assert_eq!(*alone(not_send(Rc::new(4))).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn a_body_that_calls_its_own_lock_enters() {
        assert_eq!(alone(outer(5)).await.unwrap(), 5);
    }

    #[tokio::test]
    async fn fencing_tokens_grow() {
        alone(async {
            let first = fenced().await.unwrap();
            assert!(fenced().await.unwrap() > first);
        })
        .await;
    }

    #[tokio::test]
    async fn a_panic_in_the_body_gives_the_lock_back() {
        #[cache_lock(prefix = "body", key = "panic")]
        async fn panics() -> Result<()> {
            "no number".parse::<u8>().unwrap();
            Ok(())
        }
        let locks = LockManager::in_memory();
        let inside = locks.clone();
        let task = tokio::spawn(async move { inside.scope(panics()).await });
        assert!(task.await.unwrap_err().is_panic());
        assert!(locks.lock("body", "panic").try_acquire().await.unwrap().is_some());
    }
}

mod managers {
    use super::*;

    struct Shop {
        owned: LockManager,
        shared: Arc<LockManager>,
        id: u64,
    }

    impl Shop {
        #[cache_lock(prefix = "m", key = self.id, manager = self.owned, timeout_ms = 0)]
        async fn owned(&self) -> Result<u64> {
            Ok(self.id)
        }

        #[cache_lock(prefix = "m", key = self.id, manager = self.shared, timeout_ms = 0)]
        async fn shared(&mut self) -> Result<u64> {
            self.id += 1;
            Ok(self.id)
        }

        #[cache_lock(prefix = "m", key = self.id, manager = &&self.owned, timeout_ms = 0)]
        async fn borrowed(self) -> Result<Self> {
            Ok(self)
        }
    }

    #[tokio::test]
    async fn the_named_manager_goes_before_the_scope() {
        let owned = LockManager::in_memory();
        let mut shop = Shop { shared: Arc::new(owned.clone()), owned: owned.clone(), id: 1 };
        alone(async move {
            assert_eq!(shop.owned().await.unwrap(), 1);
            assert_eq!(shop.shared().await.unwrap(), 2);
            shop = shop.borrowed().await.unwrap();
            let held = owned.lock("m", &2).acquire().await.unwrap();
            assert!(shop.owned().await.unwrap_err().is_timeout());
            assert!(shop.shared().await.unwrap_err().is_timeout());
            drop(held);
            assert_eq!(shop.borrowed().await.unwrap().id, 2);
        })
        .await;
    }
}

mod futures {
    use super::*;
    use std::pin::Pin;

    type Log = Mutex<Vec<&'static str>>;

    fn note(log: &Log, what: &'static str) -> u64 {
        log.lock().unwrap().push(what);
        1
    }

    #[cache_lock(prefix = "f", key = note(log, "key"), timeout_ms = note(log, "timeout"))]
    fn returns_impl(log: &Log) -> impl Future<Output = Result<()>> {
        note(log, "before the future");
        async move {
            note(log, "future");
            Ok(())
        }
    }

    #[cache_lock(prefix = "f", key = note(log, "key"), guard = guard)]
    fn returns_box<'a>(log: &'a Log) -> Pin<Box<dyn Future<Output = Result<String>> + Send + 'a>> {
        note(log, "before the future");
        Box::pin(async move {
            note(log, "future");
            Ok(guard.key().to_owned())
        })
    }

    #[tokio::test]
    async fn options_and_key_are_evaluated_at_the_call_and_the_body_under_the_lock() {
        let log = Log::default();
        let future = returns_impl(&log);
        assert_eq!(log.lock().unwrap().split_off(0), ["key", "timeout"]);
        // The scope is looked up now.
        alone(async {
            let held = hold("f", "1").await;
            assert!(future.await.unwrap_err().is_timeout());
            assert_eq!(log.lock().unwrap().len(), 0);
            drop(held);
            returns_impl(&log).await.unwrap();
            let seen = log.lock().unwrap().split_off(0);
            assert_eq!(seen, ["key", "timeout", "before the future", "future"]);
        })
        .await;
    }

    #[tokio::test]
    async fn a_boxed_future_is_locked_in_the_same_way() {
        let log = Log::default();
        let future = returns_box(&log);
        assert_eq!(*log.lock().unwrap(), ["key"]);
        assert_eq!(alone(future).await.unwrap(), "f:1");
        assert_eq!(*log.lock().unwrap(), ["key", "before the future", "future"]);
    }
}

mod async_traits {
    use super::*;

    const PREFIX: &str = "trait";

    #[async_trait::async_trait]
    trait Buys: Send + Sync {
        async fn buy(&self, id: Path<u64>, amount: u64) -> Result<String, ShopError>;

        #[cache_lock(prefix = self::PREFIX, key = self.id(), guard = guard)]
        async fn by_default(&self) -> Result<String, ShopError> {
            Ok(guard.key().to_owned())
        }

        fn id(&self) -> u64;
    }

    struct Shop {
        locks: LockManager,
        id: u64,
    }

    #[async_trait::async_trait]
    impl Buys for Shop {
        #[cache_lock(prefix = "trait", manager = self.locks, guard = guard, timeout_ms = 0, on_fail = Ok(format!("{} is busy", self.id)))]
        async fn buy(&self, #[locked_object] Path(id): Path<u64>, mut amount: u64) -> Result<String, ShopError> {
            amount += id;
            tokio::task::yield_now().await;
            if amount == 0 {
                return Err(ShopError::SoldOut);
            }
            Ok(format!("{} {amount}", guard.key()))
        }

        fn id(&self) -> u64 {
            self.id
        }
    }

    #[tokio::test]
    async fn a_fn_that_async_trait_has_rewritten_is_locked_like_any_other() {
        let locks = LockManager::in_memory();
        let shop = Shop { locks: locks.clone(), id: 3 };
        let shop: Arc<dyn Buys> = Arc::new(shop);
        assert_eq!(shop.buy(Path(1), 2).await.unwrap(), "trait:1 3");
        assert!(matches!(shop.buy(Path(0), 0).await, Err(ShopError::SoldOut)));
        let held = locks.lock("trait", &1).acquire().await.unwrap();
        assert_eq!(shop.buy(Path(1), 2).await.unwrap(), "3 is busy");
        drop(held);
        assert_eq!(alone(shop.by_default()).await.unwrap(), "trait:3");
        let task = tokio::spawn(async move { shop.buy(Path(1), 2).await.unwrap() });
        assert_eq!(task.await.unwrap(), "trait:1 3");
    }
}

mod beside_other_attributes {
    use super::*;

    #[cache_lock(prefix = "axum", key = id, timeout_ms = 0)]
    async fn handler(Path(id): Path<u64>, body: String) -> Result<String, ShopError> {
        tokio::task::yield_now().await;
        if body.is_empty() {
            return Err(ShopError::SoldOut);
        }
        Ok(format!("{id} {body}"))
    }

    #[cache_lock(prefix = "axum", key = "all", on_fail = StatusCode::LOCKED.into_response())]
    async fn into_response() -> axum::response::Response {
        StatusCode::OK.into_response()
    }

    #[tokio::test]
    async fn a_handler_of_axum_is_locked() {
        use tower_service::Service as _;
        let locks = LockManager::in_memory();
        let routes = axum::Router::new().route("/{id}", axum::routing::any(handler));
        let mut routes: axum::Router = routes.route("/", axum::routing::any(into_response));
        let mut status = async |path: &str, body: &'static str| {
            let request = Request::builder().uri(path).body(body.into()).unwrap();
            let request: Request<axum::body::Body> = request;
            locks.scope(routes.call(request)).await.unwrap().status()
        };
        assert_eq!(status("/7", "x").await, StatusCode::OK);
        assert_eq!(status("/7", "").await, StatusCode::GONE);
        assert_eq!(status("/", "").await, StatusCode::OK);
        let held = locks.lock("axum", &7).acquire().await.unwrap();
        assert_eq!(status("/7", "x").await, StatusCode::LOCKED);
        drop(held);
    }

    #[tracing::instrument(skip(secret), err)]
    #[cache_lock(prefix = "tracing", key = id, guard = guard)]
    async fn above(id: u64, mut secret: String) -> Result<String> {
        secret.push('!');
        Ok(secret + guard.key())
    }

    #[cache_lock(prefix = "tracing", key = id, guard = guard)]
    #[tracing::instrument(skip(secret), err)]
    async fn below(id: u64, mut secret: String) -> Result<String> {
        secret.push('!');
        Ok(secret + guard.key())
    }

    #[tokio::test]
    async fn an_instrumented_fn_is_locked() {
        alone(async {
            assert_eq!(above(1, "s".into()).await.unwrap(), "s!tracing:1");
            assert_eq!(below(1, "s".into()).await.unwrap(), "s!tracing:1");
        })
        .await;
    }
}

mod lost_holds {
    use super::*;

    #[cache_lock(prefix = "lost", key = "k", expire_ms = 100)]
    async fn cancelled(done: &AtomicU32) -> Result<()> {
        sleep(Duration::from_secs(5)).await;
        done.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    #[cache_lock(prefix = "lost", key = "k", expire = "100ms", on_lost = "continue")]
    async fn continued(done: &AtomicU32) -> Result<()> {
        sleep(Duration::from_secs(5)).await;
        done.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    #[cache_lock(prefix = "lost", key = "k", expire_ms = 100, on_fail = fallback)]
    async fn replaced(fallback: u8) -> u8 {
        sleep(Duration::from_secs(5)).await;
        2
    }

    #[cache_lock(prefix = "lost", key = "k", expire_ms = 100, renew = long)]
    async fn renewed(long: bool) -> Result<()> {
        sleep(Duration::from_secs(5)).await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_whose_lease_ends_is_stopped_or_runs_on_as_asked() {
        alone(async {
            let done = AtomicU32::new(0);
            let error = cancelled(&done).await.unwrap_err();
            assert!(matches!(error, LockError::Lost { completed: false, .. }), "{error}");
            assert_eq!(done.load(Ordering::SeqCst), 0);
            let error = continued(&done).await.unwrap_err();
            assert!(matches!(error, LockError::Lost { completed: true, .. }), "{error}");
            assert_eq!(done.load(Ordering::SeqCst), 1);
            assert_eq!(replaced(0).await, 0);
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_renewed_when_asked() {
        alone(async {
            assert!(renewed(false).await.unwrap_err().is_lost());
            renewed(true).await.unwrap();
        })
        .await;
    }
}
