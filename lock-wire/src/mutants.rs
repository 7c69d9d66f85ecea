//! Bugs on purpose, by which tests show that their checks can fail.
//!
//! `mutant!(Name => wrong)` is a statement. On a thread that was given this bug it does what is wrong, most often `return`. `mutant!(Name)`
//! says whether this thread was given the bug. In every build without the feature `simulation` the one is nothing, and the other `false`.

#[cfg(not(any(test, feature = "simulation")))]
macro_rules! mutant {
    ($mutant:ident => $wrong:expr) => {};
    ($mutant:ident) => {
        false
    };
}

#[cfg(any(test, feature = "simulation"))]
macro_rules! mutant {
    ($mutant:ident => $wrong:expr) => {
        if $crate::mutants::is_seeded($crate::mutants::Mutant::$mutant) {
            $wrong;
        }
    };
    ($mutant:ident) => {
        $crate::mutants::is_seeded($crate::mutants::Mutant::$mutant)
    };
}

#[cfg(any(test, feature = "simulation"))]
pub use seeded::{Mutant, Seeded};

#[cfg(any(test, feature = "simulation"))]
pub(crate) use seeded::is_seeded;

#[cfg(any(test, feature = "simulation"))]
mod seeded {
    use std::cell::Cell;

    /// A bug in this crate's own code.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs, reason = "docs/faults.md says what each of them does")]
    pub enum Mutant {
        AttemptEndsWithCaller,
        BusyIsSilent,
        CalledForRoomOnce,
        ClockNotLent,
        ConnectionNeverGivenUp,
        DeadlineFromReply,
        DriftAsUsual,
        DropsUnderMutex,
        EarlierReplyUnwatched,
        EndlessCommand,
        FarMasterCutShort,
        FormerMasterCounts,
        LeftPlaceFreed,
        LostMasterNotLookedFor,
        NoDriftAllowance,
        OthersUnheard,
        OverdueBelieved,
        ProbeEndsWithRuntime,
        ReadOnlyServerKept,
        RedirectionHidesSilence,
        RefusalIsLast,
        RelayedGrantTrusted,
        RepetitionBeforeMoveForgotten,
        RoomOfFormerConnection,
        SentTooLate,
        SentTwice,
        SilenceNotAsked,
        SlowIsFar,
        SuspendUnseen,
        TwoCommandsInTimeOfOne,
        UnsentIsSent,
        UnsubscribedIsReply,
        WrittenIsKept,
    }

    thread_local! {
        // A simulated world runs on one thread.
        static SEEDED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    pub(crate) fn is_seeded(mutant: Mutant) -> bool {
        SEEDED.get() == Some(mutant)
    }

    /// While it lives, this thread's code has the bug.
    #[derive(Debug)]
    pub struct Seeded(());

    impl Seeded {
        /// Begins with it.
        #[must_use = "the bug ends with this value"]
        pub fn begin(mutant: Option<Mutant>) -> Self {
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
