//! The attribute and the derive of `lock-runtime`. Depend on that crate, which re-exports them, and not on this one.

use proc_macro::TokenStream;
use proc_macro2::TokenTree;

mod cache_lock;
mod lock_key;
mod mistakes;
mod page;
#[cfg(test)]
mod random_input;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod trait_snapshots;

/// Runs a fn's body while holding a distributed lock, and releases the lock afterwards.
///
/// Put it on a fn, on a [trait](#on-a-trait), whose methods a proxy then locks, or on an [`impl` block](#on-an-impl-block), for options
/// that its fns share.
///
/// ```ignore (the runtime depends on this crate)
/// use lock_runtime::{LockError, LockManager, cache_lock};
///
/// // Waits at most 2 s for the lock. The lease is renewed until the body ends.
/// #[cache_lock(prefix = "seckill", key = commodity_id, timeout_ms = 2000)]
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
/// Options are separated by commas, in any order. Each option may be given once.
///
/// | option | means | when left out |
/// |---|---|---|
/// | `prefix = "…"` | the first part of the lock's name, taken as it is: a string literal or the path of a `const` | module path and fn name |
/// | `key = EXPR` | what the lock protects: an expression over the arguments and `self`, of a type that implements `LockKey` ([more](#the-key)); `key = "all"` is one lock for every call | the [marked arguments](#marks); without marks a compile error |
/// | `keys = EXPR` | several locks, all or none, in place of `key`: a list such as `[from, to]`, or a collection or iterator of keys ([more](#several-keys)) | one lock |
/// | `timeout_ms = INTEGER`, `timeout_s = INTEGER`, `timeout = "1500ms"` or a `Duration` | how long to wait for the lock, or for all locks together; 0 tries once | the manager's timeout, 2 s |
/// | `expire_ms = INTEGER`, `expire_s = INTEGER`, `expire = "2s"` or a `Duration` | the lease: how long a *crashed* holder keeps others out. It does not limit a healthy body: the lease is renewed until the body ends, unless `renew = false` | the manager's lease, 30 s |
/// | `linger_ms = INTEGER`, `linger_s = INTEGER`, `linger = "500ms"` or a `Duration` | how long this process keeps the lock after a body. The next body here then starts without asking Redis. Another process that waits gets the lock at once. At most 2 s; 0 keeps nothing. Not on a quorum, and not with `permits` | the manager's linger time, 0 |
/// | `renew = BOOL` | `renew = false` never renews the lease: the body is stopped when the lease ends | `true`; `renew` alone means `renew = true` |
/// | `max_hold_ms = INTEGER`, `max_hold_s = INTEGER`, `max_hold = "5m"` or a `Duration` | how long the lock may be held. Then the body is stopped, and its caller gets `LockError::Lost` with `max_hold` | the manager's limit, none |
/// | `at_least_ms = INTEGER`, `at_least_s = INTEGER`, `at_least = "50s"` or a `Duration` | for a job that should run once per period: the lock can't be acquired again before this time has passed since the start of the hold, even if the body ends sooner or fails, or its process dies | the lock is free when the body ends |
/// | `lock_delay_ms = INTEGER`, `lock_delay_s = INTEGER`, `lock_delay = "5s"` or a `Duration` | how long the lock rests after a body that was dropped before its end: its caller went away, its `max_hold` was over, or it was replaced. A write that it sent may still arrive in this time, so the lock can't be acquired. Not with `mode = "read"` | the manager's delay, 0 |
/// | `note = EXPR` | a text for people, of at most 128 bytes: who or what holds the lock, and why. It is shown with the holder's label: in `LockError::Timeout`, in `LockInfo`, by `lockctl`, in the hold's span. Everyone who may read the key in Redis can read it | no note |
/// | `mode = "read"`, `mode = "write"` | a reader shares the lock with other readers, and a writer has it alone. Readers that arrive after a waiting writer wait for it ([more](#readers-and-permits)) | `"write"` |
/// | `permits = INTEGER` | at most this number of bodies run at once, over all processes ([more](#readers-and-permits)) | one at a time |
/// | `on_fail = EXPR`, `on_fail = \|err\| EXPR` | what the fn returns when the lock was not obtained, or was lost; `err` is the `LockError` ([more](#when-the-lock-is-not-obtained)). It does not see errors of the body | `Err(E::from(LockError))` |
/// | `on_lost = "cancel"`, `on_lost = "continue"` | whether a body is stopped when its lease is lost. With `"continue"` it runs to its end, and then its caller gets `LockError::Lost` with `completed: true` | `"cancel"` |
/// | `on_busy = "replace"`, `on_busy = "wait"` | with `"replace"` the newest call wins: it takes the lock from its holder. The holder's body is dropped, its caller gets `LockError::Lost` with `forced`, and only then does this body start. Until then this call waits in front of all others, within its timeout ([more](#the-newest-wins)) | `"wait"` |
/// | `manager = EXPR` | the `LockManager`, or a reference or `Arc` to a manager; borrowed, never moved | the manager of the enclosing `LockManager::scope`, else the installed manager |
/// | `guard = NAME` | binds `NAME: &LockGuard` in the body | no binding |
/// | `fenced = NAME` | draws a fencing token and binds `NAME: FencingToken` in the body; with `keys`, `NAME: Vec<FencingToken>`, one for each key in the order in which they are given | no token |
/// | `proxy = NAME` | on a trait: the type that locks its methods ([more](#on-a-trait)) | a compile error on a trait |
/// | `crate = PATH` | where the runtime is, for a renamed or re-exported dependency | `::lock_runtime` |
///
/// A time in quotes is an integer and its unit, `ms`, `s`, `m` or `h`: `"1500ms"`. Where the table says `INTEGER`, `BOOL` or `Duration`,
/// any expression of that type works.
///
/// # The key
///
/// The key is borrowed as `&(EXPR)` and never moved. The parts of a tuple are borrowed one by one.
///
/// A text is taken literally. One that names an argument, such as `"id"`, `"#id"` or `"order-{id}"`, is a compile error: every call would
/// share one lock.
///
/// `key = (from, to)` is *one* lock, of the pair. A body for `(to, from)`, or for `from` alone, may run at the same time. To lock
/// both accounts, write `keys`.
///
/// # Several keys
///
/// ```ignore (the runtime depends on this crate)
/// #[cache_lock(prefix = "account", keys = [from, to])]
/// async fn transfer(from: u64, to: u64, amount: u64) -> Result<(), BankError> { /* … */ }
/// ```
///
/// The body runs when all locks are held. They are taken in the order of their names, so fns that lock several keys never wait for each
/// other in a circle. A key that is given twice is one lock; with `fenced` the same token is given twice. No key at all is a
/// `LockError::InvalidKey`, and so are more than 1,000 keys. More about several keys: `LockManager::lock_all`.
///
/// - `[from, to]`: each key is borrowed, and all keys have one type.
/// - `ids` or `order.ids`: the collection is borrowed for the names alone. It may be a `Vec`, a slice, a set, or a reference to one,
///   `&mut` too. A `Vec` behind an `Arc`, `Rc` or `Box` is written `ids.iter()`.
/// - An argument `ids: impl Iterator<…>` or `impl IntoIterator<…>`, of a generic type with such a bound, or a `Range`, is used up: the
///   body can't use it.
/// - Any other expression is used as it is: `order.lines.iter().map(|line| line.article)`. So is an argument in braces, `{ ids }`, which
///   the body then can't use: write that for a type that yields its items only when moved, such as a range or an iterator behind an alias.
///
/// # Marks
///
/// Instead of `key`, arguments can be marked. Several marks make a key of several parts, in order.
///
/// - `#[locked_object]`: the argument itself. For a pattern such as `Path(id): Path<u64>` it is the one name that the pattern binds.
/// - `#[locked_complex_object(field = "order.id")]` on `request`: the field `request.order.id`. `field = order.id` is the same.
///
/// # Readers and permits
///
/// ```ignore (the runtime depends on this crate)
/// #[cache_lock(prefix = "catalog", key = id, mode = "read")]                 // beside other readers
/// async fn page(id: u64) -> Result<Page, ShopError> { /* … */ }
///
/// #[cache_lock(prefix = "catalog", key = id)]                                // alone
/// async fn edit(id: u64, page: Page) -> Result<(), ShopError> { /* … */ }
///
/// #[cache_lock(prefix = "render", key = tenant, permits = 4)]                // at most four at a time
/// async fn render(tenant: u64) -> Result<Video, ShopError> { /* … */ }
/// ```
///
/// A reader inside the body of a reader or a writer of the same lock starts at once. A writer inside a reader fails at once with
/// `LockError::AlreadyHeld`: it would wait for itself. A fn with permits that is called inside a body that has a permit of the same lock
/// needs no second one.
///
/// With `linger` a process keeps the lease of its readers for its next reader.
///
/// On a quorum `mode = "read"` and `permits` are refused with `LockError::InvalidSetting`, when the fn is called.
///
/// # The newest wins
///
/// ```ignore (the runtime depends on this crate)
/// #[cache_lock(prefix = "export", key = report, on_busy = "replace", timeout = "10s")]
/// async fn export(report: u64) -> Result<(), ShopError> { /* … */ }
/// ```
///
/// A second call for the same report ends the first: see `LockRequest::on_busy`. It is a compile error with `mode = "read"`, `permits`,
/// `keys` and a timeout of zero. On a quorum it is a `LockError::InvalidSetting` when the fn is called. A fn that is not async can't be
/// stopped, so the newer call waits until it ends, or until its time to stop is over (2.5 s).
///
/// # When the lock is not obtained
///
/// Without `on_fail` the fn returns a `Result`, and its error type has `From<LockError>`. With `on_fail` it may return anything. It is no
/// failure when another instance already runs the job. A lost lock is one, and so is a Redis that is away:
///
/// ```ignore (the runtime depends on this crate)
/// #[cache_lock(prefix = "cleanup", key = "all", at_least = "50s", timeout_ms = 0, on_fail = |err| match err {
///     LockError::Timeout { .. } => Ok(()),
///     err => Err(err.into()),
/// })]
/// async fn clean_up(db: &Db) -> Result<(), ShopError> { /* … */ }
/// ```
///
/// # What happens when
///
/// 1. The key, the times and the manager are evaluated, in this order. An `async fn` does this at its first poll.
/// 2. The call waits for the lock.
/// 3. The body runs.
/// 4. The lock is released, even if the body returns early, fails with `?`, panics or is dropped.
///
/// Arguments move into the body, and are dropped before the lock is released, the last one first. Two kinds of arguments stay outside the
/// body, and are dropped after the release:
///
/// - an argument that `on_fail` mentions and the body does not;
/// - what a pattern leaves out or only borrows: `_: T`, the fields behind the `..` of `Order { id, .. }`, and what
///   `ref name` refers to.
///
/// A dropped body keeps its lock until its destructors have run, and no longer. What it sent may arrive later, after the next holder has
/// begun: a `COMMIT` under way, or the `ROLLBACK` of a transaction, which sqlx only queues. A fencing token refuses the late write. If only
/// the caller may go away, run the locked fn in a task of its own: `tokio::spawn(pay(7)).await`.
///
/// `on_fail` runs last, after the release, even if the body never started. Of the arguments that moved into the body it sees those that are
/// `Copy` (shared references too), with their values at the call.
///
/// # Which fns
///
/// The attribute works on all kinds of `async fn`: free fns, methods, fns in traits and their impls, generic fns, with `impl Trait`, with
/// argument patterns. It also works inside `#[async_trait]`, and above or below attributes such as `#[tracing::instrument]`.
///
/// Put it above `#[axum::debug_handler]`. That attribute checks a copy of the body without `cache_lock`, in which the names of `guard` and
/// `fenced` would be unknown.
///
/// What the fn returns runs without the lock. So an `impl Future`, `dyn Future` or `Stream` inside the return type, as in
/// `Result<impl Stream<…>, E>`, is a compile error. An `async fn` that hides one behind a name is not detected: a `BoxStream`, or the
/// `JoinHandle` of what the body spawns. A closure that is returned as `impl Fn` needs the types of its arguments written out:
/// `move |order: &Order| …`.
///
/// The future of a locked `async fn` is `Send` when the body's future and the returned value are `Send`. A body alone could return a value
/// that is not `Send`, such as an `Rc`, from a future that is; under a lock the value waits for the release.
///
/// A fn that is not `async` counts as one when its return type is written as `impl Future<Output = T>` or
/// `Pin<Box<dyn Future<Output = T>>>`, also with `+ Send` and a lifetime. A future behind an alias is a compile error that says so.
///
/// - The options, the key and `manager = …` are evaluated at the call. Without `manager`, the manager is looked up at the first poll.
/// - The whole fn body runs under the lock, from the first poll on, including what stands before the future. So borrowed arguments have to
///   live as long as the future, which says so with `+ '_`, a lifetime of its own, or `+ use<'a>`.
///
/// Any other fn that is not `async` waits on its thread: on a plain thread, in `spawn_blocking`, in a rayon job that does not wait in its
/// pool. It needs no runtime.
///
/// ```ignore (the runtime depends on this crate)
/// #[cache_lock(prefix = "catalog", key = id)]
/// fn rebuild(id: u64) -> Result<(), ShopError> { /* … */ }
/// ```
///
/// - The wait is bounded by the timeout. Called in an async task, whose thread must not wait, the fn fails at once with
///   `LockError::InAsyncTask`: call it inside `spawn_blocking`.
/// - A body on a thread can't be stopped. When the lock is lost, the body runs to its end, and its caller gets
///   `Lost { completed: true }`. The same holds at the end of its `max_hold`.
///
/// # Locked fns inside a body
///
/// A locked fn of the same lock that the body awaits, or calls on the same thread, enters the lock that the body holds, and does not wait.
/// A task that the body spawns waits for the lock like any other. A locked fn that is not `async` fails with `LockError::InAsyncTask` when
/// an async body calls it directly, whatever the body holds.
///
/// # On a trait
///
/// Annotate the trait; its implementation needs to know nothing about locks. The attribute leaves the trait as it is, and adds a proxy: a
/// type that wraps any implementation and implements the trait.
///
/// ```ignore (the runtime depends on this crate)
/// #[cache_lock(proxy = LockedSeckill)]
/// pub trait Seckill {
///     #[cache_lock(prefix = "seckill", timeout_ms = 2000)]
///     async fn sec_kill(&self, user: &str, #[locked_object] commodity_id: u64) -> Result<u64, ShopError>;
///     async fn stock(&self, commodity_id: u64) -> Result<u64, ShopError>;      // no lock: passed on as it is
/// }
///
/// impl Seckill for Shop { /* not a word about locks: testable without one */ }
///
/// let shop = LockedSeckill::new(Shop);                             // the scoped or installed manager
/// let shop = LockedSeckill::with_manager(Shop, locks.clone());     // or this one
/// shop.sec_kill("ada", 7).await?;
/// let shop: Shop = shop.into_inner();                              // `inner()` borrows it
/// ```
///
/// The proxy `LockedSeckill<T>` has the visibility of the trait, `Clone` and `Debug` when `T` has them, and implements the trait for every
/// `T: Seckill`. A call of a marked method takes the lock, calls the implementation, and releases the lock.
///
/// - Options go on the methods. Those that several methods share may go next to `proxy`; a method's own take precedence.
/// - `guard` and `fenced` are refused: there is no body to bind a name in. Put these on the fn that implements the method. If its lock has
///   the same name, the fn enters the lock that the proxy holds.
/// - In `key`, `manager` and the other options `self` is the proxy, which has the trait's methods and no fields: `key = self.id()`. A
///   `manager` on a method takes precedence over the proxy's. A marked fn without `self` uses the scoped or installed manager: call it as
///   `LockedSeckill::<Shop>::name(…)`. `Self::NAME` is a constant of the trait.
/// - In a library, rustc warns about an `async fn` in a public trait (`async_fn_in_trait`), with or without this attribute. Write `-> impl
///   Future<Output = …> + Send`, or use `#[async_trait]`.
/// - A provided method may be marked, too. The implementation's own version is called, if it has one.
/// - A provided method runs on the implementation. If it calls a marked method of `self`, that is a compile error: the method would run
///   without its lock. Write a fn next to the trait that takes `&impl Seckill` instead. The same call inside an implementation, or from a
///   subtrait, takes no lock either, and the macro can't see it.
/// - The trait may be generic, and have associated types and constants, `unsafe` and blocking methods, and methods that return futures.
///   `#[async_trait]` may go above or below; then the proxy can be an `Arc<dyn Seckill>`, too. `#[automock]` goes below both: above, it
///   would copy the marks, and the mock would take the locks.
/// - `self`, `&self`, `&mut self` and `self: Box<Self>` are forwarded. With `self: Arc<Self>` in the trait, the proxy keeps its
///   implementation in an `Arc`, and no method may take `self` or `&mut self`.
/// - `Self` and `&Self` may be arguments, and `Self`, `Option<Self>` and `Result<Self, E>` may be returned: a returned `Self` becomes a
///   proxy with the same manager. Other types with `Self` in them are a compile error.
/// - You have to implement a supertrait that is not an auto trait for the proxy: `impl<T: Named> Named for LockedSeckill<T> { … }`.
///   Otherwise the proxy does not implement the trait. An associated type of the supertrait that a method names has to be the
///   implementation's: `type Row = T::Row`. If several supertraits may have that type, the method names it as `<Self as Stored>::Row`.
/// - A trait that is implemented for all types of another trait, as in `impl<T: Shop> ShopExt for T`, can't have a proxy: it would
///   implement the trait twice (E0119, E0283, "type annotations needed"). Put the attribute on the fns of that `impl`.
/// - A boxed future that a marked method makes from `&self` has its lifetime: `Pin<Box<dyn Future<Output = …> + Send + '_>>`.
/// - A marked method that returns a `Send` future needs a `T` that can be used from another thread: `T: Sync` for `&self`, `T: Send` for
///   `&mut self`. Its arguments and its returned value have to be `Send`, too. The proxy adds this bound for `Self`, the trait's parameters
///   and its associated types; for a method's own type parameter the trait has to: `R: Send`.
/// - The methods of the type itself, such as `inner` and `new`, hide methods of the trait that have the same name.
///
/// # On an `impl` block
///
/// ```ignore (the runtime depends on this crate)
/// #[cache_lock(prefix = "shop", manager = &self.locks, timeout_ms = 500)]
/// impl Shop {
///     #[cache_lock(key = id)]                                   // has the block's options; its own go before
///     async fn buy(&self, id: u64) -> Result<(), ShopError> { /* … */ }
///     async fn stock(&self) -> u64 { /* … */ }                  // not marked: no lock
/// }
/// ```
///
/// The block may implement a trait, and `#[async_trait]` may go above or below. A time on the fn replaces the block's, also in another
/// spelling, and `permits` replaces a `mode`. Options that belong to one fn are refused on the block: `key`, `keys`, `guard`, `fenced`.
///
/// In a block and in a trait the attribute is recognised by its name, `cache_lock`: an import under another name is not seen. There it is a
/// compile error inside `#[cfg_attr(…)]`, and so is a macro that makes fns: they would take another lock.
///
/// # Lints
///
/// The attribute's code causes no warnings. It allows some lints where it has to, so a crate can `deny` them, but not `forbid` them:
/// `deprecated`, `unreachable_code`, `unused_imports`, where an argument is `mut` `unused_assignments`, and of clippy `redundant_closure`,
/// `redundant_closure_for_method_calls` and `used_underscore_binding`; on a trait `dead_code` and clippy's `future_not_send`, too. The
/// derive allows `deprecated`.
///
/// A locked fn gets the same lints as the fn as it is written, except for a few that can't apply to it. An `#[expect(…)]` of these is
/// unfulfilled: `unused_assignments`, and of clippy `needless_pass_by_value`, `needless_return`, `unnecessary_wraps` and `manual_async_fn`.
/// Clippy's `implicit_return`, which is off by default, warns about the attribute.
///
/// # What a body can't have
///
/// Nested futures are nested types. From about 13 locked fns that await one another (17 with `#[instrument]` alone), rustc says "overflow
/// evaluating the requirement": write `#![recursion_limit = "256"]` at the head of the crate, or box a future on the way.
///
/// The body of a blocking fn is a closure, so `#[track_caller]` does not reach into it. The future of a locked fn is neither `Sync` nor
/// `Unpin`. A constant parameter of an `impl`, in a fn that names neither `self` nor `Self`, goes in braces: `permits = { N }`.
///
/// # Two methods of one name
///
/// The default prefix has no type name: `A::run` and `B::run` in one module share it, and so do two fns of one name that are nested in
/// different fns of a module. Give each a `prefix` if they must not exclude each other. Renaming a fn changes its default prefix, too:
/// while old and new instances run, they would not exclude each other.
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
/// - The parts of the key are the fields marked `#[lock_key]`, in the order of the fields.
/// - A struct or variant with a single field needs no mark. Several fields and no mark are a compile error.
/// - The key of an enum begins with the variant's name, so no two variants share a lock.
/// - `#[lock_key(display)]` on a field uses the text that its `Display` writes. That is for types of other crates, such as a date.
/// - If the type of a marked field depends on a type parameter, the impl requires that type to be a `LockKey`.
///
/// `#[lock_key(crate = PATH)]` on the type gives the path of the runtime, for a renamed or re-exported dependency.
#[proc_macro_derive(LockKey, attributes(lock_key))]
pub fn lock_key(item: TokenStream) -> TokenStream {
    lock_key::expansion(item.into()).into()
}

/// Whether `is_meant` holds for one of the tokens, at any depth.
fn any_token(tokens: proc_macro2::TokenStream, is_meant: &impl Fn(TokenTree) -> bool) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => any_token(group.stream(), is_meant),
        token => is_meant(token),
    })
}

/// The type, in parentheses if it has a `+`, so that it can stand before an `as`.
fn in_one_piece(ty: syn::Type) -> syn::Type {
    let span = syn::spanned::Spanned::span(&ty);
    if let syn::Type::TraitObject(_) = ty { syn::parse_quote_spanned!(span=> (#ty)) } else { ty }
}

/// The text of a page of `docs/`, with links that work in rustdoc.
#[doc(hidden)]
#[proc_macro]
pub fn __page(path: TokenStream) -> TokenStream {
    let path = syn::parse_macro_input!(path as syn::LitStr);
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let read = std::fs::read_to_string(std::path::Path::new(&package).join(path.value()));
    let page = read.map(|page| page::for_rustdoc(path.value().as_ref(), &page));
    match page {
        Ok(page) => quote::quote!(#page).into(),
        Err(error) => syn::Error::new(path.span(), error).into_compile_error().into(),
    }
}
