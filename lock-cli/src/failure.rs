//! [`Failure`]: why the program ends without success, and its exit code.

use std::fmt::{self, Display};
use std::io::Write as _;
use std::process::ExitCode;

use lock_runtime::{ErrorKind, LockError};

/// The server is unreachable, or lacks what is needed (`EX_UNAVAILABLE`).
pub(crate) const AWAY: u8 = 69;
/// A bug, or the system lacks something (`EX_SOFTWARE`).
const INTERNAL: u8 = 70;
/// The lock of `run` was lost (`EX_IOERR`).
pub(crate) const LOST: u8 = 74;
/// The lock is busy (`EX_TEMPFAIL`).
pub(crate) const BUSY: u8 = 75;
/// The command line is wrong: the code that clap uses.
const MISUSE: u8 = 2;

#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    pub(crate) fn new(code: u8, text: impl Display) -> Self {
        Self { code, text: text.to_string() }
    }

    pub(crate) fn misuse(text: impl Display) -> Self {
        Self::new(MISUSE, text)
    }

    pub(crate) fn internal(error: &dyn Display) -> Self {
        Self::new(INTERNAL, error)
    }

    /// Prints the failure, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.text.is_empty() {
            tell(&self.text);
        }
        ExitCode::from(self.code)
    }
}

/// Writes a message to stderr, apart from the output.
pub(crate) fn tell(text: &dyn Display) {
    // A failed write to stderr can't be reported anywhere.
    let _ = writeln!(anstream::stderr(), "lockctl: {text}");
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let code = match error.kind() {
            ErrorKind::Busy | ErrorKind::Overloaded => BUSY,
            ErrorKind::Lost => LOST,
            ErrorKind::Misuse => MISUSE,
            ErrorKind::Unavailable => AWAY,
            _ => INTERNAL,
        };
        Self::new(code, error)
    }
}

/// The reader of the output may stop reading, as head(1) does: exit silently then.
const NO_READER: u8 = 141;

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::new(NO_READER, "");
        }
        Self::internal(&error)
    }
}
