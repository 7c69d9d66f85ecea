//! [`Frames`]: splits what a server sends into values.
//!
//! RESP3: <https://github.com/redis/redis-specifications/blob/master/protocol/RESP3.md>. This parses what a lock needs: numbers, texts, and
//! lists and pushes of them. For anything else it only finds the end, and the `redis` crate parses it.

use redis::{PushKind, Value};

/// The size of the buffer while no value is larger.
const ROOM: usize = 8 * 1024;
/// A buffer that a large value grew beyond this size is freed.
const MOST_KEPT: usize = 64 * 1024;
/// A server's line is shorter than this: a number, a word, an error.
const LONGEST_LINE: usize = 64 * 1024;
/// The maximum nesting of lists, the same as in the `redis` crate.
const DEEPEST: usize = 100;

/// What was read does not follow the protocol, so the start of the next value is unknown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The number; `None` for any other value.
pub fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// The text; `None` for any other value.
pub fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(
            String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        ),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// The bytes that were read and not parsed yet.
#[derive(Default)]
pub(super) struct Frames {
    buffer: Vec<u8>,
    /// The bytes from `start` to `end` were read.
    start: usize,
    end: usize,
    scan: Scan,
}

impl Frames {
    /// The buffer for the next read; never empty.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > MOST_KEPT {
                self.buffer = Vec::new();
            }
        }
        if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.end == self.buffer.len() {
                self.buffer.resize((self.buffer.len() * 2).max(ROOM), 0);
            }
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    /// This many bytes were read into the [`room`](Self::room).
    pub(super) fn on_read(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// The next value. `None` when it is not complete yet.
    pub(super) fn next(&mut self) -> Result<Option<Value>, Malformed> {
        let bytes = self.buffer.get(self.start..self.end).unwrap_or_default();
        let Some(frame) = self.scan.frame(bytes)? else { return Ok(None) };
        let value = Reader { rest: frame }.value(0)?;
        self.start += frame.len();
        self.scan = Scan::default();
        Ok(Some(match value {
            Value::Attribute { data, .. } => *data,
            value => value,
        }))
    }
}

/// Looks for the end of a value. Resumes where it ran out of bytes.
struct Scan {
    /// How many bytes of the value were scanned.
    at: usize,
    /// How many values are still missing: those of a list, and of the lists in it.
    open: usize,
}

impl Default for Scan {
    fn default() -> Self {
        Self { at: 0, open: 1 }
    }
}

impl Scan {
    /// The value at the start of `bytes`. `None` when it is not complete.
    fn frame<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
        while self.open > 0 {
            let Some((kind, text)) = line(bytes.get(self.at..).unwrap_or_default())? else { return Ok(None) };
            let content = self.at + text.len() + 3;
            let (end, inside) = match kind {
                b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => (content, 0),
                b'$' | b'!' | b'=' => match length(text)? {
                    None => (content, 0),
                    Some(length) => {
                        let end = content.checked_add(length).and_then(|end| end.checked_add(2)).ok_or(Malformed)?;
                        match bytes.get(end - 2..end) {
                            None => return Ok(None),
                            Some(b"\r\n") => (end, 0),
                            Some(_) => return Err(Malformed),
                        }
                    }
                },
                b'*' | b'~' | b'>' => (content, length(text)?.unwrap_or_default()),
                b'%' => (content, length(text)?.unwrap_or_default().checked_mul(2).ok_or(Malformed)?),
                b'|' => {
                    let pairs = length(text)?.unwrap_or_default().checked_mul(2).ok_or(Malformed)?;
                    (content, pairs.checked_add(1).ok_or(Malformed)?)
                }
                _ => return Err(Malformed),
            };
            self.open = (self.open - 1).checked_add(inside).ok_or(Malformed)?;
            self.at = end;
        }
        Ok(bytes.get(..self.at))
    }
}

/// The kind of the value at the start of `bytes`, and the rest of its first line. `None` when the line is not complete yet.
fn line(bytes: &[u8]) -> Result<Option<(u8, &[u8])>, Malformed> {
    let mut from = 0;
    while let Some(found) = bytes.get(from..).unwrap_or_default().iter().position(|byte| *byte == b'\r') {
        let end = from + found;
        match bytes.get(end + 1) {
            Some(b'\n') => {
                return bytes
                    .get(..end)
                    .and_then(<[u8]>::split_first)
                    .map_or(Err(Malformed), |(kind, text)| Ok(Some((*kind, text))));
            }
            Some(_) => from = end + 1,
            None => break,
        }
    }
    if bytes.len() > LONGEST_LINE { Err(Malformed) } else { Ok(None) }
}

