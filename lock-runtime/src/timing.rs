//! The times of the protocol, each with its reason, and the relations between them that the promises rely on.
//!
//! Times that concern only one kind of server (how often sentinels are asked, say) are next to the code that uses them.

use std::time::Duration;

// --- The store --------------------------------------------------------------------------------------------------------

/// The longest lease that a grant starts with (rule 11). The reply to an acquire may be lost, or a hanging server may execute the acquire
/// long after its task gave up: then the grant blocks others only for this long. A hold that lives on is confirmed to its full lease.
pub(crate) const CLAIM: Duration = Duration::from_millis(2500);
/// How long a withdrawal is repeated.
///
/// An ask may have left behind a claim, which ends by itself, or a place in a queue, which is given a claim when its turn comes. A server
/// that hangs for longer may execute the ask after this time. Then it usually executes the withdrawal from the same path right behind it;
/// else the claim ends by itself.
pub(crate) const WITHDRAWAL_LIFETIME: Duration = CLAIM.saturating_mul(2);

// --- A task that acquires ---------------------------------------------------------------------------------------------

/// An answer may take this long, however short the timeout is.
pub(crate) const SHORTEST_ANSWER: Duration = Duration::from_millis(80);
/// An acquire may still succeed this long after its timeout: a lock that was granted in time is not thrown away.
pub(crate) const OVERTIME: Duration = Duration::from_millis(50);
// A task whose reply is overdue waits at most this long until everything that has arrived is read.
pub(crate) use lock_wire::LAST_LOOK;
/// A try that was refused only because this process is still releasing the lock is retried after at least this long.
pub(crate) const RETRY_OWN_RELEASE_AFTER: Duration = Duration::from_millis(2);
/// A waiter repeats its ask at most this often (rule 5).
pub(crate) const ASK_INTERVAL: Duration = Duration::from_millis(900);
/// The pauses of a task whose asks fail.
pub(crate) const ASK_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(320) };

// --- A store without a queue ------------------------------------------------------------------------------------------

/// The pause after a refusal is random between these two: processes that collided must not collide again.
pub(crate) const POLL_PAUSE: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];
/// The pause after a refusal that was caused by this process's own unfinished release.
pub(crate) const POLL_PAUSE_OF_OWN_RELEASE: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(15)];
/// The pause of a process after its streak of hand-overs: longer than the others' pauses, so that each of them asks before it does.
pub(crate) const POLL_PAUSE_AFTER_STREAK: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(500)];

// --- Free locks and holds ---------------------------------------------------------------------------------------------

/// A lock that lies free for this long is released to another process that waits (rule L7).
pub(crate) const FREE_PATIENCE: Duration = Duration::from_millis(50);
/// How long readers that share the lock remember a message about another waiter (rule S5). The first waiter repeats its ask every 0.9 s,
/// and each ask sends a message.
pub(crate) const WAITERS_KNOWN_FOR: Duration = Duration::from_secs(2);
/// A lease that no task here takes is released after this time.
pub(crate) const UNUSED_LEASE_KEPT_FOR: Duration = Duration::from_millis(900);
/// A lease is handed over if it lasts for this long, or for half of what the next hold asks for (rule L1).
pub(crate) const ENOUGH_LEASE: Duration = Duration::from_secs(1);
/// A hold does not start on a lease with less time left, even if it was just granted (rule L1): its body could do nothing, and its guard
/// would already report a lost lock. The lease is confirmed first.
pub(crate) const SHORTEST_HOLD: Duration = Duration::from_millis(1);
/// A streak of hand-overs ends after this time, counted from when another process is known to wait (rule L4).
pub(crate) const STREAK_TIME: Duration = Duration::from_millis(10);

// --- A lease that lingers (rule L9) -----------------------------------------------------------------------------------

/// A call that connects waits at most this long for the keeper's connection after its own. Without it nothing lingers. A distant server
/// takes longer: then only a later hold lingers.
pub(crate) const KEEPER_CONNECTS: Duration = Duration::from_millis(20);
/// The longest time for which a lease may be kept for the next hold. A client that sees only the key finds the lock taken meanwhile.
pub(crate) const LONGEST_LINGER: Duration = Duration::from_secs(2);
/// A lingering lease that is used again is renewed when this much of it is left: a second after its claim, and before it is too short for a
/// hold to start on it (rule L1).
pub(crate) const fn lengthened_at(claim: Duration) -> Duration {
    match claim.saturating_mul(11).checked_div(20) {
        Some(left) => left,
        None => claim,
    }
}

// --- The keeper -------------------------------------------------------------------------------------------------------

