//! [`Engine`]: one manager's inside, where the queue, the store and the keeper meet.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::task::TaskTracker;

use crate::LockError;
use crate::builder::Settings;
use crate::clock::{Deadline, Moment};
use crate::fork::Origin;
use crate::keeper::Keeper;
use crate::keeper::thread::KeeperThread;
use crate::local::{self, Crowd, Hold, Loss, Slot, Table, Terms, Turn};
use crate::observe;
use crate::store::{AnyStore, Events, Pushed, Release, Store};
use crate::token::{Process, Token};

/// How long the shutdown waits for bodies that were told to end, and for the last releases.
const LAST_STEPS: Duration = Duration::from_secs(2);

pub(crate) struct Engine {
    /// For what outlives a call: pushes, and the keeper.
    this: Weak<Engine>,
    settings: Settings,
    process: Process,
    table: Table,
    crowd: Crowd,
    /// The store over the callers' connection.
    store: Arc<AnyStore>,
    keeper: Arc<Keeper>,
    /// How many answers tasks have had from the store.
    answers: AtomicU64,
    bodies: TaskTracker,
    releases: TaskTracker,
    is_closed: AtomicBool,
    /// The process whose locks these are; `None` for locks that are in the process itself, and so in each copy of it.
    origin: Option<Origin>,
}

