//! [`Rule`]: the rules of shared leases that the model can do without, one at a time.

/// A rule of "Shared leases" in docs/protocol.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// S1: a lease whose end has come is not there any more.
    Ended,
    /// S1: what is left of earlier leases does not come back.
    Fresh,
    /// S2: an exclusive ask waits for all shared leases.
    AloneWaits,
    /// S2: a shared ask waits for the exclusive lease.
    SharedWaits,
    /// A shared lease is granted while fewer than its capacity share the lock.
    Capacity,
    /// S3: nobody is granted past a waiter.
    OneQueue,
    /// S3: those behind the first who fit are granted together with it.
    Together,
    /// S4: a dead waiter does not keep others from sharing.
    DeadHead,
    /// S4: a first waiter that nobody listens for leaves at once.
    UnheardHead,
    /// S5: readers that come after a waiting writer wait for it.
    Phases,
    /// The last reader of a process ends the lease, and no other one.
    LastReader,
    /// S6: a shared lease draws one fencing token at a time.
    OneToken,
    /// S7: a lease of readers that lingers is released when another process is known to wait.
    LingerYields,
}

impl Rule {
    /// All of them, with their numbers.
    pub const ALL: [(&'static str, Self); 13] = [
        ("S1", Self::Ended),
        ("S1b", Self::Fresh),
        ("S2", Self::AloneWaits),
        ("S2b", Self::SharedWaits),
        ("S2c", Self::Capacity),
        ("S3", Self::OneQueue),
        ("S3b", Self::Together),
        ("S4", Self::DeadHead),
        ("S4b", Self::UnheardHead),
        ("S5", Self::Phases),
        ("S5b", Self::LastReader),
        ("S6", Self::OneToken),
        ("S7", Self::LingerYields),
    ];

    /// The rule of this number.
    #[must_use]
    pub fn numbered(number: &str) -> Option<Self> {
        Self::ALL.iter().find(|(of, _)| *of == number).map(|(_, rule)| *rule)
    }
}
