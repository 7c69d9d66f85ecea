//! [`Disguise`]: makes a server behind the proxy look like another kind of server.

use crate::resp;

/// How the server looks to clients.
#[derive(Clone, Copy, Debug)]
pub struct Disguise {
    /// The server's name in the reply to `HELLO`.
    pub name: &'static str,
    /// The version in that reply.
    pub version: &'static str,
    /// Replaces a command on its way to the server; `None` leaves it as it is. To simulate a missing command, replace it by one that no
    /// server knows: the server refuses it in its own words.
    pub instead: fn(&[String]) -> Option<Vec<String>>,
}

impl Disguise {
    /// The request that reaches the server.
    pub(super) fn of_request(&self, request: &[u8]) -> Vec<u8> {
        (self.instead)(&resp::words(request)).map_or_else(|| request.to_vec(), |words| resp::request(&words))
    }

    /// The reply that reaches the client.
    pub(super) fn of_reply(&self, reply: &[u8]) -> Vec<u8> {
        let named = with_field(reply, "server", self.name).unwrap_or_else(|| reply.to_vec());
        with_field(&named, "version", self.version).unwrap_or(named)
    }
}

/// Replaces the text of one field in a reply to `HELLO`. `None` for any other reply.
fn with_field(reply: &[u8], field: &str, value: &str) -> Option<Vec<u8>> {
    const HELLO: [&[u8]; 2] = [b"%7\r\n$6\r\nserver\r\n", b"*14\r\n$6\r\nserver\r\n"];
    if !HELLO.iter().any(|start| reply.starts_with(start)) {
        return None;
    }
    let name = resp::bulk(field);
    let start = reply.windows(name.len()).position(|bytes| bytes == name)? + name.len();
    let end = start + resp::length(&reply[start..])?;
    Some([&reply[..start], &resp::bulk(value), &reply[end..]].concat())
}
