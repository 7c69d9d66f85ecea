//! [`Stall`]: the server stood still in the middle of a script, and everybody who waits for it.

use std::sync::Arc;
use std::time::Duration;

use history::event::What;
use tokio::time::{Instant, sleep_until};

use super::network::Network;
use super::time;

#[derive(Clone, Copy)]
pub(super) struct Stall {
    /// By the history's clock.
    from: u64,
    pub(super) ends: Instant,
}

impl Stall {
    /// How many microseconds a command that begins now takes, by a server's clock of this speed.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "seconds")]
    pub(super) fn of(taken: u64, rate: f64) -> Option<Self> {
        // By the host's clock, and not a moment less: the server's must not go back.
        let span = Duration::from_micros((taken as f64 / rate) as u64 + 2);
        (taken > 0).then(|| Self { from: time::now().unwrap_or_default(), ends: Instant::now() + span })
    }

    /// Writes it down when it is over.
    pub(super) async fn note(self, network: Arc<Network>) {
        sleep_until(self.ends).await;
        let what = What::Fault { kind: "StopServer".into(), target: "server".into(), from: self.from };
        network.note(history::claims::HARNESS, 0, what);
    }
}
