//! [`LockKey`]: a value that names what a lock protects, and how it becomes the lock's name.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroU128, NonZeroUsize,
};
use std::rc::Rc;
use std::sync::Arc;

use uuid::Uuid;

use crate::token::{finish, push_escaped, take_buffer};
use crate::{InvalidKey, LockError};

/// The longest lock name, in bytes after escaping.
///
/// A name is sent with every command and kept for every holder and waiter. A longer name is almost always a whole
/// document in place of its id.
///
/// ```
/// # use lock_runtime::{LockError, LockManager, MAX_NAME_BYTES};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let document = "x".repeat(MAX_NAME_BYTES);
/// let refused = LockManager::in_memory().lock("document", &document).acquire().await;
/// assert!(matches!(refused, Err(LockError::InvalidKey { .. })));
/// # }
/// ```
pub const MAX_NAME_BYTES: usize = 1024;

/// A value that names what a lock protects: an id, a text, a tuple of them, or a struct with `#[derive(LockKey)]`.
///
/// Under one prefix, equal keys share a lock. Different keys never share a lock, whatever text they contain: each part
/// is escaped before the parts are joined.
///
/// A type of another crate has no `LockKey`. If it implements `Display`, mark the field with `#[lock_key(display)]`:
///
/// ```
/// # use lock_runtime::{LockError, LockKey, LockManager};
/// # struct Date;
/// # impl std::fmt::Display for Date {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("2026-11-22") }
/// # }
/// #[derive(LockKey)]
/// struct Report {
///     #[lock_key(display)]
///     day: Date, // of a crate for dates
///     #[lock_key]
///     shop: u64,
/// }
/// # fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// assert_eq!(locks.lock("report", &Report { day: Date, shop: 7 }).key()?, "report:2026-11-22:7");
/// # Ok(()) }
/// ```
///
/// Floats and whole collections have no `LockKey`, on purpose: two floats that print alike may differ.
///
/// ```
/// use lock_runtime::LockKey;
///
/// #[derive(LockKey)]
/// struct Seat {
///     #[lock_key]
///     train: String,
///     #[lock_key]
///     number: u32,
///     price: u64,
/// }
/// # fn main() {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be the key of a lock",
    label = "this type has no `LockKey`",
    note = "keys are integers, `bool`, `char`, text, `Uuid`, IP addresses, `Option` and tuples of them, and references to them",
    note = "for a type of your own write `#[derive(LockKey)]` above it, or name the field that is the key",
    note = "for a type of another crate write its text, as in `key = day.to_string()`; above a field of a derive, `#[lock_key(display)]`",
    note = "a list is no key: `keys = …` locks each of its items; of bytes write the text, as in `key = hex::encode(&id)`"
)]
pub trait LockKey {
    /// Appends the parts of this value to the name that is being built.
    ///
    /// ```
    /// use lock_runtime::{InvalidKey, LockKey, NameParts};
    ///
    /// /// Spellings that differ in case are one lock.
    /// struct Email(String);
    ///
    /// impl LockKey for Email {
    ///     fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
    ///         name.part(&self.0.to_lowercase())
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidKey`] when the value can't name anything, such as `None` or an empty text: unrelated callers would
    /// share one lock.
    fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey>;
}

/// The name of a lock while it is built: `prefix`, then the escaped parts, joined by `:`. An implementation of [`LockKey`] gets one and
/// writes its parts to it.
///
/// ```
/// use lock_runtime::{InvalidKey, LockKey, NameParts};
///
/// struct Transfer {
///     from: u64,
///     to: u64,
/// }
///
/// impl LockKey for Transfer {
///     // One lock for both directions.
///     fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
///         (self.from.min(self.to), self.from.max(self.to)).write_parts(name)
///     }
/// }
/// ```
#[derive(Debug)]
pub struct NameParts {
    name: String,
    parts: usize,
}

impl NameParts {
    /// Appends one part.
    ///
    /// `%`, `:`, `{`, `}` and control characters are percent-escaped as UTF-8 bytes. So the parts of a name can always
    /// be told apart, and no part can move the lock to another cluster slot.
    ///
    /// ```
    /// # use lock_runtime::{InvalidKey, LockError, LockKey, LockManager, NameParts};
    /// struct Path<'a>(&'a str);
    ///
    /// impl LockKey for Path<'_> {
    ///     fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
    ///         self.0.split('/').try_for_each(|segment| name.part(segment))
    ///     }
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// assert_eq!(locks.lock("file", &Path("home/ada")).acquire().await?.key(), "file:home:ada");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidKey`] for an empty text.
    pub fn part(&mut self, text: &str) -> Result<(), InvalidKey> {
        if text.is_empty() {
            return Err(self.problem("is an empty text"));
        }
        self.parts += 1;
        self.name.push(':');
        // Most texts are short, and need no escaping.
        if text.len() <= MAX_NAME_BYTES
            && text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !is_separator(byte.into()))
        {
            self.name.push_str(text);
            return Ok(());
        }
        // A name over the limit is refused in the end, so the rest of a huge key does not matter.
        let start = text.chars().take(MAX_NAME_BYTES + 1);
        push_escaped(&mut self.name, start, |character| is_separator(character) || character.is_control());
        Ok(())
    }

