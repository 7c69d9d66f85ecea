//! [`News`]: the events of a manager's connections. [`Message`]: what the server pushes on the process's channel.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use lock_wire::{CallError, Link, Source};

use super::eviction::warn_of_eviction;
use super::failure::problem;
use crate::clock::Deadline;
use crate::observe;
use crate::store::{Events, NodeId, Pushed, Traffic};
use crate::token::Token;

/// Reports to the user's subscriber, and to the manager once it is attached.
pub(crate) struct News {
    /// Whether replicas have to confirm a grant.
    has_replicas: bool,
    connect_timeout: Duration,
    events: OnceLock<Weak<dyn Events>>,
    /// Where commands are counted.
    traffic: OnceLock<Arc<Traffic>>,
}

impl News {
    pub(super) fn new(has_replicas: bool, connect_timeout: Duration) -> Self {
        Self { has_replicas, connect_timeout, events: OnceLock::new(), traffic: OnceLock::new() }
    }

    /// Both stores of a manager call this, for the same engine.
    pub(super) fn attach(&self, events: Weak<dyn Events>) {
        if let Some(events) = events.upgrade() {
            let _ = self.traffic.set(events.traffic());
        }
        let _ = self.events.set(events);
    }

    pub(super) fn events(&self) -> Option<Arc<dyn Events>> {
        self.events.get().and_then(Weak::upgrade)
    }
}

impl lock_wire::Events for News {
    fn on_commands(&self, count: usize) {
        if let Some(traffic) = self.traffic.get() {
            traffic.note_commands(count);
        }
    }

    /// A message reaches all servers of a cluster. Only the copy from the lock's own server counts.
    fn on_message(&self, source: Source<'_>, text: &str) {
        let (Some(message), Some(events)) = (Message::read(text), self.events()) else { return };
        match message {
            Message::Grant(key, mut pushed) if source.has(key) => {
                // In a cluster a server may count no subscriber here and pass the lock on, and the message arrives anyway through another
                // node. Only a message from the very node that this connection leads to was counted there (rule 16).
                pushed.unconfirmed = self.has_replicas || source.is_other_than(pushed.node);
                events.on_grant(key, &pushed);
            }
            Message::Wait(key) if source.has(key) => events.on_contention(key),
            Message::Near(key, store_micros) if source.has(key) => events.on_near(key, store_micros),
            Message::Forced(key, token) if source.has(key) => events.on_forced(key, &token),
            _ => {}
        }
    }

    fn on_change(&self, _: Source<'_>, key: Option<&str>) {
        if let Some(events) = self.events() {
            events.on_alarm(key);
        }
    }

    fn on_interruption(&self, affects: &dyn Fn(&str) -> bool) {
        if let Some(events) = self.events() {
            events.on_interruption(affects);
        }
    }

    fn on_connected(&self, link: &Link, away: Option<Duration>) {
        observe::connected(link.server());
        if let (Some(away), Some(events)) = (away, self.events()) {
            events.on_reconnect(link.server(), link.is_of_callers(), away);
        }
    }

    fn on_disconnected(&self, link: &Link) {
        observe::disconnected(link.server(), link.is_of_callers());
    }

    fn on_unreachable(&self, link: &Link, error: CallError) {
        observe::unreachable(link.server(), &problem(error));
    }

    fn on_silence(&self, link: &Link, waited: Duration) {
        observe::silent(link.server(), waited);
    }

    fn on_answer_again(&self, link: &Link) {
        observe::answers_again(link.server());
    }

    fn on_former_master(&self, link: &Link, code: &str) {
        observe::looks_for_master(link.server(), code);
    }

    fn on_fast_clock(&self, link: &Link, ppm: u128, within: Duration) {
        observe::drifts(link.server(), link.drift().ppm(), ppm, within);
    }

    fn on_new_master(&self, link: &Arc<Link>) {
        if !link.is_of_callers() {
            let (link, deadline) = (Arc::clone(link), Deadline::after(self.connect_timeout));
            tokio::spawn(async move { warn_of_eviction(&link, deadline).await });
        }
    }
}

/// A message of the scripts: see docs/protocol.md.
#[derive(Debug)]
pub(super) enum Message<'a> {
    /// `grant <claim ms> <now µs> <1 if another waits> <token> <lock>`, preceded by `from <node>` on a sharded channel
    Grant(&'a str, Pushed),
    /// `wait <lock>`
    Wait(&'a str),
    /// `near <now µs> <lock>`
    Near(&'a str, u64),
    /// `forced <token> <lock>`
    Forced(&'a str, Token),
}

impl<'a> Message<'a> {
    /// `None` for any other text: other clients may publish on the channel, too.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let (kind, rest) = text.split_once(' ')?;
        match kind {
            "from" => {
                let (node, rest) = rest.split_once(' ')?;
                match Self::read(rest.starts_with("grant ").then_some(rest)?)? {
                    Self::Grant(key, pushed) => Some(Self::Grant(key, Pushed { node: NodeId::read(node), ..pushed })),
                    _ => None,
                }
            }
            "wait" => Some(Self::Wait(rest)),
            "near" => {
                let (micros, lock) = rest.split_once(' ')?;
                Some(Self::Near(lock, micros.parse().ok()?))
            }
            "forced" => rest.split_once(' ').map(|(token, lock)| Self::Forced(lock, Token::foreign(token))),
            "grant" => {
                let mut words = rest.splitn(5, ' ');
                let claim = Duration::from_millis(words.next()?.parse().ok()?);
                let store_micros = words.next()?.parse().ok()?;
                let contended = words.next()? == "1";
                let token = Token::foreign(words.next()?);
                Some(Self::Grant(
                    words.next()?,
                    Pushed { token, claim, store_micros, contended, node: None, unconfirmed: false },
                ))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_grant_is_read_to_the_end_of_its_name() {
        let Some(Message::Grant(key, pushed)) = Message::read("grant 2500 1700000000000000 1 tok p:a b") else {
            unreachable!("it is a grant");
        };
        assert_eq!((key, pushed.claim, pushed.contended), ("p:a b", Duration::from_millis(2500), true));
        assert_eq!((pushed.token.as_str(), pushed.store_micros), ("tok", 1_700_000_000_000_000));
    }

    #[test]
    fn fuzz_pushes() {
        crate::fuzz::any_text("pushes", |text| {
            let lock = match Message::read(text) {
                None => return,
                Some(Message::Grant(lock, pushed)) => {
                    assert!(!pushed.unconfirmed && !pushed.token.as_str().contains(' '), "{text}");
                    lock
                }
                Some(Message::Wait(lock) | Message::Near(lock, _) | Message::Forced(lock, _)) => lock,
            };
            // The lock's name is the end of the text, whatever it contains.
            assert!(text.ends_with(lock) && text.len() > lock.len(), "{text}");
        });
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*|(from [0-9a-f]{0,41} )?(grant|wait|near|forced|from)( [0-9a-z]{0,9}){0,7}") {
            let _ = Message::read(&text);
        }
    }
}
