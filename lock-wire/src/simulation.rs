//! What tests of this workspace replace the outside world with: the clocks, the order of threads, and the network.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, MutexGuard, OnceLock, TryLockError};

use futures_util::future::BoxFuture;

use crate::failure::CallError;
use crate::wire::Socket;

pub use crate::mutants::{Mutant, Seeded};

/// Simulated clocks and threads. Each fn answers for the thread that calls it.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// The boot-time and wall clocks in nanoseconds; `None` on a thread that is not simulated.
    pub now: fn() -> Option<u64>,
    /// Whether several threads run in a chosen order.
    pub is_played: fn() -> bool,
    /// Called before a mutex is locked: another simulated thread may run first. If the mutex is locked, another one must.
    pub before_lock: fn(bool),
}

static WORLD: OnceLock<World> = OnceLock::new();

/// Makes this process use `world`. Only the first call counts.
pub fn play(world: World) {
    WORLD.get_or_init(|| world);
}

pub(crate) fn now() -> Option<u64> {
    (WORLD.get()?.now)()
}

/// Locks a mutex while several threads are simulated: any of them may lock next. `None` when there is no simulation.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let world = WORLD.get()?;
    let mut is_blocked = false;
    while (world.is_played)() {
        (world.before_lock)(is_blocked);
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => is_blocked = true,
        }
    }
    None
}

/// How a process reaches a simulated server. Its `Display` is the server's address.
pub trait Host: fmt::Debug + fmt::Display + Send + Sync {
    /// Opens a connection.
    fn connect(&self) -> BoxFuture<'_, Result<Socket, CallError>>;

    /// How to reach a node of the cluster.
    fn to_node(&self, node: usize) -> Arc<dyn Host>;
}

thread_local! {
    // A simulated world runs on one thread.
    static ROOM: Cell<Option<usize>> = const { Cell::new(None) };
}

pub(crate) fn room() -> Option<usize> {
    ROOM.get()
}

/// Limits the connections that this thread makes from now on to this many replies in flight to commands that begin something.
pub fn set_room(room: Option<usize>) {
    ROOM.set(room);
}
