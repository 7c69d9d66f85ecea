//! Every seeded bug, with the check that has to catch it. `bugs.md` has the same list.

use server_model::ScriptTime;

use super::late::Late;
use super::world::{Place, Plan};
use crate::mutants::Mutant;

/// A bug, and the check that finds it.
#[derive(Clone, Copy)]
pub(super) struct Seeded {
    pub(super) name: &'static str,
    pub(super) bug: Bug,
    /// The name of the check that reports it.
    pub(super) check: &'static str,
    pub(super) place: Place,
    /// The worlds of that place in which it can show at all, or soon.
    pub(super) shows_in: fn(&Plan) -> bool,
    /// It has to be found in at most this many worlds of its kind.
    pub(super) budget: u64,
    /// A world that has shown it. It is tried first, because a search from the start would take long.
    pub(super) seen_in: Option<u64>,
}

/// Where a bug is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bug {
    Code(Mutant),
    /// In its scripts: replaces each first text by the second.
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

const fn code(name: &'static str, mutant: Mutant, check: &'static str) -> Seeded {
    Seeded {
        name,
        bug: Bug::Code(mutant),
        check,
        place: Place::OneServer,
        shows_in: |_| true,
        budget: BUDGET,
        seen_in: None,
    }
}

const fn scripts(name: &'static str, patches: &'static [(&'static str, &'static str)], check: &'static str) -> Seeded {
    Seeded {
        name,
        bug: Bug::Scripts(patches),
        check,
        place: Place::OneServer,
        shows_in: |_| true,
        budget: BUDGET,
        seen_in: None,
    }
}

/// In this world, unless a change to the lock alters its steps there.
const fn seen_in(world: u64, seeded: Seeded) -> Seeded {
    Seeded { seen_in: Some(world), ..seeded }
}

/// Where the server loses its data.
const fn forgetful(seeded: Seeded) -> Seeded {
    Seeded { shows_in: |plan| plan.forgetful, ..seeded }
}

/// Where there are faults of all kinds.
const fn troubled(seeded: Seeded) -> Seeded {
    Seeded { shows_in: |plan| plan.pause.is_some(), ..seeded }
}

/// Where the server stalls inside scripts, and they see that.
const fn stalling(seeded: Seeded) -> Seeded {
    Seeded { shows_in: |plan| plan.stalls > 0.0 && matches!(plan.script_time, ScriptTime::Passes), ..seeded }
}

/// Where the server's clock is fast.
const fn drifting(seeded: Seeded) -> Seeded {
    Seeded { shows_in: |plan| plan.rate > 1.015, ..seeded }
}

/// Where replies are lost all the time.
const fn cutting(seeded: Seeded) -> Seeded {
    Seeded { shows_in: |plan| plan.cut > 0.0, ..seeded }
}

/// Where many processes wait for the same locks, and pushes are lost all the time.
const fn crowded(seeded: Seeded) -> Seeded {
    Seeded { shows_in: |plan| plan.keys <= 3 && plan.push_lost > 0.0, ..seeded }
}

/// Where many tasks try all the time while the server is away.
const fn under_load(seeded: Seeded) -> Seeded {
    Seeded { shows_in: |plan| plan.load > 0, ..seeded }
}

/// Where the distance to the server excuses nothing.
const fn near(shows_in: fn(&Plan) -> bool, seeded: Seeded) -> Seeded {
    Seeded { shows_in, ..seeded }
}

/// Where a connection takes longer to make than the keeper waits for a command.
const fn far(seeded: Seeded) -> Seeded {
    Seeded { shows_in: |plan| plan.round_trip >= 200, ..seeded }
}

/// Where another client has values at helper keys.
const fn shared(seeded: Seeded) -> Seeded {
    Seeded { shows_in: |plan| plan.foreign, ..seeded }
}

/// Where leases linger, and all processes are near.
const fn lingering(seeded: Seeded) -> Seeded {
    Seeded { shows_in: |plan| plan.linger > 0 && plan.round_trip == 0, ..seeded }
}

/// Where tasks are polled late.
const fn late(seeded: Seeded) -> Seeded {
    Seeded { shows_in: |plan| plan.late != Late::Never, ..seeded }
}

/// Where the locks are on a quorum.
const fn on_a_quorum(shows_in: fn(&Plan) -> bool, seeded: Seeded) -> Seeded {
    Seeded { place: Place::Quorum, shows_in, ..seeded }
}

/// Where the locks are in a cluster.
const fn in_a_cluster(seeded: Seeded) -> Seeded {
    // A slot has to move at just the right moment.
    Seeded { place: Place::Cluster, budget: RARE, ..seeded }
}