impl Engine {
    /// `store` serves the callers and pushes; `keeper_store` is the same store over the keeper's own connection.
    pub(crate) fn new(
        settings: Settings,
        process: Process,
        store: Arc<AnyStore>,
        keeper_store: Arc<AnyStore>,
        thread: Option<Arc<KeeperThread>>,
    ) -> Arc<Self> {
        let engine = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            origin: thread.is_some().then(Origin::here),
            keeper: Keeper::new(keeper_store, settings.command_timeout, thread),
            crowd: Crowd::new(settings.max_waiters, settings.max_waiters_per_key),
            settings,
            process,
            table: Table::default(),
            store,
            answers: AtomicU64::new(0),
            bodies: TaskTracker::new(),
            releases: TaskTracker::new(),
            is_closed: AtomicBool::new(false),
        });
        let events: Weak<dyn Events> = Weak::<Engine>::clone(&engine.this);
        engine.store.attach(engine.process.id(), Weak::clone(&events));
        engine.keeper.attach(engine.process.id(), events);
        engine.keeper.start(&engine.this);
        engine
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn label(&self) -> &str {
        &self.settings.label
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn crowd(&self) -> &Crowd {
        &self.crowd
    }

    pub(crate) fn store(&self) -> &Arc<AnyStore> {
        &self.store
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    pub(crate) fn bodies(&self) -> &TaskTracker {
        &self.bodies
    }

    /// The releases that tasks wait for.
    pub(crate) fn releases(&self) -> &TaskTracker {
        &self.releases
    }

    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    pub(crate) fn note_answer(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Whether this process is a fork of the one that made the manager.
    pub(crate) fn is_inherited(&self) -> bool {
        self.origin.is_some_and(Origin::is_inherited)
    }

    /// The same, a millisecond late at most: it costs next to nothing.
    pub(crate) fn is_inherited_at(&self, now: Moment) -> bool {
        self.origin.is_some_and(|origin| origin.is_inherited_at(now))
    }

    /// Whether this manager made the token.
    pub(crate) fn made(&self, token: &Token) -> bool {
        token.is_of(&self.process)
    }

    pub(crate) fn next_token(&self) -> Token {
        self.process.next_token()
    }

    /// Waits for the lock.
    pub(crate) fn acquire(self: &Arc<Self>, terms: &Terms) -> impl Future<Output = Result<Hold, LockError>> {
        self.keeper.start(&self.this);
        local::acquire(self, terms)
    }

    /// The error of a nested call whose joined sibling kept the lock that both of them entered.
    pub(crate) fn timed_out_behind_itself(&self, terms: &Terms) -> LockError {
        LockError::Timeout {
            key: terms.key.to_string(),
            waited: terms.timeout,
            holder: Some(self.settings.label.clone()),
        }
    }

    /// Withdraws an ask, now on the path it took and later until the store has answered (rule 1).
    pub(crate) fn withdraw(&self, release: Release) {
        self.store.withdraw_behind(&release);
        self.release_later(release);
    }

    /// Gives a lease back, or withdraws an ask, without waiting.
    pub(crate) fn release_later(&self, release: Release) {
        if self.store.is_immediate() {
            let released = self.store.release(std::slice::from_ref(&release), Deadline::after(Duration::ZERO));
            // An immediate store has no way to fail.
            let _ = released.now_or_never();
        } else {
            self.keeper.release(release);
        }
    }

    /// Gives back the lease of a slot that nobody uses, unless a task takes it over first.
    pub(crate) fn release_unused(&self, slot: &Arc<Slot>) {
        if mutant!(DroppedGuardKept) {
            return;
        }
        if self.store.is_immediate() {
            if let Some(release) = slot.take_unused() {
                self.release_later(release);
            }
        } else {
            self.keeper.release_unused(slot);
        }
    }

    pub(crate) fn forget_if_unused(&self, slot: &Arc<Slot>) {
        self.table.forget_if_unused(slot);
    }

    /// Ends the lease under its hold (rule L6), that of `token` if given. The next task's turn begins; a body that
    /// runs under the hold is woken, and the lease is given back once it is dropped (rule 14).
    pub(crate) fn revoke(self: &Arc<Self>, slot: &Arc<Slot>, token: Option<&Token>, loss: Loss) {
        let Some(revoked) = slot.revoke(token, loss) else { return };
        self.keeper.strike(revoked.entries);
        if revoked.turn.is_some() {
            observe::lost(slot.key());
        }
        slot.wake();
        if let Some(release) = revoked.release {
            self.release_later(release);
        }
        if let Some(id) = revoked.turn {
            drop(Turn::new(slot, id));
        }
        self.table.forget_if_unused(slot);
    }

    /// Passes on a turn that its task did not take up (rule L7).
    pub(crate) fn pass_over(&self, slot: &Arc<Slot>) {
        if let Some(release) = slot.pass_over() {
            // An answer that its task does not read may be to a command that the server has yet to execute.
            self.withdraw(release);
        }
        self.table.forget_if_unused(slot);
    }

    /// See [`LockManager::shutdown`](crate::LockManager::shutdown). The bodies that hold the locks `own` wait for it
    /// themselves: they are not waited for, and go on after it.
    pub(crate) async fn shutdown(self: &Arc<Self>, own: &[Arc<str>]) {
        if self.is_inherited() {
            // All that there is to give back is the parent's.
            return;
        }
        if let Some(key) = own.first() {
            observe::shut_down_inside(key);
        }
        self.is_closed.store(true, Ordering::SeqCst);
        for slot in self.table.all() {
            slot.close();
            self.table.forget_if_unused(&slot);
        }
        if tokio::time::timeout(self.settings.drain, self.table.emptied_but(own)).await.is_err() {
            for slot in self.table.all() {
                if !own.contains(slot.key()) {
                    self.revoke(&slot, None, Loss::Whole);
                }
            }
            self.bodies.close();
            let ended = async {
                if own.is_empty() {
                    self.bodies.wait().await;
                } else {
                    self.table.emptied_but(own).await;
                }
            };
            let _ = tokio::time::timeout(LAST_STEPS, ended).await;
        }
        self.releases.close();
        let released = async {
            self.releases.wait().await;
            self.store.settled().await;
        };
        let _ = tokio::time::timeout(LAST_STEPS, released).await;
        let _ = tokio::time::timeout(LAST_STEPS, self.keeper.quiet()).await;
    }
}

impl Events for Engine {
    fn granted(&self, key: &str, pushed: &Pushed) {
        if self.table.get(key).is_some_and(|slot| slot.granted(pushed)) {
            return;
        }
        // Rule 12.
        observe::stray_grant(key);
        self.release_later(Release::withdrawal(&key.into(), &pushed.token, pushed.claim));
    }

    fn contended(&self, key: &str) {
        if let Some(slot) = self.table.get(key) {
            slot.contended();
        }
    }

    fn interrupted(&self, affects: &dyn Fn(&str) -> bool) {
        let mut affected = self.table.all();
        affected.retain(|slot| affects(slot.key()));
        for slot in &affected {
            slot.interrupted();
        }
        self.keeper.retry();
        if !mutant!(NoVerification) {
            self.keeper.on_interruption(affected);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.keeper.close();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("label", &self.settings.label)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
