//! Shared leases, searched exhaustively: readers, writers and permits on one lock.
//!
//! This is a model of its own, beside that of the exclusive lease. It leaves out what that model has shown already: replies that
//! are lost, late commands, dates and drift. What is left is what is new: leases side by side, one queue for two kinds of
//! waiters, readers that join the lease of their process, and waiters that are dead.
//!
//! A command is one step on the server, and its reply is read at once. Pushes are messages, which may be lost or late. A tick
//! costs nothing when nobody has anything to do.

use stateright::{Model, Property};

mod client;
mod properties;
mod rules;
mod searches;
mod server;

pub use rules::Rule;
pub use searches::searches;

/// Time, coarsely.
pub type Ticks = u8;

/// A lease.
pub const LEASE: Ticks = 3;
/// How long a first waiter counts as alive after its last ask.
pub const HEAD_LIFE: Ticks = 2;

/// What a process wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// The lock alone.
    Alone,
    /// To read, with this number of tasks.
    Read(u8),
    /// One of this number of permits.
    Permit(u8),
}

impl Mode {
    fn fits_beside(self, held: usize) -> bool {
        match self {
            Self::Alone => false,
            Self::Read(_) => true,
            Self::Permit(of) => held < usize::from(of),
        }
    }
}

/// How many of each fault there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Processes that are stopped or cut off. The server counts them as listeners all the same.
    pub vanishes: u8,
    /// Processes that crash, which the server notices.
    pub crashes: u8,
    /// Pushes that are lost.
    pub lost_pushes: u8,
    /// Tasks that give up.
    pub cancels: u8,
    /// Times that somebody deletes the lock's own key by hand.
    pub deletes: u8,
    /// Ticks that pass while something could be done.
    pub lags: u8,
    /// No fault: leases of readers that linger when their last hold ends.
    pub lingers: u8,
}

/// What is modelled.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// What each process wants.
    pub modes: Vec<Mode>,
    /// How often each task wants it.
    pub rounds: u8,
    /// What may go wrong.
    pub faults: Faults,
    /// The rule that is missing.
    pub without: Option<Rule>,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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

/// The keys of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server {
    /// What the lock's own key holds.
    pub lock: Lock,
    /// The shared leases, and what is left of each.
    pub shared: Vec<(usize, Ticks)>,
    /// Who waits, first come first.
    pub queue: Vec<usize>,
    /// The note about the first waiter.
    pub head: Option<Head>,
}

/// The note about the first waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head {
    /// Who it is.
    pub waiter: usize,
    /// For how long it counts as alive.
    pub left: Ticks,
}

/// What the lock's own key holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lock {
    /// Nothing.
    #[default]
    Free,
    /// The token of this process, for so long.
    Alone(usize, Ticks),
    /// The mark.
    Shared,
}

/// One client.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Whether it has vanished or crashed.
    pub is_gone: bool,
    /// Whether the server counts it as a listener.
    pub is_heard: bool,
    /// Its tasks.
    pub tasks: Vec<Task>,
    /// What its lease has left. `None`: it has no lease.
    pub lease: Option<Ticks>,
    /// Its lease is kept without a hold.
    pub lingers: bool,
    /// It knows that another process waits.
    pub is_contended: bool,
    /// It waits in the server's queue, and has asked so long ago.
    pub asked: Option<Ticks>,
    /// Messages that it has not read.
    pub pushes: Vec<Push>,
    /// It has a fencing token in reserve, and whether another process has drawn since.
    pub reserve: Option<bool>,
}

/// A task of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// What it does.
    pub phase: Phase,
    /// How many more times it wants the lock.
    pub rounds: u8,
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Something else.
    Idle,
    /// It waits.
    Waiting,
    /// It holds the lock.
    Holding,
}

/// A message of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Push {
    /// The lock is granted, for this number of ticks until now; whether somebody waits behind.
    Grant(Ticks, bool),
    /// Another process waits.
    Wait,
}

/// What the properties remember of the way here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Seen {
    /// A script granted past a waiter that lives, or a reader joined although it knew of one.
    pub is_overtaken: bool,
    /// For so long somebody has waited for what it could have had.
    pub idle: Ticks,
    /// For so long that may be, after the faults so far.
    pub allowed: Ticks,
    /// A hold has a smaller fencing token than an earlier hold.
    pub is_stale: bool,
    /// Time has passed while something could have been done.
    pub is_late: bool,
    /// Several readers shared a lease.
    pub has_joined: bool,
    /// Several processes shared the lock.
    pub has_shared: bool,
    /// A lock was passed on by push.
    pub has_passed: bool,
    /// A hold began on a lease that lingered.
    pub has_lingered: bool,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A task begins to want the lock.
    Start(usize, usize),
    /// A task ends its hold.
    End(usize, usize),
    /// A task ends its hold, and the lease lingers.
    Linger(usize, usize),
    /// A lease has lingered for long enough.
    LingerOver(usize),
    /// A task gives up.
    GiveUp(usize, usize),
    /// A process reads its first push.
    Read(usize),
    /// A waiter repeats its ask.
    AskAgain(usize),
    /// A holder renews its lease.
    Renew(usize),
    /// A push is lost.
    LosePush(usize),
    /// A process vanishes.
    Vanish(usize),
    /// A process crashes.
    Crash(usize),
    /// Somebody deletes the lock's own key.
    Delete,
    /// Time passes.
    Tick,
}