/// A length; `None` for a null value.
fn length(text: &[u8]) -> Result<Option<usize>, Malformed> {
    match number(text)? {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| Malformed),
    }
}

/// A number. The standard library parses only text, which it would check to be UTF-8 first: a hand-off reads 29 numbers.
fn number(text: &[u8]) -> Result<i64, Malformed> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] | digits => (1, digits),
    };
    let append = |number: i64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(sign * digit)
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, append) }.ok_or(Malformed)
}

/// Parses complete values.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, Malformed> {
        let (kind, text) = line(self.rest)?.ok_or(Malformed)?;
        if depth > DEEPEST {
            return Err(Malformed);
        }
        if !matches!(kind, b'+' | b':' | b'$' | b'_' | b'*' | b'>') {
            return self.other();
        }
        self.skip(text.len() + 3);
        Ok(match kind {
            b'+' if text == b"OK" => Value::Okay,
            b'+' => Value::SimpleString(text_of(text)?),
            b':' => Value::Int(number(text)?),
            b'_' if text.is_empty() => Value::Nil,
            b'_' => return Err(Malformed),
            b'$' => match length(text)? {
                None => Value::Nil,
                Some(length) => {
                    let text = self.rest.get(..length).ok_or(Malformed)?.to_vec();
                    self.skip(length + 2);
                    Value::BulkString(text)
                }
            },
            _ => match length(text)? {
                None => Value::Nil,
                Some(length) => {
                    let mut values = (0..length).map(|_| self.value(depth + 1)).collect::<Result<Vec<_>, _>>()?;
                    if kind == b'*' {
                        return Ok(Value::Array(values));
                    }
                    if values.is_empty() {
                        return Err(Malformed);
                    }
                    Value::Push { kind: push_kind(&values.remove(0))?, data: values }
                }
            },
        })
    }

    /// A value of a kind that only the `redis` crate parses.
    fn other(&mut self) -> Result<Value, Malformed> {
        let frame = Scan::default().frame(self.rest)?.ok_or(Malformed)?;
        self.skip(frame.len());
        redis::parse_redis_value(frame).map_err(|_| Malformed)
    }

    fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }
}

fn text_of(text: &[u8]) -> Result<String, Malformed> {
    String::from_utf8(text.to_vec()).map_err(|_| Malformed)
}

