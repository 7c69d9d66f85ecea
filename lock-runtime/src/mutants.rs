//! Bugs on purpose, by which the simulation shows that its checks can fail.
//!
//! `mutant!(Name => wrong, else right)` is an expression: in a simulated world that was given this bug it is `wrong`, else `right`.
//! `mutant!(Name => wrong)` is a statement, and does what is wrong, most often `return`. In every build that is not a test of this
//! crate, the first is `right` and the second is nothing.

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

    /// A bug in the library's own code. What has to catch it is in `simulation/seeded.rs`, or beside the worlds and scenes that use it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Mutant {
        AdoptedUnderNewToken,
        AdoptedLeft,
        AdoptersPermitIsIdle,
        AlarmsUnheeded,
        AnswersShifted,
        AnyAnswerIsNo,
        AskersWaitElsewhere,
        AttemptEndsWithCaller,
        AttendanceKeepsWaker,
        AwaitedReleaseRepeated,
        BodyPolledOn,
        CalledForgotten,
        BusyIsSilent,
        BusyIsUnusable,
        CalledForRoomOnce,
        CalledOneByOne,
        CalledReadersKeptForEver,
        CallsTooSeldom,
        CallsUnderTable,
        ClockNotLent,
        CompletePartsKept,
        ConfirmedBeforeHold,
        ConnectionNeverGivenUp,
        DeadlineFromReply,
        DeletedUnseen,
        DeadTurnNotPassed,
        DenialOutlivesAnswer,
        DistanceForgotten,
        DriftAsUsual,
        DividedLeaseKept,
        DroppedGuardKept,
        DropsUnderMutex,
        EarlierRenewalCounts,
        EarlierReplyUnwatched,
        EarlyHoldsKept,
        EmptiedQueueAwaited,
        EndedLocksKept,
        EndlessCommand,
        ExplainedOneByOne,
        FailedDrawNotRepeated,
        FarMasterCutShort,
        FarReleaseCutShort,
        FarthestForAll,
        FirstAnswerForAll,
        FirstReaderEndsHold,
        ForcedAfterLoss,
        ForcedAskWaits,
        ForcedBeforeBody,
        ForcedUnchecked,
        ForgivenLoss,
        FormerMasterCounts,
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
        LateDrawGranted,
        LatestEndCounts,
        LateHandOver,
        LatePermitBinds,
        LateRefusalCounts,
        LateAdoptionIsLost,
        LateIsGivenBack,
        LateReleaseLeft,
        LateTryTakesAll,
        LateTurnKept,
        LeaseThatIsGoneIsAnswer,
        LeftLeaseIsUsed,
        LeftPlaceFreed,
        LossIsAnswer,
        LostBeforeUnseen,
        LostWhileDrawn,
        LostWithdrawalForgotten,
        LingersBesideOthers,
        LingersOn,
        LingersPastTheEnd,
        LingerUnchecked,
        LooksBeforeRegistering,
        LostIsStray,
        LostMasterNotLookedFor,
        LostPermitBinds,
        NearForgotten,
        NewcomerIsMeasure,
        NoDriftAllowance,
        NoEvalFallback,
        NoLeaseCheck,
        NoRoomIsFailure,
        NoSafetyNet,
        NotedAfterSending,
        NoVerification,
        NoWithdrawal,
        OlderRefusalCounts,
        OlderWaitsOn,
        OnlyReleasesWatched,
        OtherModeIsReleased,
        SilenceIsBusy,
        OthersUnheard,
        OutlivedAtLastUntold,
        OutlivedSinceAsk,
        OverdueBelieved,
        OwnReleaseForgotten,
        PolledAfterStreak,
        StreakUntold,
        PolledWithoutPause,
        PartLingers,
        PausesPastOwner,
        PermitQueueForgotten,
        ProbeEndsWithRuntime,
        PermitsCoverFewer,
        PushCountsAsAnswer,
        PushedClaimBelieved,
        QueueBesideUntold,
        QueuedRepetitionLeft,
        ReaderNotReconnected,
        ReadersOvertakeWriter,
        RedirectionHidesSilence,
        RefusedAskReleased,
        RefusedRepetitionUntold,
        RefusedTogether,
        RefusedTokenKept,
        RefusedTryHasTurn,
        RelayedGrantTrusted,
        ReleasePerHold,
        ReleasedBeforeBody,
        RenewedPastMaxHold,
        RepeatedCutOff,
        RefusalIsLast,
        RepeatedTryQueues,
        RepeatedWithoutPause,
        RepetitionBeforeMoveForgotten,
        RepetitionEndsWait,
        RepetitionLeft,
        RestNotAwaited,
        RestNotPassedOn,
        ReadOnlyServerKept,
        RestNotSent,
        RestSkipped,
        RestartedDraws,
        RestartedIsMarked,
        RestUnseenByReplica,
        RestWithoutEnd,
        RestWithdrawn,
        RetryUnderNewToken,
        RoomOfFormerConnection,
        SameFence,
        SeizedTurnIsTakenBack,
        SentTooLate,
        SentTwice,
        SharedFencesKept,
        SilenceNotAsked,
        SlowIsFar,
        SmallerDrawsLeft,
        SmallerFencesKept,
        StaleTurnActs,
        StandsInTooSoon,
        StepLateAtLast,
        StepsFromAfarAreLate,
        StrangerIsInside,
        StrayGrantKept,
        StrayShareIsExclusive,
        StreakOfDropsUncounted,
        StreakWithoutBound,
        SuspendUnseen,
        TakenBackHasBody,
        TakenUntold,
        TicketReleasedFirst,
        TimerSetLater,
        TimesOfKeysAddUp,
        ToldOfOthers,
        ToldOfTheFuture,
        TwoCommandsInTimeOfOne,
        UnansweredRenewalForgotten,
        UnreadGrantNotTold,
        UnreadNotRepeated,
        UnsentIsRefused,
        UnsentIsSent,
        UnsentWithdrawn,
        UnusedMarkLeft,
        UnsubscribedIsReply,
        VerificationArms,
        WaiterNeverGone,
        WakerNotTaken,
        WholeLeaseClaimed,
        WrittenIsKept,
        YoungNeverConfirmed,
    }

    thread_local! {
        // A simulated world runs on one thread.
        static SEEDED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    pub(crate) fn is_seeded(mutant: Mutant) -> bool {
        SEEDED.get() == Some(mutant)
    }

    /// While it lives, this thread's code has the bug.
    pub(crate) struct Seeded(());

    impl Seeded {
        pub(crate) fn begin(mutant: Option<Mutant>) -> Self {
            SEEDED.set(mutant);
            Self(())
        }
    }

    impl Drop for Seeded {
        fn drop(&mut self) {
            SEEDED.set(None);
        }
    }
}
