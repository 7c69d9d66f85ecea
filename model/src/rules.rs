//! [`Rule`]: the rules of docs/protocol.md that the model can do without, one at a time.

/// A rule, by its number in docs/protocol.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// 1: what was sent and not answered is taken back.
    TakeBack,
    /// 2: a late ask does nothing.
    NotAfter,
    /// 3: a grant goes to the first waiter that can be told.
    CanBeTold,
    /// 4: whoever finds the lock free with a queue grants to its head.
    QueueFirst,
    /// 5: every waiter repeats its ask.
    AskAgain,
    /// 5, its second part: a waiter that comes to be one of the first is told.
    NearIsTold,
    /// 6: leases are only lengthened.
    OnlyLonger,
    /// 7: deadlines are counted from the instant before the command was sent.
    FromSending,
    /// 7, its last sentence: the clock is read once, before a lock is passed on.
    OneReading,
    /// 8: fencing tokens that were reserved are written back by the owner only, and while nobody has drawn since.
    WriteBack,
    /// 10: only the owner's token releases or renews.
    OwnersToken,
    /// 11: every grant starts as a claim.
    Claims,
    /// 12: a grant that nobody waits for is released.
    StrayGrants,
    /// 13: no step of a body starts after its hold's deadline or loss.
    LookFirst,
    /// 14: the lease of a lost body is released once the body is dropped.
    DropFirst,
    /// 15: a deadline allows for clocks that drift.
    Drift,
    /// 16: a pushed grant is dated by an answered ask, or confirmed before use.
    DatedGrants,
    /// 16, its part about clusters: a pushed grant that its own node did not count is confirmed before use.
    CountedGrants,
    /// 17: a token whose body is not dropped yet is nobody's stray.
    LostIsNoStray,
    /// 19: fencing tokens drawn before a lease may have lapsed are forgotten.
    FreshFences,
    /// 20: fencing tokens reserved before a nested body drew one are forgotten.
    NestedFences,
    /// 21: a lock that is released by force stays taken until its holder has stopped, or for a claim.
    StaysForced,
    /// 26: who deletes a lock without a script looks for waiters behind it.
    LookBehind,
    /// L1: a hand-over needs a lease with time left.
    TimeLeft,
    /// L2: every hold has a fencing token of its own.
    OwnFence,
    /// L3: a lease ends once, and its token is never used again.
    NewToken,
    /// L4: a streak of hand-overs is bounded.
    Streak,
    /// 18: what is dropped and taken over by the next task counts as well.
    StreakOfDrops,
    /// L5: a waiter that is gone is skipped; when none is left the lease is released.
    NobodyLeft,
    /// L6: a hold that outlives its deadline ends the whole lease.
    WholeLease,
    /// L7: a turn that its task does not take up passes on.
    LateTurn,
    /// L7: what a late task does with a turn that has passed on has no effect.
    StaleTurn,
    /// L7: an ask whose answer is not read is repeated.
    UnreadAnswer,
    /// L9: a lease that lingers is released when another process is known to wait.
    LingerYields,
}

impl Rule {
    /// All of them, with their numbers.
    pub const ALL: [(&'static str, Self); 34] = [
        ("1", Self::TakeBack),
        ("2", Self::NotAfter),
        ("3", Self::CanBeTold),
        ("4", Self::QueueFirst),
        ("5", Self::AskAgain),
        ("5b", Self::NearIsTold),
        ("6", Self::OnlyLonger),
        ("7", Self::FromSending),
        ("7b", Self::OneReading),
        ("8", Self::WriteBack),
        ("10", Self::OwnersToken),
        ("11", Self::Claims),
        ("12", Self::StrayGrants),
        ("13", Self::LookFirst),
        ("14", Self::DropFirst),
        ("15", Self::Drift),
        ("16", Self::DatedGrants),
        ("16b", Self::CountedGrants),
        ("17", Self::LostIsNoStray),
        ("18", Self::StreakOfDrops),
        ("19", Self::FreshFences),
        ("20", Self::NestedFences),
        ("21", Self::StaysForced),
        ("26", Self::LookBehind),
        ("L1", Self::TimeLeft),
        ("L2", Self::OwnFence),
        ("L3", Self::NewToken),
        ("L4", Self::Streak),
        ("L5", Self::NobodyLeft),
        ("L6", Self::WholeLease),
        ("L7", Self::LateTurn),
        ("L7b", Self::StaleTurn),
        ("L7c", Self::UnreadAnswer),
        ("L9", Self::LingerYields),
    ];

    /// The rule of this number.
    #[must_use]
    pub fn numbered(number: &str) -> Option<Self> {
        Self::ALL.iter().find(|(of, _)| *of == number).map(|(_, rule)| *rule)
    }
}
