//! [`Token`]: the value at a lock's key in the store while a process owns the lock.

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use crate::clock::Moment;
use crate::share::Share;

/// The number of digits of a share's capacity in a sequence, and the least number of digits before it. No other sequence is as long: the
/// largest possible counter has 20 digits, and no process counts that far.
const CAPACITY_DIGITS: usize = 10;
/// Follows a token in the store while its lock is being taken by force (rule 21). No label contains `|`.
const FORCED: &str = "|forced";
/// Follows a token in the store while its lock rests (rule 23).
const RESTS: &str = "|rests";
/// Precedes [`RESTS`] when the lock rests because a body was dropped before its end.
const DELAYED: &str = "|delayed";
/// Follows a token in the store while its lock waits for its adopter (rule 24).
const TICKET: &str = "|ticket";
/// Separates the label from the note. No escaped text contains it, because `/` is not a special character. A client that does not know
/// notes reads both as one label with a `/` in it.
const NOTE: &str = "%2F";
/// The longest token in bytes. No more of a lock's value is read, and a mark may follow the token.
const LONGEST: usize = 1000;
/// A smaller sequence is a count rather than a time.
const FIRST_TIME: u64 = 1_000_000_000_000_000;

/// An owner token: `<process: 32 hex digits>.<sequence>@<label>`, followed by `%2F<note>` when the request has a note. The sequence is the
/// time at which the token was made, or one more than the last sequence. It begins with a 0 when the lease may linger. The sequence of a
/// shared lease ends with the capacity of its share, so each release of a token knows what it releases.
///
/// It can't be guessed, so another client with access to the key can't release the lock by chance. It is unique per lease. People can read
/// it: its label tells a waiter who holds the lock.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Token(Arc<str>);

impl Token {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// A token from the store. It may belong to another client.
    pub(crate) fn foreign(text: &str) -> Self {
        Self(text.into())
    }

