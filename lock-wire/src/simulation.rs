//! What tests of this workspace put in the place of the world: the clocks, the order of threads, and the network.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, MutexGuard, OnceLock, TryLockError};

use futures_util::future::BoxFuture;

use crate::failure::CallError;
use crate::wire::Socket;

pub use crate::mutants::{Mutant, Seeded};

/// The clocks and the threads that a test plays. Each fn says for the thread that calls it.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// The boot-time and wall clocks in nanoseconds; `None` on a thread that is not played.
    pub now: fn() -> Option<u64>,
    /// Whether several threads are played in a chosen order.
    pub is_played: fn() -> bool,
    /// Another thread of the play may run before this one locks a mutex. When the mutex is locked, another one has to.
    pub before_lock: fn(bool),
}

static WORLD: OnceLock<World> = OnceLock::new();

/// Has this process ask `world` from now on. Only the first call counts.
pub fn play(world: World) {
    WORLD.get_or_init(|| world);
}

pub(crate) fn now() -> Option<u64> {
    (WORLD.get()?.now)()
}

/// Locks a mutex in a play of several threads: any of them may be the next to lock. `None` outside of a play.
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

/// A process's way to a server that a test plays. It is written as people write an address.
pub trait Host: fmt::Debug + fmt::Display + Send + Sync {
    /// Opens a connection.
    fn connect(&self) -> BoxFuture<'_, Result<Socket, CallError>>;

    /// The way to a node of the cluster.
    fn to_node(&self, node: usize) -> Arc<dyn Host>;
}

thread_local! {
    // A simulated world runs on one thread.
    static ROOM: Cell<Option<usize>> = const { Cell::new(None) };
}

pub(crate) fn room() -> Option<usize> {
    ROOM.get()
}

/// Connections that this thread makes from now on have room for so many replies to what tasks begin.
pub fn set_room(room: Option<usize>) {
    ROOM.set(room);
}