    /// Appends the value's text as one part.
    pub(crate) fn displayed(&mut self, value: &dyn fmt::Display) -> Result<(), InvalidKey> {
        let mut text = String::new();
        write!(text, "{value}").map_err(|_| self.problem("can't be written as a text"))?;
        self.part(&text)
    }

    /// Appends one part whose text needs no escaping: digits, signs, ASCII letters and `-`.
    fn plain(&mut self, text: impl fmt::Display) {
        self.parts += 1;
        // Writing to a `String` can't fail.
        let _ = write!(self.name, ":{text}");
    }

    fn problem(&self, what: &str) -> InvalidKey {
        InvalidKey::new(format!("part {} {what}, and would make strangers share one lock", self.parts + 1))
    }
}

/// Whether the character has a meaning in a name.
fn is_separator(character: char) -> bool {
    matches!(character, '%' | ':' | '{' | '}')
}

/// The lock's name without its namespace: `prefix:part:part…`.
pub(crate) fn name<K: LockKey + ?Sized>(prefix: &str, key: &K) -> Result<Arc<str>, LockError> {
    check_text(prefix).map_err(|problem| LockError::InvalidKey {
        key: prefix.escape_default().to_string(),
        reason: InvalidKey::new(format!("the prefix {problem}")),
    })?;
    let mut parts = NameParts { name: take_buffer(), parts: 0 };
    parts.name.push_str(prefix);
    let reason = match key.write_parts(&mut parts) {
        Err(reason) => reason,
        Ok(()) if parts.parts == 0 => InvalidKey::new("it has no part at all"),
        Ok(()) if parts.name.len() > MAX_NAME_BYTES => {
            let mut end = 48;
            while !parts.name.is_char_boundary(end) {
                end -= 1;
            }
            parts.name.truncate(end);
            parts.name.push('…');
            InvalidKey::new(format!("the name is longer than {MAX_NAME_BYTES} bytes; use an id or a digest instead"))
        }
        Ok(()) => return Ok(finish(parts.name)),
    };
    Err(LockError::InvalidKey { key: parts.name, reason })
}

/// Checks the whole name of a lock, as in Redis, that a person or a tool gave.
pub(crate) fn whole_name(name: &str) -> Result<Arc<str>, LockError> {
    let problem = if name.is_empty() {
        "it is empty"
    } else if name.contains(|c: char| c.is_control() || matches!(c, '{' | '}')) {
        "it contains a brace or a control character, which a lock's name has only in escaped form, as `%7B`"
    } else if name.len() > MAX_NAME_BYTES {
        "it is too long for a lock's name"
    } else {
        return Ok(name.into());
    };
    Err(LockError::InvalidKey {
        key: name.chars().take(48).flat_map(char::escape_debug).collect(),
        reason: InvalidKey::new(problem),
    })
}

/// What is wrong with a prefix, a namespace or another text that the author wrote and that is not escaped.
pub(crate) fn check_text(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("is empty");
    }
    // The fast path for most texts.
    if text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}')) {
        return Ok(());
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("contains a blank or a control character");
    }
    if text.contains(['{', '}']) {
        return Err("contains a brace, which would move the lock to another cluster slot");
    }
    Ok(())
}

/// Where in the name of a lock its prefix is. A copy of the prefix would cost each lock an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PrefixPlace {
    start: u16,
    end: u16,
}

