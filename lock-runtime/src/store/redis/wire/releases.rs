//! [`Releases`]: releases that go out as one script.
//!
//! Databases call this group commit: for each script that a server starts it works more than for one lock. So what is released while
//! other commands are on their way goes together with all else that is released until then.

use super::super::scripts;
use super::encode::{bulk, header, number};

/// Locks in one script: more would delay the server's other clients, and the tasks whose answers come first.
const MOST_TOGETHER: usize = 64;

/// The release of a lock that most likely nobody waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoneRelease<'a> {
    pub(crate) lock: &'a str,
    pub(crate) token: &'a str,
    /// Whether the server knows the script.
    pub(crate) is_known: bool,
    /// More releases come at once: this one waits for them.
    pub(crate) are_more: bool,
}

impl LoneRelease<'_> {
    /// Writes the release as a script of its own.
    pub(crate) fn write(self, output: &mut Vec<u8>) {
        let mut releases = Releases::default();
        releases.add(self, 0);
        releases.write(output);
    }
}

/// The releases that are to go out next. Their arguments are written already.
#[derive(Default)]
pub(super) struct Releases {
    locks: Vec<u8>,
    queues: Vec<u8>,
    tokens: Vec<u8>,
    places: Vec<usize>,
    is_unknown: bool,
}

impl Releases {
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.places.len() >= MOST_TOGETHER
    }

    /// Adds a release, whose answer is for `place`.
    pub(super) fn add(&mut self, LoneRelease { lock, token, is_known, .. }: LoneRelease<'_>, place: usize) {
        bulk(&mut self.locks, &[lock]);
        bulk(&mut self.queues, &["{", lock, "}:queue"]);
        bulk(&mut self.tokens, &[token]);
        self.places.push(place);
        self.is_unknown |= !is_known;
    }

    /// Writes the script behind the commands in `output`. Returns whose answers its reply has.
    pub(super) fn write(&mut self, output: &mut Vec<u8>) -> Vec<usize> {
        let places = std::mem::take(&mut self.places);
        header(output, b'*', 3 + 3 * places.len());
        if self.is_unknown {
            bulk(output, &["EVAL"]);
            bulk(output, &[scripts::FREE.text()]);
        } else {
            output.extend_from_slice(b"$7\r\nEVALSHA\r\n$40\r\n");
            output.extend_from_slice(scripts::FREE.digest().as_bytes());
            output.extend_from_slice(b"\r\n");
        }
        number(output, 2 * places.len() as u64);
        for arguments in [&mut self.locks, &mut self.queues, &mut self.tokens] {
            output.append(arguments);
        }
        self.is_unknown = false;
        places
    }
}
