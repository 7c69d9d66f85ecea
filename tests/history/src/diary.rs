//! [`Diary`]: a task's interface to a lock, which records every call.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use super::event::{Event, How, NEVER, Wanted, What, now, span};
use super::lock::{Failure, Hold, Lock};

/// The shortest pause of a process that is recorded, in nanoseconds.
pub const STALL: u64 = 40_000_000;

/// An append-only file. Each event is one `write`, so that the file of a killed process has everything up to its last call.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    process: String,
    task: u32,
}

impl Recorder {
    /// The file of a task, in the folder of the history.
    #[must_use]
    pub fn new(folder: &Path, process: &str, task: u32) -> Self {
        let path = folder.join(format!("{process}.{task}.jsonl"));
        let file = OpenOptions::new().create(true).append(true).open(path).expect("a file for the history");
        Self { file, process: process.to_owned(), task }
    }

    /// Records an event that happens now.
    pub fn note(&mut self, what: What) {
        let process = self.process.clone();
        self.note_of(now(), &process, what);
    }

    /// Records an event of another process, or of another time.
    pub fn note_of(&mut self, t: u64, process: &str, what: What) {
        let before = now();
        self.write(&Event { t, process: process.to_owned(), task: self.task, what });
        let after = now();
        // The disk was busy, and the writer could do nothing else meanwhile.
        if after - before > STALL {
            let what = What::Stalled { from: before };
            self.write(&Event { t: after, process: self.process.clone(), task: self.task, what });
        }
    }

    fn write(&mut self, event: &Event) {
        let mut line = serde_json::to_vec(event).expect("an event is plain data");
        line.push(b'\n');
        self.file.write_all(&line).expect("the history is written");
    }
}

/// Records a task's calls.
#[derive(Debug)]
pub struct Diary {
    recorder: Recorder,
    attempt: u32,
}

/// A hold and its attempt numbers in the diary, one per lock.
#[derive(Debug)]
pub struct Kept<H> {
    /// The hold.
    pub hold: H,
    attempts: Range<u32>,
}

impl Diary {
    /// A diary that writes to `recorder`.
    #[must_use]
    pub fn new(recorder: Recorder) -> Self {
        Self { recorder, attempt: 0 }
    }

    /// The recorder, for events other than calls.
    pub fn recorder(&mut self) -> &mut Recorder {
        &mut self.recorder
    }

    /// Acquires a lock; with `patience` the future is dropped after that time.
    pub async fn acquire<L: Lock>(
        &mut self,
        lock: &L,
        key: &str,
        wanted: Wanted,
        patience: Option<Duration>,
    ) -> Option<Kept<L::Hold>> {
        self.acquire_all(lock, &[key.to_owned()], wanted, patience).await
    }

    /// Acquires several locks together. Each is recorded as an attempt.
    pub async fn acquire_all<L: Lock>(
        &mut self,
        lock: &L,
        keys: &[String],
        wanted: Wanted,
        patience: Option<Duration>,
    ) -> Option<Kept<L::Hold>> {
        let together = keys.len() > 1;
        let wanted = Wanted { together, ..wanted };
        let mut attempts = self.attempt + 1..self.attempt + 1;
        for key in keys {
            self.attempt += 1;
            attempts.end += 1;
            self.recorder.note(What::Acquire { attempt: self.attempt, key: key.clone(), wanted });
        }
        let asked = async {
            match keys {
                [key] => lock.acquire(key, &wanted).await,
                keys => lock.acquire_all(keys, &wanted).await,
            }
        };
        let outcome = match patience {
            None => Some(asked.await),
            Some(patience) => tokio::time::timeout(patience, asked).await.ok(),
        };
        let (how, text) = match outcome {
            Some(Ok(hold)) => {
                let until = until(&hold);
                for (attempt, key) in attempts.clone().zip(keys) {
                    let fence = if together { hold.fence_of(key) } else { hold.fence() };
                    self.recorder.note(What::Granted { attempt, until, fence });
                }
                return Some(Kept { hold, attempts });
            }
            Some(Err(failure)) => (failure.how(), failure.text().to_owned()),
            None => (How::Cancelled, String::new()),
        };
        self.note_each(attempts, |attempt| What::Refused { attempt, how, text: text.clone() });
        None
    }

    fn note_each(&mut self, attempts: Range<u32>, what: impl Fn(u32) -> What) {
        attempts.for_each(|attempt| self.recorder.note(what(attempt)));
    }

    /// Records the deadline, and returns whether the lock is still held.
    pub fn look<H: Hold>(&mut self, kept: &Kept<H>) -> bool {
        let until = until(&kept.hold);
        self.note_each(kept.attempts.clone(), |attempt| What::Seen { attempt, until });
        until > 0
    }

    /// Extends the hold to `lease` from now.
    pub async fn extend<H: Hold>(&mut self, kept: &Kept<H>, lease: Duration) {
        let outcome = kept.hold.extend(lease).await;
        if matches!(outcome, Err(Failure::Unsupported)) {
            return;
        }
        let how = outcome.map_or_else(|failure| failure.how(), |()| How::Done);
        let lease = span(lease) / 1_000_000;
        self.note_each(kept.attempts.clone(), |attempt| What::Extended { attempt, lease, how });
        self.look(kept);
    }

    /// Releases the lock and waits for the result.
    pub async fn release<H: Hold>(&mut self, kept: Kept<H>) {
        let attempts = kept.attempts;
        self.note_each(attempts.clone(), |attempt| What::Release { attempt, dropped: false });
        let (how, text) = match kept.hold.release().await {
            Ok(()) => (How::Done, String::new()),
            Err(failure) => (failure.how(), failure.text().to_owned()),
        };
        self.note_each(attempts, |attempt| What::Released { attempt, how, text: text.clone() });
    }

    /// Drops the hold.
    pub fn drop<H: Hold>(&mut self, kept: Kept<H>) {
        let attempts = kept.attempts;
        self.note_each(attempts.clone(), |attempt| What::Release { attempt, dropped: true });
        drop(kept.hold);
        self.note_each(attempts, |attempt| What::Released { attempt, how: How::Done, text: String::new() });
    }
}

/// The deadline of a hold, or a little earlier; 0 if the hold is over.
fn until<H: Hold>(hold: &H) -> u64 {
    let before = now();
    match hold.remaining() {
        None => NEVER,
        Some(Duration::ZERO) => 0,
        Some(remaining) => before.saturating_add(span(remaining)),
    }
}
