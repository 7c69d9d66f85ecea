//! Deliberate bugs, with which the simulation shows that its checks can fail.
//!
//! `mutant!(Name => wrong, else right)` is an expression: in a simulated world with this bug it is `wrong`, else `right`. `mutant!(Name =>
//! wrong)` is a statement, and does what is wrong, most often `return`. In every build that is not a test of this crate, the first is
//! `right` and the second is nothing.

#[cfg(not(test))]
macro_rules! mutant {
    ($mutant:ident => $wrong:expr, else $right:expr) => {
        $right
    };
    ($mutant:ident => $wrong:expr) => {};
}

#[cfg(test)]
macro_rules! mutant {
    ($mutant:ident => $wrong:expr, else $right:expr) => {
        if $crate::mutants::is_seeded($crate::mutants::Mutant::$mutant) { $wrong } else { $right }
    };
    ($mutant:ident => $wrong:expr) => {
        if $crate::mutants::is_seeded($crate::mutants::Mutant::$mutant) {
            $wrong;
        }
    };
}

#[cfg(test)]
pub(crate) use seeded::{Mutant, Seeded, is_seeded};

#[cfg(test)]
mod seeded {
    use std::cell::Cell;

    /// A bug in the library's own code. The checks that must catch it are in `simulation/seeded.rs`, or next to the worlds and scenes that
    /// use it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Mutant {
        AdoptedLeft,
        AdoptedUnderNewToken,
        AlarmsUnheeded,
        AnswersShifted,
        AnyAnswerIsNo,
        AwaitedReleaseRepeated,
        BatchesUnbounded,
        BodyPolledOn,
        BusyIsUnusable,
        CallsUnderTable,
        ConfirmedBeforeHold,
        DeadTaskStays,
        DeletedUnseen,
        DenialOutlivesAnswer,
        DistanceForgotten,
        DroppedGuardKept,
        EndedHoldNamed,
        EndedLocksKept,
        ExplainedOneByOne,
        FailedDrawNotRepeated,
        FarReleaseCutShort,
        FirstAnswerForAll,
        FirstReaderEndsHold,
        ForcedAfterLoss,
        ForcedAskWaits,
        ForcedBeforeBody,
        ForcedUnchecked,
        ForgivenLoss,
        FreeLeaseKept,
        FreeLeaseUntold,
        GiftLeft,
        GivenUpIsSent,
        GoneKeeperLooksOn,
        GrantThatIsGoneIsAnswer,
        GuardsCountAsBodies,
        HalfTakenSetKept,
        HandOverUncounted,
        HintStaysYoung,
        HolderNotReconnected,
        KeeperNeverRenews,
        KeptWithoutStore,
        KeysInAnyOrder,
        LaggingForgotten,
        LapsedFencesKept,
        LateAdoptionIsLost,
        LateDrawGranted,
        LateHandOver,
        LateIsAnswer,
        LateIsGivenBack,
        LateRefusalCounts,
        LateReleaseLeft,
        LatestEndCounts,
        LeaseThatIsGoneIsAnswer,
        LeftLeaseIsUsed,
        LingerUnchecked,
        LingersBesideOthers,
        LingersOn,
        LingersPastTheEnd,
        LossIsAnswer,
        LostBeforeUnseen,
        LostIsStray,
        LostWhileDrawn,
        LostWithdrawalForgotten,
        NearForgotten,
        NewcomerIsMeasure,
        NewcomersOvertake,
        NewestComesLast,
        NoEvalFallback,
        NoLeaseCheck,
        NoRoomIsFailure,
        NoSafetyNet,
        NoTimeToRest,
        NoVerification,
        NoWithdrawal,
        NotDelayed,
        NotedAfterSending,
        OlderRefusalCounts,
        OlderWaitsOn,
        OnlyReleasesWatched,
        OtherModeIsReleased,
        OutlivedAtLastUntold,
        OutlivedSinceAsk,
        OverdueTaskActs,
        OwnReleaseForgotten,
        OvertakenDrawCounts,
        PartLingers,
        PausesPastOwner,
        PermitsCoverFewer,
        PolledAfterStreak,
        PolledWithoutPause,
        PushCountsAsAnswer,
        PushedClaimBelieved,
        QueueBesideUntold,
        QueuedRepetitionLeft,
        ReadersOvertakeWriter,
        RefusalForgotten,
        RefusedAskReleased,
        RefusedRepetitionUntold,
        RefusedTogether,
        RefusedTokenKept,
        RelayedGrantTrusted,
        ReleasePerHold,
        ReleasedBeforeBody,
        RenewedPastMaxHold,
        RepeatedCutOff,
        RepeatedClaimIsRefused,
        RepeatedWithoutPause,
        RepetitionLeft,
        RestNotAwaited,
        RestNotPassedOn,
        RestNotSent,
        RestSkipped,
        RestUnseenByReplica,
        RestWithdrawn,
        RestWithoutEnd,
        RestartedDraws,
        RestartedIsMarked,
        RetryUnderNewToken,
        RoomCostsTime,
        SameFence,
        SharedFencesKept,
        SilenceIsBusy,
        SmallerDrawsLeft,
        SmallerFencesKept,
        StandsInTooSoon,
        StrangerIsInside,
        StrayGrantKept,
        StrayShareIsExclusive,
        StreakUntold,
        StreakWithoutBound,
        TicketReleasedFirst,
        TimerSetLater,
        TimesOfKeysAddUp,
        ToldOfOthers,
        ToldOfTheFuture,
        UnansweredRenewalForgotten,
        UnpolledPartsKept,
        UnreadGrantNotTold,
        UnreadNotRepeated,
        UnsentIsRefused,
        UnsentWithdrawn,
        UnusedMarkLeft,
        VerificationArms,
        WaiterNeverGone,
        WakerNotTaken,
        WholeLeaseClaimed,
        WokenOneByOne,
        YoungNeverConfirmed,
        /// A bug of the client.
        Wire(lock_wire::simulation::Mutant),
    }

    /// The client's bugs that worlds and scenes use here.
    macro_rules! of_wire {
        ($($name:ident)*) => {
            #[allow(non_upper_case_globals, dead_code, reason = "named as the others are; one is for the feature `testing`")]
            impl Mutant {
                $(pub(crate) const $name: Self = Self::Wire(lock_wire::simulation::Mutant::$name);)*
            }
        };
    }

    of_wire! {
        AttemptEndsWithCaller
        ClockNotLent
        ConnectionNeverGivenUp
        DeadlineFromReply
        DriftAsUsual
        EndlessCommand
        FarMasterCutShort
        FormerMasterCounts
        LeftPlaceFreed
        LostMasterNotLookedFor
        NoDriftAllowance
        OthersUnheard
        ReadOnlyServerKept
        RefusalIsLast
        RelayedGrantTrusted
        RepetitionBeforeMoveForgotten
        SentTooLate
        SentTwice
        SilenceNotAsked
        SlowIsFar
        SuspendUnseen
        TwoCommandsInTimeOfOne
        UnsubscribedIsReply
    }

    thread_local! {
        // A simulated world runs on one thread.
        static SEEDED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    pub(crate) fn is_seeded(mutant: Mutant) -> bool {
        SEEDED.get() == Some(mutant)
    }

    /// While it lives, this thread's code has the bug.
    pub(crate) struct Seeded(#[allow(dead_code, reason = "it ends with this one")] lock_wire::simulation::Seeded);

    impl Seeded {
        pub(crate) fn begin(mutant: Option<Mutant>) -> Self {
            SEEDED.set(mutant);
            Self(lock_wire::simulation::Seeded::begin(match mutant {
                Some(Mutant::Wire(mutant)) => Some(mutant),
                _ => None,
            }))
        }
    }

    impl Drop for Seeded {
        fn drop(&mut self) {
            SEEDED.set(None);
        }
    }
}