fn push_kind(name: &Value) -> Result<PushKind, Malformed> {
    let name = match name {
        Value::BulkString(name) => name.as_slice(),
        Value::SimpleString(name) => name.as_bytes(),
        _ => return Err(Malformed),
    };
    Ok(match name {
        b"message" => PushKind::Message,
        b"smessage" => PushKind::SMessage,
        b"invalidate" => PushKind::Invalidate,
        b"subscribe" => PushKind::Subscribe,
        b"ssubscribe" => PushKind::SSubscribe,
        b"sunsubscribe" => PushKind::SUnsubscribe,
        name => PushKind::Other(text_of(name)?),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// All values, when the bytes are read in pieces of this size.
    fn cut(bytes: &[u8], piece: usize) -> Result<Vec<Value>, Malformed> {
        let (mut frames, mut values) = (Frames::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut piece = piece;
            while !piece.is_empty() {
                let room = frames.room();
                let count = room.len().min(piece.len());
                room[..count].copy_from_slice(&piece[..count]);
                frames.on_read(count);
                piece = &piece[count..];
                while let Some(value) = frames.next()? {
                    values.push(value);
                }
            }
        }
        Ok(values)
    }

    /// A value as a server writes it, of any kind and depth.
    fn written() -> impl Strategy<Value = Vec<u8>> {
        let text = prop_oneof!["[ -~]{0,20}", Just("OK".to_owned()), Just("ERR no".to_owned())];
        let leaf = prop_oneof![
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            text.clone().prop_map(|text| format!("+{text}\r\n").into_bytes()),
            text.clone().prop_map(|text| format!("-ERR {text}\r\n").into_bytes()),
            text.prop_map(|text| format!("={}\r\ntxt:{text}\r\n", text.len() + 4).into_bytes()),
            vec(any::<u8>(), 0..40)
                .prop_map(|bytes| [format!("${}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat()),
            prop_oneof![
                Just("_\r\n"),
                Just("$-1\r\n"),
                Just("*-1\r\n"),
                Just("#t\r\n"),
                Just(",1.5\r\n"),
                Just("(77\r\n")
            ]
            .prop_map(|text| text.as_bytes().to_vec()),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..6)
                    .prop_map(|all| [format!("*{}\r\n", all.len()).into_bytes(), all.concat()].concat()),
                vec(inner.clone(), 0..6)
                    .prop_map(|all| [format!("~{}\r\n", all.len()).into_bytes(), all.concat()].concat()),
                vec((inner.clone(), inner.clone()), 0..4).prop_map(|all| {
                    let pairs: Vec<u8> = all.iter().flat_map(|(key, value)| [&key[..], value].concat()).collect();
                    [format!("%{}\r\n", all.len()).into_bytes(), pairs].concat()
                }),
                vec(inner, 0..4).prop_map(|all| [
                    format!(">{}\r\n$7\r\nmessage\r\n", all.len() + 1).into_bytes(),
                    all.concat()
                ]
                .concat()),
            ]
        })
    }

    /// Any value.
    pub(crate) fn value() -> impl Strategy<Value = Value> {
        written().prop_map(|bytes| redis::parse_redis_value(&bytes).unwrap())
    }

    proptest! {
        #[test]
        fn every_value_is_read_as_the_redis_crate_reads_it_however_it_is_cut(all in vec(written(), 1..5), piece in 1_usize..50) {
            let expected: Vec<_> = all.iter().map(|one| redis::parse_redis_value(one).unwrap()).collect();
            prop_assert_eq!(cut(&all.concat(), piece).unwrap(), expected);
        }

        #[test]
        fn no_bytes_make_it_panic_or_find_more_values_than_there_are(bytes in vec(prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b'*'), Just(b'1')], 0..200), piece in 1_usize..50) {
            let whole = cut(&bytes, bytes.len().max(1));
            prop_assert_eq!(whole.as_ref().map_or(0, Vec::len), cut(&bytes, piece).map_or(0, |values| values.len()));
        }
    }

    /// What this crate and the `redis` crate each read of a whole value.
    fn read_twice(bytes: &[u8]) -> Option<(usize, Result<Value, Malformed>, Option<Value>)> {
        let frame = Scan::default().frame(bytes).ok()??;
        Some((frame.len(), Reader { rest: frame }.value(0), redis::parse_redis_value(frame).ok()))
    }

    #[test]
    fn fuzz_wire() {
        bolero::check!(name = "wire").for_each(|bytes: &[u8]| {
            let Some((piece, mut rest)) = bytes.split_first() else { return };
            let (whole, pieces) = (cut(rest, rest.len().max(1)), cut(rest, usize::from(*piece) + 1));
            assert_eq!(whole, pieces, "the result depends on where the bytes are cut");
            while let Some((length, ours, theirs)) = read_twice(rest) {
                // A server does not write what this crate refuses.
                if let Ok(ours) = ours {
                    assert_eq!(Some(ours), theirs, "{:?}", String::from_utf8_lossy(rest));
                }
                rest = &rest[length..];
            }
        });
    }

    #[test]
    fn what_follows_no_protocol_is_refused_and_what_has_no_end_is_waited_for() {
        let deep = "*1\r\n".repeat(5000) + ":1\r\n";
        for bytes in [
            "HTTP/1.1 400\r\n",
            "$3\r\nfour\r\n",
            ":x\r\n",
            "*-2\r\n",
            "$99999999999999999999\r\n",
            "\r\n",
            ">0\r\n",
            &deep,
        ] {
            assert_eq!(cut(bytes.as_bytes(), 7), Err(Malformed), "{bytes}");
        }
        assert_eq!(cut(&vec![b'+'; LONGEST_LINE * 2], 1000), Err(Malformed));
        for bytes in ["", "$5\r\nfour\r", "*3\r\n:1\r\n:2\r\n", "+OK\r", "*9223372036854775807\r\n:1\r\n"] {
            assert_eq!(cut(bytes.as_bytes(), 7), Ok(Vec::new()), "{bytes}");
        }
    }

    #[test]
    fn a_large_value_leaves_no_large_buffer() {
        let mut frames = Frames::default();
        let large = [b"$200000\r\n", "x".repeat(200_000).as_bytes(), b"\r\n"].concat();
        let mut rest = large.as_slice();
        while !rest.is_empty() {
            let room = frames.room();
            let count = room.len().min(rest.len());
            room[..count].copy_from_slice(&rest[..count]);
            frames.on_read(count);
            rest = &rest[count..];
        }
        assert!(matches!(frames.next(), Ok(Some(Value::BulkString(text))) if text.len() == 200_000));
        assert_eq!(frames.room().len(), ROOM);
    }
}
