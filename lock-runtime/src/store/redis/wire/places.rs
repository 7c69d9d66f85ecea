//! [`Places`]: who waits for which reply.

use std::collections::VecDeque;
use std::task::Waker;

use redis::Value;
use slab::Slab;
use tokio::time::Instant;

use super::{Ended, NoReply};

/// The replies that are to come, and those that were not taken yet.
#[derive(Default)]
pub(super) struct Places {
    all: Slab<Place>,
    /// What the next replies are for. A server replies in the order of the commands.
    order: VecDeque<Next>,
    /// How many replies came for places that nobody had any more.
    unread: u64,
}

/// What becomes of the replies to the commands that one task sent together.
enum Place {
    Waiting {
        want: Want,
        got: Vec<Value>,
        waker: Option<Waker>,
        by: By,
    },
    /// Nobody waits any more. So many replies are to come, which nobody reads.
    Left(usize),
    /// Nobody reads the reply. Without a reply this is called.
    Unread(OnLost),
    Answered(Result<Value, Ended>),
}

/// By when a reply has to come.
#[derive(Clone, Copy)]
pub(super) enum By {
    Any,
    At(Instant),
    Over,
}

/// Called when a connection has ended before a command was answered.
pub(super) type OnLost = Box<dyn FnOnce() + Send>;

/// What the end of a connection has others do: tasks to wake, and calls for what was lost.
#[derive(Default)]
pub(super) struct Aftermath {
    to_wake: Vec<Waker>,
    lost: Vec<OnLost>,
}

impl Aftermath {
    pub(super) fn carry_out(self) {
        for on_lost in self.lost {
            on_lost();
        }
        self.to_wake.into_iter().for_each(Waker::wake);
    }
}

/// What replies are for, and how many bytes their commands have.
struct Next {
    whose: Whose,
    bytes: usize,
}

enum Whose {
    Place(usize),
    /// One reply answers the releases of all these.
    Together(Vec<usize>),
}

/// How many replies a place waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    One,
    /// A list of so many replies, which may be one.
    List(usize),
    /// What `free.lua` would say to one release, of two replies: whether the lock was deleted, and whether there is a queue.
    Freed,
    /// What became of a claim, of two replies: whether it was granted, and what the lock's key holds.
    Claimed,
}

impl Want {
    fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::List(count) => count,
            Self::Freed | Self::Claimed => 2,
        }
    }

    fn answer(self, mut replies: Vec<Value>) -> Value {
        match self {
            Self::One => replies.pop().unwrap_or_default(),
            Self::List(_) => Value::Array(replies),
            Self::Freed => conclude_deletion(replies),
            Self::Claimed => conclude_claim(replies),
        }
    }
}

/// A server replied to nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unasked;

impl Places {
    /// How many replies, or lists of them, are to come.
    pub(super) fn to_come(&self) -> usize {
        self.order.len()
    }

    /// How many replies came for places that nobody had any more.
    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    /// Takes a place for the replies to commands that have so many bytes.
    pub(super) fn take(&mut self, want: Want, by: By, bytes: usize) -> usize {
        let place = self.take_for_later(want, by);
        self.order.push_back(Next { whose: Whose::Place(place), bytes });
        place
    }

    /// Takes a place for a command that goes out later, with others.
    pub(super) fn take_for_later(&mut self, want: Want, by: By) -> usize {
        self.all.insert(Place::Waiting { want, got: Vec::new(), waker: None, by })
    }

    /// The next reply answers all these releases. Their script has so many bytes.
    pub(super) fn expect_together(&mut self, places: Vec<usize>, bytes: usize) {
        self.order.push_back(Next { whose: Whose::Together(places), bytes });
    }

    /// Takes a place for a reply that nobody reads.
    pub(super) fn take_unread(&mut self, on_lost: OnLost, bytes: usize) {
        let place = self.all.insert(Place::Unread(on_lost));
        self.order.push_back(Next { whose: Whose::Place(place), bytes });
    }

    /// Takes a place on a connection that has ended.
    pub(super) fn take_ended(&mut self, ended: Ended) -> usize {
        self.all.insert(Place::Answered(Err(ended)))
    }

    /// Takes in a reply. Who waits for it is to be woken.
    pub(super) fn on_reply(&mut self, reply: Value, to_wake: &mut Vec<Waker>) -> Result<(), Unasked> {
        let next = self.order.pop_front().ok_or(Unasked)?;
        match &next.whose {
            Whose::Place(place) => {
                if !self.answer(*place, reply, to_wake) {
                    self.order.push_front(next);
                }
            }
            Whose::Together(places) => {
                for (place, answer) in places.iter().zip(answers(reply, places.len())) {
                    self.answer(*place, answer, to_wake);
                }
            }
        }
        Ok(())
    }

    /// Notes a reply for a place. Returns whether it is the last one for it.
    fn answer(&mut self, number: usize, reply: Value, to_wake: &mut Vec<Waker>) -> bool {
        let Some(place) = self.all.get_mut(number) else { return true };
        let answered = match place {
            Place::Waiting { want: Want::One, waker, .. } => {
                to_wake.extend(waker.take());
                reply
            }
            Place::Waiting { want, got, waker, .. } => {
                got.push(reply);
                if got.len() < want.count() {
                    return false;
                }
                to_wake.extend(waker.take());
                want.answer(std::mem::take(got))
            }
            Place::Left(count) => {
                self.unread += 1;
                *count -= 1;
                let is_last = *count == 0;
                if is_last {
                    self.all.remove(number);
                }
                return is_last;
            }
            Place::Unread(_) => {
                self.unread += 1;
                self.all.remove(number);
                return true;
            }
            Place::Answered(_) => return true,
        };
        *place = Place::Answered(Ok(answered));
        true
    }

