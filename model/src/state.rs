//! [`World`]: one server, its clients, and everything on the way between them.
//!
//! There is no absolute time: what ends has the ticks that are left, what began has the ticks that passed. So worlds
//! that differ only in when they are look the same, and the checker sees them once.

use std::hash::{Hash, Hasher};

use crate::Faults;

/// Time, coarsely.
pub type Ticks = u8;

/// An owner token: the process that made it, and a number that grows with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    /// Who made it.
    pub process: usize,
    /// Which of its tokens.
    pub sequence: u8,
}

/// Stands with a token's sequence at the lock while it is released by force.
const MARK: u8 = 0x80;

/// The sequence of a token as it stands at a lock that is released by force.
pub(crate) fn marked(sequence: u8) -> u8 {
    sequence | MARK
}

/// Whether a lock with this owner is released by force already.
pub(crate) fn is_marked(owner: Token) -> bool {
    owner.sequence & MARK != 0
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// The lock's keys.
    pub server: Server,
    /// The clients.
    pub processes: Vec<Process>,
    /// What may still go wrong.
    pub faults: Faults,
    /// What only the properties look at.
    pub seen: Seen,
}

/// The three keys of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// The owner's token with its time to live.
    pub lock: Option<(Token, Ticks)>,
    /// Who waits, first come first.
    pub queue: Vec<Token>,
    /// The last fencing token drawn.
    pub fence: u8,
    /// While a script runs: this node of a cluster counts no listener, and another node delivers the messages all the same.
    pub uncounted: bool,
}

/// What the properties remember of the way here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The largest fencing token that a hold had.
    pub fence: u8,
    /// A step that must not happen.
    pub breach: Option<Breach>,
    /// For so long somebody has waited and nobody held, though nothing was late.
    pub idle: Ticks,
    /// For so long that may be, after the faults so far.
    pub allowed: Ticks,
    /// For so long a token that was given up has owned the lock, though nothing was late.
    pub orphaned: Ticks,
    /// For so long that may be: what was given up may take effect later (a claim, an ask before its `not_after`, a
    /// renewal), and then lasts.
    pub excused: Ticks,
    /// Time has passed while something could have been done: how long things take says nothing any more.
    pub late: bool,
    /// A lease passed on inside a process.
    pub hand_over: bool,
    /// A lease passed on between processes, by push.
    pub hand_off: bool,
}

/// A single step that no rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Breach {
    /// The server let a token release or renew what it does not own.
    NotTheOwner,
    /// A token that had been given up carried a hold.
    TokenUsedAgain,
    /// A hold's fencing token was not larger than all before.
    FenceRepeated,
    /// A body made a step without the lock.
    StepWithoutLock,
    /// A hold began when its lease had ended.
    HoldWithoutTime,
    /// A script granted past a waiter that could have been told.
    Overtaken,
}

/// One client: what lock-runtime's `Slot` and keeper know of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    /// Whether it lives, and the server knows.
    pub health: Health,
    /// Its tasks.
    pub tasks: Vec<Task>,
    /// Whose turn it is.
    pub turn: Option<usize>,
    /// Whether that task waits for a reply.
    pub awaits: bool,
    /// What was asked and not given up.
    pub asked: Option<Asked>,
    /// What is owned.
    pub lease: Option<Lease>,
    /// No task here takes up its turn; whether what is granted has been kept for long enough.
    pub unused: Option<bool>,
    /// The token of a lost hold whose lock was released by force. Its body is not dropped yet.
    pub forced: Option<u8>,
    /// The last token made.
    pub last: u8,
    /// The last token given up. Only the properties look at it.
    pub given_up: u8,
    /// Holds after which the lease stayed though another process was known to wait. Only the properties look at it.
    pub streak: u8,
    /// The callers' connection and the keeper's.
    pub links: [Link; 2],
}

/// The callers' connection; pushes come over it as well.
pub const CALLERS: usize = 0;
/// The keeper's connection.
pub const KEEPERS: usize = 1;

/// How a process does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Health {
    /// It runs.
    #[default]
    Live,
    /// It crashed, and its connections are closed.
    Closed,
    /// Its host vanished: the server still counts it as listening.
    Vanished,
}

/// A task of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    /// What it does.
    pub phase: Phase,
    /// How many more times it will want the lock.
    pub rounds: u8,
    /// How much longer it waits; `None`: for ever.
    pub patience: Option<Ticks>,
    /// It is not polled.
    pub asleep: bool,
}

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Something else.
    Idle,
    /// It waits among the tasks of its process.
    Waiting,
    /// It has the turn and drives the store.
    Driving,
    /// It had the turn, which passed on because it did not come.
    Late,
    /// Its body runs under the lease, until this end of its own or the lease's.
    Holding(Ticks),
    /// It waits for the answer to its release; whether the token was granted once more meanwhile.
    Releasing(u8, bool),
    /// Its hold was ended under its body, which is not dropped yet; the token, and what was left of the hold.
    Lost(u8, Ticks),
}

/// What was asked of the store.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, and all combinations occur")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Asked {
    /// The token.
    pub sequence: u8,
    /// A command is on its way, or was given up on its way.
    pub unanswered: bool,
    /// The store has refused it once.
    pub answered: bool,
    /// The store has it in its queue.
    pub queued: bool,
    /// Something happened that makes the queue doubtful.
    pub doubtful: bool,
    /// It is time to ask again.
    pub due: bool,
    /// Others wait in front: for so long it does not ask again.
    pub pause: Ticks,
    /// Ticks since it was told to be one of the first.
    pub near: Option<Ticks>,
    /// The keeper has asked again for a task that does not read the answer.
    pub repeated: bool,
    /// The last dated refusal.
    pub anchor: Option<Anchor>,
    /// An answer that grants.
    pub granted: Option<Grant>,
    /// A push that grants: ticks since, and whether somebody waits behind.
    pub pushed: Option<(Ticks, bool)>,
    /// Its node did not count this process when it pushed that grant.
    pub uncounted: bool,
    /// Another process was heard to wait.
    pub contended: bool,
}

