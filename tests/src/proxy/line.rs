//! [`Line`]: one connection through the proxy, and the threads that forward its messages.

use std::collections::VecDeque;
use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use super::distance::Way;
use super::{Direction, Fault, LineNumber, Shared};
use crate::resp;

#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: LineNumber,
    client: TcpStream,
    server: TcpStream,
    up: Way,
    down: Way,
    deaf: AtomicBool,
    mute: AtomicBool,
    /// Whether the connection is reset instead of closed.
    reset: AtomicBool,
    /// For each command that the server will answer: whether to drop the reply, or to cut the line at it.
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

impl Line {
    pub(super) fn swallow(&self, direction: Direction) {
        self.deaf.fetch_or(direction != Direction::ToClient, Ordering::SeqCst);
        self.mute.fetch_or(direction != Direction::ToServer, Ordering::SeqCst);
    }

    pub(super) fn cut(&self) {
        self.up.cut();
        self.down.cut();
        let how = if self.reset.load(Ordering::SeqCst) { Shutdown::Read } else { Shutdown::Both };
        let _ = self.client.shutdown(how);
        let _ = self.server.shutdown(how);
    }

    /// Ends the threads, which own the last handles. Closing a socket with a linger time of zero resets the connection.
    pub(super) fn reset(&self) {
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

/// Connects to the server for `client`, and forwards bytes in both directions.
pub(super) fn connect(shared: &Arc<Shared>, client: TcpStream) -> std::io::Result<()> {
    let target = shared.state().target.clone();
    let server = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (up, down) = (Way::new(server.try_clone()?, true), Way::new(client.try_clone()?, false));
    let mut state = shared.state();
    state.last += 1;
    let line = Arc::new(Line {
        number: LineNumber(state.last),
        client,
        server,
        up,
        down,
        deaf: AtomicBool::new(false),
        mute: AtomicBool::new(false),
        reset: AtomicBool::new(false),
        expected: Mutex::default(),
    });
    if state.cut_off {
        line.swallow(Direction::Both);
    }
    state.lines.push(Arc::clone(&line));
    drop(state);
    let (up, down) = (Arc::clone(&line), line);
    let (shared, replying) = (Arc::clone(shared), Arc::clone(shared));
    thread::spawn(move || {
        let carried = if shared.reads { carry_requests(&shared, &up) } else { carry_up(&shared, &up) };
        if carried.is_err() || !up.up.end(shared.distance()) {
            up.cut();
        }
        shared.state().lines.retain(|line| line.number != up.number);
    });
    thread::spawn(move || {
        let carried = if replying.reads { carry_replies(&replying, &down) } else { carry_down(&replying, &down) };
        if carried.is_err() || !down.down.end(replying.distance()) {
            down.cut();
        }
    });
    Ok(())
}

/// Forwards bytes without parsing them.
fn carry_up(shared: &Shared, line: &Line) -> std::io::Result<()> {
    each_chunk(&line.client, |chunk| {
        let is_deaf = line.deaf.load(Ordering::SeqCst);
        if is_deaf { Ok(()) } else { line.up.send(chunk, shared.distance()) }
    })
}

fn carry_down(shared: &Shared, line: &Line) -> std::io::Result<()> {
    each_chunk(&line.server, |chunk| {
        let is_mute = line.mute.load(Ordering::SeqCst);
        if is_mute { Ok(()) } else { line.down.send(chunk, shared.distance()) }
    })
}

fn each_chunk(mut from: &TcpStream, mut carry: impl FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut chunk = [0; 16 * 1024];
    loop {
        match from.read(&mut chunk)? {
            0 => return Ok(()),
            count => carry(&chunk[..count])?,
        }
    }
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
        // With RESP3 the server answers these by pushes, which don't count as replies.
        if !name.ends_with("SUBSCRIBE") {
            line.expected().push_back(reply);
        }
        let disguised = shared.disguise.map(|disguise| disguise.of_request(request));
        line.up.send(disguised.as_deref().unwrap_or(request), shared.distance())
    })
}

fn carry_replies(shared: &Shared, line: &Line) -> std::io::Result<()> {
    each_message(&line.server, |message| {
        let is_push = message[0] == b'>';
        let reply = if is_push { None } else { line.expected().pop_front() };
        match reply {
            Some(Reply::Drop) => return Ok(()),
            Some(Reply::Mute) => line.swallow(Direction::ToClient),
            Some(Reply::Cut) => return Err(std::io::ErrorKind::ConnectionAborted.into()),
            Some(Reply::Delay(time)) => thread::sleep(time),
            Some(Reply::Pass) | None => {}
        }
        if line.mute.load(Ordering::SeqCst) {
            return Ok(());
        }
        let disguised = shared.disguise.map(|disguise| disguise.of_reply(message));
        line.down.send(disguised.as_deref().unwrap_or(message), shared.distance())
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
