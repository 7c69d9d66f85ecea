//! [`Receiver`]: takes in what the server pushes on one connection.

use std::sync::Weak;

use redis::{PushKind, Value};

use super::super::push::Message;
use super::super::wire::Hear;
use super::Link;

/// Receives pushes from the connection of one generation.
#[derive(Clone)]
pub(super) struct Receiver {
    pub(super) link: Weak<Link>,
    pub(super) generation: u64,
}

impl Hear for Receiver {
    fn on_push(&self, kind: &PushKind, data: &[Value]) {
        let Some(link) = self.link.upgrade() else { return };
        match kind {
            PushKind::Message | PushKind::SMessage => {
                if let [Value::BulkString(_), Value::BulkString(payload)] = data
                    && let Ok(text) = std::str::from_utf8(payload)
                    && let Some(message) = Message::read(text)
                {
                    link.dispatch(message, self.generation);
                }
            }
            PushKind::Invalidate => match data {
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
            // A server ends a subscription by itself when the slot moves. What is told there now, nobody hears.
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
