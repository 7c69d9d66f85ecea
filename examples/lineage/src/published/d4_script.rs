//! D4: the fourth version (PHP): compares and deletes in one script.
//!
//! Wrong: a body that outlives its lease continues unprotected, and nothing reports it; if the reply to an acquire is lost, its key
//! stays for the whole lease.

use std::sync::Arc;
use std::time::Duration;

use history::{Failure, Hold, Lock, Place, Wanted};
use redis::cmd;

use super::{COMPARE_AND_DELETE, Session, Taken};
use crate::patience::Patience;

/// The time between two requests of a buyer.
const AGAIN: Duration = Duration::from_millis(5);

pub(crate) struct Fourth(Arc<Session>);

pub(crate) struct Held(Taken);

impl Lock for Fourth {
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
        let mut delete = cmd("EVAL");
        delete.arg(COMPARE_AND_DELETE).arg(1).arg(&self.0.key).arg(&self.0.value);
        self.0.session.wire.ask::<i64>(&delete).await.map(drop)
    }
}