    /// Like [`foreign`](Self::foreign), from bytes that may be no text.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        // Almost every value is valid text, and `from_utf8_lossy` is slow to find that out.
        str::from_utf8(bytes).map_or_else(|_| Self::foreign(&String::from_utf8_lossy(bytes)), Self::foreign)
    }

    /// The value at the lock's key after the lock of this token was taken by force.
    pub(crate) fn to_forced(&self) -> Self {
        Self(format!("{}{FORCED}", self.0).into())
    }

    /// The token whose lock was taken by force. `None` for a value without that mark.
    pub(crate) fn unforced(&self) -> Option<Self> {
        self.0.strip_suffix(FORCED).map(|token| Self(token.into()))
    }

    /// Whether this is the value at the lock's key after the lock of `token` was taken by force.
    pub(crate) fn is_forced_from(&self, token: &Self) -> bool {
        self.0.strip_suffix(FORCED) == Some(&*token.0)
    }

    /// The value at the lock's key while the lock of this token rests.
    pub(crate) fn to_resting(&self, is_delay: bool) -> Self {
        Self(format!("{}{}{RESTS}", self.0, if is_delay { DELAYED } else { "" }).into())
    }

    /// Whether its lock rests because a body was dropped before its end.
    pub(crate) fn is_delayed(&self) -> bool {
        self.0.strip_suffix(RESTS).is_some_and(|marked| marked.ends_with(DELAYED))
    }

    /// The token whose lock rests. `None` for a value without that mark.
    pub(crate) fn unrested(&self) -> Option<Self> {
        let token = self.0.strip_suffix(RESTS)?;
        Some(Self(token.strip_suffix(DELAYED).unwrap_or(token).into()))
    }

    /// Whether its lock rests: its hold has ended, and others are still kept out.
    pub(crate) fn rests(&self) -> bool {
        self.0.ends_with(RESTS)
    }

    pub(crate) fn is_ticket(&self) -> bool {
        self.0.ends_with(TICKET)
    }

    /// Whether no body runs under it: its lock waits for its adopter, or rests.
    pub(crate) fn is_unused(&self) -> bool {
        self.is_ticket() || self.rests()
    }

    /// Whether it has the form of a ticket that a manager made.
    pub(crate) fn is_whole_ticket(&self) -> bool {
        let token = self.0.strip_suffix(TICKET);
        token.is_some_and(|token| !token.contains(['|', ' ']) && self.label().is_some())
    }

    /// Whether it has a mark, so that its process neither holds the lock nor is about to release it.
    pub(crate) fn is_marked(&self) -> bool {
        self.rests() || self.is_ticket() || self.0.ends_with(FORCED)
    }

    pub(crate) fn is_of(&self, process: &Process) -> bool {
        self.0.strip_prefix(&process.id).is_some_and(|rest| rest.starts_with('.'))
    }

    /// Whether both were made by the same process.
    pub(crate) fn is_of_same_process(&self, other: &Self) -> bool {
        let process = |token: &Self| token.0.split_once('.').map(|(process, _)| process.to_owned());
        process(self).is_some_and(|own| process(other) == Some(own))
    }

    /// Whether there is a token: an owner that the store did not name is the empty text.
    pub(crate) fn is_known(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether the hold of this ticket may be replaced by the next request that replaces.
    pub(crate) fn is_replaceable(&self) -> bool {
        self.is_ticket() && self.begins_with_zero()
    }

    /// Whether its process may keep the lease for its next hold (rule L9).
    pub(crate) fn may_linger(&self) -> bool {
        !self.is_ticket() && self.begins_with_zero()
    }

    fn begins_with_zero(&self) -> bool {
        self.0.split_once('.').is_some_and(|(_, rest)| rest.starts_with('0'))
    }

    /// How its lease shares the lock. `None` for an exclusive lock, and for another client's value.
    pub(crate) fn share(&self) -> Option<Share> {
        let (_, rest) = self.0.split_once('.')?;
        let (sequence, _) = rest.split_once('@')?;
        let sequence = sequence.strip_prefix('0').unwrap_or(sequence);
        let (number, capacity) = sequence.split_at_checked(sequence.len().checked_sub(CAPACITY_DIGITS)?)?;
        let is_of_shared = number.len() > CAPACITY_DIGITS && number.bytes().all(|byte| byte.is_ascii_digit());
        is_of_shared.then(|| capacity.parse().ok().map(Share::of_capacity))?
    }

    /// The number of a token, which grows with each token of its process.
    fn number(&self) -> Option<u64> {
        let (sequence, _) = self.0.split_once('.')?.1.split_once('@')?;
        let number = sequence.strip_prefix('0').unwrap_or(sequence);
        let number = match self.share() {
            None => number,
            Some(_) => number.strip_prefix('1')?.get(..number.len().checked_sub(1 + CAPACITY_DIGITS)?)?,
        };
        number.parse().ok()
    }

    /// When the token was made, in microseconds since the Unix epoch. `None` when unknown.
    pub(crate) fn made_at(&self) -> Option<u64> {
        self.number().filter(|number| *number >= FIRST_TIME)
    }

    /// The label of the manager that made the token. `None` when another client made it.
    pub(crate) fn label(&self) -> Option<String> {
        self.texts().map(|(label, _)| unescape(label))
    }

    /// The note of the request that the token was made for.
    pub(crate) fn note(&self) -> Option<String> {
        self.texts()?.1.map(unescape)
    }

    pub(crate) fn label_and_note(&self) -> Option<(String, Option<String>)> {
        self.texts().map(|(label, note)| (unescape(label), note.map(unescape)))
    }

    /// The label and the note, escaped.
    fn texts(&self) -> Option<(&str, Option<&str>)> {
        let token = self.0.strip_suffix(FORCED).unwrap_or(&self.0);
        let token = token.strip_suffix(RESTS).or_else(|| token.strip_suffix(TICKET)).unwrap_or(token);
        let token = token.strip_suffix(DELAYED).unwrap_or(token);
        let (identity, texts) = token.split_once('@')?;
        let (process, sequence) = identity.split_once('.')?;
        let ours = process.len() == 32
            && process.bytes().all(|byte| byte.is_ascii_hexdigit())
            && sequence.bytes().all(|byte| byte.is_ascii_digit());
        // Most tokens have no note, and a search for one byte is quick.
        let noted = if texts.contains('%') { texts.split_once(NOTE) } else { None };
        ours.then(|| noted.map_or((texts, None), |(label, note)| (label, Some(note))))
    }
}

fn unescape(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        let escaped = match (byte, tail) {
            (b'%', [high, low, ..]) => {
                str::from_utf8(&[*high, *low]).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok())
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Shows the first digits of the process, and the sequence: enough to distinguish tokens in a log, and too little to release a lock.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sequence = self.0.split(['.', '@']).nth(1).unwrap_or_default();
        write!(f, "Token({}….{sequence})", self.0.get(..6).unwrap_or_default())
    }
}

/// One manager as the store sees it. It makes the tokens.
#[derive(Debug)]
pub(crate) struct Process {
    id: String,
    label: String,
    sequence: AtomicU64,
}

