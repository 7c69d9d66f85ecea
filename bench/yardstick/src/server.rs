//! [`Server`]: a Redis of the yardstick's own.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A `redis-server` on a free port; it ends with this value.
pub(crate) struct Server {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl Server {
    /// `under` another program, or by itself.
    pub(crate) fn start(under: &[&str]) -> Result<Self, String> {
        let folder = TempDir::new().map_err(|error| format!("no folder for the server: {error}"))?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        drop(listener);
        let number = port.to_string();
        let own = ["redis-server", "--port", &number, "--bind", "127.0.0.1", "--save", "", "--dir"];
        let words = [under, &own].concat();
        let Some((program, words)) = words.split_first() else { return Err("nothing to start".to_owned()) };
        let process = Command::new(program)
            .args(words)
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program} can't be started; is it installed? {error}"))?;
        let server = Self { process, port, _folder: folder };
        let patience = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > patience {
                return Err("redis-server does not answer".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends it, and returns its output and that of the program above it.
    pub(crate) fn end(mut self) -> Result<Vec<u8>, String> {
        let ended = TcpStream::connect(("127.0.0.1", self.port))
            .and_then(|mut connection| connection.write_all(b"SHUTDOWN NOSAVE\r\n"));
        ended.map_err(|error| format!("redis-server does not end: {error}"))?;
        let mut said = Vec::new();
        if let Some(stderr) = &mut self.process.stderr {
            stderr.read_to_end(&mut said).map_err(|error| error.to_string())?;
        }
        Ok(said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
