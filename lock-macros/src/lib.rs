//! The attribute and the derive of `lock-runtime`, which re-exports them: depend on that crate, not on this one.

use proc_macro::TokenStream;

#[cfg(test)]
mod any_input;
mod cache_lock;
mod lock_key;
mod mistakes;
#[cfg(test)]
mod snapshots;

/// Runs an async fn's body while holding a distributed lock, and gives the lock back afterwards.
///
/// ```ignore (the runtime depends on this crate)
/// use lock_runtime::{LockError, LockManager, cache_lock};
///
/// #[cache_lock(prefix = "seckill", key = commodity_id, timeout_ms = 2000, expire_s = 1000)]
/// async fn sec_kill(user_id: &str, commodity_id: u64) -> Result<u64, ShopError> { /* … */ }   // ShopError: From<LockError>
///
/// impl Shop {
///     #[cache_lock(prefix = "seckill", manager = &self.locks)]
///     async fn buy(&self, user: UserId, #[locked_object] commodity_id: u64) -> Result<Receipt, ShopError> { /* … */ }
///
///     #[cache_lock(prefix = "order")]
///     async fn pay(&self, #[locked_complex_object(field = "order.id")] request: &PayRequest) -> Result<(), ShopError> { /* … */ }
/// }
/// ```
///
/// # Options
///
/// They are separated by commas, in any order, each at most once.
///
/// | option | means | when left out |
/// |---|---|---|
/// | `prefix = "…"` | first part of the lock's name, taken as it is: a string literal or the path of a `const` | module path and fn name |
/// | `key = EXPR` | what the lock protects: any expression over the arguments and `self` whose type is `LockKey`. It is borrowed as `&(EXPR)`, the parts of a tuple one by one, never moved. `key = (from, to)` is *one* lock, of the pair: a body for `(to, from)` or for `from` alone runs beside it | the marked arguments |
/// | `timeout_ms = INTEGER`, `timeout_s = INTEGER`, `timeout = "1500ms"` or a `Duration` | how long to wait for the lock; 0 tries once | the manager's, 2 s |
/// | `expire_ms = INTEGER`, `expire_s = INTEGER`, `expire = "2s"` or a `Duration` | the lease: how long a *crashed* holder keeps others out. It does not limit a healthy body: the lease is renewed until the body ends | the manager's, 30 s |
/// | `renew = BOOL` | `renew = false` never renews the lease: the body is stopped when the lease ends | on (`renew` alone means `renew = true`) |
/// | `on_fail = EXPR`, `on_fail = \|err\| EXPR` | what to return when the lock was not obtained, or was lost | `Err(E::from(LockError))` |
/// | `on_lost = "cancel"`, `on_lost = "continue"` | whether a body whose lease is lost under it is stopped | `"cancel"` |
/// | `manager = EXPR` | the `LockManager`, or a reference or `Arc` to one; borrowed, never moved | that of the enclosing `LockManager::scope`, else the installed one |
/// | `guard = NAME` | binds `NAME: &LockGuard` in the body | |
/// | `fenced = NAME` | draws a fencing token and binds `NAME: FencingToken` in the body | |
/// | `crate = PATH` | where the runtime is, for a renamed or re-exported dependency | `::lock_runtime` |
///
/// A text with a unit is an integer and `ms`, `s`, `m` or `h`.
///
/// # Marks
///
/// Instead of `key`, arguments can be marked; several marks make a key of several parts, in order.
///
/// - `#[locked_object]`: the argument itself. In `Path(id): Path<u64>` that is `id`.
/// - `#[locked_complex_object(field = "order.id")]`: a field of it.
///
/// # What happens when
///
/// The options, the key and the manager are evaluated before the body, in the order of key, times, manager. In an
/// `async fn` that is at the first poll. Then the lock is waited for, the body runs, and the lock is given back, also
/// when the body returns early, fails with `?`, panics or is dropped.
///
/// Arguments move into the body, each as a whole, and are dropped before the lock is given back: a transaction among them
/// that rolls back when it is dropped does so under the lock. So `on_fail`, which comes after the body, sees only what is
/// `Copy` (shared references too), with the value that it had at the call. An argument that `on_fail` mentions and the
/// body does not stays outside. So does what a pattern leaves out or only borrows: `_: T`, the fields behind the `..` of
/// `Order { id, .. }`, and what `ref name` refers to. All that is dropped after the lock was given back.
///
/// # Which fns
///
/// `async fn`s of all kinds: free, methods, in traits and their impls, generic, with `impl Trait`, with argument
/// patterns; also inside `#[async_trait]`, and above or below attributes such as `#[tracing::instrument]`. Put it above
/// `#[axum::debug_handler]`, which checks a copy of the body without its other attributes: the names of `guard` and
/// `fenced` are not known there.
///
/// A fn that is not `async` counts when it returns `impl Future<Output = T>` or `Pin<Box<dyn Future<Output = T>>>`, in
/// these words. It evaluates the options, the key and a named manager at the call; a manager of the scope is looked up
/// at the first poll. All of its own body, the part before the future too, runs under the lock at the first poll; so
/// the arguments have to live as long as the future.
///
/// The future is `Send` when that of the body is and what it returns is: the value is kept while the lock is given back.
///
/// # Two methods of one name
///
/// The default prefix doesn't know the type of `self`: methods of the same name in one module share it. Give each a
/// `prefix` when they must not exclude each other.
#[proc_macro_attribute]
pub fn cache_lock(options: TokenStream, item: TokenStream) -> TokenStream {
    cache_lock::expansion(options.into(), item.into()).into()
}

/// Makes a struct or an enum usable as the key of a lock.
///
/// ```ignore (the runtime depends on this crate)
/// #[derive(LockKey)]
/// struct Seat {
///     #[lock_key]
///     train: String,
///     #[lock_key]
///     number: u32,
///     price: u64,
/// }
/// ```
///
/// The key's parts are the fields marked `#[lock_key]`, in the order of the fields. A struct or variant with a single
/// field needs no mark. Of an enum the variant's name comes first, so that no two variants share a lock.
///
/// A marked field whose type depends on a type parameter makes `LockKey` of that type a condition of the impl.
///
/// `#[lock_key(crate = PATH)]` on the type says where the runtime is, for a renamed or re-exported dependency.
#[proc_macro_derive(LockKey, attributes(lock_key))]
pub fn lock_key(item: TokenStream) -> TokenStream {
    lock_key::expansion(item.into()).into()
}
