//! `lockctl watch`

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use lock_runtime::LockManager;
use tokio::time::{MissedTickBehavior, interval};

use crate::arguments::Watch;
use crate::failure::Failure;
use crate::output::{BAD, HEAD, Lock, Output, clean, lock_table};
use crate::place::Place;
use crate::verbs::list::{Found, find};

/// The shortest interval: the servers have other work.
const SHORTEST: Duration = Duration::from_millis(50);

pub(crate) async fn run(place: &Place, output: &Output, watch: &Watch) -> Result<ExitCode, Failure> {
    let locks = place.connect().await?;
    let screen = (!output.is_json() && std::io::stdout().is_terminal()).then(Screen::enter).transpose()?;
    let watched = tokio::select! {
        watched = look_again_and_again(&locks, output, watch, screen.is_some()) => watched,
        () = wait_for_stop_signal() => Ok(ExitCode::SUCCESS),
    };
    drop(screen);
    watched
}

/// Returns the exit code of the last update.
async fn look_again_and_again(
    locks: &LockManager,
    output: &Output,
    watch: &Watch,
    is_live: bool,
) -> Result<ExitCode, Failure> {
    let mut beat = interval(watch.interval.max(SHORTEST));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut looks, mut code) = (0, ExitCode::SUCCESS);
    while watch.count.is_none_or(|count| looks < count) {
        beat.tick().await;
        looks += 1;
        // A server that is away may come back.
        let found = find(locks, &watch.list).await;
        code = found.code();
        if is_live {
            Screen::draw(&frame(&found))?;
        } else {
            found.show(output)?;
        }
    }
    Ok(code)
}

/// One frame of the live table.
fn frame(found: &Found) -> String {
    let waiting: usize = found.locks.iter().map(|lock: &Lock| lock.waiting.len()).sum();
    let more = if found.is_cut { " (and more)" } else { "" };
    let mut text = format!("{HEAD}{} locks{HEAD:#}{more}, {waiting} processes wait\n", found.locks.len());
    for problem in &found.problems {
        // Writing to a `String` can't fail.
        let _ = writeln!(text, "{BAD}{}{BAD:#}", clean(problem));
    }
    text.push('\n');
    text += &lock_table(&found.locks);
    text
}

/// The terminal's alternate screen, without a cursor. Dropping it restores the main one.
struct Screen;

impl Screen {
    fn enter() -> Result<Self, Failure> {
        let mut out = anstream::stdout().lock();
        out.write_all(b"\x1b[?1049h\x1b[?25l")?;
        out.flush()?;
        Ok(Self)
    }

    /// Draws over the last frame: each line is cleared after its end, so nothing flickers.
    fn draw(text: &str) -> Result<(), Failure> {
        let height = terminal_size::terminal_size().map_or(24, |(_, height)| usize::from(height.0));
        let lines: Vec<&str> = text.lines().take(height.saturating_sub(2)).collect();
        let mut out = anstream::stdout().lock();
        write!(out, "\x1b[H{}\x1b[K\r\n\x1b[J\r\nCtrl-C ends it\x1b[K", lines.join("\x1b[K\r\n"))?;
        out.flush()?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = anstream::stdout().lock();
        // If the terminal is gone, there is no screen to restore.
        let _ = out.write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = out.flush();
    }
}

/// Waits for Ctrl-C, or for the signal to end.
async fn wait_for_stop_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut term) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = term.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
