//! The hand-off protocol as a model that is searched exhaustively: every order of steps, messages and faults within
//! its bounds.
//!
//! - `server` is what the Lua files do: each command is one step.
//! - `client` and `keeper` are what a process does.
//! - Between them are connections. Each keeps the order of its messages, and may break.
//! - Time is ticks: a claim is 2, a lease up to 3, and the server's clock may be a tick ahead.
//!
//! A tick costs nothing when nobody has anything to do. Otherwise it is a fault, and there are only a few faults. So a
//! process that is paused, a server that hangs and a message that is late are all the same: time passes while something
//! could have been done. Two more things can happen. The server may stand still in the middle of a script, after the script
//! has read the clock. A task that waits may not be polled for a while.
//!
//! `properties` says what must hold. Each rule of docs/protocol.md that is checked here can be taken away ([`Rule`]), and
//! then some property must break: what can be left out is no rule.
//!
//! The tests exhaust twenty-four searches, some twelve million worlds. A search has one to three processes with one to three
//! tasks of one to three rounds. It has one to four faults of some kinds, never of all kinds at once. Three processes with
//! two tasks each and every kind of fault are too many to exhaust: `cargo run --release -p model -- --depth N` searches them
//! as deep as there is time. In the model the tasks of one process get the turn in any order, not first come first served.
//!
//! Shared leases (readers and permits) have a model of their own, in [`sharing`], and a lock that is given away has one in [`tickets`].
//!
//! Not in the model, but in the simulation:
//!
//! - more than one key, batches, scripts that fail half-way (rule 9), a server that forgets;
//! - the TTLs of queue and fence, and the time in a fencing token;
//! - guards that outlive a shutdown, `extend`, and all of re-entry but its fencing tokens;
//! - the 10 ms of rule L4 (a streak of hand-overs is bounded);
//! - of rule L7 (a late turn passes on): the times of milliseconds, tasks that are called together, and the keeper's
//!   question whether another process waits;
//! - of rule L9 (a lease may linger): that the keeper lengthens the lease, and the single try of another process;
//! - rule L8 (a release whose answer is not read is repeated by the keeper): in the model the keeper repeats each release.
#![expect(clippy::indexing_slicing, reason = "processes and tasks are named by their index in lists that never change")]

mod action;
mod client;
mod keeper;
mod late;
mod process;
mod properties;
mod rules;
pub mod scenarios;
mod server;
pub mod sharing;
mod state;
pub mod tickets;

use stateright::{Model, Property};

pub use action::{Action, Duty, End};
pub use rules::Rule;
use state::is_marked;
pub use state::*;

/// The first lease of every grant.
pub const CLAIM: Ticks = 2;
/// The longest lease.
pub const LEASE: Ticks = 3;
/// How far the server's clock may be ahead over one lease.
pub const DRIFT: Ticks = 1;
/// How many waiters at the head of the queue ask each tick, and are told when they come to be among them; 16 in the code.
pub const NEAR: usize = 1;
/// After how many ticks the others ask again; 9 s in the code.
pub const FAR: Ticks = 3;
/// Hand-overs while another process is known to wait; 64 in the code.
pub const STREAK: u8 = 1;

/// What is modelled: who takes part, what may go wrong, and which rule is missing.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// How many processes there are.
    pub processes: usize,
    /// The tasks of each.
    pub tasks: Vec<Terms>,
    /// How often each task wants the lock.
    pub rounds: u8,
    /// How long a task waits; `None`: for ever.
    pub patience: Option<Ticks>,
    /// Whether a lock that nobody is known to wait for is deleted without a script.
    pub deletes: bool,
    /// What may go wrong.
    pub faults: Faults,
    /// The rule that is missing.
    pub without: Option<Rule>,
}

/// What a task asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The lease it wants.
    pub lease: Ticks,
    /// Whether it is renewed.
    pub renew: bool,
    /// Whether it wants fencing tokens.
    pub fenced: bool,
}

