//! The server's clock: how far it is from the clock here, and whether it runs at the same speed.
//!
//! The server reads its clock at some instant between a question and its reply. On a busy machine these are far apart, and the server's
//! clock seems to jump. So each reading has bounds, and the verdict considers all that the bounds allow.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lock_runtime::{BackendError, LockServer};

use super::{Finding, Verdict};
use crate::output::brief;
use crate::server::{items, text};

/// Clocks need not agree, but a clock this far off is not being set at all.
const WRONG: Duration = Duration::from_secs(2);
/// How long the clocks are compared, and how much faster the server's may run (the default is 1 %).
const COMPARED: Duration = Duration::from_millis(1500);
const DRIFT: f64 = 0.005;
/// The best of this many readings counts.
const READINGS: u32 = 10;

/// What the server's clock showed, and between which instants here.
#[derive(Clone, Copy, Debug)]
struct Reading {
    shown: Duration,
    after: Instant,
    before: Instant,
}

/// How much faster the server's clock runs than the clock here, within these bounds. 0.01 is 1 %.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    least: f64,
    most: f64,
}

impl Reading {
    /// `None` when the server refuses.
    async fn of(server: &LockServer) -> Result<Option<Self>, BackendError> {
        let after = Instant::now();
        let reply = server.ask(&["TIME"]).await?;
        let before = Instant::now();
        let reply = reply.map(items).unwrap_or_default();
        let numbers: Vec<u64> = reply.iter().filter_map(text).filter_map(|number| number.parse().ok()).collect();
        let shown = |seconds, micros| Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
        Ok(match numbers.as_slice() {
            [seconds, micros] => Some(Self { shown: shown(*seconds, *micros), after, before }),
            _ => None,
        })
    }

    /// The most exact of several readings.
    async fn best_of(server: &LockServer) -> Result<Option<Self>, BackendError> {
        let mut best: Option<Self> = None;
        for _ in 0..READINGS {
            let Some(other) = Self::of(server).await? else { return Ok(None) };
            if best.is_none_or(|best| other.width() < best.width()) {
                best = Some(other);
            }
        }
        Ok(best)
    }

    fn width(&self) -> Duration {
        self.before.duration_since(self.after)
    }
}

impl Rate {
    /// How fast the server's clock ran between two readings.
    fn between(first: Reading, second: Reading) -> Self {
        let there = second.shown.saturating_sub(first.shown).as_secs_f64();
        let (longest, shortest) = (second.before - first.after, second.after.saturating_duration_since(first.before));
        let rate = |here: Duration| there / here.as_secs_f64().max(f64::EPSILON) - 1.0;
        Self { least: rate(longest), most: rate(shortest) }
    }

    /// Whether the speeds certainly differ too much.
    fn is_bad(self) -> bool {
        self.least > DRIFT || self.most < -DRIFT
    }

    /// In percent: the middle, and the possible error.
    fn percent(self) -> (f64, f64) {
        ((self.least + self.most) * 50.0, (self.most - self.least) * 50.0)
    }
}

pub(super) async fn check(server: &LockServer) -> Result<Finding, BackendError> {
    let (address, check) = (server.address(), "clock");
    let Some(first) = Reading::best_of(server).await? else { return Ok(Finding::unknown(address, check, "+time")) };
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let apart = (first.shown.saturating_add(first.after.elapsed())).abs_diff(here);
    tokio::time::sleep(COMPARED).await;
    let Some(second) = Reading::best_of(server).await? else { return Ok(Finding::unknown(address, check, "+time")) };
    let rate = Rate::between(first, second);
    let (percent, error) = rate.percent();
    let found = format!("{} from this machine's clock, {percent:+.2} % ± {error:.2} % as fast", brief(apart));
    Ok(if rate.is_bad() {
        Finding::new(address, check, Verdict::Bad, found)
            .advise("clocks must be slewed slowly: see `max_clock_drift_ppm`, and chrony's `maxslewrate`")
    } else if apart > WRONG {
        Finding::new(address, check, Verdict::Doubt, found).advise(
            "locks do not compare clocks, but a clock that is set right later ends leases early: run chrony or ntpd",
        )
    } else {
        Finding::new(address, check, Verdict::Good, found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reading of a clock this much faster at 100 s and at 101.5 s. The replies took `took`, and the clock was read after this part
    /// of that time.
    fn rate(faster: f64, took: [Duration; 2], part: f64) -> Rate {
        let start = Instant::now();
        let read = |at: Duration, took: Duration| {
            let shown = at + took.mul_f64(part);
            let shown = Duration::from_secs(1_700_000_000) + shown.mul_f64(1.0 + faster);
            Reading { shown, after: start + at, before: start + at + took }
        };
        let first = Duration::from_secs(100);
        Rate::between(read(first, took[0]), read(first + COMPARED, took[1]))
    }

    const QUICK: Duration = Duration::from_micros(80);
    const SLOW: Duration = Duration::from_millis(30);

    #[test]
    fn a_busy_machine_is_no_bad_clock() {
        for took in [[QUICK, QUICK], [QUICK, SLOW], [SLOW, QUICK], [SLOW, SLOW]] {
            for part in [0.0, 0.1, 0.5, 1.0] {
                for faster in [0.0, 0.004, -0.004] {
                    let rate = rate(faster, took, part);
                    assert!(!rate.is_bad(), "{took:?} {part} {faster}: {rate:?}");
                    assert!(
                        rate.least <= faster + 1e-9 && faster - 1e-9 <= rate.most,
                        "{took:?} {part} {faster}: {rate:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_clock_that_runs_apart_is_bad_where_it_can_be_read() {
        for faster in [0.006, -0.006, 0.5, -0.5] {
            for part in [0.0, 0.5, 1.0] {
                assert!(rate(faster, [QUICK, QUICK], part).is_bad(), "{faster} {part}");
            }
        }
        assert!(!rate(0.006, [SLOW, SLOW], 0.5).is_bad(), "nobody can tell");
    }
}
