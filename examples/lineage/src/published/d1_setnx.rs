//! D1: the first of five versions towards a safe lock (PHP): `SETNX`, and `DEL` at the end.
//!
//! Wrong: a holder that crashes, or whose `DEL` fails, locks for ever.

use std::sync::Arc;
use std::time::Duration;

use history::{Failure, Hold, Lock, Place, Wanted};
use redis::cmd;

use super::{Session, Taken};
use crate::patience::Patience;

/// The time between two requests of a buyer.
const AGAIN: Duration = Duration::from_millis(5);

pub(crate) struct First(Arc<Session>);

pub(crate) struct Held(Taken);

impl Lock for First {
    type Hold = Held;

    async fn connect(place: &Place) -> Result<Self, Failure> {
        Ok(Self(Session::new(place)))
    }

    async fn acquire(&self, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
        let patience = Patience::of(wanted);
        loop {
            let value = self.0.signed("1");
            if self.0.wire.ask::<bool>(cmd("SETNX").arg(key).arg(&value)).await? {
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
