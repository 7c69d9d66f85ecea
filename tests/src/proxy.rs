//! [`Proxy`]: stands between client and server and injects faults, command by command.

mod disguise;
mod distance;
mod line;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

pub use disguise::Disguise;
pub use distance::Distance;
use line::Line;

use crate::resp;
use crate::server::{Server, free_port};

/// What happens to one command.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The server executes the command; its reply never arrives. No network does this: other pending commands get the wrong replies.
    DropReply,
    /// The server executes the command; neither its reply nor anything after it arrives on this connection.
    MuteFromReply,
    /// The server executes the command; the connection is cut before the reply.
    CutAfterForward,
    /// The connection is cut, and the server never sees the command.
    CutBeforeForward,
    /// The command, and everything after it on its connection, reaches the server only after this time.
    Delay(Duration),
    /// The server executes the command; its reply, and everything after it on its connection, arrives only after this time.
    DelayReply(Duration),
    /// The command, and everything after it on its connection, waits until [`Proxy::let_go`].
    Hold,
}

/// In a plan: any command.
pub const ANY: &str = "*";

/// When a planned fault hit its command, in the time of [`history::event::now`].
#[derive(Clone, Debug, Default)]
pub struct Met(Arc<OnceLock<u64>>);

impl Met {
    /// `None` until such a command has arrived.
    #[must_use]
    pub fn at(&self) -> Option<u64> {
        self.0.get().copied()
    }
}

#[derive(Debug)]
struct Planned {
    name: String,
    fault: Fault,
    met: Met,
}

/// Identifies one connection through the proxy, for faults on that connection only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineNumber(u64);

/// Which bytes a black hole swallows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Those from the client.
    ToServer,
    /// Those from the server.
    ToClient,
    /// Both.
    Both,
}

/// A listener in front of a server. It runs on its own threads, so it outlives a test's runtime.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Whether traffic is recorded.
    records: bool,
    /// Whether the proxy parses the traffic; it can't with TLS.
    reads: bool,
    /// Makes the server look like another one.
    disguise: Option<Disguise>,
    state: Mutex<State>,
    let_go: Condvar,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    target: String,
    planned: VecDeque<Planned>,
    seen: Vec<Vec<String>>,
    held: bool,
    holding: usize,
    lines: Vec<Arc<Line>>,
    last: u64,
    /// New connections are black holes as well.
    cut_off: bool,
    distance: Distance,
}

impl Proxy {
    /// In front of `server`, with no faults planned.
    #[must_use]
    pub fn before(server: &Server) -> Self {
        Self::to(server.address(), true)
    }

    /// [`before`](Self::before) for long runs: it does not record traffic.
    #[must_use]
    pub fn unrecorded(server: &Server) -> Self {
        Self::to(server.address(), false)
    }

    /// In front of the address `target`.
    #[must_use]
    pub fn to(target: String, records: bool) -> Self {
        Self::launch(target, records, true, None)
    }

    /// In front of `server`, which looks like another kind of server to the client.
    #[must_use]
    pub fn disguised(server: &Server, disguise: Disguise) -> Self {
        Self::launch(server.address(), true, true, Some(disguise))
    }

    /// In front of a server that speaks TLS. The proxy can't tell commands apart, so no fault hits a single one.
    #[must_use]
    pub fn blind(target: String) -> Self {
        Self::launch(target, false, false, None)
    }

