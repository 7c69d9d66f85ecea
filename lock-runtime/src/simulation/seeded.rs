//! Every bug that is seeded, with the check that has to catch it. docs/faults.md has the same list.

use crate::mutants::Mutant;

/// A bug, and who finds it.
pub(super) struct Seeded {
    /// What is wrong.
    pub(super) name: &'static str,
    pub(super) bug: Bug,
    /// The name of the check that reports it.
    pub(super) check: &'static str,
    /// In so many worlds at most.
    pub(super) budget: u64,
}

/// Where a bug is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bug {
    /// In the library.
    Code(Mutant),
    /// In its scripts: each text in place of the other.
    Scripts(&'static [(&'static str, &'static str)]),
}

impl Bug {
    pub(super) fn mutant(self) -> Option<Mutant> {
        match self {
            Self::Code(mutant) => Some(mutant),
            Self::Scripts(_) => None,
        }
    }

    pub(super) fn patches(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Code(_) => &[],
            Self::Scripts(patches) => patches,
        }
    }
}

const fn code(name: &'static str, mutant: Mutant, check: &'static str, budget: u64) -> Seeded {
    Seeded { name, bug: Bug::Code(mutant), check, budget }
}

const fn scripts(
    name: &'static str,
    patches: &'static [(&'static str, &'static str)],
    check: &'static str,
    budget: u64,
) -> Seeded {
    Seeded { name, bug: Bug::Scripts(patches), check, budget }
}

const OVERLAP: &str = "C1 claims never overlap";
const FENCES: &str = "C2 fences increase";
const GOES_ON: &str = "C4 all goes on after the faults";
const IN_TIME: &str = "C4 acquires return in time";
const FREE: &str = "C5 a free lock is taken";
const PASSES_ON: &str = "C5 a released lock passes on";
const REACH: &str = "C6 grants reach somebody";
const LEFT: &str = "C6 no lock is left behind";
const UNUSED: &str = "C6 unused locks are given back";
const RULES: &str = "C7 owners change by the rules";
const BACKED: &str = "C7 claims are backed by the server";
const ERRORS: &str = "C8 errors are true";
const LOSSES: &str = "C8 losses are told";
const GIVEN_BACK: &str = "C9 all is given back";
const ENDS: &str = "C9 what the server keeps has an end";
const LASTS: &str = "C10 holds last";
const ORDER: &str = "promise 6: waiters are not passed over";