/// How many of each fault there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Ticks that pass while something could be done: pauses of processes, of the server, of the network.
    pub lags: u8,
    /// Times that a server whose clock is ahead ends a lease early.
    pub early_ends: u8,
    /// Pushes that are lost.
    pub lost_pushes: u8,
    /// Connections that break.
    pub breaks: u8,
    /// Processes that crash, which the server notices.
    pub crashes: u8,
    /// Processes that vanish, which it does not.
    pub vanishes: u8,
    /// Tasks that are cancelled.
    pub cancels: u8,
    /// Holds that a shutdown ends.
    pub shutdowns: u8,
    /// Times that somebody releases the lock by force.
    pub forces: u8,
    /// Ticks for which the server stands still in the middle of scripts.
    pub stalls: u8,
    /// Tasks that wait and are not polled for a while.
    pub late_tasks: u8,
    /// No fault, but rare: bodies nested in a hold without a fencing token that want one.
    pub nested: u8,
    /// No fault either: leases that linger when their hold ends.
    pub lingers: u8,
    /// Scripts whose node of a cluster counts no listener, though their messages arrive.
    pub uncounted: u8,
}

impl Protocol {
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// What somebody will do without delay, unless time passes as a fault.
    fn urgent(&self, world: &World, actions: &mut Vec<Action>) {
        for (process, me) in world.processes.iter().enumerate() {
            for (link, connection) in me.links.iter().enumerate() {
                if !connection.up.is_empty() {
                    actions.push(Action::Execute(process, link));
                }
                if me.first_readable(link).is_some() {
                    actions.push(Action::Read(process, link));
                }
            }
            for (task, phase) in me.tasks.iter().map(|task| &task.phase).enumerate() {
                let is_lost = matches!(phase, Phase::Lost(..));
                if is_lost || matches!(phase, Phase::Holding(_)) && me.left_of(phase) == 0 {
                    actions.push(Action::Poll(process, task));
                }
                if phase.waits() && !me.tasks[task].asleep && me.tasks[task].patience == Some(0) {
                    actions.push(Action::GiveUp(process, task));
                }
            }
            actions.extend(self.duties(me).into_iter().map(|duty| Action::Keep(process, duty)));
        }
    }

    /// What somebody may do or not.
    fn optional(&self, world: &World, actions: &mut Vec<Action>) {
        for (process, me) in world.processes.iter().enumerate() {
            for (task, Task { phase, rounds, asleep, .. }) in me.tasks.iter().enumerate() {
                if *asleep {
                    actions.push(Action::Awake(process, task));
                }
                match phase {
                    // Of tasks that are alike the first comes first.
                    Phase::Idle if *rounds > 0 && !self.has_twin_before(me, task) => {
                        actions.push(Action::Start(process, task));
                    }
                    Phase::Holding(_) if me.left_of(phase) > 0 && !me.awaits => {
                        actions.push(Action::End(process, task, End::Release));
                        actions.push(Action::End(process, task, End::Drop));
                        if world.faults.lingers > 0 && Self::may_linger(me) {
                            actions.push(Action::End(process, task, End::Linger));
                        }
                    }
                    _ => {}
                }
            }
            if me.lease.as_ref().is_some_and(|lease| lease.lingers) {
                actions.push(Action::LingerOver(process));
            }
            let first_push = me.links[CALLERS].down.iter().position(|message| !matches!(message, Message::Reply(..)));
            if first_push > me.first_readable(CALLERS) {
                actions.push(Action::ReadPush(process));
            }
            for link in [CALLERS, KEEPERS] {
                if !me.links[link].late.is_empty() {
                    actions.push(Action::ExecuteLate(process, link));
                }
            }
        }
    }

    fn has_twin_before(&self, me: &Process, task: usize) -> bool {
        (0..task).any(|other| me.tasks[other] == me.tasks[task] && self.tasks[other] == self.tasks[task])
    }

