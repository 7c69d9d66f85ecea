//! [`Distance`]: how far away the server seems to be, and [`Way`], one direction of a connection over that distance.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How far away the server seems to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distance {
    /// The time of one round trip. Each direction takes half of it, and the first bytes of a connection take one round trip
    /// more: for the handshake of TCP, which no proxy can delay.
    pub round_trip: Duration,
    /// For so long the first bytes of a connection wait in addition, as they do for a slow DNS or TLS.
    pub first_bytes: Duration,
}

impl Distance {
    /// So many milliseconds for a round trip.
    #[must_use]
    pub fn of_millis(round_trip: u64) -> Self {
        Self { round_trip: Duration::from_millis(round_trip), first_bytes: Duration::ZERO }
    }

    fn is_none(self) -> bool {
        self == Self::default()
    }
}

enum Parcel {
    Bytes(Vec<u8>),
    /// The sender has closed its side: so does the receiver, behind all that was said.
    End,
}

/// When a parcel arrives.
type Dated = (Instant, Parcel);

/// One direction of a connection: bytes arrive in order, each so long after it was sent. It delays; it does not serialise.
#[derive(Debug)]
pub(super) struct Way {
    to: TcpStream,
    /// Whether the first bytes of the connection go this way.
    is_first: bool,
    state: Mutex<State>,
    is_cut: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    /// Set once there was a distance: then all goes by it.
    queue: Option<Sender<Dated>>,
    has_begun: bool,
    last: Option<Instant>,
}

impl Way {
    pub(super) fn new(to: TcpStream, is_first: bool) -> Self {
        Self { to, is_first, state: Mutex::default(), is_cut: Arc::default() }
    }

    /// What is under way does not arrive any more.
    pub(super) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    pub(super) fn send(&self, bytes: &[u8], distance: Distance) -> std::io::Result<()> {
        match self.queue(distance)? {
            None => (&self.to).write_all(bytes),
            Some((queue, due)) => queue.send((due, Parcel::Bytes(bytes.to_vec()))).map_err(gone),
        }
    }

    /// Closes it once all has arrived; `false` when nothing is under way, and it can be cut at once.
    pub(super) fn end(&self, distance: Distance) -> bool {
        matches!(self.queue(distance), Ok(Some((queue, due))) if queue.send((due, Parcel::End)).is_ok())
    }

    /// Where bytes go that are not written at once, and when they arrive.
    fn queue(&self, distance: Distance) -> std::io::Result<Option<(Sender<Dated>, Instant)>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.queue.is_none() {
            if distance.is_none() {
                state.has_begun = true;
                return Ok(None);
            }
            state.queue = Some(self.carry()?);
        }
        let mut due = Instant::now() + distance.round_trip / 2;
        if self.is_first && !state.has_begun {
            due += distance.round_trip + distance.first_bytes;
        }
        state.has_begun = true;
        // Nothing overtakes.
        let due = state.last.map_or(due, |last| last.max(due));
        state.last = Some(due);
        Ok(state.queue.clone().map(|queue| (queue, due)))
    }

    fn carry(&self) -> std::io::Result<Sender<Dated>> {
        let (queue, parcels) = channel::<Dated>();
        let (mut to, is_cut) = (self.to.try_clone()?, Arc::clone(&self.is_cut));
        thread::spawn(move || {
            for (due, parcel) in parcels {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if is_cut.load(Ordering::SeqCst) {
                    return;
                }
                let Parcel::Bytes(bytes) = parcel else { break };
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
        Ok(queue)
    }
}

fn gone<E>(_: E) -> std::io::Error {
    std::io::ErrorKind::BrokenPipe.into()
}
