//! One algorithm with optional mistakes: polls `SET NX PX` with a random token, and releases by compare-and-delete.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use history::{Failure, Hold, Lock, Place, Wanted};
use redis::cmd;
use tests::wire::Wire;
use tokio::time::{sleep, timeout};

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// The pause of a waiter between two tries.
const POLL: Duration = Duration::from_millis(20);

/// What the lock does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// Acquires with `SETNX`, without an expiry: after a crash the key stays locked for ever.
    SetsWithoutExpire,
    /// Releases with `DEL`, even if somebody else holds the lock by now.
    DeletesWithoutToken,
    /// Counts the lease from the reply, although it began when the server executed the command.
    CountsFromTheReply,
    /// Releases with `GET` and then `DEL` if it was the own token: the lock may have changed hands in between.
    GetsThenDeletes,
}

struct Inside {
    wire: Wire,
    label: String,
    mistake: Mistake,
    last: AtomicU64,
}

pub(crate) struct Held {
    inside: Arc<Inside>,
    key: String,
    token: String,
    /// `None` for a lock without an expiry.
    deadline: Option<Instant>,
}

impl Inside {
    fn new(place: &Place, mistake: Mistake) -> Arc<Self> {
        Arc::new(Self { wire: Wire::new(&place.url), label: place.label.clone(), mistake, last: AtomicU64::new(0) })
    }

    async fn acquire(self: &Arc<Self>, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
        let start = Instant::now();
        loop {
            // One token per try: a failed try may still be executed later, and then its token belongs to no hold.
            let number = self.last.fetch_add(1, Ordering::Relaxed);
            let token = format!("{number}@{}", self.label);
            let mut set = cmd("SET");
            set.arg(key).arg(&token).arg("NX");
            if self.mistake != Mistake::SetsWithoutExpire {
                set.arg("PX").arg(wanted.expire);
            }
            let sent = Instant::now();
            // In time for the caller: apart from its mistake, the lock keeps all promises.
            let patience = wanted.timeout().saturating_sub(start.elapsed()) + Duration::from_millis(80);
            let asked = timeout(patience, self.wire.ask::<Option<String>>(&set)).await;
            let outcome = asked.unwrap_or_else(|_| Err(Failure::Unreachable("no answer in time".to_owned())));
            if let Ok(Some(_)) = outcome {
                let counted = if self.mistake == Mistake::CountsFromTheReply { Instant::now() } else { sent };
                let deadline = counted + wanted.expire().saturating_sub(Duration::from_millis(5));
                let endless = self.mistake == Mistake::SetsWithoutExpire;
                let deadline = if endless { None } else { Some(deadline) };
                let held = Held { inside: Arc::clone(self), key: key.to_owned(), token, deadline };
                if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                    continue;
                }
                return Ok(held);
            }
            if start.elapsed() + POLL > wanted.timeout() {
                return Err(outcome.err().unwrap_or(Failure::Busy(String::new())));
            }
            sleep(POLL).await;
        }
    }
}

impl Hold for Held {
    fn remaining(&self) -> Option<Duration> {
        Some(self.deadline?.saturating_duration_since(Instant::now()))
    }

    async fn release(self) -> Result<(), Failure> {
        let wire = &self.inside.wire;
        match self.inside.mistake {
            Mistake::DeletesWithoutToken => wire.ask::<i64>(cmd("DEL").arg(&self.key)).await.map(drop),
            Mistake::GetsThenDeletes => {
                if wire.ask::<Option<String>>(cmd("GET").arg(&self.key)).await?.as_ref() == Some(&self.token) {
                    wire.ask::<i64>(cmd("DEL").arg(&self.key)).await?;
                }
                Ok(())
            }
            Mistake::None | Mistake::SetsWithoutExpire | Mistake::CountsFromTheReply => {
                let mut delete = cmd("EVAL");
                delete.arg(COMPARE_AND_DELETE).arg(1).arg(&self.key).arg(&self.token);
                wire.ask::<i64>(&delete).await.map(drop)
            }
        }
    }
}

macro_rules! locks {
    ($($name:ident: $mistake:ident through $commands:expr),+) => {$(
        pub(crate) struct $name(Arc<Inside>);

        impl Lock for $name {
            type Hold = Held;
            const COMMANDS: &'static [&'static str] = &$commands;

            async fn connect(place: &Place) -> Result<Self, Failure> {
                Ok(Self(Inside::new(place, Mistake::$mistake)))
            }

            async fn acquire(&self, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
                self.0.acquire(key, wanted).await
            }
        }
    )+};
}

locks! {
    Good: None through ["SET", "EVAL"],
    SetsWithoutExpire: SetsWithoutExpire through ["SET", "EVAL"],
    DeletesWithoutToken: DeletesWithoutToken through ["SET", "DEL"],
    CountsFromTheReply: CountsFromTheReply through ["SET", "EVAL"],
    GetsThenDeletes: GetsThenDeletes through ["DEL", "DEL", "GET", "SET"]
}
