//! A lock that is given away and adopted (rule 24), as a model of its own: every order of steps, messages and faults.
//!
//! A giver puts a ticket in the place of its token. Two adopters have the ticket, as when a job is delivered twice, and another task
//! waits for the lock. Each of the three has a connection that keeps the order of its commands. A command that is repeated, or whose
//! connection broke, may still be executed at any later time, and its answer is lost. Processes may crash, and time may pass at any
//! moment.
//!
//! Not here: permits, fencing tokens, a release by force, a server that forgets. The simulation has them.

mod properties;
mod server;

use stateright::{Model, Property};

use crate::Ticks;

/// How long a ticket is good for.
const KEPT: Ticks = 3;
/// The first lease of an adopter.
const CLAIM: Ticks = 2;
/// The giver's lease.
const LEASE: Ticks = 2;
/// How long a giver or an adopter waits for its answer.
const PATIENCE: Ticks = 1;

/// A part of rule 24 in docs/protocol.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The giver has stopped before it asks for the ticket.
    StopsFirst,
    /// The ticket stands in the place of the token.
    Replaces,
    /// An adopter gets what the ticket owns, and nothing else.
    Compares,
    /// A token that owns the lock is told so.
    Repeats,
    /// An adopter that gives up withdraws its token.
    Withdraws,
    /// An adopter's command does nothing after its time.
    NotAfter,
    /// A giver that gives up releases the ticket as well.
    TicketToo,
    /// It releases first the token, and then the ticket.
    TokenFirst,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::StopsFirst,
        Self::Replaces,
        Self::Compares,
        Self::Repeats,
        Self::Withdraws,
        Self::NotAfter,
        Self::TicketToo,
        Self::TokenFirst,
    ];
}

/// What is modelled: what may go wrong, and which rule is missing.
#[derive(Clone, Copy, Debug)]
pub struct Tickets {
    /// How many commands are repeated, or lose their connection.
    pub repeats: u8,
    /// How many processes crash.
    pub crashes: u8,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// Who sends commands: the giver, and two adopters.
type Client = usize;
const GIVER: Client = 0;

/// What the lock's key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Value {
    Token(Client),
    Ticket,
    /// The token of the task that waits for the lock.
    Next,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Command {
    Give,
    /// Too late when no ticks are left.
    Adopt(Client, Ticks),
    Release(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    Given(bool),
    Granted(Ticks),
    Over,
    TooLate,
    Released,
}

/// What a giver or an adopter does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// It may work for so many ticks.
    Holds(Ticks),
    /// It waits for the answer to `Give` or `Adopt`, and gives up after so many ticks.
    Asks {
        patience: Ticks,
        since: Ticks,
    },
    /// It releases these, one after the other, until they are answered. Nobody has any use for them.
    Leaves(Vec<Value>),
    /// The giver's ticket is in the queue, or the adopter was told that the ticket is over, or all is released.
    Done,
    Crashed,
}

/// One client, with its commands and answers on their way, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Party {
    phase: Phase,
    commands: Vec<Command>,
    answers: Vec<Answer>,
}

/// All that is so at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The lock's value, and after how many ticks it ends.
    lock: Option<(Value, Ticks)>,
    parties: Vec<Party>,
    /// Commands whose connection is gone. They may be executed in any order, or never.
    strays: Vec<Command>,
    is_ticket_sent: bool,
    next_holds: bool,
    repeats: u8,
    crashes: u8,
    seen: Seen,
}

/// What has happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    /// Who had the lock by its ticket.
    adopted: Vec<Client>,
    /// Whether the lock was free after it was given away.
    is_over: bool,
    /// Whether an adopter was told that the ticket is over, and it was not.
    is_told_wrong: bool,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A tick passes.
    Tick,
    /// The giver gives the lock away.
    Give,
    /// An adopter takes the job.
    Adopt(Client),
    /// The server executes the next command of a connection.
    Execute(Client),
    /// A client reads its next answer.
    Read(Client),
    /// A client gives up, or ends its hold.
    Leave(Client),
    /// A client repeats its command: the one before may still come, and its answer does not.
    Repeat(Client),
    /// The server executes a command whose connection is gone.
    ExecuteStray(usize),
    /// A process crashes.
    Crash(Client),
    /// The task that waits gets a lock that is free.
    Next,
    /// It releases the lock.
    NextEnds,
}

