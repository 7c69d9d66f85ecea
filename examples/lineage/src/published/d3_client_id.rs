//! D3: the third version (PHP): the value is a unique client id, checked before the `DEL`.
//!
//! Wrong: comparing and deleting are two commands, and the lock may change hands between them; a body that outlives its
//! lease continues unprotected.

use std::sync::Arc;
use std::time::Duration;

use history::{Failure, Hold, Lock, Place, Wanted};
use redis::cmd;

use super::{Session, Taken};
use crate::patience::Patience;

/// The time between two requests of a buyer.
const AGAIN: Duration = Duration::from_millis(5);

pub(crate) struct Third(Arc<Session>);

pub(crate) struct Held(Taken);

impl Lock for Third {
    type Hold = Held;

    async fn connect(place: &Place) -> Result<Self, Failure> {
        Ok(Self(Session::new(place)))
    }

    async fn acquire(&self, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
        let patience = Patience::of(wanted);
        loop {
            let value = self.0.unique();
            let mut set = cmd("SET");
            set.arg(key).arg(&value).arg("NX").arg("PX").arg(wanted.expire);
            if self.0.wire.ask::<Option<String>>(&set).await?.is_some() {
                return Ok(Held(self.0.taken(key, value)));
            }
            patience.pause(AGAIN).await?;
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
