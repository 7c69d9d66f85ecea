//! No text shows a password or an owner token: no error with all its causes, no `Debug`, no event.

use std::error::Error as _;
use std::fmt::{Debug, Write as _};
use std::sync::Mutex;
use std::time::Duration;

use lock_runtime::{LockError, LockManager};
use tests::events::Events;
use tests::patience::eventually;
use tests::proxy::Proxy;
use tests::server::{Server, free_port};
use tokio::time::sleep;

const PASSWORD: &str = "canary-7f3a";
const SHORT: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_secs(10);

/// A server with a password, a proxy that sees every token, and all texts that the library gave out.
struct World {
    server: Server,
    proxy: Proxy,
    events: Events,
    said: Mutex<Vec<String>>,
}

impl World {
    fn with(options: &[&str]) -> Self {
        let events = Events::of_this_process();
        let server = Server::guarded(PASSWORD, options);
        let proxy = Proxy::before(&server);
        Self { server, proxy, events, said: Mutex::default() }
    }

    fn start() -> Self {
        Self::with(&[])
    }

    fn url(&self) -> String {
        self.proxy.url().replace("redis://", &format!("redis://:{PASSWORD}@"))
    }

    async fn manager(&self) -> LockManager {
        let builder = LockManager::builder().url(&self.url());
        self.record(&builder);
        let manager = builder.connect().await.unwrap();
        self.record(&manager);
        manager
    }

    fn record(&self, anything: &impl Debug) {
        self.said.lock().unwrap().push(format!("{anything:?}\n{anything:#?}"));
    }

    /// Records all texts of the error, and returns its message.
    fn record_error(&self, error: &LockError) -> String {
        let mut text = format!("{error}\n{error:?}\n{error:#?}");
        let mut cause = match error {
            LockError::Backend { problem, .. } | LockError::Connect { problem, .. } => problem.source(),
            _ => error.source(),
        };
        while let Some(error) = cause {
            let _ = write!(text, "\n{error}\n{error:?}");
            cause = error.source();
        }
        self.said.lock().unwrap().push(text);
        error.to_string()
    }

    /// Checks that all kinds of requests fail for this reason, and records the errors.
    async fn fails(&self, manager: &LockManager, reason: &str) {
        let request = || manager.lock("p", "k").timeout(SHORT);
        self.record(&request());
        for error in [
            request().acquire().await.unwrap_err(),
            request().fenced(true).acquire().await.unwrap_err(),
            request().run(async {}).await.unwrap_err(),
        ] {
            let text = self.record_error(&error);
            assert!(text.contains(reason), "{reason}: {text}");
        }
        if let Err(error) = request().try_acquire().await {
            self.record_error(&error);
        }
    }

    /// The password, and all managers' ids and tokens that the proxy saw.
    fn secrets(&self) -> Vec<String> {
        let mut secrets = vec![PASSWORD.to_owned()];
        for word in self.proxy.seen().concat() {
            let id = word.split('.').next().unwrap_or_default().rsplit(['|', ':']).next().unwrap_or_default();
            if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                secrets.push(id.to_owned());
            }
        }
        secrets.sort_unstable();
        secrets.dedup();
        secrets
    }

    async fn assert_no_secret_shows(self) {
        // Wait until the last background commands have failed and reported it.
        sleep(Duration::from_millis(300)).await;
        let secrets = self.secrets();
        let said = self.said.into_inner().unwrap();
        assert!(!said.is_empty());
        for text in said.iter().chain(&self.events.with(&[])) {
            for secret in &secrets {
                assert!(!text.contains(secret.as_str()), "{secret} in {text}");
            }
        }
    }
}

#[tokio::test]
async fn no_secret_shows_when_connecting_fails() {
    let world = World::start();
    let address = world.server.address();
    let nobody = free_port();
    for (url, reason) in [
        (format!("redis://:{PASSWORD}-wrong@{address}"), "password"),
        (format!("redis://somebody:{PASSWORD}@{address}"), "password"),
        (format!("redis://{PASSWORD}@{address}"), ""),
        (format!("redis://:{PASSWORD}@127.0.0.1:{nobody}"), "refused"),
        (format!("rediss://:{PASSWORD}@127.0.0.1:{nobody}"), "refused"),
        (format!("rediss://:{PASSWORD}@{address}"), "TLS"),
        (format!("redis://:{PASSWORD}@{address}/99"), ""),
        (format!("unix:///nowhere?pass={PASSWORD}"), ""),
        (format!("http://:{PASSWORD}@127.0.0.1"), "redis://"),
    ] {
        let builder = LockManager::builder().url(&url).connect_timeout(Duration::from_millis(400));
        world.record(&builder);
        let error = builder.connect().await.unwrap_err();
        let text = world.record_error(&error);
        assert!(text.contains(reason), "{reason}: {text}");
    }
    world.assert_no_secret_shows().await;
}

#[tokio::test]
async fn no_secret_shows_when_locks_are_busy_or_lost() {
    let world = World::start();
    let (north, south) = (world.manager().await, world.manager().await);
    let guard = north.lock("p", "k").fenced(true).acquire().await.unwrap();
    world.record(&guard);
    world.record(&guard.fencing_token());
    world.fails(&north, "busy").await;
    world.fails(&south, "busy").await;
    let crowded = LockManager::builder().url(&world.url()).max_waiters(1).connect().await.unwrap();
    let one = tokio::spawn(async move { crowded.lock("p", "k").timeout(SHORT).acquire().await.unwrap_err() });
    world.record_error(&one.await.unwrap());
    world.server.tell("DEL p:k");
    world.record_error(&guard.extend(LONG).await.unwrap_err());
    world.record(&guard);
    let text = world.record_error(&guard.release().await.unwrap_err());
    assert!(text.contains("lost"), "{text}");
    let body = async {
        sleep(Duration::from_millis(30)).await;
        world.server.tell("FLUSHALL");
        sleep(LONG).await;
    };
    let lost = north.lock("p", "k").expire(Duration::from_millis(300)).renew(true).run(body).await.unwrap_err();
    world.record_error(&lost);
    world.server.tell("RPUSH p:k a");
    world.fails(&north, "WRONGTYPE").await;
    north.shutdown().await;
    world.fails(&north, "shut down").await;
    world.assert_no_secret_shows().await;
}

