//! [`Tail`]: follows a server's append-only file while the server writes it.
//!
//! A server with `--appendonly yes` appends every write that had an effect, in order, before it replies. An expired lease shows as its
//! expiry, which is logged as an absolute time, or as a deletion.

use std::collections::HashSet;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crate::resp;
use history::diary::Recorder;
use history::event::{Change, NEVER, What, now, wall_is_ahead};

/// The options of a server that can be followed.
pub const OPTIONS: [&str; 6] = ["--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"];

/// A thread that follows the server's log and adds every change of a lock's key to the history.
#[derive(Debug)]
pub struct Tail {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tail {
    /// Follows the server whose files are in `folder`; keys that start with `prefix` are locks.
    #[must_use]
    pub fn of(folder: &Path, prefix: &str, recorder: Recorder) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let mut follower = Follower {
            path: folder.join("appendonlydir/appendonly.aof.1.incr.aof"),
            prefix: prefix.to_owned(),
            recorder,
            file: None,
            read: 0,
            bytes: Vec::new(),
            step: None,
            looked: now(),
        };
        let told = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            loop {
                let last = told.load(Ordering::SeqCst);
                follower.look();
                if last {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            // With an incomplete history the checker would report violations that did not happen.
            assert!(ended.is_ok() || std::thread::panicking(), "can't follow the server's append-only file");
        }
    }
}

struct Follower {
    path: PathBuf,
    prefix: String,
    recorder: Recorder,
    /// Identifies the file, which can be replaced.
    file: Option<(u64, Option<SystemTime>)>,
    read: u64,
    bytes: Vec<u8>,
    /// The commands so far of an open transaction.
    step: Option<Vec<Vec<String>>>,
    /// Just before the last read that found nothing new.
    looked: u64,
}

impl Follower {
    fn look(&mut self) {
        let before = now();
        let Ok(mut file) = std::fs::File::open(&self.path) else { return };
        // The kernel soon reuses an inode number, so the number alone does not identify a file.
        let number = file.metadata().ok().map(|data| (data.ino(), data.created().ok()));
        if number != self.file {
            if self.file.is_some() {
                // Truncated and started again.
                self.recorder.note_of(now(), "server", What::Forgot);
            }
            (self.file, self.read, self.step) = (number, 0, None);
            self.bytes.clear();
        }
        if file.seek(SeekFrom::Start(self.read)).is_err() {
            return;
        }
        let Ok(count) = file.read_to_end(&mut self.bytes) else { return };
        self.read += count as u64;
        let seen = now();
        let bytes = std::mem::take(&mut self.bytes);
        let mut start = 0;
        while let Some(length) = resp::length(&bytes[start..]) {
            let words = resp::words(&bytes[start..start + length]);
            start += length;
            self.command(words, seen);
        }
        self.bytes = bytes[start..].to_vec();
        self.looked = before;
    }

    fn command(&mut self, words: Vec<String>, seen: u64) {
        match (words[0].as_str(), &mut self.step) {
            ("MULTI", step) => *step = Some(Vec::new()),
            ("EXEC", step) => {
                let commands = step.take().unwrap_or_default();
                self.step(&commands, seen);
            }
            (_, Some(commands)) => commands.push(words),
            (_, None) => self.step(&[words], seen),
        }
    }

    /// Records the state after one command or script.
    fn step(&mut self, commands: &[Vec<String>], seen: u64) {
        let offset = wall_is_ahead();
        let popped: HashSet<&str> =
            commands.iter().filter(|words| words[0] == "ZPOPMIN").filter_map(|words| queue_of(&words[1])).collect();
        let mut last: Vec<(&str, Change)> = Vec::new();
        for words in commands {
            if words[0].starts_with("FLUSH") {
                last.clear();
                self.recorder.note_of(seen, "server", What::Forgot);
            }
            for key in keys(words).iter().filter(|key| key.starts_with(&self.prefix)) {
                let Some(change) = change(words, offset, popped.contains(key.as_str())) else { continue };
                // Other clients could not see the steps in between, such as a waiter that could not be notified.
                if !matches!(change, Change::Ends { .. }) {
                    last.retain(|(other, _)| other != key);
                }
                last.push((key, change));
            }
        }
        let since = self.looked;
        for (key, to) in last {
            self.recorder.note_of(seen, "server", What::Changed { since, key: key.to_owned(), to });
        }
    }
}

/// The keys that a command changes; `DEL` may have several.
fn keys(words: &[String]) -> &[String] {
    let count = if matches!(words[0].as_str(), "DEL" | "UNLINK") { words.len() } else { words.len().min(2) };
    &words[1..count]
}

fn queue_of(key: &str) -> Option<&str> {
    key.strip_prefix('{')?.strip_suffix("}:queue")
}

fn change(words: &[String], offset: u64, next: bool) -> Option<Change> {
    let instant = |text: &String| Some((text.parse::<u64>().ok()? * 1_000_000).saturating_sub(offset));
    match words[0].as_str() {
        "SET" | "SETNX" => {
            let end = words.iter().skip(3).position(|word| word.eq_ignore_ascii_case("PXAT"));
            let until = end.and_then(|at| words.get(at + 4)).and_then(instant).unwrap_or(NEVER);
            Some(Change::Owned { token: words.get(2)?.clone(), until, next })
        }
        "PEXPIREAT" => Some(Change::Ends { until: instant(words.get(2)?)? }),
        "PERSIST" => Some(Change::Ends { until: NEVER }),
        "DEL" | "UNLINK" | "GETDEL" => Some(Change::Gone),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(ToOwned::to_owned).collect()
    }

    #[test]
    fn a_deletion_is_about_all_its_keys() {
        assert_eq!(keys(&words("DEL k l m")), words("k l m"));
        assert_eq!(keys(&words("SET k t PXAT 12")), words("k"));
        assert_eq!(keys(&words("FLUSHALL")), [] as [&str; 0]);
    }

    #[test]
    fn a_lock_s_writes_are_read_as_changes() {
        let owned = |until| Some(Change::Owned { token: "t".into(), until, next: false });
        assert_eq!(change(&words("SET k t PXAT 12"), 2_000_000, false), owned(10_000_000));
        assert_eq!(change(&words("SETNX k t"), 0, false), owned(NEVER));
        assert_eq!(change(&words("PEXPIREAT k 12 GT"), 0, false), Some(Change::Ends { until: 12_000_000 }));
        assert_eq!(change(&words("DEL k"), 0, false), Some(Change::Gone));
        assert_eq!(change(&words("RPUSH k t"), 0, false), None);
    }
}
