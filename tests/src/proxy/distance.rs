//! [`Distance`]: simulated network latency. [`Way`]: one direction of a connection with that latency.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The latency to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distance {
    /// The time of one round trip. Each direction takes half of it. The first bytes of a connection take one round trip more, in place of
    /// the TCP handshake, which a proxy can't delay.
    pub round_trip: Duration,
    /// How much longer the first bytes of a connection wait, as with slow DNS or TLS.
    pub first_bytes: Duration,
}

impl Distance {
    /// A round trip of this many milliseconds.
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
    /// The sender has closed its side. The receiver does the same after all data.
    End,
}

/// A parcel and when it arrives.
type Dated = (Instant, Parcel);

/// One direction of a connection: bytes arrive in order, each after the same delay. It adds latency and does not limit bandwidth.
#[derive(Debug)]
pub(super) struct Way {
    to: TcpStream,
    /// Whether this direction carries the first bytes of the connection.
    is_first: bool,
    state: Mutex<State>,
    is_cut: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    /// Set once there was a delay; from then on all bytes go through it, to stay in order.
    queue: Option<Sender<Dated>>,
    has_begun: bool,
    last: Option<Instant>,
}

impl Way {
    pub(super) fn new(to: TcpStream, is_first: bool) -> Self {
        Self { to, is_first, state: Mutex::default(), is_cut: Arc::default() }
    }

    /// Cuts the connection; bytes under way are lost.
    pub(super) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    pub(super) fn send(&self, bytes: &[u8], distance: Distance) -> std::io::Result<()> {
        match self.queue(distance)? {
            None => (&self.to).write_all(bytes),
            Some((queue, due)) => queue.send((due, Parcel::Bytes(bytes.to_vec()))).map_err(gone),
        }
    }

    /// Closes the connection once all bytes have arrived. `false` if none are under way, so that the caller can cut it at once.
    pub(super) fn end(&self, distance: Distance) -> bool {
        matches!(self.queue(distance), Ok(Some((queue, due))) if queue.send((due, Parcel::End)).is_ok())
    }

    /// The queue for delayed bytes, and when these bytes arrive; `None` if they are written at once.
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
        // Bytes stay in order.
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
