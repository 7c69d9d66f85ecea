//! [`Action`]: what can happen next.

use crate::state::{Health, Ticks};

/// One step of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A task wants the lock.
    Start(usize, usize),
    /// A task's time is up, or (a fault) it is cancelled.
    GiveUp(usize, usize),
    /// A hold ends.
    End(usize, usize, End),
    /// A body is polled whose hold has ended.
    Poll(usize, usize),
    /// The server executes the next command of a connection.
    Execute(usize, usize),
    /// The server executes a command of a connection that is gone.
    ExecuteLate(usize, usize),
    /// The same, and the server stands still in the middle of the script for so long.
    ExecuteSlowly(usize, usize, Ticks),
    /// The server executes a script, and counts no listener: its messages come by way of another node of the cluster.
    ExecuteUncounted(usize, usize),
    /// A process takes in what comes next.
    Read(usize, usize),
    /// A process takes in a push before the replies that came ahead of it: tasks read those in their own time.
    ReadPush(usize),
    /// The keeper does what is due.
    Keep(usize, Duty),
    /// A task that waits is not polled: its thread works, or its future is kept behind another one.
    FallAsleep(usize, usize),
    /// It is polled again.
    Awake(usize, usize),
    /// A lease has lingered for long enough.
    LingerOver(usize),
    /// A push is lost.
    LosePush(usize),
    /// A connection breaks.
    Break(usize, usize),
    /// A process ends.
    Crash(usize, Health),
    /// A shutdown ends a hold.
    ShutDown(usize),
    /// Somebody releases the lock by force.
    Force,
    /// A nested body draws a fencing token.
    Nest(usize, usize),
    /// The server's clock is ahead, and the lease ends.
    EndEarly,
    /// Time passes.
    Tick,
}

/// How a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its release is awaited.
    Release,
    /// Its guard is dropped.
    Drop,
    /// Its lease lingers.
    Linger,
}

/// What a keeper does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// The deadline of a hold has passed.
    NoticeLoss,
    /// A claim is to be confirmed, or a lease renewed.
    Renew,
    /// A lease is left that nobody uses.
    ReleaseUnused,
    /// An ask is to be repeated.
    AskAgain,
    /// An ask is to be repeated whose answer lies with a task that does not read it.
    AskForSleeper,
    /// The turn is to be taken from a task that does not take it up.
    PassOver,
}
