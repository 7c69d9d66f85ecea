//! [`Stall`]: the server stalled in the middle of a script, and with it all its clients.

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
    /// A command that starts now takes `taken` microseconds, by a server clock with this speed.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "seconds")]
    pub(super) fn of(taken: u64, rate: f64) -> Option<Self> {
        // By the host's clock, and never less: the server's clock must not go back.
        let span = Duration::from_micros((taken as f64 / rate) as u64 + 2);
        (taken > 0).then(|| Self { from: time::now().unwrap_or_default(), ends: Instant::now() + span })
    }

    /// Records it when it is over.
    pub(super) async fn note(self, network: Arc<Network>) {
        sleep_until(self.ends).await;
        let what = What::Fault { kind: "StopServer".into(), target: "server".into(), from: self.from };
        network.note(history::claims::HARNESS, 0, what);
    }
}