impl PrefixPlace {
    /// The prefix has `length` bytes and follows a namespace.
    pub(crate) fn behind(namespace: Option<&str>, length: u16) -> Self {
        let start = namespace.map_or(0, |namespace| u16::try_from(namespace.len() + 1).unwrap_or(u16::MAX));
        Self { start, end: start.saturating_add(length) }
    }

    /// Reads the digits in a ticket, in exactly this spelling.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (start, end) = text.split_once('-')?;
        let place = Self { start: start.parse().ok()?, end: end.parse().ok()? };
        (place != Self::default() && place.to_string() == text).then_some(place)
    }

    /// The prefix of the lock `key`.
    pub(crate) fn of(self, key: &str) -> &str {
        key.get(self.start.into()..self.end.into()).unwrap_or_default()
    }
}

impl fmt::Display for PrefixPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

macro_rules! keys {
    ($($key:ty),*: |$value:ident, $name:ident| $written:expr) => {$(
        impl LockKey for $key {
            fn write_parts(&self, $name: &mut NameParts) -> Result<(), InvalidKey> {
                let $value = self;
                $written
            }
        }
    )*};
}

keys!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, bool, Uuid: |value, name| { name.plain(value); Ok(()) });
keys!(NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize: |value, name| { name.plain(value); Ok(()) });
keys!(NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize: |value, name| { name.plain(value); Ok(()) });
// Their `Display` text, with escaped colons. What it leaves out is not in the name: the flow information of an IPv6 socket.
keys!(IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6: |value, name| name.displayed(value));
keys!(str, String: |value, name| name.part(value));
keys!(char: |value, name| name.part(value.encode_utf8(&mut [0; 4])));

macro_rules! borrowed_keys {
    ($($key:ty),*) => {$(
        impl<T: LockKey + ?Sized> LockKey for $key {
            fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
                T::write_parts(self, name)
            }
        }
    )*};
}

borrowed_keys!(&T, &mut T, Box<T>, Rc<T>, Arc<T>);

impl<T: LockKey + ToOwned + ?Sized> LockKey for Cow<'_, T> {
    fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
        T::write_parts(self, name)
    }
}

/// `Some(x)` is `x`. `None` names nothing and is refused.
impl<T: LockKey> LockKey for Option<T> {
    fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
        match self {
            Some(key) => key.write_parts(name),
            None => Err(name.problem("is `None`")),
        }
    }
}

macro_rules! tuple_keys {
    ($(($($part:ident)+))*) => {$(
        impl<$($part: LockKey),+> LockKey for ($($part,)+) {
            #[allow(non_snake_case, reason = "the parts are named after their types")]
            fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
                let ($($part,)+) = self;
                $($part.write_parts(name)?;)+
                Ok(())
            }
        }
    )*};
}

