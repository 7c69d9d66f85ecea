//! What must be true of every world, by the number of the promise in docs/guarantees.md.

use stateright::Property;

use crate::state::{Breach, Process, World};
use crate::{Protocol, STREAK};

type Condition = fn(&Protocol, &World) -> bool;

pub(crate) fn all() -> Vec<Property<Protocol>> {
    let must: [(&'static str, Condition); 8] = [
        ("1 exclusion: holds never overlap", |_, world| world.processes.iter().map(Process::holds).sum::<usize>() <= 1),
        ("2 fencing: tokens increase from hold to hold", |_, world| world.seen.breach != Some(Breach::FenceRepeated)),
        ("3 ownership: only the owner's token releases or renews, and none is used again", |_, world| {
            !matches!(world.seen.breach, Some(Breach::NotTheOwner | Breach::TokenUsedAgain))
        }),
        ("4 progress: nobody waits for a lock that nobody has, longer than the faults explain", |_, world| {
            world.seen.idle <= world.seen.allowed
        }),
        ("5 no orphans: what was given up blocks nobody, but for the claim of what was executed late", |_, world| {
            world.seen.orphaned <= world.seen.excused
        }),
        ("6 order: a waiter elsewhere is passed over by one streak", |_, world| {
            world.processes.iter().all(|process| process.streak <= STREAK)
        }),
        ("6 order: a script grants past nobody who can be told", |_, world| {
            world.seen.breach != Some(Breach::Overtaken)
        }),
        ("8 no unprotected work: no hold starts and no body makes a step after the deadline", |_, world| {
            !matches!(world.seen.breach, Some(Breach::StepWithoutLock | Breach::HoldWithoutTime))
        }),
    ];
    // What shows that the model does something at all.
    let can: [(&'static str, Condition); 2] = [
        ("a lease passes on inside a process", |_, world| world.seen.hand_over),
        ("a lease passes on between processes", |_, world| world.seen.hand_off),
    ];
    let must = must.map(|(name, holds)| Property::always(name, holds));
    must.into_iter().chain(can.map(|(name, holds)| Property::sometimes(name, holds))).collect()
}
