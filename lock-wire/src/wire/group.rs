//! [`Group`]: combines several calls of one script into one.
//!
//! Databases call this group commit: starting a script costs a server more than serving one more call in it. So calls that are made while
//! other commands are in flight are sent together with all other calls until then.

use redis::Value;
use smallvec::SmallVec;

use super::encode::{bulk, header, number};

/// A script that in one run does for several callers what a run for each would do.
#[derive(Debug)]
pub struct Grouped {
    /// The script.
    pub text: fn() -> &'static str,
    /// The script's digest.
    pub digest: fn() -> &'static str,
    /// How many of the [columns](Columns) are keys.
    pub keys: usize,
    /// The maximum number of calls in one run: more would delay the server's other clients, and the callers whose answers are first.
    pub most: usize,
    /// Splits one reply into the answers to several calls: what the script would have answered to each alone.
    pub split: fn(Value, usize) -> Vec<Value>,
}

/// The arguments of several calls, keys first: each column has one argument of each call.
pub type Columns = [Vec<u8>; 3];

impl Grouped {
    /// Writes one call alone. `is_known` says that the server knows the script.
    pub fn write_alone(&'static self, is_known: bool, write: impl FnOnce(&mut Columns), output: &mut Vec<u8>) {
        let mut group = Group::default();
        group.add(self, is_known, write, 0);
        group.write(output);
    }
}

/// The calls of the next run. Their arguments are already written.
#[derive(Default)]
pub(super) struct Group {
    script: Option<&'static Grouped>,
    columns: Columns,
    places: SmallVec<[usize; 1]>,
    is_unknown: bool,
}

/// The places that one reply answers.
pub(super) struct Members {
    pub(super) script: &'static Grouped,
    pub(super) places: SmallVec<[usize; 1]>,
}

impl Group {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether no more calls can join, or none of this `script`.
    #[inline]
    pub(super) fn is_closed_to(&self, script: &'static Grouped) -> bool {
        self.script.is_some_and(|other| self.places.len() >= script.most || !std::ptr::eq(other, script))
    }

    /// Adds a call, whose answer is for `place`.
    pub(super) fn add(
        &mut self,
        script: &'static Grouped,
        is_known: bool,
        write: impl FnOnce(&mut Columns),
        place: usize,
    ) {
        self.script = Some(script);
        write(&mut self.columns);
        self.places.push(place);
        self.is_unknown |= !is_known;
    }

    /// Writes the run of the script behind the commands in `output`. `None` when there is no call.
    #[inline]
    pub(super) fn write(&mut self, output: &mut Vec<u8>) -> Option<Members> {
        let script = self.script.take()?;
        let places = std::mem::take(&mut self.places);
        header(output, b'*', 3 + self.columns.len() * places.len());
        if std::mem::take(&mut self.is_unknown) {
            bulk(output, &["EVAL"]);
            bulk(output, &[(script.text)()]);
        } else {
            output.extend_from_slice(b"$7\r\nEVALSHA\r\n");
            bulk(output, &[(script.digest)()]);
        }
        number(output, (script.keys * places.len()) as u64);
        for arguments in &mut self.columns {
            output.append(arguments);
        }
        Some(Members { script, places })
    }
}