tuple_keys! {
    (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H)
    (A B C D E F G H I) (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::net::{IpAddr, SocketAddr};

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_are_joined_and_escaped() {
        assert_eq!(*name("p", &("a:b", 7_u8)).unwrap(), *"p:a%3Ab:7");
        assert_eq!(*name("p", &Some('%')).unwrap(), *"p:%25");
        assert_eq!(*name("p", "\u{85}\n").unwrap(), *"p:%C2%85%0A");
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for error in [
            name("p", "").unwrap_err(),
            name("p", &(1, None::<u8>)).unwrap_err(),
            name("p", &Cow::Borrowed("")).unwrap_err(),
        ] {
            assert!(error.to_string().contains("strangers share"), "{error}");
        }
    }

    #[test]
    fn an_address_is_its_text() {
        let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.7".parse().unwrap(), "fe80::1".parse().unwrap());
        let sockets: [SocketAddr; 2] = [(v4, 80).into(), (v6, 80).into()];
        assert_eq!(*name("p", &(v4, v6)).unwrap(), *"p:10.0.0.7:fe80%3A%3A1");
        assert_eq!(*name("p", &(sockets[0], sockets[1])).unwrap(), *"p:10.0.0.7%3A80:[fe80%3A%3A1]%3A80");
    }

    struct Unwritable;

    impl fmt::Display for Unwritable {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            Err(fmt::Error)
        }
    }

    impl LockKey for Unwritable {
        fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
            name.displayed(self)
        }
    }

    #[test]
    fn a_value_whose_text_fails_is_refused() {
        let error = name("p", &Unwritable).unwrap_err();
        assert!(error.to_string().contains("can't be written"), "{error}");
    }

    #[test]
    fn prefixes_are_checked() {
        for prefix in ["", "a b", "a{b", "a}b", "a\nb", "a\0"] {
            assert!(matches!(name(prefix, "k"), Err(LockError::InvalidKey { .. })), "{prefix:?}");
        }
        assert_eq!(*name("a:b", "k").unwrap(), *"a:b:k");
    }

    #[test]
    fn the_limit_counts_escaped_bytes() {
        assert!(name("p", &"x".repeat(MAX_NAME_BYTES - 2)).is_ok());
        assert!(name("p", &"x".repeat(MAX_NAME_BYTES - 1)).is_err());
        assert!(name("p", &":".repeat(MAX_NAME_BYTES / 3)).is_err());
        assert!(name("p", &"é".repeat(1 << 20)).is_err());
    }

    struct Parts(Vec<String>);

    impl LockKey for Parts {
        fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
            self.0.iter().try_for_each(|part| name.part(part))
        }
    }

    /// Reads the parts back from a name, as another client would.
    fn read_back(parts: &str) -> Vec<String> {
        let read = |part: &str| {
            let mut pieces = part.split('%');
            let mut bytes = pieces.next().unwrap().as_bytes().to_vec();
            for piece in pieces {
                bytes.push(u8::from_str_radix(&piece[..2], 16).unwrap());
                bytes.extend(&piece.as_bytes()[2..]);
            }
            String::from_utf8(bytes).unwrap()
        };
        parts.split(':').map(read).collect()
    }

    #[test]
    fn fuzz_keys() {
        // Each line is one part of the key.
        crate::fuzz::any_text("keys", |text| {
            let parts: Vec<_> = text.split('\n').map(str::to_owned).collect();
            if let Ok(name) = name("p", &Parts(parts.clone())) {
                assert_eq!(read_back(name.strip_prefix("p:").unwrap()), parts);
                assert!(whole_name(&name).is_ok_and(|whole| whole == name), "{name}");
                assert!(name.len() <= MAX_NAME_BYTES && !name.contains(['{', '}']), "{name}");
            }
            if let Ok(whole) = whole_name(text) {
                assert_eq!(*whole, *text);
            }
        });
    }

    proptest! {
        #[test]
        fn different_parts_never_share_a_name(a in "\\PC{1,6}|[:%{}a]{1,6}", b in "\\PC{1,6}|[:%{}a]{1,6}", c in "\\PC{1,6}|[:%{}a]{1,6}", d in "\\PC{1,6}|[:%{}a]{1,6}") {
            let first = name("p", &(&a, &b)).unwrap();
            let second = name("p", &(&c, &d)).unwrap();
            prop_assert_eq!(first == second, (&a, &b) == (&c, &d));
            prop_assert!(name("p", &a).unwrap() != first);
        }

        /// So no two lists of parts share a name, whatever their lengths and texts.
        #[test]
        fn the_parts_can_be_read_back_from_the_name(texts in prop::collection::vec("[:%{}a0-9A-F]{1,6}|\\PC{1,6}|(?s:.{1,6})", 1..6)) {
            let name = name("a:b", &Parts(texts.clone())).unwrap();
            prop_assert_eq!(read_back(name.strip_prefix("a:b:").unwrap()), texts);
        }

        #[test]
        fn parts_of_all_types_can_be_read_back(key: (i128, char, bool, u64, i8), text in ".{1,9}") {
            let name = name("p", &(key, &text)).unwrap();
            let (a, b, c, d, e) = key;
            let parts = vec![a.to_string(), b.to_string(), c.to_string(), d.to_string(), e.to_string(), text];
            prop_assert_eq!(read_back(name.strip_prefix("p:").unwrap()), parts);
        }

        #[test]
        fn no_part_smuggles_in_a_separator(part in any::<String>().prop_filter("not empty", |p| !p.is_empty())) {
            if let Ok(name) = name("p", &part) {
                let escaped = name.strip_prefix("p:").unwrap();
                let smuggled = escaped.contains(|c: char| matches!(c, ':' | '{' | '}') || c.is_control());
                prop_assert!(!smuggled);
            }
        }
    }
}
