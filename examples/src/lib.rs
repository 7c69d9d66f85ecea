//! What the stories share: options, the server, child processes, the race and the result table.
//!
//! The stories are the files beside this folder, each with its locked method at the top. Nothing here knows how to
//! lock: `race` releases tasks at once and counts what they answer, `Run` knows where things live.

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

/// Whatever went wrong; its text is what the user reads. `LockError` turns into it by `?`.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