/// All of them.
pub(super) const ALL: &[Seeded] = &[
    scripts("release.lua does not compare the token", &[("local owned = owner == token", "local owned = owner and true")], BACKED, 50),
    scripts("free.lua does not compare the token", &[("call('GET', KEYS[1]) == ARGV[1]", "call('EXISTS', KEYS[1]) == 1"), ("redis.pcall('GET', lock) == ARGV[i]", "true")], BACKED, 50),
    scripts("renew.lua does not compare the token", &[("elseif owner ~= ARGV[2 * i - 1] then", "elseif not owner then")], OVERLAP, 50),
    scripts("renew.lua shortens leases", &[(", 'GT')", ")")], BACKED, 50),
    scripts("draw.lua does not compare the token", &[("~= ARGV[1] then\n  return 0", "== '' then\n  return 0")], FENCES, 50),
    scripts("ask.lua ignores that it comes late", &[("if not_after > 0 and", "if")], LEFT, 50),
    scripts("ask.lua takes a free lock past its queue", &[("local next_owner = hand_off(lock, queue, token)", "local next_owner = nil")], ORDER, 50),
    scripts("the queue's last is served first", &[("redis.call('LPOP', queue)", "redis.call('RPOP', queue)")], GOES_ON, 50),
    scripts("who yields queues at the head", &[("redis.call('RPUSH', queue, again_claim", "redis.call('LPUSH', queue, again_claim")], ORDER, 50),
    scripts("a queue has no end", &[("redis.call('PEXPIRE', queue, QUEUE_TTL)", "")], ENDS, 50),
    scripts("a lock is granted without an end", &[("redis.call('SET', lock, token, 'PX', claim)", "redis.call('SET', lock, token)")], ENDS, 50),
    scripts("a lock is passed on without an end", &[("redis.pcall('SET', lock, token, 'PX', claim)", "redis.pcall('SET', lock, token)")], ENDS, 50),
    scripts("the fencing tokens are kept for ever", &[(", 'PX', FENCE_TTL)", ")")], ENDS, 50),
    scripts("a fencing token is the server's time alone", &[("math.max((tonumber(redis.call('GET', fence)) or 0) + 1, now())", "now()")], FENCES, 50),
    scripts("a fencing token is the last one and 1", &[("math.max((tonumber(redis.call('GET', fence)) or 0) + 1, now())", "(tonumber(redis.call('GET', fence)) or 0) + 1")], FENCES, 200),
    scripts("unused fencing tokens are written back whoever has drawn since", &[("reserved ~= '0' and redis.call('GET', fence) == reserved", "reserved ~= '0'")], FENCES, 50),
    scripts("whoever cannot be told counts as told", &[("told > 0", "told >= 0")], REACH, 50),
    scripts("a lock that nobody could be told of is left", &[("if tried then", "if false then")], REACH, 50),
    scripts("free.lua does not look for waiters", &[(" and call('EXISTS', KEYS[2]) == 0", "")], PASSES_ON, 50),
    scripts("a holder is not told that others wait", &[("redis.pcall('PUBLISH', address, 'wait ' .. lock)", "")], ORDER, 50),
    scripts("a withdrawal leaves the queue as it is", &[("redis.call('LREM', queue, 0, claim .. '|' .. token)", "")], ORDER, 50),
    code("the answers of a batch are shifted by one", Mutant::AnswersShifted, OVERLAP, 200),
    code("a body is polled after its deadline", Mutant::BodyPolledOn, OVERLAP, 50),
    code("a connection is never given up", Mutant::ConnectionNeverGivenUp, GOES_ON, 200),
    code("L5: a turn stops at a waiter that is gone", Mutant::DeadTurnNotPassed, GOES_ON, 50),
    code("a deadline counts from the reply", Mutant::DeadlineFromReply, BACKED, 50),
    code("a dropped guard keeps its lease", Mutant::DroppedGuardKept, UNUSED, 50),
    code("a command has no deadline", Mutant::EndlessCommand, IN_TIME, 50),
    code("reserved fencing tokens outlive a lapse", Mutant::FencesKeptAfterLapse, FENCES, 200),
    code("a release that finds nothing is a success", Mutant::ForgivenLoss, LOSSES, 200),
    code("a renewal for the hold before counts for this one", Mutant::FormerRenewalCounts, LASTS, 200),
    code("the keeper never renews", Mutant::KeeperNeverRenews, LASTS, 50),
    code("L6: a hold past its deadline hands its lease over", Mutant::LateHandOver, ERRORS, 50),
    code("a lost body's lease is given back before it is dropped", Mutant::LostBodyGivenBackEarly, BACKED, 200),
    code("no allowance for clocks that drift", Mutant::NoDriftAllowance, BACKED, 50),
    code("a script that the server does not know is not sent", Mutant::NoEvalFallback, ERRORS, 50),
    code("L1: a hand-over does not look at the lease", Mutant::NoLeaseCheck, ERRORS, 50),
    code("asks are not repeated", Mutant::NoSafetyNet, UNUSED, 200),
    code("a reconnect verifies nothing", Mutant::NoVerification, LOSSES, 200),
    code("what was asked is not withdrawn", Mutant::NoWithdrawal, UNUSED, 50),
    code("an outage is told as a busy lock", Mutant::OutageIsBusy, ERRORS, 50),
    code("a pushed grant counts from its arrival", Mutant::PushDatedByArrival, BACKED, 50),
    code("a pushed grant that nothing dates is trusted", Mutant::PushUndatedTrusted, BACKED, 200),
    code("a reconnect leaves the queue as certain as before", Mutant::QueueNeverDoubtful, FREE, 200),
    code("a release without an answer is not repeated", Mutant::ReleaseNotRepeated, UNUSED, 50),
    code("L3: each hold of a lease releases it", Mutant::ReleasePerHold, BACKED, 50),
    code("a retry has a new token and leaves the old one", Mutant::RetryUnderNewToken, UNUSED, 50),
    code("L2: the holds of a lease have one fencing token", Mutant::SameFence, FENCES, 50),
    code("a stray grant is not answered", Mutant::StrayIgnored, UNUSED, 50),
    code("hand-overs of dropped guards do not count", Mutant::StreakOfDropsUncounted, ORDER, 200),
    code("L4: a streak has no end", Mutant::StreakWithoutBound, ORDER, 50),
    code("the time of a suspended host does not count", Mutant::SuspendUnseen, OVERLAP, 50),
    code("a grant is for the whole lease at once", Mutant::WholeLeaseClaimed, LEFT, 200),
    code("young holds are never confirmed", Mutant::YoungNeverConfirmed, LASTS, 50),
];
