//! Deliberate bugs, with which tests show that their checks can fail.
//!
//! `mutant!(Name => wrong)` is a statement: on a thread with this bug it runs `wrong`, usually a `return`. `mutant!(Name)` tells whether
//! the thread has the bug. In every build without the feature `simulation` the first is nothing, and the second `false`.

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
    #[allow(missing_docs, reason = "lock-runtime/src/simulation/bugs.md says what each of them does")]
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
        FirstLoginStays,
        FormerMasterCounts,
        LeftPlaceFreed,
        LiveLoginStays,
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

    /// This thread's code has the bug while this value lives.
    #[derive(Debug)]
    pub struct Seeded(());

    impl Seeded {
        /// Seeds the bug.
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
