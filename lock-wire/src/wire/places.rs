//! [`Places`]: which task waits for which reply.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use redis::Value;
use slab::Slab;
use tokio::time::Instant;

use super::group::Members;
use super::output::ENOUGH;
use super::{Ended, NoReply};

/// From this many outstanding replies on, measure how long they take.
pub(super) const MANY: usize = 32;

/// The outstanding replies, and those that were not taken yet.
#[derive(Default)]
pub(super) struct Places {
    all: Slab<Place>,
    /// What the next replies are for. A server replies in the order of the commands.
    order: VecDeque<Next>,
    /// How many replies have arrived.
    heard: u64,
    /// How many of the outstanding replies are for commands that begin something.
    beginnings: usize,
    /// How long the last measured reply took to reach its task. Zero while few replies are outstanding.
    lag: Duration,
    /// The place that is measured now, and since when.
    measured: Option<(usize, Instant)>,
    /// Whether `lag` was measured since it was last asked for.
    is_measured: bool,
}

/// The state of the replies to the commands that one task sent together.
pub(super) enum Place {
    Waiting {
        want: Want,
        got: Vec<Value>,
        waker: Option<Waker>,
        by: By,
        /// How many replies had arrived when `by` was set.
        heard: u64,
    },
    /// The task is gone. This many replies are outstanding, and none of them is read.
    Left(usize),
    /// The reply is not read. If there is none, this is called.
    Unread(OnLost),
    Answered(Result<Value, NoReply>),
}

/// When a reply is due.
#[derive(Clone, Copy)]
pub(super) enum By {
    Any,
    At(Patience),
    /// The reply is overdue.
    Over {
        is_silent: bool,
    },
}

/// How long to wait for a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// When a server that answers nothing counts as silent.
    pub(crate) silent_at: Instant,
    /// How long a silence lasts.
    pub(crate) silence: Duration,
    /// The end, even if the server answers other commands: it replies in the order of the commands, and has not reached this one.
    pub(crate) end: Instant,
}

/// What a task finds at its place.
pub(super) enum Polled {
    /// The reply, which frees the place. An overdue place stays until the task leaves it.
    Reply(Result<Value, NoReply>),
    /// The reply is outstanding.
    Waits,
    /// The reply is outstanding, and the task's waker is not registered here. The task has to clone it first, without the mutex.
    Unknown,
}

/// What a task leaves behind when it stops waiting.
pub(super) struct Leaving {
    /// To be dropped without the mutex: the waker may hold the last reference to its task.
    pub(super) _place: Option<Place>,
    /// What need not be sent: its distance from the end of the output in bytes, and its length.
    pub(super) unsent: Option<(usize, usize)>,
}

/// Called when a connection ended before a command was answered.
pub(super) type OnLost = Box<dyn FnOnce() + Send>;

/// What to do after a connection has ended: tasks to wake, and callbacks for lost commands.
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

/// What the next replies are for, and how many bytes their commands have.
struct Next {
    whose: Whose,
    bytes: usize,
    is_beginning: bool,
}

enum Whose {
    Place(usize),
    /// One reply answers all these calls.
    Group(Members),
}

/// How several replies become one value.
#[derive(Debug)]
pub struct Merge {
    /// The number of replies.
    pub count: usize,
    /// Makes one value of them.
    pub merge: fn(Vec<Value>) -> Value,
    /// Whether the commands are sent even if the task is gone.
    pub is_kept: bool,
}

/// Which replies a place waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want {
    One,
    /// A list of this many replies, which may be one.
    List(usize),
    Merged(&'static Merge),
}

impl Want {
    #[inline]
    fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::List(count) => count,
            Self::Merged(merge) => merge.count,
        }
    }

    fn answer(self, mut replies: Vec<Value>) -> Value {
        match self {
            Self::One => replies.pop().unwrap_or_default(),
            Self::List(_) => Value::Array(replies),
            Self::Merged(merge) => (merge.merge)(replies),
        }
    }
}

/// The server sent a reply to no command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unasked;

