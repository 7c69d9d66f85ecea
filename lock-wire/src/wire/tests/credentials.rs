//! Credentials that change: which connections get them and when, and what happens when a provider fails.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream, pending};
use redis::{ErrorKind, IntoConnectionInfo as _, RedisError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::clock::Drift;
use crate::endpoint::Endpoint;
use crate::failure::CallError;
use crate::link::{Common, Link};
use crate::mutants::{Mutant, Seeded};
use crate::mutex::Mutex;
use crate::wire::Trust;
use crate::wire::credentials::{Credentials, Login, PAUSES, Provider};

const SECOND: Duration = Duration::from_secs(1);

type Given = Result<Login, RedisError>;

fn login(password: &str) -> Login {
    Login::new("ada", password)
}

fn failure(text: &str) -> Given {
    Err((ErrorKind::Client, "no token", text.to_owned()).into())
}

/// A provider that returns the next of these streams on each call, and an empty one after the last.
fn giving(answers: impl IntoIterator<Item = BoxStream<'static, Given>>) -> (Provider, Arc<AtomicUsize>) {
    let answers = Mutex::new(answers.into_iter().collect::<VecDeque<_>>());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let provider = Provider::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        answers.lock().pop_front().unwrap_or_else(|| pending().boxed())
    });
    (provider, asked)
}

/// A provider that yields what the sender sends.
fn giving_what_is_sent() -> (UnboundedSender<Given>, Provider) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let (provider, _) = giving([stream::poll_fn(move |context| receiver.poll_recv(context)).boxed()]);
    (sender, provider)
}

fn once(given: Given) -> BoxStream<'static, Given> {
    stream::iter([given]).boxed()
}

/// A stream that never ends after its last item.
fn and_stays(given: impl IntoIterator<Item = Given>) -> BoxStream<'static, Given> {
    stream::iter(given.into_iter().collect::<Vec<_>>()).chain(pending()).boxed()
}

fn text_of(error: CallError) -> String {
    match error {
        CallError::Credentials(text, _) => text,
        other => format!("{other:?}"),
    }
}

/// Follows the provider, and records the reports.
fn follow(provider: Provider) -> (Credentials, Arc<Mutex<Vec<String>>>) {
    let (credentials, follower) = Credentials::new(SECOND);
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let tell = move |server: Option<&str>, error| telling.lock().push(format!("{server:?} {}", text_of(error)));
    tokio::spawn(follower.run(provider, tell));
    (credentials, told)
}

async fn password(credentials: &Credentials) -> Result<String, String> {
    credentials.newest().await.map(|login| login.password.clone()).map_err(text_of)
}

