//! [`Postgres`]: a test's own server.

use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A Postgres on a free port of 127.0.0.1, in its own folder; it ends with this value.
#[derive(Debug)]
pub(crate) struct Postgres {
    programs: PathBuf,
    folder: TempDir,
    user: Option<u32>,
    port: u16,
}

impl Postgres {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Postgres refuses to run as root. Then it runs as the user that its package makes.
        let is_root = folder.path().metadata().unwrap().uid() == 0;
        let user = is_root.then(|| id_of("postgres"));
        chown(folder.path(), user, None).unwrap();
        let mut server = Self { programs: programs(), folder, user, port: 0 };
        assert!(server.run("initdb", &["-U", "postgres", "--auth=trust", "--no-sync"]), "initdb");
        // Another program may take a port between finding it and using it.
        let is_there = (0..3).any(|_| {
            server.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let options = format!("-p {} -c listen_addresses=127.0.0.1 -c fsync=off -k .", server.port);
            server.run("pg_ctl", &["start", "-s", "-w", "-l", "log", "-o", &options])
        });
        assert!(is_there, "no Postgres starts: {:?}", std::fs::read_to_string(server.folder.path().join("log")));
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Runs one of Postgres's programs in the server's folder.
    fn run(&self, program: &str, arguments: &[&str]) -> bool {
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).args(["-D", "data"]).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user);
        }
        command.status().unwrap().success()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Found by its folder, which only this test knows.
        self.run("pg_ctl", &["stop", "-s", "-m", "immediate"]);
    }
}

/// The folder of Postgres's own programs, which Debian keeps off the PATH.
fn programs() -> PathBuf {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(installed.map(|version| version.path().join("bin")));
    let is_there = |folder: &Path| folder.join("initdb").exists() && folder.join("pg_ctl").exists();
    folders.find(|folder| is_there(folder)).expect("there is a Postgres (./test.sh installs it)")
}

fn id_of(user: &str) -> u32 {
    let output = Command::new("id").args(["-u", user]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("Postgres's package has made its user")
}
