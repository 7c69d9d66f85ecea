//! Bugs on purpose, by which the simulation shows that its checks can fail.
//!
//! `mutant!(Name => wrong)` is a statement at the head of a fn. In a simulated world that was given this bug it does what is
//! wrong, most often `return`, so that the whole fn is replaced. In every build that is not a test of this crate it is nothing.

#[cfg(not(test))]
macro_rules! mutant {
    ($mutant:ident => $wrong:expr) => {};
}

#[cfg(test)]
macro_rules! mutant {
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
        WokenOneByOne,
        UnpolledPartsKept,
        OverdueTaskActs,
        NewestComesLast,
        NewcomersOvertake,
        FreeLeaseUntold,
        FreeLeaseKept,
        DeadTaskStays,
        AdoptedUnderNewToken,
        AdoptedLeft,
        AlarmsUnheeded,
        AnswersShifted,
        AnyAnswerIsNo,
        AttemptEndsWithCaller,
        AwaitedReleaseRepeated,
        BodyPolledOn,
        BusyIsSilent,
        BusyIsUnusable,
        CalledForRoomOnce,
        CallsUnderTable,
        ClockNotLent,
        ConfirmedBeforeHold,
        ConnectionNeverGivenUp,
        DeadlineFromReply,
        DeletedUnseen,
        DenialOutlivesAnswer,
        DistanceForgotten,
        DriftAsUsual,
        DroppedGuardKept,
        DropsUnderMutex,
        EarlierReplyUnwatched,
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
        LateRefusalCounts,
        LateAdoptionIsLost,
        LateIsGivenBack,
        LateReleaseLeft,
        LeaseThatIsGoneIsAnswer,
        LeftLeaseIsUsed,
        LeftPlaceFreed,
        LossIsAnswer,
        LostWhileDrawn,
        LostBeforeUnseen,
        LostWithdrawalForgotten,
        LingersBesideOthers,
        LingersOn,
        LingersPastTheEnd,
        LingerUnchecked,
        LostIsStray,
        LostMasterNotLookedFor,
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
        ProbeEndsWithRuntime,
        PermitsCoverFewer,
        PushCountsAsAnswer,
        PushedClaimBelieved,
        QueueBesideUntold,
        QueuedRepetitionLeft,
        ReadersOvertakeWriter,
        RedirectionHidesSilence,
        RefusedAskReleased,
        RefusedRepetitionUntold,
        RefusedTogether,
        RefusedTokenKept,
        RelayedGrantTrusted,
        ReleasePerHold,
        ReleasedBeforeBody,
        RenewedPastMaxHold,
        RepeatedCutOff,
        RefusalIsLast,
        RepeatedWithoutPause,
        RepetitionBeforeMoveForgotten,
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
        SentTooLate,
        SentTwice,
        SharedFencesKept,
        SilenceNotAsked,
        SlowIsFar,
        SmallerDrawsLeft,
        SmallerFencesKept,
        StandsInTooSoon,
        StrangerIsInside,
        StrayGrantKept,
        StrayShareIsExclusive,
        StreakWithoutBound,
        SuspendUnseen,
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
