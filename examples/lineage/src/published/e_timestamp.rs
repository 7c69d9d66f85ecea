//! E: `SETNX` with a time as the value, and no `EXPIRE` (pseudo-code; a decorator in Python, an aspect in Java).
//!
//! `SETNX lock.foo (now + timeout + 1)`. When it is taken and its time has passed, `GETSET` a new time: the caller that gets
//! back a time in the past owns the lock. Releases by `DEL`, unless its own time has passed. Asks every 10 ms.
//!
//! Wrong: the clocks must agree; the `GETSET` of the losers overwrites the winner's time; a release that trusts the time may
//! arrive late, and free another holder's lock.

use std::sync::Arc;
use std::time::Duration;

use history::{Failure, Hold, Lock, Place, Wanted};
use redis::cmd;

use super::{Session, Taken};
use crate::clock;
use crate::patience::Patience;

const POLL: Duration = Duration::from_millis(10);

pub(crate) struct Timestamp(Arc<Session>);

pub(crate) struct Held(Taken);

/// The time in a value, in milliseconds since 1970; 0 if there is none.
pub(crate) fn time_of(value: &str) -> i64 {
    value.split('@').next().and_then(|time| time.parse().ok()).unwrap_or(0)
}

fn has_passed(value: Option<String>) -> bool {
    value.is_none_or(|value| time_of(&value) < clock::millis())
}

impl Lock for Timestamp {
    type Hold = Held;

    async fn connect(place: &Place) -> Result<Self, Failure> {
        Ok(Self(Session::new(place)))
    }

    async fn acquire(&self, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
        let wire = &self.0.wire;
        let patience = Patience::of(wanted);
        loop {
            let lease = i64::try_from(wanted.expire).unwrap_or(i64::MAX);
            let value = self.0.signed(clock::millis().saturating_add(lease).saturating_add(1));
            if wire.ask::<bool>(cmd("SETNX").arg(key).arg(&value)).await?
                || has_passed(wire.ask(cmd("GET").arg(key)).await?)
                    && has_passed(wire.ask(cmd("GETSET").arg(key).arg(&value)).await?)
            {
                return Ok(Held(self.0.taken(key, value)));
            }
            patience.pause(POLL).await?;
        }
    }
}

impl Hold for Held {
    fn remaining(&self) -> Option<Duration> {
        None
    }

    async fn release(self) -> Result<(), Failure> {
        if clock::millis() < time_of(&self.0.value) {
            self.0.session.wire.ask::<i64>(cmd("DEL").arg(&self.0.key)).await?;
        }
        Ok(())
    }
}
