//! [`Store`]: what the locks protect. It refuses a write with a smaller number than one that it has seen.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// A file that all processes of a cell share.
pub(crate) struct Store(File);

impl Store {
    pub(crate) fn open(folder: &Path, key: &str) -> Self {
        let file = folder.join(format!("store-{key}"));
        let file = File::options().read(true).write(true).create(true).truncate(false).open(file);
        Self(file.expect("a file in an own folder"))
    }

    /// Whether the store takes the write. It takes every write of a lock without numbers.
    pub(crate) fn write(&mut self, fence: Option<u64>) -> bool {
        let Some(fence) = fence else { return true };
        flock(&self.0, FlockOperation::LockExclusive).expect("a lock on an own file");
        let mut seen = String::new();
        self.0.rewind().and_then(|()| self.0.read_to_string(&mut seen)).expect("an own file is read");
        let is_taken = seen.parse().is_ok_and(|seen: u64| fence >= seen) || seen.is_empty();
        if is_taken {
            // All numbers have the same count of digits: they count microseconds since 1970.
            self.0.rewind().and_then(|()| write!(self.0, "{fence}")).expect("an own file is written");
        }
        flock(&self.0, FlockOperation::Unlock).expect("a lock on an own file");
        is_taken
    }
}
