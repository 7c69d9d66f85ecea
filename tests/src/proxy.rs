//! [`Proxy`]: a connection to the server that misbehaves on purpose, command by command.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use crate::resp;
use crate::server::Server;

/// What happens to one command.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The server executes it; its answer never arrives. No network does this: others under way get the wrong answers.
    DropReply,
    /// The server executes it; neither its answer nor anything after it arrives on this connection.
    MuteFromReply,
    /// The server executes it; the connection is cut before the answer.
    CutAfterForward,
    /// The connection is cut and the server never sees the command.
    CutBeforeForward,
    /// It, and what follows on its connection, reaches the server only after this time.
    Delay(Duration),
    /// The server executes it; its answer, and what follows on its connection, arrives only after this time.
    DelayReply(Duration),
    /// It, and what follows on its connection, waits until [`Proxy::let_go`].
    Hold,
}

/// In a plan: whatever command comes next.
pub const ANY: &str = "*";

/// One connection through the proxy, for faults that hit it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineNumber(u64);

/// Which bytes a black hole swallows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What the client says.
    ToServer,
    /// What the server says.
    ToClient,
    /// Everything.
    Both,
}

/// A listener in front of a server. Threads of its own, so it lives on when a test's runtime ends.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: String,
    /// Whether what comes by is written down.
    records: bool,
    state: Mutex<State>,
    let_go: Condvar,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    planned: VecDeque<(String, Fault)>,
    seen: Vec<Vec<String>>,
    held: bool,
    holding: usize,
    lines: Vec<Arc<Line>>,
    last: u64,
}

/// One connection through the proxy.
#[derive(Debug)]
struct Line {
    number: LineNumber,
    client: TcpStream,
    server: TcpStream,
    deaf: AtomicBool,
    mute: AtomicBool,
    /// It ends by a reset instead of an orderly end.
    reset: AtomicBool,
    /// For each command that the server will answer: whether the answer is thrown away, or cuts the line.
    expected: Mutex<VecDeque<Reply>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Pass,
    Drop,
    Mute,
    Delay(Duration),
    Cut,
}

impl Proxy {
    /// In front of `server`, behaving well until told otherwise.
    #[must_use]
    pub fn before(server: &Server) -> Self {
        Self::to(server.address(), true)
    }

    /// As [`before`](Self::before), for long runs: what comes by is not written down.
    #[must_use]
    pub fn unrecorded(server: &Server) -> Self {
        Self::to(server.address(), false)
    }

    /// In front of whatever listens at the address `target`.
    #[must_use]
    pub fn to(target: String, records: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let (state, let_go, closed) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { target, records, state, let_go, closed });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.closed.load(Ordering::SeqCst) {
                    return;
                }
                // A server that is down refuses; so does the proxy then, by closing at once.
                if let Ok(client) = client {
                    let _ = connect(&accepting, client);
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

    /// The next command called `name` (or [`ANY`]) meets `fault`; several plans for one name are used up in order.
    pub fn plan(&self, name: &str, fault: Fault) {
        let mut state = self.shared.state();
        if matches!(fault, Fault::Hold) {
            state.held = true;
        }
        state.planned.push_back((name.to_owned(), fault));
    }

    /// Whether every planned fault has happened (a held command counts from when it is held).
    #[must_use]
    pub fn is_through(&self) -> bool {
        self.shared.state().planned.is_empty()
    }

    /// Forgets the planned faults that have not happened.
    pub fn forget_plans(&self) {
        self.shared.state().planned.clear();
    }

    /// How many commands are held right now.
    #[must_use]
    pub fn holding(&self) -> usize {
        self.shared.state().holding
    }

    /// Held commands go on.
    pub fn let_go(&self) {
        self.shared.state().held = false;
        self.shared.let_go.notify_all();
    }

    /// The connections that exist, the oldest first.
    #[must_use]
    pub fn lines(&self) -> Vec<LineNumber> {
        self.shared.state().lines.iter().map(|line| line.number).collect()
    }

    /// Swallows bytes of the connections that exist; new ones are fine.
    pub fn black_hole(&self, direction: Direction) {
        for line in &self.shared.state().lines {
            line.swallow(direction);
        }
    }

    /// Swallows bytes of one connection.
    pub fn black_hole_line(&self, number: LineNumber, direction: Direction) {
        self.at(number, |line| line.swallow(direction));
    }

    /// Cuts one connection, if it is still there.
    pub fn cut_line(&self, number: LineNumber) {
        self.at(number, Line::cut);
    }

    /// Cuts one connection without an orderly end.
    pub fn reset_line(&self, number: LineNumber) {
        self.at(number, Line::reset);
    }

    fn at(&self, number: LineNumber, act: impl FnOnce(&Line)) {
        if let Some(line) = self.shared.state().lines.iter().find(|line| line.number == number) {
            act(line);
        }
    }

    /// Cuts the connections that exist; new ones are fine.
    pub fn cut(&self) {
        for line in self.shared.state().lines.drain(..) {
            line.cut();
        }
    }

    /// Every command that came by so far, word by word, names in capitals.
    #[must_use]
    pub fn seen(&self) -> Vec<Vec<String>> {
        self.shared.state().seen.clone()
    }

    /// How many commands came by so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared.state().seen.len()
    }

