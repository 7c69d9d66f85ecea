//! Signals: this program passes the signals that it receives on to its command.

use std::io::{self, IsTerminal as _};
use std::pin::Pin;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::signal::unix::{Signal as Incoming, SignalKind, signal};

/// The signals passed on. SIGKILL and SIGSTOP can't be caught. If lockctl is killed, its command runs on without the lock.
const PASSED_ON: [Signal; 6] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
/// Shells add this to a signal's number.
const SIGNALLED: i32 = 128;

/// The stream of signals.
#[derive(Debug)]
pub(super) struct Signals {
    incoming: Vec<(Signal, Incoming)>,
    /// A terminal sends the signals of its keys to the command as well.
    has_terminal: bool,
}

impl Signals {
    /// A signal that was ignored when this program started, as under `nohup`, stays ignored here and in the command.
    pub(super) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let is_heard = |sent: &Signal| ignored & (1 << (sent.as_raw() - 1)) == 0;
        let listen = |sent: Signal| Ok((sent, signal(SignalKind::from_raw(sent.as_raw()))?));
        let incoming = PASSED_ON.into_iter().filter(is_heard).map(listen).collect::<io::Result<_>>()?;
        Ok(Self { incoming, has_terminal: io::stdin().is_terminal() })
    }

    async fn any(&mut self) -> Signal {
        if self.incoming.is_empty() {
            return std::future::pending().await;
        }
        let waiting = self.incoming.iter_mut().map(|(signal, incoming)| {
            let came: Pin<Box<dyn Future<Output = Signal> + Send + '_>> = Box::pin(async {
                incoming.recv().await;
                *signal
            });
            came
        });
        futures_util::future::select_all(waiting).await.0
    }

    /// The next signal for the command.
    pub(super) async fn next(&mut self) -> Signal {
        loop {
            let signal = self.any().await;
            let is_key = matches!(signal, Signal::INT | Signal::QUIT);
            if !(is_key && self.has_terminal) {
                return signal;
            }
        }
    }

    /// The exit code when a signal ends the wait for the lock.
    pub(super) async fn ended_by(&mut self) -> u8 {
        u8::try_from(SIGNALLED + self.any().await.as_raw()).unwrap_or(1)
    }
}

/// The ignored signals, one bit each. Linux has them in a file. Elsewhere only unsafe code could ask, so none counts as ignored.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

/// Sends the signal to the child. A command that has ended needs none.
pub(super) fn send(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}

pub(super) fn terminate(child: &Child) {
    send(child, Signal::TERM);
}
