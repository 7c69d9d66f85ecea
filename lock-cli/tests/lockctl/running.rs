//! `run`: a command under a lock.

use std::io::Write as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tests::patience::eventually_blocking;
use tests::server::{Server, free_port};

use crate::{Held, SOON, code, on, start, text};

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Waits until the lock is held, or until it is not.
fn until_held(server: &Server, name: &str, is_held: bool) {
    eventually_blocking("the lock changes hands", SOON, || server.owner(name).is_some() == is_held);
}

/// Waits until the command has written this file.
fn until_there(path: &std::path::Path) {
    eventually_blocking("the command has come so far", SOON, || path.exists());
}

#[test]
fn the_exit_code_is_the_commands() {
    let server = Server::start();
    let url = server.url();
    for (script, expected) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)] {
        on(&url, &["run", "job:1", "--", "sh", "-c", script]).assert().code(expected);
        assert!(server.owner("job:1").is_none(), "{script}");
    }
    let missing = on(&url, &["run", "job:1", "--", "no-such-program-here"]).assert().code(127);
    assert!(text(&missing.get_output().stderr).contains("no-such-program-here"), "{missing}");
    on(&url, &["run", "job:1", "--", "/etc/passwd"]).assert().code(126);
    assert!(server.owner("job:1").is_none());
}

#[test]
fn the_command_has_its_arguments_its_input_and_its_output() {
    let server = Server::start();
    let shown =
        on(&server.url(), &["run", "job:1", "sh", "-c", "cat; echo $1 $LOCKCTL_NAME; echo oops >&2", "x", "--json"])
            .write_stdin("in\n")
            .assert()
            .success();
    assert_eq!(text(&shown.get_output().stdout), "in\n--json job:1\n");
    assert_eq!(text(&shown.get_output().stderr), "oops\n");
}

#[test]
fn the_lock_of_a_command_shows_its_note() {
    let server = Server::start();
    let url = server.url();
    let mut running = start(&url, &["run", "--note", "night export", "job:1", "--", "sleep", "600"]);
    until_held(&server, "job:1", true);
    let shown = on(&url, &["who", "job:1"]).assert().success();
    assert!(text(&shown.get_output().stdout).contains("night export"), "{shown}");
    send(&running, Signal::TERM);
    running.wait().unwrap();
    on(&url, &["run", "--note", &"x".repeat(129), "job:1", "--", "true"]).assert().code(2);
}

#[test]
fn a_busy_lock_is_75_and_the_holder_is_named() {
    let held = Held::new("till 3");
    let guard = held.runtime.block_on(held.locks.lock("job", &1).acquire()).unwrap();
    for timeout in ["0", "100ms", "0.1"] {
        let busy =
            on(&held.server.url(), &["run", "--timeout", timeout, "job:1", "--", "echo", "ran"]).assert().code(75);
        assert!(busy.get_output().stdout.is_empty() && text(&busy.get_output().stderr).contains("till 3"), "{busy}");
    }
    // Without a timeout it waits.
    let mut waiting = start(&held.server.url(), &["run", "job:1", "--", "echo", "ran"]);
    eventually_blocking("it waits", SOON, || held.server.keys().contains_key("{job:1}:queue"));
    assert!(waiting.try_wait().unwrap().is_none());
    held.runtime.block_on(guard.release()).unwrap();
    let ended = waiting.wait_with_output().unwrap();
    assert_eq!((code(&ended), text(&ended.stdout).as_str()), (0, "ran\n"));
}

#[test]
fn commands_under_one_lock_do_not_overlap() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let script = "mkdir \"$0/in\" || exit 9; sleep 0.05; rmdir \"$0/in\"";
    let path = folder.path().to_str().unwrap();
    let all: Vec<Child> =
        (0..6).map(|_| start(&server.url(), &["run", "job:1", "--", "sh", "-c", script, path])).collect();
    for child in all {
        let ended = child.wait_with_output().unwrap();
        assert_eq!(code(&ended), 0, "{ended:?}");
    }
}

#[test]
fn signals_are_passed_on() {
    let server = Server::start();
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::HUP, "HUP"), (Signal::USR1, "USR1"), (Signal::INT, "INT")] {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let script = format!("trap 'echo got {name}; exit 3' {name}; touch \"$0\"; while :; do sleep 0.02; done");
        let child = start(&server.url(), &["run", "job:1", "--", "sh", "-c", &script, ready.to_str().unwrap()]);
        until_there(&ready);
        send(&child, signal);
        let ended = child.wait_with_output().unwrap();
        assert_eq!((code(&ended), text(&ended.stdout)), (3, format!("got {name}\n")));
        assert!(server.owner("job:1").is_none());
    }
}