    fn launch(target: String, records: bool, reads: bool, disguise: Option<Disguise>) -> Self {
        // Keep the port after the proxy ends: a client that still dials it must not reach another test's server.
        let port = free_port();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a port of this process");
        let state = Mutex::new(State { target, ..State::default() });
        let (let_go, closed) = (Condvar::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { records, reads, disguise, state, let_go, closed });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.closed.load(Ordering::SeqCst) {
                    return;
                }
                // If the server is down, close the client's connection at once.
                if let Ok(client) = client {
                    let _ = line::connect(&accepting, client);
                }
            }
        });
        Self { port, shared }
    }

    /// Where clients connect.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The address that it listens on, without a scheme.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// From now on new connections lead to another server. Existing ones stay.
    pub fn lead_to(&self, server: &Server) {
        self.shared.state().target = server.address();
    }

    /// Adds the latency of this distance to existing and new connections.
    pub fn move_away(&self, distance: Distance) {
        self.shared.state().distance = distance;
    }

    /// `fault` hits the next command with this `name` (or [`ANY`]); several plans for one name are used in order. The returned value
    /// knows when the fault hit.
    #[expect(clippy::must_use_candidate, reason = "most tests only want the fault")]
    pub fn plan(&self, name: &str, fault: Fault) -> Met {
        let mut state = self.shared.state();
        if matches!(fault, Fault::Hold) {
            state.held = true;
        }
        let met = Met::default();
        state.planned.push_back(Planned { name: name.to_owned(), fault, met: met.clone() });
        met
    }

    /// Whether every planned fault has happened; a held command counts as happened.
    #[must_use]
    pub fn is_through(&self) -> bool {
        self.shared.state().planned.is_empty()
    }

    /// Forgets the planned faults that have not happened.
    pub fn forget_plans(&self) {
        self.shared.state().planned.clear();
    }

    /// The number of commands held now.
    #[must_use]
    pub fn holding(&self) -> usize {
        self.shared.state().holding
    }

    /// Releases the held commands.
    pub fn let_go(&self) {
        self.shared.state().held = false;
        self.shared.let_go.notify_all();
    }

    /// The open connections, oldest first.
    #[must_use]
    pub fn lines(&self) -> Vec<LineNumber> {
        self.shared.state().lines.iter().map(|line| line.number).collect()
    }

    /// Swallows bytes of the existing connections; new ones work.
    pub fn black_hole(&self, direction: Direction) {
        for line in &self.shared.state().lines {
            line.swallow(direction);
        }
    }

    /// Swallows bytes of one connection.
    pub fn black_hole_line(&self, number: LineNumber, direction: Direction) {
        self.at(number, |line| line.swallow(direction));
    }

    /// Swallows all bytes of all connections, new ones too, until [`rejoin`](Self::rejoin).
    pub fn cut_off(&self) {
        self.shared.state().cut_off = true;
        self.black_hole(Direction::Both);
    }

    /// New connections work again, and the remaining ones are cut.
    pub fn rejoin(&self) {
        self.shared.state().cut_off = false;
        self.cut();
    }

    /// Cuts one connection, if it is still there.
    pub fn cut_line(&self, number: LineNumber) {
        self.at(number, Line::cut);
    }

    /// Resets one connection, without an orderly end.
    pub fn reset_line(&self, number: LineNumber) {
        self.at(number, Line::reset);
    }

    fn at(&self, number: LineNumber, act: impl FnOnce(&Line)) {
        if let Some(line) = self.shared.state().lines.iter().find(|line| line.number == number) {
            act(line);
        }
    }

    /// Cuts the existing connections; new ones work.
    pub fn cut(&self) {
        for line in self.shared.state().lines.drain(..) {
            line.cut();
        }
    }

    /// All commands so far, as words, with the command name in capitals.
    #[must_use]
    pub fn seen(&self) -> Vec<Vec<String>> {
        self.shared.state().seen.clone()
    }

    /// The number of commands so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared.state().seen.len()
    }

    /// [`seen`](Self::seen) without the first `earlier` commands, and without those about the connection itself (`PING`, `HELLO` and
    /// so on).
    #[must_use]
    pub fn work_since(&self, earlier: usize) -> Vec<Vec<String>> {
        const TALK: [&str; 8] = ["PING", "HELLO", "CLIENT", "AUTH", "SELECT", "INFO", "SUBSCRIBE", "SSUBSCRIBE"];
        let mut seen = self.seen().split_off(earlier);
        seen.retain(|words| !TALK.contains(&words[0].as_str()));
        seen
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.let_go();
        self.cut();
        // Wakes the accepting thread, so that it notices and exits.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request and removes the fault planned for it.
    fn meet(&self, request: &[u8]) -> (String, Option<Fault>) {
        let words = resp::words(request);
        let name = words.first().cloned().unwrap_or_default();
        let mut state = self.state();
        if self.records {
            state.seen.push(words);
        }
        let next = state.planned.iter().position(|planned| planned.name == name || planned.name == ANY);
        let fault = next.and_then(|at| state.planned.remove(at)).map(|planned| {
            let _ = planned.met.0.set(history::event::now());
            planned.fault
        });
        (name, fault)
    }

    fn distance(&self) -> Distance {
        self.state().distance
    }

    fn wait_until_let_go(&self) {
        let mut state = self.state();
        state.holding += 1;
        while state.held {
            state = self.let_go.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.holding -= 1;
    }
}