impl Process {
    pub(crate) fn new(label: &str) -> Self {
        // The id is the name of the process's channel, so it must not be guessable. Combining two version-4 ids gives 128 random bits:
        // where one of them has its fixed bits, the other is random.
        let [one, other] = [Uuid::new_v4(), Uuid::new_v4()].map(|id| id.as_u128());
        let id = format!("{:032x}", one ^ other.rotate_left(64));
        let mut escaped = String::with_capacity(label.len());
        push_escaped(&mut escaped, label.chars(), is_special);
        Self { id, label: escaped, sequence: AtomicU64::new(0) }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// A ticket. Its process id has no other token and no channel: a ticket passes through other hands, and must reveal nothing about its
    /// manager's tokens. No ticket lingers, so a leading 0 in its sequence says that its hold `is_replaceable`.
    pub(crate) fn ticket(&self, now: Moment, share: Option<Share>, is_replaceable: bool) -> Token {
        let token = Self { label: self.label.clone(), ..Self::new("") }.next_token(now, is_replaceable, share, None);
        Token(format!("{}{TICKET}", token.0).into())
    }

    pub(crate) fn has_made(&self, token: &Token) -> bool {
        let number = token.number().filter(|_| token.is_of(self));
        number.is_some_and(|number| (1..=self.sequence.load(Ordering::Relaxed)).contains(&number))
    }

    /// A token that tells another process whether its lease `may_linger`, since when this process wants the lock, and the note; and this
    /// process how it shares the lock.
    pub(crate) fn next_token(&self, now: Moment, may_linger: bool, share: Option<Share>, note: Option<&str>) -> Token {
        self.sequence.fetch_max(now.unix_micros().saturating_sub(1), Ordering::Relaxed);
        let number = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let linger = if may_linger { "0" } else { "" };
        let mut text = take_buffer();
        text.extend([&*self.id, ".", linger]);
        match share {
            None => text.push_str(itoa::Buffer::new().format(number)),
            Some(share) => {
                // The 1 prevents a leading zero, which would say that the lease may linger. Writing to a `String` can't fail.
                let _ = write!(text, "1{number:010}{:010}", share.capacity());
            }
        }
        text.extend(["@", &*self.label]);
        if let Some(note) = note {
            let label_ends = text.len();
            text.push_str(NOTE);
            push_escaped(&mut text, note.chars(), is_special);
            // A label whose bytes are all escaped leaves no room.
            if text.len() > LONGEST {
                text.truncate(label_ends);
            }
        }
        Token(finish(text))
    }
}

thread_local! {
    /// Each name and each token is built here, so it costs a single allocation.
    static BUFFER: Cell<String> = const { Cell::new(String::new()) };
}

/// An empty text, which usually has its memory already.
pub(crate) fn take_buffer() -> String {
    // The buffer is gone in a thread that is shutting down.
    let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
    buffer.clear();
    buffer
}

/// Copies the text, and keeps its memory for the next one.
pub(crate) fn finish(buffer: String) -> Arc<str> {
    let text = Arc::from(buffer.as_str());
    let _ = BUFFER.try_with(|kept| kept.set(buffer));
    text
}

/// What is escaped in labels and notes. A blank separates the words of a push message, and `|` the parts of a queue's entry.
fn is_special(character: char) -> bool {
    character.is_whitespace() || character.is_control() || matches!(character, '%' | '|')
}

/// Appends the characters. Special ones are escaped: `%` and two hex digits for each of their UTF-8 bytes.
pub(crate) fn push_escaped(text: &mut String, from: impl Iterator<Item = char>, is_special: impl Fn(char) -> bool) {
    for character in from {
        if !is_special(character) {
            text.push(character);
            continue;
        }
        for byte in character.encode_utf8(&mut [0; 4]).bytes() {
            // Writing to a `String` can't fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_name_their_manager() {
        let process = Process::new("host 1|%:7 ü");
        let (first, second) =
            (process.next_token(Moment::now(), false, None, None), process.next_token(Moment::now(), true, None, None));
        assert_ne!(first, second);
        assert!(first.is_of(&process) && !first.is_of(&Process::new("host 1|%:7 ü")));
        assert_eq!(first.label().as_deref(), Some("host 1|%:7 ü"));
        assert_eq!(second.label(), first.label());
        assert!(!first.may_linger() && second.may_linger() && second.to_forced().may_linger());
        assert!(!first.as_str().contains([' ', '|']));
        assert_eq!(first.to_forced().label(), first.label());
        assert!(first.to_forced().is_of(&process) && first.to_forced() != first);
        for is_delay in [true, false] {
            let rests = first.to_resting(is_delay);
            assert!(rests.rests() && rests.is_delayed() == is_delay && rests.unrested().as_ref() == Some(&first));
            assert_eq!(rests.label(), first.label());
        }
        let rests = first.to_resting(false);
        assert_eq!((rests.label(), rests.to_forced().label()), (first.label(), first.label()));
        assert_eq!((rests.unrested(), first.unrested()), (Some(first.clone()), None));
        assert!(process.has_made(&rests) && rests.is_marked() && !first.is_marked() && !rests.to_forced().rests());
    }

    #[test]
    fn a_ticket_names_its_manager_and_tells_nothing_of_its_tokens() {
        let process = Process::new("host 1|%:7 ü");
        let [one, other] = [(); 2].map(|()| process.ticket(Moment::now(), None, false));
        assert_eq!(one.label().as_deref(), Some("host 1|%:7 ü"));
        assert!(one.is_ticket() && one.is_whole_ticket() && one.is_marked() && !one.rests());
        assert!(!one.is_of(&process) && !process.has_made(&one) && !one.is_of_same_process(&other) && one != other);
        assert_eq!(process.ticket(Moment::now(), Some(Share::READ), true).share(), Some(Share::READ));
        let replaceable = process.ticket(Moment::now(), None, true);
        assert!(replaceable.is_replaceable() && replaceable.is_whole_ticket() && !replaceable.may_linger());
        assert!(!one.is_replaceable() && !process.next_token(Moment::now(), true, None, None).is_replaceable());
        for text in [
            "",
            "x|ticket",
            "LOCKED",
            process.next_token(Moment::now(), false, None, None).as_str(),
            one.to_forced().as_str(),
        ] {
            assert!(!Token::foreign(text).is_whole_ticket(), "{text}");
        }
    }

    /// The label of a manager and all earlier ids reveal no bit of the next id.
    #[test]
    fn each_bit_of_an_id_is_random() {
        let ids: Vec<_> = (0..200).map(|_| u128::from_str_radix(Process::new("h").id(), 16).unwrap()).collect();
        let (always, ever) = ids.iter().fold((u128::MAX, 0), |(always, ever), id| (always & id, ever | id));
        assert_eq!((always, ever), (0, u128::MAX));
    }

    #[test]
    fn a_process_has_made_the_tokens_that_it_gave_out_and_no_other() {
        let (process, other) = (Process::new("h"), Process::new("h"));
        let shares = [None, Some(Share::READ), Share::permit(3)];
        let made: Vec<_> = shares.map(|share| process.next_token(Moment::now(), share.is_none(), share, None)).into();
        assert!(made.iter().all(|token| process.has_made(token) && !other.has_made(token)));
        let later = Process {
            id: process.id.clone(),
            label: process.label.clone(),
            sequence: AtomicU64::new(process.sequence.load(Ordering::Relaxed)),
        };
        assert!(shares.iter().all(|share| !process.has_made(&later.next_token(Moment::now(), false, *share, None))));
        for text in [".0@h", ".@h", ".x@h", ".99999999999999999999999@h", ""] {
            assert!(!process.has_made(&Token::foreign(&format!("{}{text}", process.id))), "{text}");
        }
    }

    #[test]
    fn a_token_of_any_length_is_whole() {
        for length in [0, 1, 60, 73, 74, 75, 90, 500] {
            let label = "x".repeat(length);
            let process = Process::new(&label);
            let token = process.next_token(Moment::now(), false, None, None);
            let number = token.number().unwrap();
            assert_eq!(token.as_str(), format!("{}.{number}@{label}", process.id()));
        }
    }

    #[test]
    fn a_token_of_a_shared_lease_tells_its_share() {
        let process = Process::new("h");
        let shares = [1, 2, 4096, Share::MOST_PERMITS].map(|of| Share::permit(of.into()).unwrap());
        for share in shares.into_iter().chain([Share::READ]) {
            for may_linger in [false, true] {
                let token = process.next_token(Moment::now(), may_linger, Some(share), None);
                assert_eq!((token.share(), token.may_linger()), (Some(share), may_linger));
                assert_eq!(token.to_forced().share(), Some(share));
                assert_eq!(token.to_resting(true).share(), Some(share));
                assert_eq!(token.label().as_deref(), Some("h"));
            }
        }
        assert_eq!(process.next_token(Moment::now(), true, None, None).share(), None);
        for text in
            ["", "x", "0123456789abcdef0123456789abcdef.18446744073709551615@h", "a.@", "a.ü123456789012345678901@"]
        {
            assert_eq!(Token::foreign(text).share(), None, "{text}");
        }
    }

    #[test]
    fn a_foreign_value_has_no_label() {
        assert!(!Token::foreign("x").may_linger());
        for text in ["", "x", "LOCKED", "a.1@label", "0123456789abcdef0123456789abcdeX.1@l", "@", ".@"] {
            assert_eq!(Token::foreign(text).label(), None, "{text}");
        }
    }

    #[test]
    fn a_debug_text_does_not_give_the_token_away() {
        let process = Process::new("h");
        let token = process.next_token(Moment::now(), false, None, None);
        assert!(!format!("{token:?}").contains(process.id()));
    }
}
