//! What a [`Link`] knows about its server's clock. [`Drifting`]: whether that clock runs faster than is allowed for.

use std::time::Duration;

use super::{Anchor, Link};
use crate::clock::{Deadline, Drift, Moment};

/// The shortest span over which clocks are compared. Over a shorter one the network's delay would weigh too much.
const SPAN: Duration = Duration::from_secs(5);

/// How much the server's clock gained on this process's clock, at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gain {
    pub(super) gained: Duration,
    pub(super) within: Duration,
}

impl Gain {
    /// Parts per million.
    pub(super) fn ppm(self) -> u128 {
        self.gained.as_nanos() * 1_000_000 / self.within.as_nanos().max(1)
    }
}

#[derive(Debug, Default)]
pub(super) struct Drifting {
    /// The server's time, and an instant of this process's clock that was certainly not later.
    last: Option<(u64, Moment)>,
}

impl Drifting {
    /// Handles an answer with the server's time. Returns a gain only if the server's clock certainly gained more than `drift` allows: the
    /// local time runs from before the first reading of the server's clock to after the second, so a delayed answer never looks like a
    /// gain.
    pub(super) fn on_answer(&mut self, anchor: Anchor, drift: Drift) -> Option<Gain> {
        let Some((micros, sent)) = self.last else {
            self.last = Some((anchor.store_micros, anchor.sent));
            return None;
        };
        if anchor.sent.since(sent) < SPAN {
            return None;
        }
        let here = Moment::now().since(sent);
        let there = Duration::from_micros(anchor.store_micros.saturating_sub(micros));
        self.last = Some((anchor.store_micros, anchor.sent));
        // A right of this length would have ended while its owner still relied on it.
        (drift.trusted(there) > here).then(|| Gain { gained: there.saturating_sub(here), within: here })
    }
}

impl Link {
    /// Stores what the server's clock shows, and reports once that it runs faster than is allowed for.
    pub fn update_clock(&self, anchor: Anchor) {
        let mut state = self.state.lock();
        state.clock = Some(anchor);
        // Otherwise the background's connection to the same server would report it a second time.
        if !self.is_of_callers() || state.is_drift_told {
            return;
        }
        let Some(gain) = state.drifting.on_answer(anchor, self.common.drift) else { return };
        state.is_drift_told = true;
        drop(state);
        self.common.events.on_fast_clock(self, gain.ppm(), gain.within);
    }

    /// What the server's clock will show at `deadline`, at most a round trip too late.
    pub fn store_micros_at(&self, deadline: Deadline) -> Option<u64> {
        let anchor = self.state.lock().clock?;
        let ahead = anchor.sent.elapsed() + deadline.remaining().min(Duration::from_secs(366 * 24 * 3600));
        anchor.store_micros.checked_add(u64::try_from(ahead.as_micros()).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Feeds answers of a server whose clock runs at `rate`, with this pause between them and these delays on the way.
    async fn found(rate: f64, pause: Duration, delays: &[u64]) -> Vec<Option<Gain>> {
        let (mut drifting, start) = (Drifting::default(), Moment::now());
        let mut gains = Vec::new();
        for delay in delays {
            advance(pause).await;
            let sent = Moment::now();
            advance(Duration::from_millis(*delay)).await;
            let micros = Moment::now().since(start).mul_f64(rate).as_micros();
            let anchor = Anchor {
                sent,
                store_micros: 1_000_000_000 + u64::try_from(micros).unwrap(),
                drift: Drift::DEFAULT,
                node: None,
            };
            advance(Duration::from_millis(*delay)).await;
            gains.push(drifting.on_answer(anchor, Drift::DEFAULT));
        }
        gains
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_clock_that_is_too_fast_is_found() {
        for (rate, is_found) in [(1.02, true), (1.0833, true), (1.005, false), (1.0, false), (0.9, false)] {
            let gains = found(rate, Duration::from_secs(10), &[1, 1, 1]).await;
            assert_eq!(gains.iter().any(Option::is_some), is_found, "{rate}: {gains:?}");
            if rate > 1.08 {
                let ppm = gains[1].unwrap().ppm();
                assert!((80_000..=84_000).contains(&ppm), "{ppm}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_delay_of_an_answer_looks_like_a_fast_clock() {
        for delays in [[400, 0, 400, 0, 0], [0, 450, 0, 0, 450], [450, 0, 0, 450, 450]] {
            let gains = found(1.009, Duration::from_secs(5), &delays).await;
            assert!(gains.iter().all(Option::is_none), "{delays:?}: {gains:?}");
        }
    }
}