impl Model for Tickets {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let party = |phase| Party { phase, commands: Vec::new(), answers: Vec::new() };
        vec![World {
            lock: Some((Value::Token(GIVER), LEASE)),
            parties: vec![party(Phase::Holds(LEASE)), party(Phase::Idle), party(Phase::Idle)],
            strays: Vec::new(),
            is_ticket_sent: false,
            next_holds: false,
            repeats: 0,
            crashes: 0,
            seen: Seen::default(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for (client, party) in world.parties.iter().enumerate() {
            match &party.phase {
                Phase::Holds(_) if client == GIVER => actions.push(Action::Give),
                Phase::Holds(_) | Phase::Asks { patience: 0, .. } => actions.push(Action::Leave(client)),
                Phase::Idle if world.is_ticket_sent => actions.push(Action::Adopt(client)),
                Phase::Asks { .. } | Phase::Leaves(_) if world.repeats < self.repeats => {
                    actions.push(Action::Repeat(client));
                }
                _ => {}
            }
            if !party.commands.is_empty() {
                actions.push(Action::Execute(client));
            }
            if !party.answers.is_empty() {
                actions.push(Action::Read(client));
            }
            if world.crashes < self.crashes && party.phase != Phase::Crashed {
                actions.push(Action::Crash(client));
            }
        }
        actions.extend((0..world.strays.len()).map(Action::ExecuteStray));
        if world.lock.is_none() {
            actions.push(Action::Next);
        }
        if world.next_holds {
            actions.push(Action::NextEnds);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Tick => world.pass_tick(),
            Action::Give => world.ask(GIVER, Command::Give),
            Action::Adopt(client) => world.ask(client, Command::Adopt(client, PATIENCE)),
            Action::Execute(client) => {
                let command = world.parties[client].commands.remove(0);
                let answer = self.execute(&mut world, command);
                world.parties[client].answers.push(answer);
            }
            Action::Read(client) => self.read(&mut world, client),
            Action::Leave(client) => self.leave(&mut world, client),
            Action::Repeat(client) => world.repeat(client),
            Action::ExecuteStray(index) => {
                let command = world.strays.remove(index);
                self.execute(&mut world, command);
            }
            Action::Crash(client) => {
                world.crashes += 1;
                world.lose_connection(client);
                world.parties[client].phase = Phase::Crashed;
            }
            Action::Next => world.grant_next(),
            Action::NextEnds => (world.lock, world.next_holds) = (None, false),
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl Tickets {
    fn has(self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn read(self, world: &mut World, client: Client) {
        let party = &mut world.parties[client];
        let answer = party.answers.remove(0);
        match (&mut party.phase, answer) {
            (Phase::Asks { .. }, Answer::Given(true)) => {
                party.phase = Phase::Done;
                world.is_ticket_sent = true;
            }
            // What was granted counts from when it was asked for.
            (Phase::Asks { since, .. }, Answer::Granted(left)) if left > *since => {
                party.phase = Phase::Holds(left - *since);
                if !world.seen.adopted.contains(&client) {
                    world.seen.adopted.push(client);
                }
            }
            // An earlier command may have been executed in time.
            (Phase::Asks { .. }, Answer::Granted(_) | Answer::TooLate) => self.leave(world, client),
            (Phase::Asks { .. }, Answer::Given(false) | Answer::Over) => party.phase = Phase::Done,
            (Phase::Leaves(values), Answer::Released) => {
                values.remove(0);
                match values.first() {
                    Some(value) => party.commands.push(Command::Release(*value)),
                    None => party.phase = Phase::Done,
                }
            }
            // The answer to a command that nobody waits for any more.
            _ => {}
        }
    }

    fn leave(self, world: &mut World, client: Client) {
        let is_hold = matches!(world.parties[client].phase, Phase::Holds(_));
        let values = match client {
            GIVER if !self.has(Rule::TicketToo) => vec![Value::Token(GIVER)],
            GIVER if !self.has(Rule::TokenFirst) => vec![Value::Ticket, Value::Token(GIVER)],
            GIVER => vec![Value::Token(GIVER), Value::Ticket],
            _ if is_hold || self.has(Rule::Withdraws) => vec![Value::Token(client)],
            _ => Vec::new(),
        };
        let party = &mut world.parties[client];
        party.commands.extend(values.first().map(|value| Command::Release(*value)));
        party.phase = if values.is_empty() { Phase::Done } else { Phase::Leaves(values) };
    }
}

impl World {
    fn ask(&mut self, client: Client, command: Command) {
        let party = &mut self.parties[client];
        party.phase = Phase::Asks { patience: PATIENCE, since: 0 };
        party.commands.push(command);
    }

    /// The command that `client` waits for is sent once more, over a new connection.
    fn repeat(&mut self, client: Client) {
        self.repeats += 1;
        self.lose_connection(client);
        let party = &mut self.parties[client];
        let command = match &mut party.phase {
            Phase::Asks { patience, since } => {
                *since = 0;
                if client == GIVER { Command::Give } else { Command::Adopt(client, *patience) }
            }
            Phase::Leaves(values) => Command::Release(values[0]),
            _ => return,
        };
        party.commands.push(command);
    }

    fn lose_connection(&mut self, client: Client) {
        let party = &mut self.parties[client];
        party.answers.clear();
        self.strays.append(&mut party.commands);
        self.strays.sort_by_key(|command| format!("{command:?}"));
    }

    fn pass_tick(&mut self) {
        if let Some((_, left)) = &mut self.lock {
            *left -= 1;
            if *left == 0 && !self.next_holds {
                self.end_lock();
            } else if self.next_holds {
                *left = LEASE; // It is renewed.
            }
        }
        for party in &mut self.parties {
            for command in &mut party.commands {
                command.pass_tick();
            }
            match &mut party.phase {
                Phase::Holds(1) => party.phase = Phase::Done,
                Phase::Holds(left) => *left -= 1,
                Phase::Asks { patience, since } => {
                    *patience = patience.saturating_sub(1);
                    *since = (*since + 1).min(KEPT);
                }
                _ => {}
            }
        }
        self.strays.iter_mut().for_each(Command::pass_tick);
        self.strays.sort_by_key(|command| format!("{command:?}"));
    }

    fn end_lock(&mut self) {
        self.lock = None;
        self.seen.is_over = true;
    }

    fn grant_next(&mut self) {
        (self.lock, self.next_holds) = (Some((Value::Next, LEASE)), true);
    }
}

impl Command {
    fn pass_tick(&mut self) {
        if let Self::Adopt(_, left) = self {
            *left = left.saturating_sub(1);
        }
    }
}