impl Places {
    /// How many replies, or lists of them, are outstanding.
    #[inline]
    pub(super) fn to_come(&self) -> usize {
        self.order.len()
    }

    /// How many replies have arrived.
    #[inline]
    pub(super) fn heard(&self) -> u64 {
        self.heard
    }

    /// How many replies are outstanding for commands that begin something.
    #[inline]
    pub(super) fn beginnings(&self) -> usize {
        self.beginnings
    }

    /// Takes a place for the replies to commands of this many bytes.
    #[inline]
    pub(super) fn take(&mut self, want: Want, by: By, bytes: usize, is_beginning: bool) -> usize {
        let place = self.take_for_later(want, by);
        if is_beginning {
            self.beginnings += 1;
            self.measure(place);
        }
        self.order.push_back(Next { whose: Whose::Place(place), bytes, is_beginning });
        place
    }

    /// Measures how long a reply takes, one at a time. No clock is read while few are outstanding.
    #[inline]
    fn measure(&mut self, place: usize) {
        if self.order.len() < MANY {
            self.lag = Duration::ZERO;
        } else if self.measured.is_none() {
            self.measured = Some((place, Instant::now()));
        }
    }

    /// The lag, if it was measured since the last call.
    #[inline]
    pub(super) fn take_measured(&mut self) -> Option<Duration> {
        std::mem::take(&mut self.is_measured).then_some(self.lag)
    }

    /// How long a reply now takes to reach its task, behind the outstanding replies and the tasks that run before it.
    #[inline]
    pub(super) fn lag(&self) -> Duration {
        self.lag
    }

    /// Takes a place for a command that is sent later, with others.
    #[inline]
    pub(super) fn take_for_later(&mut self, want: Want, by: By) -> usize {
        self.all.insert(Place::Waiting { want, got: Vec::new(), waker: None, by, heard: self.heard })
    }

    /// The next reply answers all these calls. Their run has this many bytes.
    #[inline]
    pub(super) fn expect_group(&mut self, members: Members, bytes: usize) {
        self.order.push_back(Next { whose: Whose::Group(members), bytes, is_beginning: false });
    }

    /// Takes a place for a reply that is not read.
    pub(super) fn take_unread(&mut self, on_lost: OnLost, bytes: usize) {
        let place = self.all.insert(Place::Unread(on_lost));
        self.order.push_back(Next { whose: Whose::Place(place), bytes, is_beginning: false });
    }

    /// Takes a place for a command that is not sent.
    pub(super) fn take_refused(&mut self, why: NoReply) -> usize {
        self.all.insert(Place::Answered(Err(why)))
    }

    /// Handles a reply. The tasks that wait for it are to be woken.
    pub(super) fn on_reply(&mut self, reply: Value, to_wake: &mut Vec<Waker>) -> Result<(), Unasked> {
        let next = self.order.pop_front().ok_or(Unasked)?;
        self.heard += 1;
        match &next.whose {
            Whose::Place(place) => {
                if self.answer(*place, reply, to_wake) {
                    self.beginnings -= usize::from(next.is_beginning);
                } else {
                    self.order.push_front(next);
                }
            }
            Whose::Group(Members { places, .. }) if let [place] = **places => {
                self.answer(place, reply, to_wake);
            }
            Whose::Group(Members { script, places }) => {
                for (place, answer) in places.iter().zip((script.split)(reply, places.len())) {
                    self.answer(*place, answer, to_wake);
                }
            }
        }
        Ok(())
    }

