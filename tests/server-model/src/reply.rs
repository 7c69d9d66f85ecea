//! [`Reply`]: the server's replies and pushes.

/// A message from the server in RESP3.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A status, such as `OK`.
    Simple(String),
    /// An error, which begins with its code.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// Null.
    Nil,
    /// A list.
    Array(Vec<Reply>),
    /// A map.
    Map(Vec<(Reply, Reply)>),
    /// A message that the client did not request, or the confirmation of a subscription.
    Push(Vec<Reply>),
}

impl Reply {
    pub(crate) fn ok() -> Self {
        Self::Simple("OK".to_owned())
    }

    pub(crate) fn error(message: impl Into<String>) -> Self {
        Self::Error(message.into())
    }

    pub(crate) fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    pub(crate) fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Appends the bytes of this message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Simple(text) => line(out, b'+', text),
            Self::Error(text) => line(out, b'-', text),
            Self::Integer(number) => line(out, b':', &number.to_string()),
            Self::Bulk(bytes) => {
                line(out, b'$', &bytes.len().to_string());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Nil => line(out, b'_', ""),
            Self::Array(items) => all(out, b'*', items),
            Self::Push(items) => all(out, b'>', items),
            Self::Map(pairs) => {
                line(out, b'%', &pairs.len().to_string());
                for (name, value) in pairs {
                    name.encode(out);
                    value.encode(out);
                }
            }
        }
    }
}

fn line(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn all(out: &mut Vec<u8>, kind: u8, items: &[Reply]) {
    line(out, kind, &items.len().to_string());
    for item in items {
        item.encode(out);
    }
}

#[cfg(test)]
mod tests {
    use super::Reply::{Array, Bulk, Error, Integer, Map, Nil, Push, Simple};

    #[test]
    fn each_kind_of_message_is_encoded_as_resp3() {
        let inner = Map(vec![(Bulk(b"a\r\n".to_vec()), Nil), (Simple("b".into()), Array(vec![]))]);
        let reply = Push(vec![Error("ERR no".into()), Integer(-7), inner]);
        let mut out = b"before".to_vec();
        reply.encode(&mut out);
        assert_eq!(out, b"before>3\r\n-ERR no\r\n:-7\r\n%2\r\n$3\r\na\r\n\r\n_\r\n+b\r\n*0\r\n");
    }
}
