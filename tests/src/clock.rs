//! [`Clock`]: the wall clock of one process, which a test can step.

use std::fs::OpenOptions;
use std::io::{Seek, Write};
use std::process::{Command, Stdio};

/// A shim that is loaded into a process, and the file with the offset of its wall clock.
#[derive(Debug)]
pub struct Clock {
    folder: tempfile::TempDir,
}

impl Clock {
    /// Compiles the shim. Prints why and returns `None` if there is no C compiler.
    #[must_use]
    pub fn new() -> Option<Self> {
        let clock = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        let source = clock.folder.path().join("clock.c");
        std::fs::write(&source, include_str!("clock.c")).expect("the shim is written");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(clock.shim()).arg(&source).stdin(Stdio::null());
        match compiler.status() {
            Err(error) => {
                println!("skipped: no C compiler for a wall clock that steps ({error})");
                None
            }
            Ok(status) => {
                assert!(status.success(), "the shim does not compile");
                clock.step_to(0);
                Some(clock)
            }
        }
    }

    fn shim(&self) -> std::path::PathBuf {
        self.folder.path().join("clock.so")
    }

    fn offset(&self) -> std::path::PathBuf {
        self.folder.path().join("offset")
    }

    /// Makes the process that `command` starts see this clock.
    pub fn give(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.shim()).env("LOCK_TEST_CLOCK", self.offset());
    }

    /// Sets how many milliseconds the process's wall clock is ahead of this machine's.
    pub fn step_to(&self, milliseconds: i64) {
        // Written in place, because the process has this file mapped.
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.offset())
            .expect("the file of the offset");
        file.rewind().expect("its start");
        file.write_all(&(milliseconds * 1000).to_ne_bytes()).expect("the offset is written");
    }
}
