//! Which task gets which reply, whatever happens to the task and to the connection.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use redis::{Pipeline, PushKind, Value, cmd};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::*;
use crate::mutants::{Mutant, Seeded};

mod credentials;
mod room;
mod wakers;
mod watch;

const LONG: Duration = Duration::from_secs(5);

/// The messages received, in order.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn note(&self, what: &str) {
        self.0.lock().push(what.to_owned());
    }

    fn all(&self) -> String {
        self.0.lock().join(" ")
    }
}

impl Hear for Heard {
    fn on_push(&self, kind: &PushKind, _: &[Value]) {
        self.note(&format!("{kind:?}").to_lowercase());
    }

    fn on_ended(&self) {
        self.note("ended");
    }
}

/// A connection, the server's end of it, and the messages received.
async fn connected() -> (Wire, DuplexStream, Heard) {
    let ((near, far), heard) = (duplex(1 << 16), Heard::default());
    let wire = Wire::over(Socket::of(near), heard.clone());
    settled().await;
    (wire, far, heard)
}

/// Lets all tasks run that can run.
async fn settled() {
    for _ in 0..10 {
        yield_now().await;
    }
}

fn get(key: &str) -> redis::Cmd {
    cmd("GET").arg(key).clone()
}

fn both() -> Pipeline {
    let mut both = redis::pipe();
    both.cmd("GET").arg("a").cmd("GET").arg("b");
    both
}

