//! [`Reader`]: the runtime that reads a connection, and whether it runs. [`Receiver`]: handles the server's pushes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{PushKind, Value};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::{Link, Source};
use crate::wire::Hear;

/// The pause between a failed attempt to connect and the next one.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// The runtime on which a connection was made, and the only one that reads it.
#[derive(Clone)]
pub(super) struct Reader {
    runtime: Handle,
    /// Whether it was probed and has not answered.
    is_asked: Arc<AtomicBool>,
    /// Whether it was told to connect again and has not done so.
    is_to_connect: Arc<AtomicBool>,
}

impl Reader {
    /// The current runtime.
    pub(super) fn here() -> Self {
        Self { runtime: Handle::current(), is_asked: Arc::default(), is_to_connect: Arc::default() }
    }

    /// Probes the runtime. Returns whether it has not answered the last probe yet.
    fn probe(&self) -> bool {
        let is_blocked = self.is_asked.swap(true, Ordering::Relaxed);
        if !is_blocked {
            let is_asked = Arc::clone(&self.is_asked);
            self.runtime.spawn(async move { is_asked.store(false, Ordering::Relaxed) });
        }
        is_blocked
    }

    /// Has the runtime connect `link`, and retry until there is a connection.
    fn connect(&self, link: Weak<Link>) {
        if !self.is_to_connect.swap(true, Ordering::Relaxed) {
            let is_to_connect = Arc::clone(&self.is_to_connect);
            self.runtime.spawn(async move {
                while link.upgrade().is_some_and(|link| link.begin_again(&is_to_connect)) {
                    sleep(RETRY_AFTER).await;
                }
            });
        }
    }
}

impl Link {
    /// Starts to connect if there is no connection. Returns whether to check again later.
    fn begin_again(&self, is_to_connect: &AtomicBool) -> bool {
        // Clear this before the look: when the connection breaks after it, `connect` starts again.
        is_to_connect.store(false, Ordering::Relaxed);
        if self.is_connected() || self.origin.is_inherited() || is_to_connect.swap(true, Ordering::Relaxed) {
            return false;
        }
        self.begin_to_connect();
        true
    }

    /// Probes the runtime that reads this connection. Returns whether it has not answered the last probe yet.
    pub fn probe_reader(&self) -> bool {
        let state = self.state.lock();
        let reader = state.live.as_ref().and(state.reader.clone());
        drop(state);
        reader.is_some_and(|reader| reader.probe())
    }

    /// Has the runtime that read the last connection start to make the next one.
    pub fn reconnect_reader(&self) {
        let state = self.state.lock();
        let reader = if state.live.is_none() { state.reader.clone() } else { None };
        drop(state);
        if let Some(reader) = reader {
            reader.connect(Weak::clone(&self.this));
        }
    }
}

/// Receives pushes from the connection of one generation.
#[derive(Clone)]
pub(super) struct Receiver {
    pub(super) link: Weak<Link>,
    pub(super) generation: u64,
}

impl Hear for Receiver {
    fn on_push(&self, kind: &PushKind, data: &[Value]) {
        let Some(link) = self.link.upgrade() else { return };
        let (events, source) = (&link.common.events, Source { link: &link, generation: self.generation });
        match kind {
            PushKind::Message | PushKind::SMessage => {
                if let [Value::BulkString(_), Value::BulkString(payload)] = data
                    && let Ok(text) = std::str::from_utf8(payload)
                {
                    events.on_message(source, text);
                }
            }
            PushKind::Invalidate => match data {
                [Value::Array(keys)] => {
                    let texts = keys.iter().filter_map(|key| match key {
                        Value::BulkString(key) => std::str::from_utf8(key).ok(),
                        _ => None,
                    });
                    texts.for_each(|key| events.on_change(source, Some(key)));
                }
                // All keys were flushed.
                _ => events.on_change(source, None),
            },
            // A server ends a subscription by itself when the slot moves. Messages that it sends after that are lost.
            PushKind::SUnsubscribe => link.drop_connection(self.generation),
            _ => {}
        }
    }

    fn on_ended(&self) {
        if let Some(link) = self.link.upgrade() {
            link.drop_connection(self.generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;
    use tokio::task::yield_now;

    use super::Reader;

    #[test]
    fn a_runtime_that_nobody_polls_is_blocked_and_one_that_runs_is_not() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let reader = runtime.block_on(async { Reader::here() });
        assert!(!reader.probe(), "this is the first probe");
        assert!(reader.probe() && reader.probe());
        for _ in 0..3 {
            runtime.block_on(async {
                yield_now().await;
                yield_now().await;
            });
            assert!(!reader.probe());
        }
        drop(runtime);
        assert!(reader.probe(), "nobody reads any longer");
    }
}
