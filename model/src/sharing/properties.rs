//! What must be true of every world, by the number of the promise in docs/guarantees.md.

use stateright::Property;

use super::{Mode, Process, Sharing, World};

type Condition = fn(&Sharing, &World) -> bool;

pub(super) fn all() -> Vec<Property<Sharing>> {
    let must: [(&'static str, Condition); 6] = [
        ("1 exclusion: who has the lock alone is beside nobody", |sharing, world| {
            let holding = || (0..).zip(&world.processes).filter(|(_, process)| process.holders() > 0);
            let is_alone = |(process, _): (usize, &Process)| sharing.modes[process] == Mode::Alone;
            !holding().any(is_alone) || holding().count() == 1
        }),
        ("1 exclusion: not more hold permits than there are", |sharing, world| {
            let holding = || (0..).zip(&world.processes).filter(|(_, process)| process.holders() > 0);
            let most = holding().filter_map(|(process, _): (usize, _)| match sharing.modes[process] {
                Mode::Permit(of) => Some(usize::from(of)),
                _ => None,
            });
            // Others may ask for more than a holder does, and each counts by its own number.
            most.max().is_none_or(|most| permits(sharing, world) <= most)
        }),
        ("2 fencing: a later hold has a greater token", |_, world| !world.seen.is_stale),
        ("6 order: nobody is granted past a waiter", |_, world| !world.seen.is_overtaken),
        ("4 progress: nobody waits for what it could have, longer than the faults explain", |_, world| {
            world.seen.idle <= world.seen.allowed
        }),
        ("8 no unprotected work: a hold is backed by the server", |_, world| {
            let is_backed = |(process, me): (usize, &Process)| me.holders() == 0 || Sharing::owns(world, process);
            (0..).zip(&world.processes).all(is_backed)
        }),
    ];
    // What shows that the model does something at all.
    let can: [(&'static str, Condition); 3] = [
        ("several processes share the lock", |_, world| world.seen.has_shared),
        ("the lock is passed on by push", |_, world| world.seen.has_passed),
        ("a hold begins on a lease that lingered", |_, world| world.seen.has_lingered),
    ];
    let must = must.map(|(name, holds)| Property::always(name, holds));
    must.into_iter().chain(can.map(|(name, holds)| Property::sometimes(name, holds))).collect()
}

fn permits(sharing: &Sharing, world: &World) -> usize {
    let is_permit = |process: usize| matches!(sharing.modes[process], Mode::Permit(_));
    (0..).zip(&world.processes).filter(|(process, me): &(usize, _)| is_permit(*process) && me.holders() > 0).count()
}

/// Whether the first waiter that lives could have what it wants beside those that live and hold the lock.
pub(super) fn waits_in_vain(sharing: &Sharing, world: &World) -> bool {
    let waits = |process: &usize| {
        let me = &world.processes[*process];
        !me.is_gone && me.wants() && me.lease.is_none()
    };
    let not_queued = || (0..world.processes.len()).filter(|process| !world.server.queue.contains(process));
    let Some(first) = world.server.queue.iter().copied().chain(not_queued()).find(waits) else { return false };
    let holding: Vec<_> =
        (0..world.processes.len()).filter(|process| world.processes[*process].holders() > 0).collect();
    let is_taken = holding.iter().any(|process| sharing.modes[*process] == Mode::Alone);
    holding.is_empty() || !is_taken && sharing.modes[first].fits_beside(holding.len())
}
