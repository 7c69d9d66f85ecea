//! Parses commands from received bytes.

use bytes::{Buf, BytesMut};

/// Takes one complete command off the front of the received bytes; `None` while it is incomplete.
///
/// A line that is no array is an inline command of words separated by blanks. If the bytes are no command, takes all of them as one
/// command, so that the server refuses it.
pub fn take_command(buffer: &mut BytesMut) -> Option<Vec<Vec<u8>>> {
    let mut reader = Reader { bytes: buffer, at: 0 };
    let (command, length) = match reader.command() {
        Ok(command) => (command, reader.at),
        Err(Unread::Incomplete) => return None,
        Err(Unread::Malformed) => (vec![buffer.to_vec()], buffer.len()),
    };
    buffer.advance(length);
    Some(command)
}

enum Unread {
    Incomplete,
    Malformed,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn command(&mut self) -> Result<Vec<Vec<u8>>, Unread> {
        let line = self.line()?;
        if !line.starts_with(b"*") {
            let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            return Ok(words.map(<[u8]>::to_vec).collect());
        }
        (0..number(line)?).map(|_| self.bulk()).collect()
    }

    fn bulk(&mut self) -> Result<Vec<u8>, Unread> {
        let line = self.line()?;
        if !line.starts_with(b"$") {
            return Err(Unread::Malformed);
        }
        let length = number(line)?;
        let bytes = self.rest().get(..length + 2).ok_or(Unread::Incomplete)?;
        self.at += bytes.len();
        bytes.strip_suffix(b"\r\n").map(<[u8]>::to_vec).ok_or(Unread::Malformed)
    }

    fn line(&mut self) -> Result<&'a [u8], Unread> {
        let rest = self.rest();
        let length = rest.windows(2).position(|pair| pair == b"\r\n").ok_or(Unread::Incomplete)?;
        self.at += length + 2;
        rest.get(..length).ok_or(Unread::Incomplete)
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }
}

/// The length of an array or a bulk string; a server accepts at most 512 MB.
fn number(line: &[u8]) -> Result<usize, Unread> {
    let digits = line.get(1..).and_then(|digits| std::str::from_utf8(digits).ok());
    let number = digits.and_then(|digits| digits.parse().ok()).filter(|number| *number <= 512 << 20);
    number.ok_or(Unread::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(buffer: &mut BytesMut) -> Option<Vec<String>> {
        let words = take_command(buffer)?;
        Some(words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect())
    }

    #[test]
    fn a_command_is_taken_when_it_is_whole() {
        let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n";
        for cut in 0..bytes.len() {
            let mut buffer = BytesMut::from(&bytes[..cut]);
            assert_eq!(taken(&mut buffer), None, "cut at {cut}");
            assert_eq!(buffer.len(), cut);
        }
        let mut buffer = BytesMut::from(&[bytes, &b"*1\r\n$4\r\nPING\r\n*1"[..]].concat()[..]);
        assert_eq!(taken(&mut buffer).unwrap(), ["SET", "k", "a\r\nb"]);
        assert_eq!(taken(&mut buffer).unwrap(), ["PING"]);
        assert_eq!(taken(&mut buffer), None);
        assert_eq!(&buffer[..], b"*1");
    }

    #[test]
    fn a_line_is_a_command_of_words() {
        assert_eq!(taken(&mut BytesMut::from(" GET  k\r\n")).unwrap(), ["GET", "k"]);
    }

    #[test]
    fn what_is_no_command_is_taken_whole() {
        for bytes in ["*1\r\n:1\r\n", "*-1\r\n", "*1\r\n$1\r\nabc", "*1\r\n$99999999999\r\n"] {
            let mut buffer = BytesMut::from(bytes);
            assert_eq!(taken(&mut buffer).unwrap(), [bytes]);
            assert!(buffer.is_empty());
        }
    }
}
