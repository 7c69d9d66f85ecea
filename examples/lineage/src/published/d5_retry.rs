//! D5: the fifth version (PHP): at most three tries, 5,000 µs apart, then "busy, try again".
//!
//! Wrong: the loop continues while the lock *is* obtained, and ends when it is not. A single buyer gets the lock at its first
//! try and enters at its second, because it is busy; two buyers enter together.

use std::sync::Arc;
use std::time::Duration;

use history::{Failure, Hold, Lock, Place, Wanted};
use redis::cmd;

use super::{COMPARE_AND_DELETE, Session, Taken};
use crate::patience::Patience;

const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) struct Fifth(Arc<Session>);

pub(crate) struct Held(Taken);

impl Lock for Fifth {
    type Hold = Held;

    async fn connect(place: &Place) -> Result<Self, Failure> {
        Ok(Self(Session::new(place)))
    }

    async fn acquire(&self, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
        let patience = Patience::of(wanted);
        let value = self.0.unique();
        let mut set = cmd("SET");
        set.arg(key).arg(&value).arg("NX").arg("PX").arg(wanted.expire);
        loop {
            for _ in 0..TRIES {
                let is_set = self.0.wire.ask::<Option<String>>(&set).await?.is_some();
                // As published; it should check `is_set`.
                if !is_set {
                    return Ok(Held(self.0.taken(key, value)));
                }
                patience.pause(PAUSE).await?;
            }
        }
    }
}

impl Hold for Held {
    fn remaining(&self) -> Option<Duration> {
        None
    }

    async fn release(self) -> Result<(), Failure> {
        let mut delete = cmd("EVAL");
        delete.arg(COMPARE_AND_DELETE).arg(1).arg(&self.0.key).arg(&self.0.value);
        self.0.session.wire.ask::<i64>(&delete).await.map(drop)
    }
}
