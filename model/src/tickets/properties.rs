//! What must be true of every world.

use stateright::Property;

use super::{GIVER, Phase, Rule, Tickets, Value, World};

type Condition = fn(&Tickets, &World) -> bool;

pub(super) fn all() -> Vec<Property<Tickets>> {
    let must: [(&'static str, Condition); 4] = [
        ("1 exclusion: nobody works beside another", |tickets, world| {
            let works = |(client, phase): (usize, &Phase)| match phase {
                Phase::Holds(_) => true,
                Phase::Asks { .. } => client == GIVER && !tickets.has(Rule::StopsFirst),
                _ => false,
            };
            let phases = world.parties.iter().map(|party| &party.phase).enumerate();
            phases.filter(|one| works(*one)).count() + usize::from(world.next_holds) <= 1
        }),
        ("a ticket has one adopter", |_, world| world.seen.adopted.len() <= 1),
        ("an adopter is told that the ticket is over only when it is", |_, world| !world.seen.is_told_wrong),
        ("who has given up has left nothing", |_, world| {
            let has_left = |client: usize| world.parties[client].phase == Phase::Done;
            match world.lock {
                Some((Value::Token(client), _)) => !has_left(client) || world.seen.adopted.contains(&client),
                Some((Value::Ticket, _)) => !has_left(GIVER) || world.is_ticket_sent,
                _ => true,
            }
        }),
    ];
    // What shows that the model does something at all.
    let can: [(&'static str, Condition); 2] = [
        ("a lock is adopted after a lost answer", |_, world| world.repeats > 0 && !world.seen.adopted.is_empty()),
        ("the next one gets the lock", |_, world| world.next_holds),
    ];
    let must = must.map(|(name, holds)| Property::always(name, holds));
    must.into_iter().chain(can.map(|(name, holds)| Property::sometimes(name, holds))).collect()
}
