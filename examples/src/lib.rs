//! The code shared by the stories: options, the server, child processes, the race and the result table.
//!
//! The stories are the files next to this folder, each with its locked method at the top. Nothing here knows how to
//! lock: `race` releases tasks at once and counts their answers, `Run` knows where everything is.

mod ledger;
mod options;
mod process;
mod queue;
mod race;
mod report;
mod run;
mod server;
mod tally;
mod waits;

pub use ledger::Ledger;
pub use options::{Defaults, Options};
pub use process::Process;
pub use queue::Queue;
pub use race::{Workers, race, take_part};
pub use report::Report;
pub use run::{Run, tell};
pub use server::Server;
pub use tally::{Outcome, Tally};
pub use waits::Waits;

/// Any failure; the user reads its text. `?` turns a `LockError` into it.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
