//! [`Receiver`]: takes in what the server pushes on one connection.

use std::sync::Weak;

use redis::{PushInfo, PushKind, Value};

use super::super::push::Message;
use super::Link;

/// Receives pushes from the connection of one generation.
pub(super) struct Receiver {
    pub(super) link: Weak<Link>,
    pub(super) generation: u64,
}

impl redis::aio::AsyncPushSender for Receiver {
    fn send(&self, info: PushInfo) -> Result<(), redis::aio::SendError> {
        let Some(link) = self.link.upgrade() else { return Ok(()) };
        match info.kind {
            PushKind::Message | PushKind::SMessage => {
                if let [Value::BulkString(_), Value::BulkString(payload)] = info.data.as_slice()
                    && let Ok(text) = std::str::from_utf8(payload)
                    && let Some(message) = Message::read(text)
                {
                    link.dispatch(message, self.generation);
                }
            }
            PushKind::Invalidate => match info.data.as_slice() {
                [Value::Array(keys)] => {
                    let texts = keys.iter().filter_map(|key| match key {
                        Value::BulkString(key) => std::str::from_utf8(key).ok(),
                        _ => None,
                    });
                    texts.for_each(|key| link.dispatch(Message::Alarm(Some(key)), self.generation));
                }
                // All keys were flushed.
                _ => link.dispatch(Message::Alarm(None), self.generation),
            },
            // Nobody here unsubscribes.
            PushKind::SUnsubscribe => link.on_unsubscribed(self.generation),
            PushKind::Disconnection => link.drop_connection(self.generation),
            _ => {}
        }
        Ok(())
    }
}
