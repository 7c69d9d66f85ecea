//! A: the flash sale by annotation (Java, a dynamic proxy), the model for this project's attribute.
//!
//! `SETNX key LOCKED`, then `EXPIRE`; asks every 3 ms and some random nanoseconds; releases by a bare `DEL`, whose errors
//! nobody sees.
//!
//! Wrong: a crash between `SETNX` and `EXPIRE` locks for ever; `DEL` frees the lock of whichever process holds it by then; a body that
//! outlives its lease continues unprotected.

use std::sync::Arc;
use std::time::Duration;

use history::{Failure, Hold, Lock, Place, Wanted};
use redis::cmd;

use super::{Session, Taken};
use crate::patience::Patience;

const POLL: Duration = Duration::from_millis(3);

pub(crate) struct Annotation(Arc<Session>);

pub(crate) struct Held(Taken);

impl Lock for Annotation {
    type Hold = Held;

    async fn connect(place: &Place) -> Result<Self, Failure> {
        Ok(Self(Session::new(place)))
    }

    async fn acquire(&self, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
        let (wire, value) = (&self.0.wire, self.0.signed("LOCKED"));
        let patience = Patience::of(wanted);
        loop {
            if wire.ask::<bool>(cmd("SETNX").arg(key).arg(&value)).await? {
                wire.ask::<bool>(cmd("PEXPIRE").arg(key).arg(wanted.expire)).await?;
                return Ok(Held(self.0.taken(key, value)));
            }
            patience.pause(POLL + Duration::from_nanos(fastrand::u64(..500))).await?;
        }
    }
}

impl Hold for Held {
    fn remaining(&self) -> Option<Duration> {
        None
    }

    async fn release(self) -> Result<(), Failure> {
        let _ = self.0.session.wire.ask::<i64>(cmd("DEL").arg(&self.0.key)).await;
        Ok(())
    }
}