    /// The connection has ended: no more replies come.
    pub(super) fn end(&mut self, ended: &Ended) -> Aftermath {
        self.order.clear();
        let mut aftermath = Aftermath::default();
        self.all.retain(|_, place| {
            match std::mem::replace(place, Place::Answered(Err(ended.clone()))) {
                Place::Waiting { waker, .. } => aftermath.to_wake.extend(waker),
                Place::Left(_) => return false,
                Place::Unread(on_lost) => {
                    aftermath.lost.push(on_lost);
                    return false;
                }
                answered @ Place::Answered(_) => *place = answered,
            }
            true
        });
        aftermath
    }

    /// Ends the waits whose time is over by now. Returns by when the first of the others has to be answered.
    pub(super) fn end_overdue(&mut self, now: Instant, to_wake: &mut Vec<Waker>) -> Option<Instant> {
        let mut next = None;
        for (_, place) in &mut self.all {
            let Place::Waiting { by, waker, .. } = place else { continue };
            match *by {
                By::At(at) if at <= now => {
                    *by = By::Over;
                    to_wake.extend(waker.take());
                }
                By::At(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                By::Any | By::Over => {}
            }
        }
        if self.all.is_empty() {
            // What a burst has left would be looked at each time.
            self.all.shrink_to_fit();
        }
        next
    }

    /// The reply, which ends the place. `None` when it is still to come; then `waker` is called. A place whose time is over stays until
    /// it is left.
    pub(super) fn poll(&mut self, place: usize, waker: &Waker) -> Option<Result<Value, NoReply>> {
        match self.all.get_mut(place)? {
            Place::Waiting { by: By::Over, .. } => Some(Err(NoReply::Overdue)),
            Place::Waiting { waker: known, .. } => {
                if known.as_ref().is_none_or(|known| !known.will_wake(waker)) {
                    *known = Some(waker.clone());
                }
                None
            }
            Place::Answered(_) => match self.all.remove(place) {
                Place::Answered(reply) => Some(reply.map_err(NoReply::Ended)),
                _ => None,
            },
            Place::Left(_) | Place::Unread(_) => None,
        }
    }

    /// Nobody waits any more. Of the output, `unsent` bytes are not with the socket. Returns which of them need not go there: how many
    /// bytes before their end, and how many.
    pub(super) fn leave(&mut self, place: usize, unsent: usize) -> Option<(usize, usize)> {
        mutant!(LeftPlaceFreed => {
            self.order.retain(|next| !matches!(next.whose, Whose::Place(other) if other == place));
            self.all.try_remove(place);
            return None;
        });
        let left = self.all.get_mut(place)?;
        if let Place::Waiting { want, got, .. } = left {
            // The replies come all the same, and are for nobody else. A release goes to the server although nobody waits for it.
            let is_to_go = *want == Want::Freed;
            *left = Place::Left(want.count() - got.len());
            if is_to_go {
                return None;
            }
        } else {
            self.all.remove(place);
            return None;
        }
        mutant!(UnsentIsSent => return None);
        let (mut before_end, mut found) = (0, None);
        for (at, next) in self.order.iter().enumerate().rev() {
            before_end += next.bytes;
            if before_end > unsent {
                return None;
            }
            if matches!(next.whose, Whose::Place(other) if other == place) {
                found = Some(at);
                break;
            }
        }
        let next = self.order.remove(found?)?;
        self.all.remove(place);
        Some((before_end, next.bytes))
    }
}

/// What `free.lua` says where it is one of several releases, and 2 where the lock was deleted and somebody waits for it. Then the lock
/// has to be passed on. The same holds when it can't be seen whether somebody waits.
fn conclude_deletion(replies: Vec<Value>) -> Value {
    let Ok([deleted, queues]) = <[Value; 2]>::try_from(replies) else { return Value::Nil };
    mutant!(DeletedUnseen => if deleted == Value::Int(1) {
        return deleted;
    });
    match (deleted, queues) {
        (Value::Int(1), Value::Int(0)) => Value::Int(1),
        (Value::Int(1), _) => Value::Array(vec![Value::Int(2)]),
        (error @ Value::ServerError(_), _) => error,
        _ => Value::Array(vec![Value::Int(0)]),
    }
}

/// The reply to a claim; when it is refused, what the lock's key holds.
fn conclude_claim(replies: Vec<Value>) -> Value {
    match <[Value; 2]>::try_from(replies) {
        Ok([Value::Nil, owner]) => owner,
        Ok([claimed, _]) => claimed,
        Err(_) => Value::Nil,
    }
}

/// What one reply says to each of so many releases: what the script would have said to it alone.
fn answers(reply: Value, count: usize) -> Vec<Value> {
    match reply {
        reply if count == 1 => vec![reply],
        Value::Array(all) if all.len() == count => {
            mutant!(FirstAnswerForAll => return vec![Value::Array(all.into_iter().take(1).collect()); count]);
            all.into_iter().map(|one| Value::Array(vec![one])).collect()
        }
        Value::Int(freed) if usize::try_from(freed) == Ok(count) => vec![Value::Int(1); count],
        reply => vec![reply; count],
    }
}