/// When the store refused: ticks since then, and how many it was executed after it had been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Anchor {
    /// Ticks since it was executed.
    pub since: Ticks,
    /// Ticks from sending to execution.
    pub slack: Ticks,
}

/// A grant as its process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Grant {
    /// For how much longer it is certain.
    pub left: Ticks,
    /// Somebody waits behind.
    pub contended: bool,
    /// Fencing tokens drawn.
    pub fences: Fences,
}

/// Fencing tokens reserved and not used: from the first up to, not including, the second.
pub type Fences = (u8, u8);

/// What a process owns.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    /// The token.
    pub sequence: u8,
    /// For how much longer the store has confirmed it.
    pub left: Ticks,
    /// Whether the task with the turn got it, or its confirmation, itself.
    pub fresh: bool,
    /// The task that holds.
    pub holder: Option<usize>,
    /// Whether the store has confirmed the full lease for this hold.
    pub confirmed: bool,
    /// A renewal is on its way; whether it was sent for this hold.
    pub renewing: Option<bool>,
    /// Fencing tokens reserved.
    pub fences: Fences,
    /// Hand-overs since another process was known to wait.
    pub rival: Option<u8>,
    /// Whether a hold has begun on it.
    pub used: bool,
    /// Whether it lingers: it is kept for the next hold.
    pub lingers: bool,
}

/// One connection, in order both ways.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// Sent and not executed.
    pub up: Vec<Command>,
    /// Executed and not read, and pushes.
    pub down: Vec<Message>,
    /// Sent over a connection that broke: executed late, or never. No reply of these will be read.
    pub late: Vec<Command>,
}

/// A command on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Command {
    /// The token it is about.
    pub sequence: u8,
    /// What is to be done.
    pub verb: Verb,
    /// Ticks since it was sent.
    pub age: Ticks,
    /// Somebody waits for the reply.
    pub wanted: bool,
    /// It is this task, whose turn has passed on since.
    pub late: Option<usize>,
}

/// The commands of docs/protocol.md.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// `SET NX GET PX`.
    Claim,
    /// `ask.lua`: fencing tokens wanted, and ticks until the asker gives up.
    Ask(u8, Option<Ticks>),
    /// `renew.lua`.
    Renew(Ticks),
    /// `draw.lua`.
    Draw(u8),
    /// `release.lua`: fencing tokens reserved and not used, and the token that queues in the same step.
    Release(Fences, Option<u8>),
    /// `DELIFEQ`, and `EXISTS` of the queue behind it. Between the two nobody comes to wait: the lock is free.
    Delete,
}

impl Verb {
    /// Whether it ends a lease.
    #[must_use]
    pub const fn ends(&self) -> bool {
        matches!(self, Self::Release(..) | Self::Delete)
    }
}

/// What comes from the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    /// The reply to a command, and how old that was when it was executed.
    Reply(Command, Outcome, Ticks),
    /// A pushed grant: token, ticks since, whether somebody waits behind.
    Grant(u8, Ticks, bool),
    /// The same, by way of another node of a cluster: the node that made it has passed this process over.
    Relayed(u8, Ticks, bool),
    /// Another process waits.
    Wait,
    /// This process waits, and is one of the first; ticks since.
    Near(Ticks),
    /// The lock of this token is released by force.
    Forced(u8),
}

/// What a command came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Granted, for so long from execution.
    Granted(Grant),
    /// Somebody else owns it; whether the store told its time.
    Busy(bool),
    /// The same, to a waiter that others are in front of; the rest of the owner's lease.
    Far(Ticks),
    /// Too late to ask.
    Late,
    /// Done for the owner.
    Done,
    /// Not the owner.
    NotOwned,
    /// The first fencing token of those drawn.
    Drawn(u8),
    /// Released, and this came of the ask that went along.
    ReleasedAnd(AskedAgain),
    /// Deleted by its owner, and somebody waits.
    Awaited,
}

/// What came of the ask in a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AskedAgain {
    /// It was granted: nobody else could be told.
    Granted(Ticks, bool),
    /// It waits.
    Busy,
}

/// Processes are interchangeable: worlds that differ only in who is who have one hash, and are explored once.
impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let mut order: Vec<usize> = (0..self.processes.len()).collect();
        let place = |process: usize| {
            let owned = self.server.lock.filter(|(owner, _)| owner.process == process);
            let queued = self.server.queue.iter().position(|token| token.process == process);
            (&self.processes[process], owned, queued)
        };
        order.sort_by(|&a, &b| {
            let ((left, owns, first), (right, also_owns, second)) = (place(a), place(b));
            (left, owns.map(|(token, _)| token.sequence), first).cmp(&(
                right,
                also_owns.map(|(token, _)| token.sequence),
                second,
            ))
        });
        let mut names = vec![0; order.len()];
        for (name, &process) in order.iter().enumerate() {
            names[process] = name;
            self.processes[process].hash(hasher);
        }
        let renamed = |token: Token| (names[token.process], token.sequence);
        self.server.lock.map(|(owner, left)| (renamed(owner), left)).hash(hasher);
        for &token in &self.server.queue {
            renamed(token).hash(hasher);
        }
        (self.server.queue.len(), self.server.fence, &self.faults, &self.seen).hash(hasher);
    }
}