/// What the server has received so far.
async fn sent_to(far: &mut DuplexStream) -> String {
    let mut bytes = [0; 4096];
    let count = far.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[tokio::test]
async fn each_task_gets_the_reply_to_its_own_commands() {
    let (wire, mut far, _) = connected().await;
    let server = async {
        settled().await;
        far.write_all(b":1\r\n:2\r\n-ERR no\r\n:4\r\n").await.unwrap();
    };
    let (one, both, two) = (get("one"), both(), get("two"));
    let tasks = async {
        tokio::join!(biased; wire.until(None).send(&one), wire.until(None).send_all(&both), wire.until(None).send(&two))
    };
    let ((first, list, last), ()) = join(tasks, server).await;
    assert_eq!((first.unwrap(), last.unwrap()), (Value::Int(1), Value::Int(4)));
    assert!(matches!(list.unwrap().as_slice(), [Value::Int(2), Value::ServerError(_)]));
}

/// The task may leave before its commands are answered, or while its answers arrive.
#[tokio::test]
async fn a_reply_whose_task_is_gone_goes_to_nobody_else() {
    for (bug, is_right) in [(None, true), (Some(Mutant::LeftPlaceFreed), false)] {
        let _seeded = Seeded::begin(bug);
        let (wire, mut far, _) = connected().await;
        let gone = tokio::spawn({
            let wire = wire.clone();
            async move { wire.until(None).send_all(&both()).await }
        });
        settled().await;
        far.write_all(b":1\r\n").await.unwrap();
        settled().await;
        gone.abort();
        settled().await;
        let server = async {
            settled().await;
            far.write_all(b":2\r\n:3\r\n").await.unwrap();
        };
        let key = get("k");
        let (reply, ()) = join(wire.until(None).send(&key), server).await;
        assert_eq!(reply.unwrap() == Value::Int(3), is_right, "{bug:?}");
    }
}

#[tokio::test]
async fn a_push_is_no_reply_and_is_handled_before_the_reply_behind_it() {
    for (bug, is_right) in [(None, true), (Some(Mutant::UnsubscribedIsReply), false)] {
        let _seeded = Seeded::begin(bug);
        let (wire, mut far, heard) = connected().await;
        let subscribe = cmd("SUBSCRIBE").arg("c").clone();
        let server = async {
            far.write_all(b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").await.unwrap();
            settled().await;
            far.write_all(b">3\r\n+message\r\n+c\r\n+m\r\n>3\r\n+sunsubscribe\r\n+c\r\n:0\r\n:7\r\n").await.unwrap();
        };
        let asking = async {
            assert!(matches!(
                wire.until(None).send(&subscribe).await.unwrap(),
                Value::Push { kind: PushKind::Subscribe, .. }
            ));
            let reply = wire.until(None).send(&get("k")).await.unwrap();
            (reply, heard.all())
        };
        let ((reply, heard), ()) = join(asking, server).await;
        assert_eq!(reply == Value::Int(7), is_right, "{bug:?}");
        assert_eq!(heard == "message sunsubscribe", is_right, "{bug:?}");
    }
}

#[tokio::test]
async fn the_first_command_goes_out_at_once_and_what_follows_goes_out_together() {
    let (wire, mut far, _) = connected().await;
    let commands = ["a", "b", "c", "d"].map(get);
    let mut sending = join_all(commands.iter().map(|command| wire.until(None).send(command)));
    assert!(futures_util::poll!(&mut sending).is_pending());
    assert_eq!(sent_to(&mut far).await.matches("GET").count(), 1);
    settled().await;
    assert_eq!(sent_to(&mut far).await.matches("GET").count(), 3);
    far.write_all(b":1\r\n:2\r\n:3\r\n:4\r\n").await.unwrap();
    let replies: Vec<_> = sending.await.into_iter().map(Result::unwrap).collect();
    assert_eq!(replies, [1, 2, 3, 4].map(Value::Int));
}

#[tokio::test]
async fn a_command_whose_task_is_gone_before_it_is_sent_is_not_sent() {
    for (bug, is_sent) in [(None, false), (Some(Mutant::UnsentIsSent), true)] {
        let _seeded = Seeded::begin(bug);
        let (wire, mut far, _) = connected().await;
        let commands = ["a", "gone", "b"].map(get);
        let mut sending: Vec<_> = commands.iter().map(|command| Box::pin(wire.until(None).send(command))).collect();
        for one in &mut sending {
            assert!(futures_util::poll!(one).is_pending());
        }
        drop(sending.remove(1));
        settled().await;
        assert_eq!(sent_to(&mut far).await.contains("gone"), is_sent, "{bug:?}");
        far.write_all(if is_sent { b":1\r\n:0\r\n:2\r\n" } else { b":1\r\n:2\r\n" }).await.unwrap();
        let replies: Vec<_> = join_all(sending).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(replies, [1, 2].map(Value::Int), "{bug:?}");
    }
}

/// The answer is discarded, but its absence must be reported.
#[tokio::test]
async fn an_unanswered_command_that_nobody_waits_for_is_reported_when_the_connection_ends() {
    let (wire, mut far, heard) = connected().await;
    for name in ["answered", "lost"] {
        let heard = heard.clone();
        wire.send_unread(&get(name), move || heard.note(name));
    }
    settled().await;
    far.write_all(b":1\r\n").await.unwrap();
    drop(far);
    assert!(wire.until(None).send(&get("k")).await.is_err());
    assert_eq!(heard.all(), "ended lost");
}

/// A script with two keys and an argument.
static TOGETHER: Grouped = Grouped { text: || "return 1", digest: || "digest", keys: 2, most: 64, split };

/// A number is the answer to every call; a list has one answer for each.
fn split(reply: Value, count: usize) -> Vec<Value> {
    match reply {
        Value::Array(all) => all,
        one => vec![one; count],
    }
}

/// Calls the script for this key.
fn call<'a>(wire: &'a Wire, key: &str, is_known: bool, is_followed: bool, on_run: impl FnOnce()) -> Sent<'a> {
    let write = |[keys, others, arguments]: &mut Columns| {
        encode::bulk(keys, &[key]);
        encode::bulk(others, &["{", key, "}:queue"]);
        encode::bulk(arguments, &["tok"]);
    };
    wire.until(None).followed(is_followed).send_grouped(&TOGETHER, is_known, write, on_run)
}

#[tokio::test]
async fn simultaneous_calls_of_a_script_are_one_run_and_each_has_its_own_answer() {
    let three: &[u8] = b":3\r\n";
    for (reply, expected) in [(three, [3, 3, 3]), (b"*3\r\n:1\r\n:0\r\n:1\r\n", [1, 0, 1])] {
        let (wire, mut far, _) = connected().await;
        let runs = AtomicU32::new(0);
        let on_run = || {
            runs.fetch_add(1, Ordering::Relaxed);
        };
        let calls = ["a", "b", "c"].map(|key| call(&wire, key, true, true, on_run));
        let server = async {
            let sent = sent_to(&mut far).await;
            let expected = "*12\r\n$7\r\nEVALSHA\r\n$6\r\ndigest\r\n";
            assert!(sent.starts_with(expected), "{sent}");
            assert!(sent.contains("$1\r\n6\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$9\r\n{a}:queue\r\n"), "{sent}");
            far.write_all(reply).await.unwrap();
        };
        let (answers, ()) = join(join_all(calls), server).await;
        assert_eq!(answers.into_iter().map(Result::unwrap).collect::<Vec<_>>(), expected.map(Value::Int));
        assert_eq!(runs.into_inner(), 1);
    }
}