const OVERLAP: &str = "C1 claims never overlap";
const FENCES: &str = "C2 fences increase";
const GOES_ON: &str = "C4 all goes on after the faults";
const IN_TIME: &str = "C4 acquires return in time";
const PASSES_ON: &str = "C5 a released lock passes on";
const REACH: &str = "C6 grants reach somebody";
const LEFT: &str = "C6 no lock is left behind";
const UNUSED: &str = "C6 unused locks are released";
const BACKED: &str = "C7 claims are backed by the server";
const ERRORS: &str = "C8 errors are true";
const LOSSES: &str = "C8 losses are told";
const RELEASED: &str = "C9 all is released";
const ENDS: &str = "C9 what the server keeps has an end";
const LASTS: &str = "C10 holds last";
const CHEAP: &str = "C11 an outage costs little";
const HEAD: &str = "rule 4: a free lock is the queue's";
const ORDER: &str = "promise 6: waiters are not passed over";

/// A bug has to be found in at most this many worlds of its kind.
const BUDGET: u64 = 200;
/// For a bug that needs three late tasks, each at the right moment, or a slot that moves at the right one.
const RARE: u64 = 1000;

pub(super) const ALL: &[Seeded] = &[
    scripts(
        "release.lua does not compare the token",
        &[("local ownership = owner == token and 1", "local ownership = owner and 1")],
        BACKED,
    ),
    scripts(
        "free.lua does not compare the token",
        &[
            ("pcall('GETRANGE', KEYS[1], '0', '1023') == ARGV[1]", "call('EXISTS', KEYS[1]) == 1"),
            ("pcall('GETRANGE', KEYS[i], '0', '1023') == ARGV[i]", "call('EXISTS', KEYS[i]) == 1"),
        ],
        BACKED,
    ),
    seen_in(
        329,
        scripts(
            "renew.lua does not compare the token",
            &[("elseif owner ~= ARGV[2 * i - 1] then", "elseif not owner then")],
            BACKED,
        ),
    ),
    scripts("renew.lua shortens leases", &[(", 'GT')", ")")], BACKED),
    scripts(
        "ask.lua takes a free lock past its queue",
        &[("redis.call('EXISTS', queue) == 1 and waiting().hand_off(lock, queue, token)", "nil")],
        HEAD,
    ),
    scripts(
        "the short way of release.lua serves the last waiter",
        &[
            ("local is_short = #", "local is_short  = #"),
            ("redis.pcall('ZRANGE', KEYS[2], '0', tostring(NEAR))", "redis.pcall('ZRANGE', KEYS[2], '-1', '-1')"),
        ],
        ORDER,
    ),
    scripts(
        "the short way of release.lua grants to a waiter that does not hear",
        &[("local is_short = #", "local is_short  = #"), ("if heard ~= 0 then", "if true then")],
        REACH,
    ),
    code("26: who deletes a lock does not look for waiters", Mutant::DeletedUnseen, PASSES_ON),
    seen_in(
        49,
        scripts(
            "the queue's last is served first",
            &[("number(math.max(now(), (last or 0) + 1))", "number(-now())")],
            ORDER,
        ),
    ),
    scripts("a queue has no end", &[("redis.call('PEXPIRE', queue, QUEUE_TTL)", "")], ENDS),
    scripts(
        "a lock is granted without an end",
        &[("redis.call('SET', lock, token, 'PX', claim)", "redis.call('SET', lock, token)")],
        ENDS,
    ),
    scripts(
        "a lock is passed on without an end",
        &[(", 'PXAT', number(math.ceil(granted_at / 1000) + claim))", ")")],
        ENDS,
    ),
    seen_in(
        535,
        shared(scripts(
            "release.lua keeps a lock whose queue is of another type",
            &[
                ("local ran, failure = pcall(pass_on, lock,", "local ran, failure = true, pass_on(lock,"),
                ("if ARGV[1] ~= '' and value == ARGV[1] then", "if false then"),
            ],
            UNUSED,
        )),
    ),
    seen_in(
        3424,
        stalling(scripts(
            "a lock is passed on before the clock is read",
            &[
                ("local granted_at, tried = now(), false", "local tried = false"),
                ("'PXAT', number(math.ceil(granted_at / 1000) + claim)", "'PX', claim"),
                ("number(granted_at)", "number(redis.call('TIME')[1] * 1000000 + redis.call('TIME')[2])"),
            ],
            BACKED,
        )),
    ),
    scripts("the fencing tokens are kept for ever", &[(", 'PX', FENCE_TTL)", ")")], ENDS),
    scripts(
        "a fencing token is the server's time in milliseconds",
        &[("math.max((tonumber(read(fence)) or 0) + 1, now())", "math.floor(now() / 1000)")],
        FENCES,
    ),
    scripts(
        "a fencing token is the last one and 1",
        &[("math.max((tonumber(read(fence)) or 0) + 1, now())", "(tonumber(read(fence)) or 0) + 1")],
        FENCES,
    ),
    seen_in(55, scripts("whoever cannot be told counts as told", &[("or listeners > 0", "or listeners >= 0")], REACH)),
    scripts(
        "free.lua does not look for waiters",
        &[
            ("call('EXISTS', KEYS[2]) == 0", "true"),
            ("local nobody_waits = call('EXISTS', unpack(KEYS, count + 1)) == 0", "local nobody_waits = true"),
        ],
        PASSES_ON,
    ),
    scripts("a holder is not told that others wait", &[("queueing.tell(owner, 'wait ' .. lock)", "")], ORDER),
    crowded(scripts(
        "a withdrawal leaves the queue as it is",
        &[("queueing.leave(queue, claim .. '|' .. token)", "false")],
        UNUSED,
    )),
    seen_in(1266, code("1: a grant that nobody waits for is left", Mutant::StrayGrantKept, UNUSED)),
    on_a_quorum(|_| true, code("Q3: the servers that drew less are left behind", Mutant::SmallerDrawsLeft, FENCES)),
    on_a_quorum(|_| true, code("5: the token of a refused ask is used again", Mutant::RefusedTokenKept, BACKED)),
    code("the answers of a batch are shifted by one", Mutant::AnswersShifted, OVERLAP),
    code("a reply whose task is gone goes to the next task", Mutant::LeftPlaceFreed, OVERLAP),
    seen_in(1948, far(code("an attempt to connect ends with its caller", Mutant::AttemptEndsWithCaller, ERRORS))),
    code("a body is polled after its deadline", Mutant::BodyPolledOn, OVERLAP),
    code("a connection is never given up", Mutant::ConnectionNeverGivenUp, GOES_ON),
    code("L7: a task that is gone stays in the queue", Mutant::DeadTaskStays, RELEASED),
    code("a deadline counts from the reply", Mutant::DeadlineFromReply, BACKED),
    code("a dropped guard keeps its lease", Mutant::DroppedGuardKept, UNUSED),
    code("a command has no deadline", Mutant::EndlessCommand, IN_TIME),
    seen_in(
        367,
        near(
            |plan| plan.forgetful && plan.round_trip <= 1,
            code("a release that finds nothing is a success", Mutant::ForgivenLoss, LOSSES),
        ),
    ),
    code("the keeper never renews", Mutant::KeeperNeverRenews, LASTS),
    code("L1: a hold past its deadline hands its lease over", Mutant::LateHandOver, ERRORS),
    seen_in(875, lingering(code("L9: a lease lingers on though another process waits", Mutant::LingersOn, UNUSED))),
    lingering(code("L9: a lease lingers past its deadline, and is used", Mutant::LingerUnchecked, ERRORS)),
    lingering(code("L9: a lease lingers on when its manager ends", Mutant::LingersPastTheEnd, RELEASED)),
    code("no allowance for clocks that drift", Mutant::NoDriftAllowance, BACKED),
    drifting(code("the allowance for clocks that drift is always the usual one", Mutant::DriftAsUsual, BACKED)),
    seen_in(196, code("a script that the server does not know is not sent", Mutant::NoEvalFallback, GOES_ON)),
    code("L1: a hand-over does not look at the lease", Mutant::NoLeaseCheck, ERRORS),
    code("asks are not repeated", Mutant::NoSafetyNet, UNUSED),
    seen_in(1925, forgetful(code("a reconnect verifies nothing", Mutant::NoVerification, LOSSES))),
    code("what was asked is not withdrawn", Mutant::NoWithdrawal, UNUSED),
    troubled(code("what is asked is noted when it is answered", Mutant::NotedAfterSending, UNUSED)),
    near(
        |plan| plan.pause.is_some() && plan.round_trip <= 1,
        code("an outage is told as a busy lock", Mutant::SilenceIsBusy, ERRORS),
    ),
    code("10: each hold of a lease releases it", Mutant::ReleasePerHold, BACKED),
    under_load(code("a release is repeated without a pause", Mutant::RepeatedWithoutPause, CHEAP)),
    seen_in(
        2240,
        near(
            |plan| plan.load > 0 && plan.round_trip == 400,
            code("L7: an ask is repeated where there is no connection", Mutant::RepeatedCutOff, CHEAP),
        ),
    ),
    cutting(code("a retry has a new token and leaves the old one", Mutant::RetryUnderNewToken, UNUSED)),
    code("L2: the holds of a lease have one fencing token", Mutant::SameFence, FENCES),
    code("whatever is polled inside of a body is part of it", Mutant::StrangerIsInside, OVERLAP),
    code("L4: a streak has no end", Mutant::StreakWithoutBound, ORDER),
    late(code("L7: what no task takes stays where it is", Mutant::FreeLeaseKept, UNUSED)),
    late(code("1: a release whose answer nobody reads is left alone", Mutant::LateReleaseLeft, UNUSED)),
    late(code("L7: an ask whose answer nobody reads is left alone", Mutant::UnreadNotRepeated, UNUSED)),
    seen_in(
        1058,
        far(code("L7: a task is late though an answer is on its way from afar", Mutant::DistanceForgotten, ORDER)),
    ),
    code("the time of a suspended host does not count", Mutant::SuspendUnseen, BACKED),
    under_load(code("what was never sent is withdrawn", Mutant::UnsentWithdrawn, CHEAP)),
    seen_in(375, code("a grant is for the whole lease at once", Mutant::WholeLeaseClaimed, LEFT)),
    code("young holds are never confirmed", Mutant::YoungNeverConfirmed, LASTS),
    seen_in(
        402,
        in_a_cluster(code("the end of a subscription is taken for a reply", Mutant::UnsubscribedIsReply, BACKED)),
    ),
];