#[test]
fn a_signal_ends_the_wait_for_the_lock() {
    let held = Held::new("l");
    let _guard = held.runtime.block_on(held.locks.lock("job", &1).acquire()).unwrap();
    let waiting = start(&held.server.url(), &["run", "job:1", "--", "true"]);
    eventually_blocking("it waits", SOON, || held.server.keys().contains_key("{job:1}:queue"));
    send(&waiting, Signal::TERM);
    assert_eq!(code(&waiting.wait_with_output().unwrap()), 143);
    eventually_blocking("it has left the queue", SOON, || !held.server.keys().contains_key("{job:1}:queue"));
}

#[test]
fn a_lost_lock_ends_its_command_and_is_74() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let script = "trap 'echo told; exit 0' TERM; touch \"$0\"; while :; do sleep 0.02; done";
    let child = start(&server.url(), &["run", "job:1", "--", "sh", "-c", script, ready.to_str().unwrap()]);
    until_there(&ready);
    on(&server.url(), &["release", "--force", "job:1"]).assert().success();
    let ended = child.wait_with_output().unwrap();
    assert_eq!((code(&ended), text(&ended.stdout).as_str()), (74, "told\n"));
    assert!(text(&ended.stderr).contains("released by force"), "{ended:?}");
}

#[test]
fn a_command_that_does_not_end_is_killed() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let script = "trap '' TERM; touch \"$0\"; while :; do sleep 0.02; done";
    let arguments = ["run", "--kill-after", "300ms", "job:1", "--", "sh", "-c", script, ready.to_str().unwrap()];
    let child = start(&server.url(), &arguments);
    until_there(&ready);
    let force = start(&server.url(), &["release", "--force", "job:1"]);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(code(&ended), 74);
    assert!(text(&ended.stderr).contains("killed"), "{ended:?}");
    assert_eq!(code(&force.wait_with_output().unwrap()), 0);
}

#[test]
fn the_lease_ends_by_itself_when_the_server_goes_away_and_the_command_with_it() {
    let mut server = Server::start();
    let child = start(&server.url(), &["run", "--expire", "1s", "job:1", "--", "sleep", "60"]);
    until_held(&server, "job:1", true);
    server.kill();
    assert_eq!(code(&child.wait_with_output().unwrap()), 74);
}

#[test]
fn a_killed_program_leaves_the_lock_for_its_lease() {
    let server = Server::start();
    let mut child = start(&server.url(), &["run", "--expire", "3s", "job:1", "--", "cat"]);
    until_held(&server, "job:1", true);
    // The command ends when its input ends.
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"x").unwrap();
    child.kill().unwrap();
    drop(input);
    child.wait().unwrap();
    assert!(server.owner("job:1").is_some());
    until_held(&server, "job:1", false);
}

/// It would wait for ever: a replica grants no lock, and the connection stays alive.
#[test]
fn a_server_that_refuses_ends_the_wait_for_the_lock() {
    let server = Server::start();
    server.tell(&format!("REPLICAOF 127.0.0.1 {}", free_port()));
    let refused = on(&server.url(), &["run", "job:1", "--", "echo", "ran"]).assert().code(69);
    assert!(refused.get_output().stdout.is_empty(), "{refused}");
    assert!(text(&refused.get_output().stderr).contains("READONLY"), "{refused}");
}

/// A waiter keeps its place: the first of two waiters is the first to get the lock.
#[test]
fn a_long_wait_keeps_its_place() {
    let held = Held::new("l");
    let guard = held.runtime.block_on(held.locks.lock("job", &1).acquire()).unwrap();
    let queue = || held.server.ask::<Vec<String>>("ZRANGE {job:1}:queue 0 -1");
    let waiting = start(&held.server.url(), &["run", "--label", "first", "job:1", "--", "true"]);
    eventually_blocking("it waits", SOON, || queue().len() == 1);
    let behind = start(&held.server.url(), &["run", "--label", "second", "job:1", "--", "true"]);
    eventually_blocking("another waits", SOON, || queue().len() == 2);
    // Longer than the checks for a refusal.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(6) {
        let waiting = queue();
        assert!(waiting.len() == 2 && waiting[0].ends_with("@first"), "{waiting:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    held.runtime.block_on(guard.release()).unwrap();
    for child in [waiting, behind] {
        assert_eq!(code(&child.wait_with_output().unwrap()), 0);
    }
}

#[test]
fn a_signal_that_is_ignored_stays_ignored_by_the_command() {
    let server = Server::start();
    let lockctl = "trap '' HUP INT; exec \"$0\" run job:1 -- sh -c 'kill -HUP $PPID $$; kill -INT $$; echo ran'";
    let mut command = Command::new("sh");
    command.args(["-c", lockctl, env!("CARGO_BIN_EXE_lockctl")]).env("REDIS_URL", server.url());
    let ended = command.output().unwrap();
    assert_eq!((code(&ended), text(&ended.stdout).as_str()), (0, "ran\n"), "{ended:?}");
}
