//! What a [`Link`] concludes when a command goes unanswered.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Link, Silence};
use crate::clock::{Deadline, Moment};
use crate::observe;

impl Link {
    /// An answer came: the server is not silent.
    pub(super) fn on_reply(&self) {
        if self.is_silent.load(Ordering::Relaxed) {
            self.is_silent.store(false, Ordering::Relaxed);
            if self.state.lock().silence.take().is_some() {
                observe::answers_again(&self.server);
            }
        }
    }

    /// A command went unanswered, and nothing came since it was sent. After twice the command timeout without any answer the connection is
    /// given up. So a dead connection is replaced soon, and a slow server, whose answers come when nobody waits for them any more, is not
    /// flooded with new connections.
    pub(super) fn on_silence(&self, generation: u64, sent: Moment, limit: Duration) {
        let mut state = self.state.lock();
        let Some(live) = state.live.as_ref().filter(|live| live.made.generation == generation) else { return };
        let (heard, is_full) = (live.wire.heard(), live.wire.is_full());
        let is_news = state.silence.is_none();
        let before = state.silence.filter(|silence| silence.heard == heard || are_others_unheard());
        let Silence { since, .. } = *state.silence.insert(before.unwrap_or(Silence { since: sent, heard }));
        self.is_silent.store(true, Ordering::Relaxed);
        drop(state);
        if is_news {
            observe::silent(&self.server, limit);
        }
        if since.elapsed() < self.command_timeout * 2 {
            if is_full {
                // Nobody else sends a command that would go unanswered.
                self.probe();
            }
            return;
        }
        self.give_up(generation);
    }

    /// Gives up a connection that has been silent for too long.
    fn give_up(&self, generation: u64) {
        mutant!(ConnectionNeverGivenUp => return);
        self.drop_connection(generation);
    }

    /// Asks the server for any answer, with all the time that a command may have. When this goes unanswered, too, the
    /// connection is dead.
    pub(super) fn probe(&self) {
        let Some(link) = self.this.upgrade() else { return };
        if self.is_probing.swap(true, Ordering::Relaxed) {
            return;
        }
        let probing = Probing(link);
        tokio::spawn(async move { probing.0.heartbeat(Deadline::after(probing.0.command_timeout)).await });
    }
}

/// Whether answers that nobody waits for say nothing about the connection.
pub(super) fn are_others_unheard() -> bool {
    mutant!(OthersUnheard => return true);
    false
}

/// The server is asked for any answer. Its task may end with its runtime.
struct Probing(Arc<Link>);

impl Drop for Probing {
    fn drop(&mut self) {
        mutant!(ProbeEndsWithRuntime => return);
        self.0.is_probing.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo as _;
    use tokio::runtime::Builder;

    use super::*;
    use crate::mutants::{Mutant, Seeded};
    use crate::settings::Settings;
    use crate::store::redis::endpoint::Endpoint;
    use crate::store::redis::link::Common;
    use crate::store::redis::wire::Trust;

    #[test]
    fn a_server_is_asked_again_when_the_runtime_has_ended_that_asked() {
        for (bug, is_over) in [(None, true), (Some(Mutant::ProbeEndsWithRuntime), false)] {
            let _seeded = Seeded::begin(bug);
            let nowhere = "redis://127.0.0.1:1".into_connection_info().unwrap();
            let endpoint = Endpoint::of_connection(nowhere, &Trust::default()).unwrap();
            let link = Link::new(endpoint, None, None, None, Common::new(&Settings::default(), |_| ()));
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { link.probe() });
            drop(runtime);
            assert_eq!(!link.is_probing.load(Ordering::Relaxed), is_over, "{bug:?}");
        }
    }
}
