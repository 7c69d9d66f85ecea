//! Parses the Redis protocol as far as the proxy needs it: where a message ends, and the words of a request.

/// The length of the first complete message in `bytes`; `None` while it is incomplete.
#[must_use]
pub fn length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || {
        std::str::from_utf8(&bytes[1..line - 2])
            .ok()?
            .parse::<i64>()
            .ok()
            .map(|number| usize::try_from(number).unwrap_or_default())
    };
    match bytes[0] {
        // A bulk string; a negative length is a null without a body.
        b'$' | b'=' | b'!' => {
            if bytes[1] == b'-' {
                return Some(line);
            }
            let end = line + number()? + 2;
            (bytes.len() >= end).then_some(end)
        }
        b'*' | b'~' | b'>' => items(bytes, line, number()?),
        b'%' => items(bytes, line, 2 * number()?),
        // An attribute precedes the message that it describes.
        b'|' => items(bytes, line, 2 * number()? + 1),
        _ => Some(line),
    }
}

fn items(bytes: &[u8], mut end: usize, count: usize) -> Option<usize> {
    for _ in 0..count {
        end += length(bytes.get(end..)?)?;
    }
    Some(end)
}

/// The words of a request, with the command name in capitals.
#[must_use]
pub fn words(request: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let mut at = request.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    while at < request.len() {
        let Some(end) = length(&request[at..]) else { break };
        let line = request[at..].iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let text = &request[at + line..at + end - 2];
        words.push(String::from_utf8_lossy(text).into_owned());
        at += end;
    }
    if let Some(name) = words.first_mut() {
        name.make_ascii_uppercase();
    }
    words
}

/// Encodes a bulk string.
#[must_use]
pub fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

/// Encodes a request.
#[must_use]
pub fn request(words: &[String]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend(bulk(word));
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_where_its_parts_end() {
        for message in [
            "+OK\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "*2\r\n$1\r\na\r\n:7\r\n",
            ">2\r\n+a\r\n*-1\r\n",
            "%1\r\n+a\r\n%0\r\n",
            "|1\r\n+a\r\n+b\r\n:1\r\n",
        ] {
            let bytes = message.as_bytes();
            assert_eq!(length(&[bytes, b"+more\r\n"].concat()), Some(bytes.len()), "{message:?}");
            for cut in 1..bytes.len() {
                assert_eq!(length(&bytes[..cut]), None, "{message:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_request_is_written_as_it_is_read() {
        let words = ["SET", "a b", ""].map(str::to_owned);
        assert_eq!(super::words(&request(&words)), words);
    }

    #[test]
    fn a_request_is_read_word_by_word() {
        assert_eq!(words(b"*3\r\n$3\r\nset\r\n$1\r\nk\r\n$0\r\n\r\n"), ["SET", "k", ""]);
    }
}