#[tokio::test]
async fn no_secret_shows_when_a_server_refuses_writes() {
    let world = World::start();
    let manager = world.manager().await;
    manager.lock("warm", "up").acquire().await.unwrap().release().await.unwrap();
    world.server.tell("REPLICAOF 127.0.0.1 1");
    world.fails(&manager, "READONLY").await;
    world.server.tell("REPLICAOF NO ONE");
    world.server.tell("CONFIG SET min-replicas-to-write 1");
    world.fails(&manager, "NOREPLICAS").await;
    world.server.tell("CONFIG SET min-replicas-to-write 0");
    world.server.tell("CONFIG SET maxmemory 1000");
    let error = manager.lock("p", "k").timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert!(world.record_error(&error).contains("OOM"));
    world.assert_no_secret_shows().await;
}

/// A server that can't write its snapshot refuses all writes.
#[tokio::test]
async fn no_secret_shows_when_a_server_cannot_save() {
    let world = World::with(&["--save", "3600 1"]);
    let manager = world.manager().await;
    std::fs::create_dir_all(world.server.folder().join("dump.rdb/in-the-way")).unwrap();
    world.server.tell("SET any thing");
    world.server.tell("BGSAVE");
    let failed = || world.server.ask::<String>("INFO persistence").contains("rdb_last_bgsave_status:err");
    eventually("the snapshot fails", Duration::from_secs(5), failed).await;
    world.fails(&manager, "MISCONF").await;
    world.assert_no_secret_shows().await;
}

#[tokio::test]
async fn no_secret_shows_when_another_clients_script_blocks_the_server() {
    let world = World::with(&["--busy-reply-threshold", "10"]);
    let manager = world.manager().await;
    let client = redis::Client::open(world.server.url()).unwrap();
    let endless = std::thread::spawn(move || {
        let mut connection = client.get_connection().unwrap();
        let outcome: redis::RedisResult<()> = redis::cmd("EVAL").arg("while true do end").arg(0).query(&mut connection);
        outcome.unwrap_err();
    });
    let is_busy = async {
        loop {
            match manager.lock("p", "other").timeout(Duration::ZERO).acquire().await {
                Err(error) if world.record_error(&error).contains("BUSY") => return,
                _ => sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(LONG, is_busy).await.unwrap();
    world.fails(&manager, "BUSY").await;
    world.server.tell("SCRIPT KILL");
    endless.join().unwrap();
    world.assert_no_secret_shows().await;
}

#[tokio::test]
async fn no_secret_shows_when_a_server_is_silent_or_gone() {
    let mut world = World::start();
    let manager = world.manager().await;
    let guard = manager.lock("p", "held").acquire().await.unwrap();
    world.server.freeze();
    world.fails(&manager, "answer").await;
    world.record_error(&guard.extend(LONG).await.unwrap_err());
    world.server.thaw();
    world.server.kill();
    world.fails(&manager, "").await;
    world.record_error(&guard.release().await.unwrap_err());
    world.assert_no_secret_shows().await;
}

/// Redis quotes the arguments of an unknown command, for example of a renamed one: the token, the password.
#[tokio::test]
async fn no_secret_shows_when_commands_were_renamed() {
    for (renamed, connects) in [("SET", true), ("EVALSHA", false), ("HELLO", false), ("TIME", false)] {
        let world = World::with(&["--rename-command", renamed, ""]);
        match LockManager::builder().url(&world.url()).connect().await {
            Ok(manager) => {
                assert!(connects, "{renamed}");
                let outcome = match manager.lock("p", "k").acquire().await {
                    Ok(guard) => guard.release().await,
                    Err(error) => Err(error),
                };
                let text = world.record_error(&outcome.unwrap_err());
                assert!(text.contains(&format!("unknown command '{renamed}'")), "{text}");
            }
            Err(error) => {
                assert!(!connects, "{renamed}: {error}");
                world.record_error(&error);
            }
        }
        world.assert_no_secret_shows().await;
    }
}

#[tokio::test]
async fn no_secret_shows_when_a_user_lacks_rights() {
    let world = World::start();
    world.server.tell(&format!("ACL SETUSER poor on >{PASSWORD} ~p:* ~{{p:* &* +@all -del -zscore"));
    let url = world.url().replace("redis://:", "redis://poor:");
    let (north, south) = (LockManager::connect(&url).await.unwrap(), world.manager().await);
    let guard = south.lock("p", "k").acquire().await.unwrap();
    world.fails(&north, "").await;
    guard.release().await.unwrap();
    let guard = north.lock("p", "k").acquire().await.unwrap();
    let text = world.record_error(&guard.release().await.unwrap_err());
    assert!(text.contains("+del"), "{text}");
    world.record_error(&north.lock("q", "k").acquire().await.unwrap_err());
    drop(north.lock("p", "other").acquire().await.unwrap());
    world.assert_no_secret_shows().await;
}
