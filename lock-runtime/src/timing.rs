//! The times of the protocol, each with its reason, and the relations between them that promises rest on.
//!
//! What concerns one kind of server only (how often sentinels are asked, say) stands beside the code that uses it.

use std::time::Duration;

// --- The store --------------------------------------------------------------------------------------------------------

/// The longest lease that a grant starts with (rule 11). The reply of an acquire may be lost, and a hanging server may execute
/// the acquire long after its task gave up: the grant then blocks others only for this long. A hold that lives on is confirmed
/// to its full lease.
pub(crate) const CLAIM: Duration = Duration::from_millis(2500);
/// For how long a withdrawal is repeated.
///
/// What an ask may have left behind is a claim, which ends by itself, or a place in a queue, which is given a claim when its
/// time comes. A server that hangs for longer may execute the ask after this time. Then it most often executes right behind it
/// the withdrawal that went the same way; else the claim ends by itself.
pub(crate) const WITHDRAWAL_LIFETIME: Duration = CLAIM.saturating_mul(2);

// --- A task that acquires ---------------------------------------------------------------------------------------------

/// An answer may take this long, however short the timeout is.
pub(crate) const SHORTEST_ANSWER: Duration = Duration::from_millis(80);
/// An acquire may still succeed this long after its timeout: what was granted in time is not thrown away.
pub(crate) const OVERTIME: Duration = Duration::from_millis(50);
// A task that has no answer in time waits for this long until all that has come is read.
pub(crate) use lock_wire::LAST_LOOK;
/// A try that was refused only because this process is just releasing the lock is retried after at least this long.
pub(crate) const RETRY_OWN_RELEASE_AFTER: Duration = Duration::from_millis(2);
/// A waiter repeats its ask at most this often (rule 5).
pub(crate) const ASK_INTERVAL: Duration = Duration::from_millis(900);
/// The pauses of a task whose asks fail.
pub(crate) const ASK_BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(320));

// --- A store without a queue ------------------------------------------------------------------------------------------

/// The pause after a refusal is chosen by chance from these two: processes that collided must not collide again.
pub(crate) const POLL_PAUSE: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];
/// The pause after a refusal by a release of this process that is still on its way.
pub(crate) const POLL_PAUSE_OF_OWN_RELEASE: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(15)];
/// The pause of a process after its streak of hand-overs: longer than the pauses of the others, so that each of them asks before.
pub(crate) const POLL_PAUSE_AFTER_STREAK: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(500)];

// --- Free locks and holds ---------------------------------------------------------------------------------------------

/// What lies free for this long is released to another process that waits (rule L7).
pub(crate) const FREE_PATIENCE: Duration = Duration::from_millis(50);
/// Readers who have the lock together know of others who wait for so long after they heard of them (rule S5). Who waits in front asks
/// again every 0.9 s, and each ask is heard.
pub(crate) const WAITERS_KNOWN_FOR: Duration = Duration::from_secs(2);
/// A lease that no task here takes up is released after this time.
pub(crate) const UNUSED_LEASE_KEPT_FOR: Duration = Duration::from_millis(900);
/// A lease is handed over when it is good for this long, or for half of what the next hold asks for (rule L1).
pub(crate) const ENOUGH_LEASE: Duration = Duration::from_secs(1);
/// A hold does not start on a lease with less time left than this, also when the lease was just granted (rule L1). Its body
/// could do nothing, and whoever looks at the guard would already see a lost lock. The lease is confirmed first.
pub(crate) const SHORTEST_HOLD: Duration = Duration::from_millis(1);
/// A streak of hand-overs ends after this time, counted from when another process is known to wait (rule L4).
pub(crate) const STREAK_TIME: Duration = Duration::from_millis(10);

// --- A lease that lingers (rule L9) -----------------------------------------------------------------------------------

/// A call that connects waits at most this long for the keeper's connection behind its own. Without it nothing lingers. A server
/// that is far away is not waited for: a later hold lingers.
pub(crate) const KEEPER_CONNECTS: Duration = Duration::from_millis(20);
/// The longest time for which a lease may be kept for the next hold. Whoever sees only the key finds the lock taken for so long.
pub(crate) const LONGEST_LINGER: Duration = Duration::from_secs(2);
/// A lease that lingers and is used again is lengthened when this much is left of it: a second after its claim, and before the
/// lease is too short for a hold to start on it (rule L1).
pub(crate) const fn lengthened_at(claim: Duration) -> Duration {
    match claim.saturating_mul(11).checked_div(20) {
        Some(left) => left,
        None => claim,
    }
}

// --- The keeper -------------------------------------------------------------------------------------------------------

