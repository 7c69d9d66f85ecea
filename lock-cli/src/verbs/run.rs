//! `lockctl run NAME -- COMMAND`

use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use lock_runtime::{ErrorKind, LockError, LockGuard, LockManager};
use tokio::process::{Child, Command};

use crate::arguments::Run;
use crate::failure::{Failure, LOST, tell};
use crate::place::Place;
use crate::verbs::run::signals::Signals;

mod signals;

/// A wait without an end: longer than any machine runs.
const ENDLESS: Duration = Duration::from_secs(u32::MAX as u64);
/// While a command waits for its lock, the server may be away, or refuse, for this long.
const AWAY: Duration = Duration::from_secs(10);
/// How long checking for a refusal takes, and the pause before it.
const LOOK: Duration = Duration::from_secs(1);
/// The shells' exit codes for a command that does not exist, or is no program.
const NOT_FOUND: u8 = 127;
const NO_PROGRAM: u8 = 126;
/// Shells add this to a signal's number.
const SIGNALLED: i32 = 128;

pub(crate) async fn run(place: &Place, run: Run) -> Result<ExitCode, Failure> {
    let Run { name, timeout, expire, kill_after, label, note, command } = run;
    let set = |builder: lock_runtime::Builder| {
        let builder = builder.fail_fast(AWAY);
        if let Some(label) = &label { builder.label(label) } else { builder }
    };
    let locks = place.connect_to(None, set).await?;
    // From here on no signal ends this program without its command.
    let mut signals = Signals::listen()?;
    let request = locks.lock_named(&name).timeout(timeout.unwrap_or(ENDLESS)).expire(expire);
    let request = if let Some(note) = &note { request.note(note) } else { request };
    let guard = tokio::select! {
        guard = request.acquire() => guard?,
        refusal = lasting_refusal(&locks, &name) => {
            locks.shutdown().await;
            return Err(refusal.into());
        }
        code = signals.ended_by() => {
            locks.shutdown().await;
            return Ok(ExitCode::from(code));
        }
    };
    let ended = under(&guard, command, kill_after, &mut signals).await;
    let released = guard.release().await;
    locks.shutdown().await;
    let ended = ended?;
    match released {
        Err(error) if error.is_lost() || ended.is_stopped => {
            let how = if matches!(error, LockError::Lost { forced: true, .. }) { "released by force" } else { "lost" };
            let ran =
                if ended.is_stopped { "the command was ended" } else { "the command ran partly without the lock" };
            Err(Failure::new(LOST, format!("lock `{name}` was {how}: {ran}")))
        }
        Err(error) => {
            // The command did run under its lock, which expires by itself.
            tell(&error);
            Ok(code_of(ended.status))
        }
        Ok(()) => Ok(code_of(ended.status)),
    }
}

/// Returns the error once every check for [`AWAY`] has found that the server refuses. A server that refuses for a moment, as in a failover,
/// is waited for.
///
/// A wait reports why it failed only when it ends. So a check is a second, short wait: it queues behind the first one in this process,
/// sends nothing, and ends with the reply to the first one's last ask. The first one keeps its place in the queue.
async fn lasting_refusal(locks: &LockManager, name: &str) -> LockError {
    let mut since = None;
    loop {
        tokio::time::sleep(LOOK).await;
        let look = locks.lock_named(name).timeout(LOOK).acquire().await;
        match look.err().filter(|error| error.kind() == ErrorKind::Unavailable) {
            Some(error) if since.get_or_insert_with(Instant::now).elapsed() >= AWAY => return error,
            Some(_) => {}
            None => since = None,
        }
    }
}

struct Ended {
    status: ExitStatus,
    /// Stopped because its lock was lost.
    is_stopped: bool,
}

async fn under(
    guard: &LockGuard,
    words: Vec<std::ffi::OsString>,
    kill_after: Duration,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let mut child = Command::new(&program).args(words).env("LOCKCTL_NAME", guard.key()).spawn().map_err(|error| {
        let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NO_PROGRAM };
        Failure::new(code, format!("{}: {error}", program.to_string_lossy()))
    })?;
    loop {
        tokio::select! {
            status = child.wait() => return Ok(Ended { status: status?, is_stopped: false }),
            () = guard.lost() => break,
            signal = signals.next() => signals::send(&child, signal),
        }
    }
    let status = stop(&mut child, kill_after, signals).await?;
    Ok(Ended { status, is_stopped: true })
}

/// Asks the command to end, and kills it if it does not.
async fn stop(child: &mut Child, kill_after: Duration, signals: &mut Signals) -> Result<ExitStatus, Failure> {
    signals::terminate(child);
    let patience = tokio::time::sleep(kill_after);
    tokio::pin!(patience);
    loop {
        tokio::select! {
            status = child.wait() => return Ok(status?),
            () = &mut patience => break,
            signal = signals.next() => signals::send(child, signal),
        }
    }
    tell(&format!("the command did not end within {kill_after:?}, and is killed"));
    child.start_kill()?;
    Ok(child.wait().await?)
}

/// The command's own exit code; for a command that a signal ended, the shells' code.
fn code_of(status: ExitStatus) -> ExitCode {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal: Option<i32> = None;
    let code = status.code().or(signal.map(|signal| SIGNALLED + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
}
