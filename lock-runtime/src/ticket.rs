//! [`LockTicket`]: the right to a lock that waits for its adopter.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::key::PrefixPlace;
use crate::token::Token;
use crate::{LockError, key};

/// The start of a ticket's text. The place of the prefix in the lock's name follows.
const HEAD: &str = "lock-ticket";

/// The right to take over a hold: see [`LockGuard::into_ticket`](crate::LockGuard::into_ticket).
///
/// Send its text to another process, in a message or a row, and `parse` it there. With the feature `serde` it is the same text in serde's
/// formats. It has the lock's whole name in Redis, so the adopter's namespace does not matter.
///
/// **A ticket is a secret**: whoever has it can take the lock. `Debug` shows only the key.
///
/// ```
/// # use std::time::Duration;
/// # use lock_runtime::{LockError, LockManager, LockTicket};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// let ticket = locks.lock("order", &7).acquire().await?.into_ticket(Duration::from_secs(60)).await?;
/// let text = ticket.to_string();
/// assert_eq!(text.parse::<LockTicket>()?.key(), "order:7");
/// assert!(!format!("{ticket:?}").contains(&text));
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockTicket {
    pub(crate) key: Arc<str>,
    pub(crate) prefix: PrefixPlace,
    /// The value that the lock has in the store.
    pub(crate) token: Token,
}

impl LockTicket {
    /// The lock's name in Redis.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// The text of the ticket, in one line. Only the process that adopts it may see it.
impl fmt::Display for LockTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, prefix, token } = self;
        // A ticket without a prefix has a text without one.
        let place = if *prefix == PrefixPlace::default() { String::new() } else { format!(":{prefix}") };
        write!(f, "{HEAD}{place} {} {key}", token.as_str())
    }
}

/// Fails with [`InvalidSetting`](LockError::InvalidSetting) for a text that is not a ticket. The error does not repeat the text.
///
/// Parse the text exactly as it was written. The key is at its end, and may end with anything: a text that was cut inside of its key, or
/// has a blank after it, is read as a ticket of another key. Its adoption fails with [`Lost`](LockError::Lost).
impl FromStr for LockTicket {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        let mut words = text.splitn(3, ' ');
        let prefix = words.next().and_then(|head| match head.strip_prefix(HEAD)? {
            "" => Some(PrefixPlace::default()),
            place => PrefixPlace::parse(place.strip_prefix(':')?),
        });
        let (token, name) = (words.next().map(Token::foreign), words.next());
        match (prefix, token, name.map(key::whole_name)) {
            (Some(prefix), Some(token), Some(Ok(key))) if token.is_whole_ticket() => Ok(Self { key, prefix, token }),
            _ => Err(LockError::setting("ticket", "the text is not that of a `LockTicket`, or not the whole of it")),
        }
    }
}

/// Shows only the key.
impl fmt::Debug for LockTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockTicket").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Serialized as its text.
#[cfg(feature = "serde")]
impl serde::Serialize for LockTicket {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for LockTicket {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl serde::de::Visitor<'_> for Text {
            type Value = LockTicket;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the text of a lock ticket")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<LockTicket, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::token::Process;

    fn ticket(name: &str, label: &str) -> LockTicket {
        LockTicket {
            key: name.into(),
            prefix: PrefixPlace::behind(None, 1),
            token: Process::new(label).ticket(Moment::now(), None, false),
        }
    }

    #[test]
    fn a_ticket_is_read_from_its_text() {
        for (name, label) in [("p:k", "host 1|%:7 ü"), ("seat:ICE 71:12", ""), ("p:%3A", "x")] {
            let ticket = ticket(name, label);
            assert_eq!(ticket.to_string().parse::<LockTicket>().unwrap(), ticket);
            assert_eq!(ticket.key(), name);
        }
    }

    #[test]
    fn any_other_text_is_refused_and_not_repeated() {
        let whole = ticket("p:k", "h").to_string();
        let cut = (0..whole.len() - "k".len()).filter_map(|end| whole.get(..end));
        let changed = [whole.replace("|ticket", ""), whole.replace("|ticket", "|forced"), whole.replacen('.', "-", 1)];
        let long = format!("{whole}{}", "x".repeat(2000));
        let others = ["", "x", "lock-ticket LOCKED p:k", &long, &format!("{whole}{{}}")].map(str::to_owned);
        // A name that was cut is another name.
        let cut = cut.filter(|text| !text.contains(" p"));
        for text in cut.map(str::to_owned).chain(changed).chain(others) {
            let error = text.parse::<LockTicket>().unwrap_err();
            assert!(matches!(error, LockError::InvalidSetting { setting: "ticket", .. }), "{text}");
            assert!(text.len() < 3 || !error.to_string().contains(&text), "{error}");
        }
    }

    #[tokio::test]
    async fn a_text_that_was_cut_inside_of_its_key_gives_no_lock() {
        let locks = crate::LockManager::in_memory();
        let minute = std::time::Duration::from_secs(60);
        let ticket = locks.lock("p", "key").acquire().await.unwrap().into_ticket(minute).await.unwrap();
        let _other = locks.lock("p", "ke").acquire().await.unwrap();
        let text = ticket.to_string();
        for (changed, key) in [(text.trim_end_matches('y').to_owned(), "p:ke"), (format!("{text} "), "p:key ")] {
            let changed: LockTicket = changed.parse().unwrap();
            assert_eq!(changed.key(), key);
            assert!(matches!(locks.adopt(changed).await, Err(LockError::Lost { ticket: true, .. })));
        }
        assert_eq!(locks.adopt(ticket).await.unwrap().key(), "p:key");
    }

    #[test]
    fn fuzz_tickets() {
        crate::fuzz::any_text("tickets", |text| match text.parse::<LockTicket>() {
            Ok(ticket) => {
                assert_eq!(ticket.to_string(), text);
                assert!(ticket.key() == "lock" || !format!("{ticket:?}").contains(ticket.token.as_str()), "{ticket:?}");
                // What a store and an error show of it.
                let _ =
                    (ticket.token.share(), ticket.token.label(), ticket.token.to_forced(), ticket.token.may_linger());
            }
            Err(error) => assert!(text.len() < 30 || !error.to_string().contains(text), "{error}"),
        });
    }

    #[test]
    fn a_ticket_tells_its_key_alone() {
        let ticket = ticket("p:k", "h");
        assert_eq!(format!("{ticket:?}"), r#"LockTicket { key: "p:k", .. }"#);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_ticket_is_its_text_in_json() {
        let ticket = ticket("p:k", "h");
        let json = serde_json::to_string(&ticket).unwrap();
        assert_eq!(json, format!("\"{ticket}\""));
        assert_eq!(serde_json::from_str::<LockTicket>(&json).unwrap(), ticket);
        assert!(serde_json::from_str::<LockTicket>("\"x\"").is_err());
    }
}
