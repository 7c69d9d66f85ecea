//! D2: the second version (PHP): the key is set with an expiry, and deleted in `finally`.
//!
//! Wrong: a body of 6 s under a lease of 5 s loses its lock and then deletes the next holder's; a lease so long that this
//! never happens turns a crash into an outage.

use std::sync::Arc;
use std::time::Duration;

use history::{Failure, Hold, Lock, Place, Wanted};
use redis::cmd;

use super::{Session, Taken};
use crate::patience::Patience;

/// The time between two requests of a buyer.
const AGAIN: Duration = Duration::from_millis(5);

pub(crate) struct Second(Arc<Session>);

pub(crate) struct Held(Taken);

impl Lock for Second {
    type Hold = Held;

    async fn connect(place: &Place) -> Result<Self, Failure> {
        Ok(Self(Session::new(place)))
    }

    async fn acquire(&self, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
        let patience = Patience::of(wanted);
        loop {
            let value = self.0.signed("1");
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
        self.0.session.wire.ask::<i64>(cmd("DEL").arg(&self.0.key)).await.map(drop)
    }
}