/// The keeper's tick while there are unconfirmed holds.
pub(crate) const TICK: Duration = Duration::from_millis(5);
/// A hold younger than this is not confirmed: most holds end sooner, and never pay for it.
pub(crate) const UNCONFIRMED_FOR: Duration = Duration::from_millis(5);
/// A renewal is due after the lease divided by this number, so two renewals can fail before the lease ends.
pub(crate) const RENEWALS_PER_LEASE: u32 = 3;
/// The alarm of a hold is armed when its confirmation is this old: most holds end sooner, and never pay for it. It is also the pause after
/// an alarm, so a key that keeps changing costs two commands a second.
pub(crate) const ALARM_AFTER: Duration = Duration::from_secs(1);
/// The keeper's longest sleep while something is held: timers stand still while the machine is suspended.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// When timers missed this much time, the schedule is void. Clocks that are slewed miss far less.
pub(crate) const MISSED_BY_TIMERS: Duration = Duration::from_millis(100);
/// One slower answer says little about the next, unless the server is known to be that far away.
pub(crate) const LONGEST_USUAL_ANSWER: Duration = Duration::from_millis(250);
/// Under load an answer may take this long to reach its task before the task counts as late. A claim lasts longer.
pub(crate) const LONGEST_LAG: Duration = Duration::from_secs(2);
/// While a task waits in the store's queue, the keeper probes the runtime that reads its grant this often. A runtime that has not answered
/// by the next probe is blocked.
pub(crate) const READER_ASKED_EVERY: Duration = Duration::from_millis(20);
/// The keeper repeats the asks of a blocked runtime after this time, which finds an unread grant soon.
pub(crate) const UNREAD_ASKED_EVERY: Duration = READER_ASKED_EVERY.saturating_mul(2);
/// The keeper does not repeat an ask whose answer is younger than this.
pub(crate) const FRESH_ANSWER: Duration = Duration::from_millis(50);
/// The pauses of a renewal that is not answered.
pub(crate) const RENEWAL_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(50), longest: Duration::from_millis(800) };
/// The pauses of a release that is refused, and of a server that does not answer releases.
pub(crate) const RELEASE_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };
/// How long a shutdown waits for bodies that were told to end, and again for the last releases.
pub(crate) const SHUTDOWN_STEP: Duration = Duration::from_secs(2);

// --- Relations --------------------------------------------------------------------------------------------------------

const SECOND: Duration = Duration::from_secs(1);
/// The round trip to the most distant server that promise 4 covers.
const ROUND_TRIP: Duration = Duration::from_millis(40);

/// Fails the build when the sum of `shorter` is longer than `longer`.
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
// Rule S5: when one message about a waiter is lost, readers still know of the waiter.
const _: () = fits(&[ASK_INTERVAL, ASK_INTERVAL, FRESH_ANSWER, TICK, ROUND_TRIP, ROUND_TRIP], WAITERS_KNOWN_FOR);
// Promise 4: a crashed waiter delays others by at most 3 s: its claim, and the ask of the next waiter at the claim's end.
const _: () = fits(&[CLAIM, TICK, ROUND_TRIP], Duration::from_secs(3));
// Promise 4: a grant that a blocked runtime does not read delays other waiters no longer than a lock that no task takes: find out that the
// runtime is blocked, or repeat its ask, then two looks of the keeper.
const _: () = fits(&[READER_ASKED_EVERY, READER_ASKED_EVERY, TICK, TICK], FREE_PATIENCE);
const _: () = fits(&[UNREAD_ASKED_EVERY, TICK, TICK], FREE_PATIENCE);
// Promise 4: a lock that no task takes delays all waiters by at most a second.
const _: () = fits(&[UNUSED_LEASE_KEPT_FOR, TICK, TICK, ROUND_TRIP], SECOND);
// Promise 4: a release whose task is not polled delays all waiters by at most a second (rule 1).
const _: () = fits(&[UNUSED_LEASE_KEPT_FOR, FREE_PATIENCE, TICK, ROUND_TRIP], SECOND);
// Promise 5: an acquire that fails leaves nothing that blocks others for more than 3 s.
const _: () = fits(&[CLAIM, ROUND_TRIP], Duration::from_secs(3));
// Promise 7: an acquire ends within its timeout + 100 ms.
const _: () = fits(&[SHORTEST_ANSWER, LAST_LOOK], Duration::from_millis(100));
const _: () = fits(&[OVERTIME, LAST_LOOK], Duration::from_millis(100));
// While the process that had a streak pauses, each other process that polls asks once.
const _: () = fits(&[POLL_PAUSE[1], ROUND_TRIP], POLL_PAUSE_AFTER_STREAK[0]);
// A hold is confirmed, and its confirmation repeated, long before its claim ends.
const _: () = fits(&[UNCONFIRMED_FOR, TICK, RENEWAL_BACKOFF.first, RENEWAL_BACKOFF.longest], CLAIM);
// Under load a grant is in use, or found by the keeper, before its claim ends.
const _: () = fits(&[LONGEST_LAG, FREE_PATIENCE, TICK], CLAIM);
// A lease of a whole claim outlasts the longest linger time.
const _: () = fits(&[LONGEST_LINGER], CLAIM);
// A lingering lease that is used is renewed while it is still good for a hold, with time for one repetition.
const _: () = fits(&[ENOUGH_LEASE, RENEWAL_BACKOFF.first, RENEWAL_BACKOFF.first], lengthened_at(CLAIM));
// At most once a second: a deadline allows for clock drift (rule 7), usually 1 %.
const _: () = fits(&[lengthened_at(CLAIM), SECOND, Duration::from_millis(30)], CLAIM);
// A withdrawal is repeated at least twice before it is given up.
const _: () = fits(&[RELEASE_BACKOFF.longest, RELEASE_BACKOFF.longest], WITHDRAWAL_LIFETIME);

/// A pause that doubles with each failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Backoff {
    /// The pause after this many failures in a row.
    pub(crate) fn pause(self, failures: u32) -> Duration {
        (self.first * 2_u32.pow(failures.saturating_sub(1).min(9))).min(self.longest)
    }
}
