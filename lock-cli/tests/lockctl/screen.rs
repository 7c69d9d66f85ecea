//! `watch`, on a terminal and elsewhere; and colours.

use std::process::Command;

use rexpect::session::spawn_command;
use tests::server::Server;

use crate::{Held, hearing, on, text};

/// Milliseconds to wait for a text on the terminal.
const PATIENCE: Option<u64> = Some(10_000);

#[test]
fn a_live_table_shows_who_holds_and_ends_with_ctrl_c() {
    let held = Held::new("till 3");
    let guard = held.runtime.block_on(held.locks.lock("order", &7).acquire()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockctl"));
    command.args(["watch", "--interval", "100ms"]).env("REDIS_URL", held.server.url()).env("TERM", "xterm");
    let mut terminal = spawn_command(command, PATIENCE).unwrap();
    terminal.exp_string("\x1b[?1049h").unwrap();
    terminal.exp_string("1 locks").unwrap();
    terminal.exp_string("order:7").unwrap();
    terminal.exp_string("till 3").unwrap();
    held.runtime.block_on(guard.release()).unwrap();
    terminal.exp_string("0 locks").unwrap();
    terminal.send_control('c').unwrap();
    terminal.exp_string("\x1b[?1049l").unwrap();
    terminal.exp_eof().unwrap();
}

#[test]
fn an_output_that_is_no_terminal_gets_lines() {
    let held = Held::new("l");
    let _guard = held.runtime.block_on(held.locks.lock("order", &7).acquire()).unwrap();
    let shown = on(&held.server.url(), &["--json", "watch", "--count", "3", "--interval", "50ms"]).assert().success();
    let shown = text(&shown.get_output().stdout);
    assert_eq!(shown.lines().count(), 3);
    assert!(shown.lines().all(|line| line.contains("order:7")) && !shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn colours_are_for_terminals() {
    let held = Held::new("l");
    let colours = |no_color: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockctl"));
        command.args(["who", "order:7"]).env("REDIS_URL", held.server.url()).env("TERM", "xterm");
        command.env_remove("NO_COLOR");
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let mut terminal = spawn_command(command, PATIENCE).unwrap();
        terminal.exp_eof().unwrap().contains("\x1b[32m")
    };
    assert!(colours(false) && !colours(true));
}

#[test]
fn ctrl_c_reaches_the_command_of_run_once() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let script = "trap 'echo got-int' INT; echo ready; while [ ! -e \"$0\" ]; do sleep 0.05; done; echo the-end";
    let mut command = hearing(&["run", "job:1", "--", "sh", "-c", script]);
    command.arg(&end).env("REDIS_URL", server.url());
    let mut terminal = spawn_command(command, PATIENCE).unwrap();
    terminal.exp_string("ready").unwrap();
    terminal.send_control('c').unwrap();
    terminal.exp_string("got-int").unwrap();
    std::fs::write(&end, "").unwrap();
    let rest = terminal.exp_eof().unwrap();
    assert!(rest.contains("the-end") && !rest.contains("got-int"), "{rest:?}");
}
