//! C: Lua scripts and a refreshing daemon (Spring Boot).
//!
//! Three scripts: lock is `SETNX` and `PEXPIRE`, unlock compares and deletes, refresh compares and does `PEXPIRE`. A daemon
//! refreshes every half lease; `lock()` never waits, its callers spin; unlock is tried three times. Here the daemon is a
//! task; in the article it is a thread.
//!
//! Wrong: the daemon never stops, neither at the release nor at the loss; it ignores the refresh's result, so a lost lock
//! is never noticed.

use std::sync::Arc;
use std::time::Duration;

use history::{Failure, Hold, Lock, Place, Wanted};
use redis::{Cmd, cmd};
use tokio::time::sleep;

use super::{COMPARE_AND_DELETE, Session, Taken};
use crate::patience::Patience;

const LOCK: &str = "if redis.call('SETNX', KEYS[1], ARGV[1]) == 1 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1 else return 0 end";
const REFRESH: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";

const SPIN: Duration = Duration::from_millis(10);
const TRIES: u32 = 3;

pub(crate) struct Daemon(Arc<Session>);

pub(crate) struct Held(Taken);

fn script(text: &str, key: &str, value: &str) -> Cmd {
    let mut script = cmd("EVAL");
    script.arg(text).arg(1).arg(key).arg(value);
    script
}

impl Daemon {
    fn refresh(&self, key: &str, value: &str, lease: u64) {
        let session = Arc::clone(&self.0);
        let refresh = script(REFRESH, key, value).arg(lease).clone();
        tokio::spawn(async move {
            loop {
                sleep(Duration::from_millis(lease / 2)).await;
                let _ = session.wire.ask::<i64>(&refresh).await;
            }
        });
    }
}

impl Lock for Daemon {
    type Hold = Held;

    async fn connect(place: &Place) -> Result<Self, Failure> {
        Ok(Self(Session::new(place)))
    }

    async fn acquire(&self, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
        let patience = Patience::of(wanted);
        loop {
            let value = self.0.unique();
            if self.0.wire.ask::<bool>(script(LOCK, key, &value).arg(wanted.expire)).await? {
                self.refresh(key, &value, wanted.expire);
                return Ok(Held(self.0.taken(key, value)));
            }
            patience.pause(SPIN).await?;
        }
    }
}

impl Hold for Held {
    fn remaining(&self) -> Option<Duration> {
        None
    }

    async fn release(self) -> Result<(), Failure> {
        let unlock = script(COMPARE_AND_DELETE, &self.0.key, &self.0.value);
        for _ in 0..TRIES {
            if matches!(self.0.session.wire.ask::<i64>(&unlock).await, Ok(1)) {
                return Ok(());
            }
        }
        Err(Failure::Other("not unlocked".to_owned()))
    }
}
