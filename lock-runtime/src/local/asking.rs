//! What the store says of a slot's pending ask: answers, pushes, and what a task may conclude from them.

use std::sync::Arc;
use std::time::Duration;

use super::slot::{Slot, State};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::store::{Answer, Ask, Cause, Grant, Pushed, Reach, StoreError};
use crate::token::Token;

/// A store that leaves an ask unanswered for so long, or for two round trips, is not called busy.
pub(super) const SILENCE: Duration = Duration::from_millis(50);

/// See [`Slot::outlook`].
pub(super) enum Outlook {
    HeldHere,
    HeldElsewhere,
    /// The store could not be asked.
    Unreachable(StoreError),
    /// The store has not answered for so long.
    Silent(Duration),
    /// The store has not answered yet.
    Unknown,
}

impl Outlook {
    /// Whether the store's answer may still be on its way.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Unknown | Self::Silent(_))
    }
}

impl Slot {
    /// Takes in a pushed grant; `false` when nobody here waits for its token or owns it.
    pub(crate) fn granted(self: &Arc<Self>, pushed: &Pushed) -> bool {
        let mut state = self.locked();
        if state.lease.as_ref().is_some_and(|lease| lease.token == pushed.token) {
            return true;
        }
        let Some(asked) = state.asked.as_mut().filter(|asked| asked.token == pushed.token) else {
            return state.is_ending(&pushed.token);
        };
        asked.push(pushed);
        state.call(self);
        drop(state);
        self.changed.notify_waiters();
        true
    }

    pub(crate) fn contended(&self) {
        let mut state = self.locked();
        if let Some(lease) = &mut state.lease {
            lease.noticed_rival();
        } else if let Some(asked) = &mut state.asked {
            // Its grant has been sent and not been read yet.
            asked.contended = true;
        }
    }

    /// Makes the queue in the store doubtful: whoever drives it asks again.
    pub(crate) fn interrupted(&self) {
        if let Some(asked) = &mut self.locked().asked {
            asked.doubtful = true;
            // The next push may come from another server: the clock of the one that answered can't date it.
            asked.anchor = None;
        }
        self.changed.notify_waiters();
    }

    /// The ask to repeat as the safety net; `None` when nothing is queued, or was answered less than `age` ago.
    pub(crate) fn repeatable_ask(&self, age: Duration, give_up: Deadline) -> Option<Ask> {
        let state = self.locked();
        let asked = state.asked.as_ref()?;
        let is_old = asked.answered.is_some_and(|answered| answered.elapsed() >= age);
        (asked.queued && !asked.is_granted() && !asked.unanswered && is_old && !mutant!(NoSafetyNet)).then(|| Ask {
            key: Arc::clone(&self.key),
            token: asked.token.clone(),
            claim: asked.claim,
            wait: true,
            fences: 0,
            give_up,
            cause: Cause::Silence,
        })
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.locked().asked.as_ref().is_some_and(|asked| asked.queued && !asked.is_granted())
    }

    /// Takes in an answer; `false` when it grants a token that nobody here waits for.
    pub(crate) fn answered(self: &Arc<Self>, ask: &Ask, answer: Answer) -> bool {
        let mut state = self.locked();
        let granted = matches!(answer, Answer::Granted(_));
        let contended = matches!(answer, Answer::Granted(Grant { contended: true, .. }));
        state.failure = None;
        if let Some(asked) = state.asked.as_mut().filter(|asked| asked.token == ask.token) {
            asked.fences = ask.fences;
            asked.answer(answer, ask.wait);
            if !ask.wait && !asked.may_stand() {
                // A store of several servers may still be taking back what one of them granted (rule L3).
                asked.token = self.engine.next_token();
            }
            if granted {
                state.call(self);
            }
            drop(state);
            self.changed.notify_waiters();
            return true;
        }
        if let Some(lease) = state.lease.as_mut().filter(|lease| lease.token == ask.token) {
            if contended {
                lease.noticed_rival();
            }
            return true;
        }
        !granted || state.is_ending(&ask.token)
    }

    /// Whether somebody here has to do with `token`, or is about to give it back.
    pub(crate) fn stands_for(&self, token: &Token) -> bool {
        let mut state = self.locked();
        state.asked.as_ref().is_some_and(|asked| asked.token == *token)
            || state.lease.as_ref().is_some_and(|lease| lease.token == *token)
            || state.is_ending(token)
    }

    /// Notes that a task is about to give back the lease of `token`.
    pub(super) fn ending(&self, token: &Token) {
        self.locked().ending.push((token.clone(), false));
    }