#[tokio::test]
async fn a_call_alone_goes_out_at_once_and_by_its_text_to_a_server_that_does_not_know_the_script() {
    let (wire, mut far, _) = connected().await;
    let mut calling = Box::pin(call(&wire, "a", false, false, || {}));
    assert!(futures_util::poll!(&mut calling).is_pending());
    assert!(sent_to(&mut far).await.starts_with("*6\r\n$4\r\nEVAL\r\n"));
    far.write_all(b"*1\r\n:0\r\n").await.unwrap();
    assert_eq!(calling.await.unwrap(), Value::Array(vec![Value::Int(0)]), "the reply to one call is its answer");
}

/// More calls than fit into one run. One call's task is dropped before the call is sent.
#[tokio::test]
async fn many_calls_are_several_runs_and_that_of_a_task_that_is_gone_is_sent_as_well() {
    let (wire, mut far, _) = connected().await;
    let names: Vec<_> = (100..250).map(|number| number.to_string()).collect();
    let mut calling: Vec<_> = names.iter().map(|name| Box::pin(call(&wire, name, true, true, || {}))).collect();
    for one in &mut calling {
        assert!(futures_util::poll!(one).is_pending());
    }
    drop(calling.remove(7));
    let server = async {
        let mut sent = String::new();
        while !sent.ends_with("$3\r\ntok\r\n") || sent.matches("$3\r\ntok\r\n").count() < names.len() {
            sent += &sent_to(&mut far).await;
        }
        assert_eq!(sent.matches("EVALSHA").count(), 3);
        far.write_all(b":1\r\n:1\r\n:1\r\n").await.unwrap();
    };
    let (answers, ()) = join(join_all(calling), server).await;
    assert_eq!(answers.len(), 149);
    assert!(answers.into_iter().all(|answer| answer.unwrap() == Value::Int(1)));
}

#[tokio::test]
async fn every_task_learns_at_once_that_the_connection_has_ended() {
    for last in [&b""[..], b":1", b"HTTP/1.1 400\r\n"] {
        let (wire, mut far, heard) = connected().await;
        let server = async {
            settled().await;
            far.write_all(b":1\r\n").await.unwrap();
            far.write_all(last).await.unwrap();
            drop(far);
        };
        let (one, both, two) = (get("one"), both(), get("two"));
        let tasks = async {
            tokio::join!(biased; wire.until(None).send(&one), wire.until(None).send_all(&both), wire.until(None).send(&two))
        };
        let ((first, list, late), ()) = timeout(LONG, join(tasks, server)).await.unwrap();
        assert_eq!(first.unwrap(), Value::Int(1));
        for error in [list.unwrap_err(), late.unwrap_err(), wire.until(None).send(&one).await.unwrap_err()] {
            let error = RedisError::from(error);
            assert!(error.is_io_error() || error.kind() == ErrorKind::Parse, "{error}");
        }
        assert_eq!(heard.all(), "ended");
    }
}

#[tokio::test]
async fn a_reply_that_nobody_asked_for_ends_the_connection() {
    let (wire, mut far, heard) = connected().await;
    far.write_all(b":1\r\n").await.unwrap();
    settled().await;
    assert_eq!(heard.all(), "ended");
    assert!(wire.until(None).send(&get("k")).await.is_err());
}

#[tokio::test]
async fn an_unused_connection_is_closed_and_its_last_output_goes_out() {
    let (wire, mut far, heard) = connected().await;
    wire.send_unread(&get("k"), || {});
    drop(wire.clone());
    drop(wire);
    assert!(sent_to(&mut far).await.contains("GET"));
    assert_eq!(timeout(LONG, sent_to(&mut far)).await.unwrap(), "");
    assert_eq!(heard.all(), "");
}

#[test]
fn a_connection_ends_with_the_runtime_that_drives_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (wire, far, _) = runtime.block_on(connected());
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = other.block_on(wire.until(None).send(&get("k"))).unwrap_err();
    assert!(RedisError::from(error).is_io_error());
    drop(far);
}

/// A forked child shares its parent's socket.
#[tokio::test]
async fn a_dropped_connection_stays_open_for_others_that_have_its_socket() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let (mut far, _) = server.accept().await.unwrap();
    let mut of_parent = near.try_clone().unwrap();
    near.set_nonblocking(true).unwrap();
    let wire = Wire::over(Socket::of(tokio::net::TcpStream::from_std(near).unwrap()), ());
    settled().await;
    drop(wire);
    settled().await;
    std::io::Write::write_all(&mut of_parent, b"x").unwrap();
    let mut byte = [0];
    timeout(LONG, far.read_exact(&mut byte)).await.unwrap().unwrap();
    assert_eq!(byte, *b"x");
}
