//! [`Server`]: a Redis of the yardstick's own.

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
    pub(crate) fn start() -> Result<Self, String> {
        let folder = TempDir::new().map_err(|error| format!("no folder for the server: {error}"))?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        drop(listener);
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server can't be started; is it installed? {error}"))?;
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
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