impl Sharing {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// What somebody will do without delay, unless time passes as a fault.
    fn urgent(world: &World, actions: &mut Vec<Action>) {
        for (process, me) in world.processes.iter().enumerate().filter(|(_, me)| !me.is_gone) {
            if !me.pushes.is_empty() {
                actions.push(Action::Read(process));
            }
            if me.asked.is_some_and(|asked| asked > 0) {
                actions.push(Action::AskAgain(process));
            }
            // A lease that lingers unused is not lengthened.
            if me.lease.is_some_and(|left| left == 1) && !me.lingers {
                actions.push(Action::Renew(process));
            }
        }
    }

    fn optional(&self, world: &World, actions: &mut Vec<Action>) {
        for (process, me) in world.processes.iter().enumerate().filter(|(_, me)| !me.is_gone) {
            for (task, Task { phase, rounds }) in me.tasks.iter().enumerate() {
                let has_twin =
                    me.tasks.iter().take(task).any(|other| *other == Task { phase: *phase, rounds: *rounds });
                match phase {
                    Phase::Idle if *rounds > 0 && !has_twin => actions.push(Action::Start(process, task)),
                    Phase::Holding if !has_twin => {
                        actions.push(Action::End(process, task));
                        if world.faults.lingers > 0 && self.may_linger(world, process) {
                            actions.push(Action::Linger(process, task));
                        }
                    }
                    Phase::Waiting if world.faults.cancels > 0 && !has_twin => {
                        actions.push(Action::GiveUp(process, task));
                    }
                    _ => {}
                }
            }
            if me.lingers {
                actions.push(Action::LingerOver(process));
            }
            if world.faults.lost_pushes > 0 && !me.pushes.is_empty() {
                actions.push(Action::LosePush(process));
            }
            if world.faults.vanishes > 0 {
                actions.push(Action::Vanish(process));
            }
            if world.faults.crashes > 0 {
                actions.push(Action::Crash(process));
            }
        }
        if world.faults.deletes > 0 && world.server.lock != Lock::Free {
            actions.push(Action::Delete);
        }
    }

    fn tick(&self, world: &mut World) {
        let is_idle = !world.seen.is_late && properties::waits_in_vain(self, world);
        world.seen.idle = if is_idle { world.seen.idle.saturating_add(1) } else { 0 };
        let pass = |left: Ticks| left.saturating_sub(1);
        let server = &mut world.server;
        for (_, left) in &mut server.shared {
            *left = pass(*left);
        }
        if let Lock::Alone(owner, left) = server.lock {
            server.lock = if left > 1 { Lock::Alone(owner, left - 1) } else { Lock::Free };
        }
        // The lock's own key ends with the last lease.
        if server.lock == Lock::Shared && server.shared.iter().all(|(_, left)| *left == 0) {
            server.lock = Lock::Free;
        }
        server.head = server.head.map(|head| Head { left: pass(head.left), ..head });
        for process in world.processes.iter_mut().filter(|process| !process.is_gone) {
            process.tick();
        }
        self.ask_for_those_who_wait(world);
    }
}

impl Model for Sharing {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let task = Task { phase: Phase::Idle, rounds: self.rounds };
        let processes = self.modes.iter().map(|mode| {
            let tasks = if let Mode::Read(tasks) = mode { *tasks } else { 1 };
            Process::new(vec![task.clone(); usize::from(tasks)])
        });
        let (server, seen) = (Server::default(), Seen::default());
        vec![World { server, processes: processes.collect(), faults: self.faults, seen }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        Self::urgent(world, actions);
        let is_late = !actions.is_empty();
        self.optional(world, actions);
        if !is_late || world.faults.lags > 0 {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        let world = &mut next;
        match action {
            Action::Start(process, task) => self.start(world, process, task),
            Action::End(process, task) => self.end(world, process, task),
            Action::Linger(process, task) => {
                world.faults.lingers -= 1;
                let me = &mut world.processes[process];
                me.tasks[task].phase = Phase::Idle;
                me.lingers = true;
            }
            Action::LingerOver(process) => self.release_lease(world, process),
            Action::GiveUp(process, task) => {
                world.faults.cancels -= 1;
                self.give_up(world, process, task);
            }
            Action::Read(process) => self.read(world, process),
            Action::AskAgain(process) => self.ask(world, process),
            Action::Renew(process) => self.renew(world, process),
            Action::LosePush(process) => {
                world.faults.lost_pushes -= 1;
                // Found out by asking again. What is granted to nobody ends by itself.
                world.seen.allowed += LEASE + 1;
                world.processes[process].pushes.remove(0);
            }
            Action::Vanish(process) => {
                world.faults.vanishes -= 1;
                // What it has, what it is still granted, and its place in front of others.
                world.seen.allowed += 2 * LEASE + HEAD_LIFE + 2;
                world.processes[process].is_gone = true;
            }
            Action::Crash(process) => {
                world.faults.crashes -= 1;
                // What it has, or the time for which it is noted as the first waiter; and the next look of somebody else.
                let noted = world.server.head.filter(|head| head.waiter == process).map_or(0, |head| head.left);
                world.seen.allowed += world.server.left(process).max(noted) + 1;
                let me = &mut world.processes[process];
                (me.is_gone, me.is_heard) = (true, false);
            }
            Action::Delete => {
                world.faults.deletes -= 1;
                // Nobody tells those who wait.
                world.seen.allowed += 2;
                world.server.lock = Lock::Free;
                // Each holder finds out when it renews; outside of the promise until then.
                for process in &mut world.processes {
                    process.lose();
                    process.forget_grants();
                }
                self.ask_for_those_who_wait(world);
            }
            Action::Tick => {
                let mut urgent = Vec::new();
                Self::urgent(world, &mut urgent);
                if !urgent.is_empty() {
                    world.faults.lags -= 1;
                    world.seen.is_late = true;
                }
                self.tick(world);
            }
        }
        Self::note_sharing(world);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