    /// Notes that it has; returns whether the token was granted once more meanwhile. `None` when that was not to be.
    pub(super) fn ended(self: &Arc<Self>, token: &Token) -> Option<bool> {
        let again = {
            let mut state = self.locked();
            let place = state.ending.iter().position(|(ending, _)| ending == token);
            place.map(|place| state.ending.swap_remove(place).1)
        };
        self.engine.forget_if_unused(self);
        again
    }

    /// Whom a task that gives up was waiting for: the label of another process's manager.
    pub(super) fn holder_elsewhere(&self) -> Option<String> {
        let state = self.locked();
        let busy = state.asked.as_ref()?.busy.as_ref()?;
        let label = busy.owner.label();
        if busy.endless && label.is_none() {
            return Some("another client, without an expiry".to_owned());
        }
        label
    }

    /// Whether what was asked for was refused for a lease of this process that is just being given back.
    pub(super) fn is_behind_itself(&self) -> bool {
        let state = self.locked();
        let busy = state.asked.as_ref().filter(|asked| !asked.is_granted()).and_then(|asked| asked.busy.as_ref());
        busy.is_some_and(|busy| self.engine.made(&busy.owner))
    }

    /// How long the store took to grant the lease, when the lease was over by then.
    pub(super) fn outlived_lease(&self, now: Moment) -> Option<Duration> {
        self.locked().lease.as_ref()?.outlived(now, self.engine.settings().drift())
    }

    /// Whether another process was seen to own the lock.
    fn is_behind_another(&self) -> bool {
        let state = self.locked();
        let busy = state.asked.as_ref().and_then(|asked| asked.busy.as_ref());
        busy.is_some_and(|busy| !self.engine.made(&busy.owner))
    }

    /// Why a task that the store granted a lease, which was over by then, has no lock; `None` when another one has it.
    pub(super) fn too_short(&self, expire: Duration, outlived: Option<Duration>) -> Option<StoreError> {
        let took = outlived.filter(|_| !self.is_behind_another())?;
        let text =
            format!("the lease of {expire:?} was over when its grant came, after {took:?}: ask for a longer one");
        Some(StoreError::later(BackendError::new(text)))
    }

    /// How many holds there were.
    pub(super) fn holds(&self) -> u32 {
        self.locked().holds
    }

    /// Whether the store has answered the ask that is pending.
    pub(super) fn was_answered(&self) -> bool {
        self.locked().asked.as_ref().is_some_and(|asked| asked.answered.is_some())
    }

    /// Takes in that an ask failed. Of one that was never sent nothing is to be withdrawn; what was sent before may stand.
    pub(super) fn on_failed_ask(&self, ask: &Ask, error: &StoreError) {
        if error.reach == Reach::Unsent
            && !mutant!(UnsentWithdrawn)
            && let Some(asked) = self.locked().asked.as_mut().filter(|asked| asked.token == ask.token)
        {
            // An answer to an earlier one may have come meanwhile.
            asked.unanswered &= asked.was_unanswered;
        }
    }

    /// Notes how asking the store went.
    pub(super) fn asked(&self, failure: Option<StoreError>) {
        self.locked().failure = failure;
        self.changed.notify_waiters();
    }

    /// What a task that does not have the turn can say of the lock. After `silence` an unanswered ask means more than that
    /// the answer is on its way.
    pub(super) fn outlook(&self, silence: Duration) -> Outlook {
        let state = self.locked();
        if state.is_held() {
            return Outlook::HeldHere;
        }
        if let Some(failure) = &state.failure
            && !mutant!(OutageIsBusy)
        {
            return Outlook::Unreachable(failure.clone());
        }
        let Some(asked) = &state.asked else { return Outlook::Unknown };
        match asked.sent.map(Moment::elapsed) {
            _ if asked.busy.is_some() => Outlook::HeldElsewhere,
            Some(since) if asked.unanswered && since >= silence && !mutant!(OutageIsBusy) => Outlook::Silent(since),
            _ => Outlook::Unknown,
        }
    }
}

impl State {
    /// Whether the lease of `token`, which was granted once more, is about to be given back: most likely the grant is that
    /// very lease. To release it here as well would take it from under the task that waits to hear that the lock was
    /// still its own, or from under a body that is not dropped yet (rule 17).
    fn is_ending(&mut self, token: &Token) -> bool {
        let Some((_, again)) = self.ending.iter_mut().find(|(ending, _)| ending == token) else { return false };
        *again = true;
        true
    }
}