    /// Stores a reply for a place. Returns whether it is the last one for it.
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
                *count -= 1;
                let is_last = *count == 0;
                if is_last {
                    self.all.remove(number);
                }
                return is_last;
            }
            Place::Unread(_) => {
                self.all.remove(number);
                return true;
            }
            Place::Answered(_) => return true,
        };
        *place = Place::Answered(Ok(answered));
        true
    }

    /// The connection has ended: no more replies will arrive.
    pub(super) fn end(&mut self, ended: &Ended) -> Aftermath {
        self.order.clear();
        (self.beginnings, self.measured, self.lag) = (0, None, Duration::ZERO);
        let mut aftermath = Aftermath::default();
        self.all.retain(|_, place| {
            match std::mem::replace(place, Place::Answered(Err(NoReply::Ended(ended.clone())))) {
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

    /// Ends the waits that are overdue at `now`. Returns when the next reply is due.
    ///
    /// While replies arrive, the server is not silent; it just has not reached the others yet. A task that waits for one of these gets its
    /// patience again, until its own end.
    pub(super) fn end_overdue(&mut self, now: Instant, to_wake: &mut Vec<Waker>) -> Option<Instant> {
        let mut next = None;
        for (_, place) in &mut self.all {
            let Place::Waiting { by, heard, waker, .. } = place else { continue };
            let By::At(patience) = by else { continue };
            if patience.silent_at <= now {
                let is_silent = *heard == self.heard;
                if is_silent || patience.end <= now || mutant!(BusyIsSilent) {
                    *by = By::Over { is_silent };
                    to_wake.extend(waker.take());
                    continue;
                }
                patience.silent_at = (now + patience.silence).min(patience.end);
                *heard = self.heard;
            }
            next = Some(next.map_or(patience.silent_at, |next: Instant| next.min(patience.silent_at)));
        }
        if self.all.is_empty() {
            // Otherwise each look would scan what a burst left behind.
            self.all.shrink_to_fit();
        }
        next
    }

    /// Polls a place. If `waker` is not registered there, `clone` replaces the registered waker, and the caller drops that one.
    pub(super) fn poll(&mut self, place: usize, waker: &Waker, clone: &mut Option<Waker>) -> Polled {
        match self.all.get_mut(place) {
            Some(Place::Waiting { by: By::Over { is_silent }, .. }) => {
                Polled::Reply(Err(NoReply::Overdue { is_silent: *is_silent }))
            }
            Some(Place::Waiting { waker: known, .. }) => {
                if known.as_ref().is_some_and(|known| known.will_wake(waker)) {
                    return Polled::Waits;
                }
                if clone.is_none() {
                    return Polled::Unknown;
                }
                std::mem::swap(known, clone);
                Polled::Waits
            }
            Some(Place::Answered(_)) => {
                if let Some((_, since)) = self.measured.take_if(|(measured, _)| *measured == place) {
                    (self.lag, self.is_measured) = (since.elapsed(), true);
                }
                match self.all.remove(place) {
                    Place::Answered(reply) => Polled::Reply(reply),
                    _ => Polled::Waits,
                }
            }
            Some(Place::Left(_) | Place::Unread(_)) | None => Polled::Waits,
        }
    }

    /// The task no longer waits. The socket does not have the last `unsent` bytes of the output yet. Only a command near their end is
    /// looked for and taken back; others are sent, and their reply is discarded.
    pub(super) fn leave(&mut self, place: usize, unsent: usize) -> Leaving {
        self.measured.take_if(|(measured, _)| *measured == place);
        mutant!(LeftPlaceFreed => {
            self.order.retain(|next| !matches!(next.whose, Whose::Place(other) if other == place));
            return Leaving { _place: self.all.try_remove(place), unsent: None };
        });
        let Some(left) = self.all.get_mut(place) else { return Leaving { _place: None, unsent: None } };
        let Place::Waiting { want, got, .. } = left else {
            return Leaving { _place: self.all.try_remove(place), unsent: None };
        };
        // The replies arrive anyway, and belong to no other place.
        let is_kept = matches!(want, Want::Merged(merge) if merge.is_kept);
        let to_come = want.count() - got.len();
        let was = std::mem::replace(left, Place::Left(to_come));
        let unsent = if is_kept { None } else { self.take_back(place, unsent.min(ENOUGH)) };
        Leaving { _place: Some(was), unsent }
    }

    /// Takes back the place's commands if they are among the last `unsent` bytes.
    fn take_back(&mut self, place: usize, unsent: usize) -> Option<(usize, usize)> {
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
        self.beginnings -= usize::from(next.is_beginning);
        self.all.remove(place);
        Some((before_end, next.bytes))
    }
}
