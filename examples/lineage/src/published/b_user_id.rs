//! B: one default address per user (Java, two servers).
//!
//! `SETNX uid` with 20 random letters, then `EXPIRE` 5 s; asks every 2 ms; releases by `GET`, a comparison, and `DEL`.
//!
//! Wrong: a crash between `SETNX` and `EXPIRE` locks for ever; the lock may have changed hands between `GET` and `DEL`;
//! after an error it returns without releasing.

use std::sync::Arc;
use std::time::Duration;

use history::{Failure, Hold, Lock, Place, Wanted};
use redis::cmd;

use super::{Session, Taken};
use crate::patience::Patience;

const POLL: Duration = Duration::from_millis(2);

pub(crate) struct UserId(Arc<Session>);

pub(crate) struct Held(Taken);

impl Lock for UserId {
    type Hold = Held;

    async fn connect(place: &Place) -> Result<Self, Failure> {
        Ok(Self(Session::new(place)))
    }

    async fn acquire(&self, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
        let (wire, value) = (&self.0.wire, self.0.unique());
        let patience = Patience::of(wanted);
        loop {
            if wire.ask::<bool>(cmd("SETNX").arg(key).arg(&value)).await? {
                wire.ask::<bool>(cmd("PEXPIRE").arg(key).arg(wanted.expire)).await?;
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
        let Taken { session, key, value } = self.0;
        if session.wire.ask::<Option<String>>(cmd("GET").arg(&key)).await? == Some(value) {
            session.wire.ask::<i64>(cmd("DEL").arg(&key)).await?;
        }
        Ok(())
    }
}