    /// What may go wrong.
    fn wrong(&self, world: &World, actions: &mut Vec<Action>) {
        let faults = &world.faults;
        for (process, me) in world.processes.iter().enumerate().filter(|(_, me)| me.health == Health::Live) {
            if faults.crashes > 0 {
                actions.push(Action::Crash(process, Health::Closed));
            }
            if faults.vanishes > 0 {
                actions.push(Action::Crash(process, Health::Vanished));
            }
            if faults.lost_pushes > 0
                && matches!(me.links[CALLERS].down.first(), Some(Message::Grant(..) | Message::Wait | Message::Near(_)))
            {
                actions.push(Action::LosePush(process));
            }
            if faults.shutdowns > 0 && me.holds() > 0 && me.lease.as_ref().is_some_and(|lease| lease.holder.is_some()) {
                actions.push(Action::ShutDown(process));
            }
            for (link, connection) in me.links.iter().enumerate() {
                // An idle connection that breaks costs nothing but a repeated ask.
                if faults.breaks > 0 && (!connection.up.is_empty() || !connection.down.is_empty()) {
                    actions.push(Action::Break(process, link));
                }
            }
            for (link, connection) in me.links.iter().enumerate() {
                let is_script = connection.up.first().is_some_and(|command| command.verb != Verb::Claim);
                actions.extend(
                    (1..=faults.stalls).filter(|_| is_script).map(|ticks| Action::ExecuteSlowly(process, link, ticks)),
                );
            }
            for (link, connection) in me.links.iter().enumerate() {
                let passes_on = |command: &Command| matches!(command.verb, Verb::Ask(..) | Verb::Release(..));
                if faults.uncounted > 0
                    && connection.up.first().is_some_and(passes_on)
                    && !world.server.queue.is_empty()
                {
                    actions.push(Action::ExecuteUncounted(process, link));
                }
            }
            for (task, Task { phase, patience, asleep, .. }) in me.tasks.iter().enumerate() {
                let waits = phase.waits() || matches!(phase, Phase::Releasing(..));
                if faults.late_tasks > 0 && waits && !asleep && !self.has_twin_before(me, task) {
                    actions.push(Action::FallAsleep(process, task));
                }
                let holds = matches!(phase, Phase::Holding(_)) && me.left_of(phase) > 0 && !me.awaits;
                if faults.nested > 0 && holds && !self.tasks[task].fenced {
                    actions.push(Action::Nest(process, task));
                }
                if faults.cancels > 0 && waits && *patience != Some(0) {
                    actions.push(Action::GiveUp(process, task));
                }
            }
        }
        if faults.forces > 0 && world.server.lock.is_some_and(|(owner, _)| !is_marked(owner)) {
            actions.push(Action::Force);
        }
        if faults.early_ends > 0 && world.server.lock.is_some_and(|(_, left)| left <= DRIFT) {
            actions.push(Action::EndEarly);
        }
    }

    fn read(&self, world: &mut World, process: usize, link: usize, place: usize) {
        let message = world.processes[process].links[link].down.remove(place);
        match message {
            Message::Reply(command, outcome, ran) if command.wanted && link == CALLERS => match command.late {
                None => self.read_reply(world, process, &command, outcome, ran),
                Some(task) => self.read_late(world, process, task, &command, outcome, ran),
            },
            Message::Reply(command, outcome, ran) if command.wanted => {
                self.keeper_reads(world, process, &command, outcome, ran);
            }
            Message::Reply(..) => {}
            push => self.pushed(world, process, &push),
        }
    }

