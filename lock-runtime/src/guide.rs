//! The guide, in the order in which one reads it, and the reference pages.
//!
//! To begin with: [five minutes](start) from nothing to a locked service. To choose by: [keys, timeouts and leases](choosing),
//! [modes], [where locks can live](topologies), [what is promised](guarantees). At three in the morning: the [runbook].

macro_rules! pages {
    ($($name:ident: $path:literal)*) => {
        $(
            #[doc = lock_macros::__page!($path)]
            pub mod $name {}
        )*
    };
}

pages! {
    start: "docs/guide/start.md"
    choosing: "docs/guide/choosing.md"
    transactions: "docs/guide/transactions.md"
    modes: "docs/guide/modes.md"
    linger: "docs/guide/linger.md"
    errors: "docs/guide/errors.md"
    testing: "docs/guide/testing.md"
    operating: "docs/guide/operating.md"
    connections: "docs/guide/connections.md"
    versions: "docs/guide/versions.md"
    moving: "docs/guide/moving.md"
    questions: "docs/guide/questions.md"
    guarantees: "docs/guarantees.md"
    topologies: "docs/topologies.md"
    runbook: "docs/runbook.md"
    telemetry: "docs/telemetry.md"
    lockctl: "docs/lockctl.md"
    faults: "docs/faults.md"
    track_record: "docs/track-record.md"
    report: "docs/report.md"
    protocol: "docs/protocol.md"
    performance: "docs/performance.md"
}
