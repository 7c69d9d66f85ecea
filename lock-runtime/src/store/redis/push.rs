//! The messages that the server pushes on the process's channel.

use std::time::Duration;

use crate::store::{NodeId, Pushed};
use crate::token::Token;

/// A message of the scripts: see docs/protocol.md.
#[derive(Debug)]
pub(super) enum Message<'a> {
    /// `grant <claim ms> <now µs> <1 if another waits> <token> <lock>`, and on a sharded channel in front of it `from <node>`
    Grant(&'a str, Pushed),
    /// `wait <lock>`
    Wait(&'a str),
    /// `near <now µs> <lock>`
    Near(&'a str, u64),
    /// `forced <token> <lock>`
    Forced(&'a str, Token),
    /// Not of the scripts: a key of the server's tracking table was changed; `None` for all keys.
    Alarm(Option<&'a str>),
}

impl<'a> Message<'a> {
    /// `None` for any other text: not only the scripts may publish on the channel.
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
                None | Some(Message::Alarm(None)) => return,
                Some(Message::Grant(lock, pushed)) => {
                    assert!(!pushed.unconfirmed && !pushed.token.as_str().contains(' '), "{text}");
                    lock
                }
                Some(
                    Message::Wait(lock)
                    | Message::Near(lock, _)
                    | Message::Forced(lock, _)
                    | Message::Alarm(Some(lock)),
                ) => lock,
            };
            // Whose lock it is, is the end of the text, whatever is in it.
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