    /// Those of [`seen`](Self::seen) that came after the first `earlier`, without the connection's own talk
    /// (`PING`, `HELLO` and the like).
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
        // Wakes the accepting thread, so that it sees that it is over.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a request down and takes the fault that is planned for it.
    fn meet(&self, request: &[u8]) -> (String, Option<Fault>) {
        let words = resp::words(request);
        let name = words.first().cloned().unwrap_or_default();
        let mut state = self.state();
        if self.records {
            state.seen.push(words);
        }
        let next = state.planned.iter().position(|(planned, _)| *planned == name || planned == ANY);
        let fault = next.and_then(|at| state.planned.remove(at)).map(|(_, fault)| fault);
        (name, fault)
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

impl Line {
    fn swallow(&self, direction: Direction) {
        self.deaf.fetch_or(direction != Direction::ToClient, Ordering::SeqCst);
        self.mute.fetch_or(direction != Direction::ToServer, Ordering::SeqCst);
    }

    fn cut(&self) {
        let how = if self.reset.load(Ordering::SeqCst) { Shutdown::Read } else { Shutdown::Both };
        let _ = self.client.shutdown(how);
        let _ = self.server.shutdown(how);
    }

    /// The threads end, and with them the last handles: closing without lingering is a reset.
    fn reset(&self) {
        self.reset.store(true, Ordering::SeqCst);
        for side in [&self.client, &self.server] {
            let _ = SockRef::from(side).set_linger(Some(Duration::ZERO));
        }
        self.cut();
    }

    fn expected(&self) -> MutexGuard<'_, VecDeque<Reply>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn connect(shared: &Arc<Shared>, client: TcpStream) -> std::io::Result<()> {
    let server = TcpStream::connect(&shared.target)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut state = shared.state();
    state.last += 1;
    let line = Arc::new(Line {
        number: LineNumber(state.last),
        client,
        server,
        deaf: AtomicBool::new(false),
        mute: AtomicBool::new(false),
        reset: AtomicBool::new(false),
        expected: Mutex::default(),
    });
    state.lines.push(Arc::clone(&line));
    drop(state);
    let (up, down) = (Arc::clone(&line), line);
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let _ = carry_requests(&shared, &up);
        up.cut();
        shared.state().lines.retain(|line| line.number != up.number);
    });
    thread::spawn(move || {
        let _ = carry_replies(&down);
        down.cut();
    });
    Ok(())
}

fn carry_requests(shared: &Shared, line: &Line) -> std::io::Result<()> {
    each_message(&line.client, |request| {
        let (name, fault) = shared.meet(request);
        let mut reply = Reply::Pass;
        match fault {
            None => {}
            Some(Fault::DropReply) => reply = Reply::Drop,
            Some(Fault::MuteFromReply) => reply = Reply::Mute,
            Some(Fault::DelayReply(time)) => reply = Reply::Delay(time),
            Some(Fault::CutAfterForward) => reply = Reply::Cut,
            Some(Fault::CutBeforeForward) => return Err(std::io::ErrorKind::ConnectionAborted.into()),
            Some(Fault::Delay(time)) => thread::sleep(time),
            Some(Fault::Hold) => shared.wait_until_let_go(),
        }
        if line.deaf.load(Ordering::SeqCst) {
            return Ok(());
        }
        // With RESP3 these are answered by pushes, which don't count as replies.
        if !name.ends_with("SUBSCRIBE") {
            line.expected().push_back(reply);
        }
        (&line.server).write_all(request)
    })
}

fn carry_replies(line: &Line) -> std::io::Result<()> {
    each_message(&line.server, |message| {
        let is_push = message[0] == b'>';
        let reply = if is_push { None } else { line.expected().pop_front() };
        match reply {
            Some(Reply::Drop) => Ok(()),
            Some(Reply::Mute) => {
                line.swallow(Direction::ToClient);
                Ok(())
            }
            Some(Reply::Cut) => Err(std::io::ErrorKind::ConnectionAborted.into()),
            Some(Reply::Delay(time)) => {
                thread::sleep(time);
                (&line.client).write_all(message)
            }
            _ if line.mute.load(Ordering::SeqCst) => Ok(()),
            _ => (&line.client).write_all(message),
        }
    })
}

fn each_message(mut from: &TcpStream, mut carry: impl FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        let count = from.read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&chunk[..count]);
        let mut start = 0;
        while let Some(end) = resp::length(&bytes[start..]) {
            carry(&bytes[start..start + end])?;
            start += end;
        }
        bytes.drain(..start);
    }
}