/// Lets the follower do all that it can do now.
async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_are_waited_for_and_not_for_ever() {
    let (sender, provider) = giving_what_is_sent();
    let (credentials, told) = follow(provider);
    let start = Instant::now();
    assert!(password(&credentials).await.unwrap_err().contains("none yet"));
    assert_eq!(start.elapsed(), SECOND * 3 / 4);
    // A later caller fails at once.
    assert!(password(&credentials).await.is_err());
    assert_eq!(start.elapsed(), SECOND * 3 / 4);
    sender.send(Ok(login("one"))).unwrap();
    settle().await;
    assert_eq!(password(&credentials).await.unwrap(), "one");
    assert!(told.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failing_provider_is_reported_and_asked_again_ever_later_and_its_last_credentials_stay() {
    let answers = [once(failure("sealed")), once(failure("still sealed")), once(Ok(login("one")))];
    let (provider, asked) =
        giving(answers.into_iter().chain((0..9).map(|_| and_stays([Ok(login("one")), failure("gone")]))));
    let start = Instant::now();
    let (credentials, told) = follow(provider);
    assert!(password(&credentials).await.unwrap_err().contains("sealed"), "not reported at once");
    for (passed, count) in [(0, 1), (99, 1), (101, 2), (299, 2), (301, 3), (100_000, 3)] {
        settle().await;
        sleep_until(start + Duration::from_millis(passed)).await;
        settle().await;
        assert_eq!(asked.load(Ordering::Relaxed), count, "{passed}");
    }
    // A stream that ended after it sent some is complete.
    assert_eq!(password(&credentials).await.unwrap(), "one");
    assert_eq!(told.lock().len(), 1, "{told:?}", told = told.lock());
    // Until a server refuses them.
    let used = credentials.newest().await.unwrap();
    let refused = || -> RedisError { (ErrorKind::AuthenticationFailed, "WRONGPASS").into() };
    assert!(!text_of(credentials.refusal(&used, refused())).contains("provider"));
    sleep(PAUSES.0 * 3 / 2).await;
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    assert_eq!(password(&credentials).await.unwrap(), "one");
    assert!(told.lock().iter().any(|told| told.contains("gone")));
    let text = text_of(credentials.refusal(&used, refused()));
    assert!(text.contains("WRONGPASS") && text.contains("gone"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_panics_or_ends_is_asked_again() {
    let panicking = stream::poll_fn(|_| panic!("a bug of the provider")).boxed();
    let (provider, _) = giving([panicking, stream::empty().boxed(), and_stays([Ok(login("one"))])]);
    let (credentials, told) = follow(provider);
    assert!(password(&credentials).await.unwrap_err().contains("panicked"));
    sleep(SECOND / 8).await;
    assert!(password(&credentials).await.unwrap_err().contains("ended"));
    sleep(SECOND / 4).await;
    assert_eq!(password(&credentials).await.unwrap(), "one");
    assert_eq!(told.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn following_ends_with_the_last_one_that_may_ask() {
    // Even if the stream is always ready.
    for stream in [pending().boxed(), stream::repeat_with(|| Ok(login("one"))).boxed()] {
        let (provider, _) = giving([stream]);
        let (credentials, follower) = Credentials::new(SECOND);
        let following = tokio::spawn(follower.run(provider, |_, _| ()));
        let other = credentials.clone();
        drop(credentials);
        settle().await;
        assert!(!following.is_finished());
        drop(other);
        following.await.unwrap();
    }
}

#[test]
fn no_credentials_are_shown() {
    let (credentials, _follower) = Credentials::new(SECOND);
    let shown = format!("{:?} {credentials:?} {:?}", login("canary"), giving([]).0);
    assert!(!shown.contains("canary") && !shown.contains("ada"), "{shown}");
}

/// A server that accepts one password, and records who used it in which command.
#[derive(Clone, Default)]
struct Server {
    password: Arc<Mutex<String>>,
    came: Arc<Mutex<Vec<String>>>,
    /// The reply to `HELLO` waits for this.
    greets: Arc<Notify>,
    is_slow: bool,
}

impl Server {
    async fn start(password: &str, is_slow: bool) -> (Self, u16) {
        let server = Self { is_slow, ..Self::default() };
        server.takes(password);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let this = server.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let this = this.clone();
                tokio::spawn(async move {
                    let mut read = [0; 4096];
                    while let Ok(count @ 1..) = socket.read(&mut read).await {
                        for words in commands(std::str::from_utf8(&read[..count]).unwrap()) {
                            let reply = this.reply(&words).await;
                            socket.write_all(reply.as_bytes()).await.unwrap();
                        }
                    }
                });
            }
        });
        (server, port)
    }

    fn takes(&self, password: &str) {
        password.clone_into(&mut self.password.lock());
    }

    async fn reply(&self, words: &[&str]) -> &'static str {
        let is_right = || words.last().is_some_and(|word| *word == *self.password.lock());
        match words {
            ["HELLO", "3", "AUTH", "ada", ..] => {
                self.came.lock().push(words[4..].join(" "));
                let is_right = is_right();
                if self.is_slow {
                    self.greets.notified().await;
                }
                if is_right { "%1\r\n+proto\r\n:3\r\n" } else { "-WRONGPASS no\r\n" }
            }
            ["AUTH", "ada", password] => {
                self.came.lock().push(format!("AUTH {password}"));
                if is_right() { "+OK\r\n" } else { "-WRONGPASS no\r\n" }
            }
            ["TIME"] => "*2\r\n$1\r\n1\r\n$1\r\n2\r\n",
            _ => "+OK\r\n",
        }
    }

    /// Waits until this many have arrived.
    async fn came(&self, count: usize) -> Vec<String> {
        let enough = async {
            while self.came.lock().len() < count {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = timeout(SECOND * 5, enough).await;
        self.came.lock().clone()
    }
}

/// The words of each command. What a client sends here arrives in one piece.
fn commands(text: &str) -> Vec<Vec<&str>> {
    let mut lines = text.split("\r\n");
    let mut all = Vec::new();
    while let Some(count) = lines.next().and_then(|line| line.strip_prefix('*')) {
        let words = (0..count.parse().unwrap()).map(|_| {
            lines.next().unwrap();
            lines.next().unwrap()
        });
        all.push(words.collect());
    }
    all
}

fn link(port: u16, credentials: &Credentials) -> Arc<Link> {
    let info = format!("redis://127.0.0.1:{port}").into_connection_info().unwrap();
    let endpoint = Endpoint::of_connection(info, &Trust::default().with_credentials(credentials.clone())).unwrap();
    let common = Common {
        drift: Drift::DEFAULT,
        command_timeout: SECOND,
        connect_timeout: SECOND,
        spawn: Arc::new(|work| drop(tokio::spawn(work))),
        events: Arc::new(()),
    };
    Link::new(endpoint, None, Arc::new(()), common)
}

#[tokio::test]
async fn the_newest_are_in_every_greeting_and_sent_on_all_connections() {
    for (bug, all) in [
        (None, ["one", "one", "AUTH two", "AUTH two", "two"]),
        (Some(Mutant::FirstLoginStays), ["one", "one", "AUTH two", "AUTH two", "one"]),
        (Some(Mutant::LiveLoginStays), ["one", "one", "two", "", ""]),
    ] {
        let _seeded = Seeded::begin(bug);
        let (server, port) = Server::start("one", false).await;
        let (sender, provider) = giving_what_is_sent();
        let (credentials, _) = follow(provider);
        sender.send(Ok(login("one"))).unwrap();
        let links = [0; 3].map(|_| link(port, &credentials));
        links[0].connect().await.unwrap();
        links[1].connect().await.unwrap();
        server.takes("two");
        sender.send(Ok(login("two"))).unwrap();
        server.came(if bug == Some(Mutant::LiveLoginStays) { 2 } else { 4 }).await;
        settle().await;
        let connected = links[2].connect().await;
        assert_eq!(connected.is_err(), bug == Some(Mutant::FirstLoginStays));
        let all: Vec<_> = all.into_iter().filter(|came| !came.is_empty()).collect();
        assert_eq!(server.came(all.len()).await, all, "{bug:?}");
    }
}

#[tokio::test]
async fn new_credentials_during_a_greeting_are_sent_behind_it() {
    let (server, port) = Server::start("one", true).await;
    let (sender, provider) = giving_what_is_sent();
    let (credentials, _) = follow(provider);
    sender.send(Ok(login("one"))).unwrap();
    let link = link(port, &credentials);
    let connecting = tokio::spawn(async move { link.connect().await.map(|_| link) });
    assert_eq!(server.came(1).await, ["one"]);
    server.takes("two");
    sender.send(Ok(login("two"))).unwrap();
    while password(&credentials).await.unwrap() != "two" {
        yield_now().await;
    }
    server.greets.notify_one();
    let _link = connecting.await.unwrap().unwrap();
    assert_eq!(server.came(2).await, ["one", "AUTH two"]);
}

#[tokio::test]
async fn a_connection_whose_server_refuses_new_credentials_stays_and_the_refusal_is_reported() {
    let (server, port) = Server::start("one", false).await;
    let (sender, provider) = giving_what_is_sent();
    let (credentials, told) = follow(provider);
    sender.send(Ok(login("one"))).unwrap();
    let link = link(port, &credentials);
    link.connect().await.unwrap();
    // The same credentials again change nothing.
    sender.send(Ok(login("one"))).unwrap();
    sender.send(Ok(login("two"))).unwrap();
    assert_eq!(server.came(2).await, ["one", "AUTH two"]);
    while told.lock().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let told = told.lock().concat();
    assert!(told.contains(&port.to_string()) && told.contains("WRONGPASS"), "{told}");
    assert!(link.is_connected());
}

/// So it is enough if a provider yields one password on each call.
#[tokio::test]
async fn a_refused_provider_is_asked_again() {
    let (server, port) = Server::start("two", false).await;
    let (provider, asked) =
        giving([and_stays([Ok(login("one"))]), and_stays([Ok(login("one"))]), and_stays([Ok(login("two"))])]);
    let (credentials, _) = follow(provider);
    let link = link(port, &credentials);
    let refused = text_of(link.connect().await.map(drop).unwrap_err());
    assert!(refused.contains("WRONGPASS"), "{refused}");
    let until = Instant::now() + SECOND * 5;
    while link.connect().await.is_err() {
        assert!(Instant::now() < until, "asked {asked:?} times");
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    assert_eq!(server.came(1).await.last().unwrap(), "two");
}