/// The keeper's tick while there are holds that are not confirmed.
pub(crate) const TICK: Duration = Duration::from_millis(5);
/// A hold younger than this is not confirmed: most holds end sooner, and never pay for it.
pub(crate) const UNCONFIRMED_FOR: Duration = Duration::from_millis(5);
/// A renewal is due after the lease divided by this number, so that two renewals can fail before the lease ends.
pub(crate) const RENEWALS_PER_LEASE: u32 = 3;
/// The alarm of a hold is armed when its confirmation is this old: most holds end sooner, and never pay for it. It is also the
/// pause after an alarm, so a key that somebody changes all the time costs two commands a second.
pub(crate) const ALARM_AFTER: Duration = Duration::from_secs(1);
/// The longest sleep of the keeper while something is held: timers stand still while the machine is suspended.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// When timers missed this much time, the schedule does not count any more. Clocks that are slewed miss far less.
pub(crate) const MISSED_BY_TIMERS: Duration = Duration::from_millis(100);
/// One answer that took longer says little about the next answer, unless the server is known to be as far away.
pub(crate) const LONGEST_USUAL_ANSWER: Duration = Duration::from_millis(250);
/// In a crowd an answer may take this long until its task has it, before the task counts as late. A claim lasts longer.
pub(crate) const LONGEST_LAG: Duration = Duration::from_secs(2);
/// While a task waits in the store's queue, the keeper asks the runtime that reads its grant so often whether it runs. A runtime
/// that has not answered by the next time is blocked.
pub(crate) const READER_ASKED_EVERY: Duration = Duration::from_millis(20);
/// The keeper repeats the asks of a blocked runtime after this time: a grant that is not read is found so soon.
pub(crate) const UNREAD_ASKED_EVERY: Duration = READER_ASKED_EVERY.saturating_mul(2);
/// The keeper does not repeat an ask whose answer is younger than this.
pub(crate) const FRESH_ANSWER: Duration = Duration::from_millis(50);
/// The pauses of a renewal that is not answered.
pub(crate) const RENEWAL_BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(800));
/// The pauses of a release that is refused, and of a server that does not answer releases.
pub(crate) const RELEASE_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
/// How long a shutdown waits for bodies that were told to end, and again for the last releases.
pub(crate) const SHUTDOWN_STEP: Duration = Duration::from_secs(2);

// --- Relations --------------------------------------------------------------------------------------------------------

const SECOND: Duration = Duration::from_secs(1);
/// The farthest server that promise 4 counts with, there and back.
const ROUND_TRIP: Duration = Duration::from_millis(40);

/// Fails the build when `shorter` is longer than `longer`.
const fn fits(shorter: &[Duration], longer: Duration) {
    let mut sum = 0;
    let mut rest = shorter;
    while let [first, others @ ..] = rest {
        sum += first.as_nanos();
        rest = others;
    }
    assert!(sum <= longer.as_nanos(), "a promise rests on this relation");
}

// Promise 4: a lost wake-up delays by at most a second. An ask that was answered just before a tick is left to the next one.
const _: () = fits(&[ASK_INTERVAL, FRESH_ANSWER, TICK, ROUND_TRIP], SECOND);
// Rule S5: one message about a waiter may be lost, and readers do not take the waiter for gone.
const _: () = fits(&[ASK_INTERVAL, ASK_INTERVAL, FRESH_ANSWER, TICK, ROUND_TRIP, ROUND_TRIP], WAITERS_KNOWN_FOR);
// Promise 4: a crashed waiter delays others by at most 3 s: its claim, and the ask of the next waiter at the claim's end.
const _: () = fits(&[CLAIM, TICK, ROUND_TRIP], Duration::from_secs(3));
// Promise 4: a grant that a blocked runtime does not read delays others who wait no longer than a lock that no task takes. The
// runtime is found to be blocked, or its ask is repeated, and then the keeper looks twice.
const _: () = fits(&[READER_ASKED_EVERY, READER_ASKED_EVERY, TICK, TICK], FREE_PATIENCE);
const _: () = fits(&[UNREAD_ASKED_EVERY, TICK, TICK], FREE_PATIENCE);
// Promise 4: a lock that no task takes delays everybody by at most a second.
const _: () = fits(&[UNUSED_LEASE_KEPT_FOR, TICK, TICK, ROUND_TRIP], SECOND);
// Promise 4: a release whose task is not polled delays everybody by at most a second (rule L8).
const _: () = fits(&[UNUSED_LEASE_KEPT_FOR, FREE_PATIENCE, TICK, ROUND_TRIP], SECOND);
// Promise 5: an acquire that fails leaves nothing that blocks others for more than 3 s.
const _: () = fits(&[CLAIM, ROUND_TRIP], Duration::from_secs(3));
// Promise 7: an acquire ends within its timeout + 100 ms.
const _: () = fits(&[SHORTEST_ANSWER, LAST_LOOK], Duration::from_millis(100));
const _: () = fits(&[OVERTIME, LAST_LOOK], Duration::from_millis(100));
// Each process that polls asks once while the one that had a streak pauses.
const _: () = fits(&[POLL_PAUSE[1], ROUND_TRIP], POLL_PAUSE_AFTER_STREAK[0]);
// A hold is confirmed, and its confirmation repeated, long before its claim ends.
const _: () = fits(&[UNCONFIRMED_FOR, TICK, RENEWAL_BACKOFF.first, RENEWAL_BACKOFF.longest], CLAIM);
// In a crowd a grant is in use, or found by the keeper, before its claim ends.
const _: () = fits(&[LONGEST_LAG, FREE_PATIENCE, TICK], CLAIM);
// A lease of a whole claim outlasts the longest linger time.
const _: () = fits(&[LONGEST_LINGER], CLAIM);
// A lease that lingers and is used is lengthened while it is still good for a hold, with time for one repetition.
const _: () = fits(&[ENOUGH_LEASE, RENEWAL_BACKOFF.first, RENEWAL_BACKOFF.first], lengthened_at(CLAIM));
// At most once a second: a deadline allows for clocks that drift (rule 15), by 1 % as a rule.
const _: () = fits(&[lengthened_at(CLAIM), SECOND, Duration::from_millis(30)], CLAIM);
// A withdrawal is repeated at least twice before it is given up.
const _: () = fits(&[RELEASE_BACKOFF.longest, RELEASE_BACKOFF.longest], WITHDRAWAL_LIFETIME);

/// Pauses that double.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Backoff {
    const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The pause after this number of failures in a row.
    pub(crate) fn pause(self, failures: u32) -> Duration {
        (self.first * 2_u32.pow(failures.saturating_sub(1).min(9))).min(self.longest)
    }
}
