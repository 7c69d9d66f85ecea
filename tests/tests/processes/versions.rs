//! Two versions of the library on one server, as in a rolling deploy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::server::Server;

/// A version that was in use. Until there is a tag, it is this commit, whose wire format is number 1. A new format number needs another
/// commit here, because versions with different formats make no progress together.
const OLDER: &str = "57ad4d95d66d0d176496a0c47008cc7d69f04640";
const SECONDS: &str = "8";

const CURRENT: &str = env!("CARGO_BIN_EXE_neighbour");
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin/neighbour.rs");
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The quick variant: one version, in two processes.
#[test]
fn two_processes_share_each_kind_of_lock() {
    share(Path::new(CURRENT));
}

#[test]
fn an_older_version_and_this_one_share_each_kind_of_lock() {
    let folder = tempfile::tempdir().unwrap();
    share(&build(OLDER, folder.path()));
}

/// Builds the program `neighbour` with this commit of the library.
fn build(commit: &str, folder: &Path) -> PathBuf {
    let archive = folder.join("archive.tar");
    let run = |command: &mut Command| {
        let done = command.output().expect("the program runs");
        assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    run(Command::new("git").args(["-C", REPOSITORY, "archive", commit, "--output"]).arg(&archive));
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(folder));
    let package = folder.join("neighbour");
    fs::create_dir_all(package.join("src")).unwrap();
    fs::copy(SOURCE, package.join("src/main.rs")).unwrap();
    // Use the commit's own lock file.
    fs::copy(folder.join("Cargo.lock"), package.join("Cargo.lock")).unwrap();
    let manifest = "[package]\nname = \"neighbour\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
                    lock-runtime = { path = \"../lock-runtime\" }\n\
                    tokio = { version = \"1\", features = [\"macros\", \"rt\", \"time\"] }\n";
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    let target = folder.join("target");
    run(Command::new(env!("CARGO")).arg("build").arg("--target-dir").arg(&target).current_dir(&package));
    target.join("debug/neighbour")
}

/// One hold.
struct Hold<'a> {
    kind: &'a str,
    from: u128,
    until: u128,
    fence: u64,
    is_older: bool,
}

/// Runs `older` and this version at the same time: exclusive holds never overlap, fencing tokens grow across versions, and neither
/// version starves.
fn share(older: &Path) {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    // Write to files: a process that blocks on a full pipe would keep its locks.
    let start = |program: &Path, label: &str| {
        let output = fs::File::create(folder.path().join(label)).unwrap();
        let arguments = ["work", &server.url(), label, SECONDS];
        Command::new(program).args(arguments).stdout(output).spawn().expect("it starts")
    };
    for mut child in [start(older, "older"), start(Path::new(CURRENT), "newer")] {
        assert!(child.wait().unwrap().success());
    }
    let told = ["older", "newer"].map(|label| fs::read_to_string(folder.path().join(label)).unwrap());
    let mut holds = Vec::new();
    for (text, is_older) in told.iter().zip([true, false]) {
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [kind, from, until, fence] = words.as_slice() else { panic!("older: {is_older}: {line}") };
            let (from, until, fence) = (from.parse().unwrap(), until.parse().unwrap(), fence.parse().unwrap());
            holds.push(Hold { kind, from, until, fence, is_older });
        }
    }
    holds.sort_by_key(|hold| hold.from);
    let of = |kinds: &[&str]| holds.iter().filter(|hold| kinds.contains(&hold.kind)).collect::<Vec<_>>();
    let alone = of(&["alone"]);
    for pair in alone.windows(2) {
        assert!(
            pair[1].from >= pair[0].until && pair[1].fence > pair[0].fence,
            "two at once, or a token that does not grow"
        );
    }
    assert_exclusive(&of(&["read", "write"]), |one, other| one.kind == "write" || other.kind == "write");
    let permits = of(&["permit"]);
    for hold in &permits {
        let at_once = permits.iter().filter(|other| other.from <= hold.from && hold.from < other.until).count();
        assert!(at_once <= 2, "{at_once} permits of two");
    }
    for kind in ["alone", "read", "write", "permit"] {
        let of_kind = of(&[kind]);
        let older = of_kind.iter().filter(|hold| hold.is_older).count();
        eprintln!("{kind}: {older} of {}", of_kind.len());
        assert!((of_kind.len() / 5..of_kind.len() * 4 / 5).contains(&older), "{kind}: {older} of {}", of_kind.len());
    }
    let passed_on = alone.windows(2).filter(|pair| pair[0].is_older != pair[1].is_older).count();
    assert!(passed_on > 20, "{passed_on}");

    // Each version adopts the other's tickets.
    for [giver, adopter] in [[older, Path::new(CURRENT)], [Path::new(CURRENT), older]] {
        let ticket = Command::new(giver).args(["give", &server.url()]).output().unwrap();
        let ticket = String::from_utf8(ticket.stdout).unwrap();
        let adopted = Command::new(adopter).args(["adopt", &server.url(), ticket.trim()]).output().unwrap();
        assert!(adopted.status.success(), "{adopted:?}");
    }
    // Both processes end by themselves.
    let stays = |name: &String| name.ends_with(":fence") || name.ends_with(":head");
    let left: Vec<_> = server.keys().into_keys().filter(|name| !stays(name)).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn assert_exclusive(holds: &[&Hold<'_>], excludes: impl Fn(&Hold<'_>, &Hold<'_>) -> bool) {
    for (place, hold) in holds.iter().enumerate() {
        let later = holds[place + 1..].iter().take_while(|later| later.from < hold.until);
        for other in later {
            assert!(!excludes(hold, other), "{} and {} at once", hold.kind, other.kind);
        }
    }
}