    fn tick(world: &mut World, late: bool) {
        world.seen.late |= late;
        let holds = world.processes.iter().any(|process| process.holds() > 0);
        let waits = world.processes.iter().any(Process::wants);
        world.seen.idle = if waits && !holds && !world.seen.late { world.seen.idle.saturating_add(1) } else { 0 };
        let is_orphan = world.server.lock.is_some_and(|(owner, _)| {
            let process = &world.processes[owner.process];
            let is_meant = process.asked.as_ref().is_some_and(|asked| asked.sequence == owner.sequence)
                || process.lease.as_ref().is_some_and(|lease| lease.sequence == owner.sequence);
            process.health == Health::Live && !is_meant
        });
        world.seen.orphaned = if is_orphan && !world.seen.late { world.seen.orphaned.saturating_add(1) } else { 0 };
        world.server.lock = world.server.lock.map(|(owner, left)| (owner, left - 1)).filter(|(_, left)| *left > 0);
        world.processes.iter_mut().for_each(Process::tick);
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let task = Task { phase: Phase::Idle, rounds: self.rounds, patience: None, asleep: false };
        let process = Process { tasks: vec![task; self.tasks.len()], ..Process::default() };
        vec![World {
            server: Server::default(),
            processes: vec![process; self.processes],
            faults: self.faults,
            seen: Seen::default(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        self.urgent(world, actions);
        let is_late = !actions.is_empty();
        self.optional(world, actions);
        self.wrong(world, actions);
        if !is_late || world.faults.lags > 0 {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        let world = &mut next;
        match action {
            Action::Start(process, task) => self.start(world, process, task),
            Action::GiveUp(process, task) => {
                if world.processes[process].tasks[task].patience != Some(0) {
                    world.faults.cancels -= 1;
                }
                self.give_up(world, process, task);
            }
            Action::End(process, task, end) => {
                world.faults.lingers -= u8::from(end == End::Linger);
                self.end(world, process, task, end);
            }
            Action::Poll(process, task) => self.drop_body(world, process, task),
            Action::Execute(process, link) => self.execute_next(world, process, link, 0),
            Action::ExecuteSlowly(process, link, ticks) => {
                world.faults.stalls -= ticks;
                self.execute_next(world, process, link, ticks);
            }
            Action::ExecuteUncounted(process, link) => {
                world.faults.uncounted -= 1;
                world.server.uncounted = true;
                self.execute_next(world, process, link, 0);
                world.server.uncounted = false;
            }
            Action::FallAsleep(process, task) => {
                world.faults.late_tasks -= 1;
                // What is granted to it may be kept for so long.
                world.seen.allowed += 1;
                world.processes[process].tasks[task].asleep = true;
            }
            Action::Awake(process, task) => self.awake(world, process, task),
            Action::ExecuteLate(process, link) => {
                let command = world.processes[process].links[link].late.remove(0);
                self.execute(world, process, &command, 0);
            }
            Action::Read(process, link) => {
                let first = world.processes[process].first_readable(link);
                self.read(world, process, link, first.unwrap_or_default());
            }
            Action::ReadPush(process) => {
                let down = &world.processes[process].links[CALLERS].down;
                let place = down.iter().position(|message| !matches!(message, Message::Reply(..)))?;
                self.read(world, process, CALLERS, place);
            }
            Action::Keep(process, duty) => self.keep(world, process, duty),
            Action::LingerOver(process) => self.keep(world, process, Duty::ReleaseUnused),
            Action::LosePush(process) => {
                world.faults.lost_pushes -= 1;
                // Found out by asking again.
                world.seen.allowed += 1;
                if let Message::Grant(sequence, ..) = world.processes[process].links[CALLERS].down.remove(0) {
                    server::excuse(world, Token { process, sequence }, CLAIM);
                }
            }
            Action::Break(process, link) => {
                world.faults.breaks -= 1;
                // A push may have been lost.
                world.seen.allowed += 1;
                self.break_link(world, process, link);
            }
            Action::Crash(process, health) => {
                match health {
                    Health::Vanished => world.faults.vanishes -= 1,
                    _ => world.faults.crashes -= 1,
                }
                Self::crash(world, process, health);
            }
            Action::ShutDown(process) => {
                world.faults.shutdowns -= 1;
                self.revoke(world, process);
            }
            Action::Force => {
                world.faults.forces -= 1;
                self.force(world);
            }
            Action::Nest(process, _) => {
                world.faults.nested -= 1;
                Self::borrow(world, process);
            }
            Action::EndEarly => {
                world.faults.early_ends -= 1;
                world.server.lock = None;
            }
            Action::Tick => {
                let mut urgent = Vec::new();
                self.urgent(world, &mut urgent);
                world.faults.lags -= u8::from(!urgent.is_empty());
                Self::tick(world, !urgent.is_empty());
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
