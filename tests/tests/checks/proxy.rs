//! The proxy does to single commands and connections what it is told, and nothing to others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redis::Connection;
use tests::patience::eventually_blocking;
use tests::proxy::{ANY, Direction, Fault, LineNumber, Proxy};
use tests::server::Server;

fn connect(proxy: &Proxy) -> Connection {
    let connection = redis::Client::open(proxy.url()).unwrap().get_connection().unwrap();
    connection.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    connection
}

fn count(connection: &mut Connection) -> redis::RedisResult<u64> {
    redis::cmd("INCR").arg("n").query(connection)
}

fn deafen(proxy: &Proxy, line: LineNumber) {
    proxy.black_hole_line(line, Direction::ToServer);
}

fn is_gone(proxy: &Proxy, line: LineNumber) {
    let gone = || !proxy.lines().contains(&line);
    tests::patience::eventually_blocking("the line is gone", Duration::from_secs(2), gone);
}

fn cut(proxy: &Proxy, line: LineNumber) {
    proxy.cut_line(line);
    is_gone(proxy, line);
}

fn reset(proxy: &Proxy, line: LineNumber) {
    proxy.reset_line(line);
    is_gone(proxy, line);
}

#[test]
fn one_connection_is_hit_and_the_others_are_not() {
    let server = Server::start();
    let proxy = Proxy::unrecorded(&server);
    for hit in [cut, reset, deafen] {
        let mut bad = connect(&proxy);
        let line = *proxy.lines().last().unwrap();
        let mut good = connect(&proxy);
        let before = count(&mut good).unwrap();
        hit(&proxy, line);
        count(&mut bad).unwrap_err();
        assert_eq!(count(&mut good).unwrap(), before + 1, "the hit command was executed");
    }
    assert_eq!(proxy.count(), 0, "nothing is written down");
}

#[test]
fn a_reset_connection_ends_without_an_orderly_end() {
    let server = Server::start();
    let proxy = Proxy::unrecorded(&server);
    let mut connection = connect(&proxy);
    count(&mut connection).unwrap();
    reset(&proxy, *proxy.lines().first().unwrap());
    let error = count(&mut connection).unwrap_err();
    assert!(error.is_io_error() && !error.is_timeout(), "{error:?}");
}

#[test]
fn a_delayed_reply_is_executed_at_once() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let mut connection = connect(&proxy);
    proxy.plan("INCR", Fault::DelayReply(Duration::from_secs(1)));
    assert!(count(&mut connection).unwrap_err().is_timeout());
    assert_eq!(server.ask::<u64>("GET n"), 1);
}

#[test]
fn a_connection_that_is_mute_from_a_reply_on_stays_mute() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let mut connection = connect(&proxy);
    proxy.plan(ANY, Fault::MuteFromReply);
    assert!(count(&mut connection).unwrap_err().is_timeout());
    assert!(proxy.is_through());
    assert_eq!(server.ask::<u64>("GET n"), 1, "it is executed");
    assert_eq!(count(&mut connect(&proxy)).unwrap(), 2, "others are well");
}

/// A reply that came through would be taken for that of the command before it.
#[test]
fn a_mute_connection_lets_no_delayed_reply_through() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let mut connection = TcpStream::connect(proxy.url().trim_start_matches("redis://")).unwrap();
    proxy.plan("INCR", Fault::MuteFromReply);
    proxy.plan("INCR", Fault::DelayReply(Duration::from_millis(1)));
    connection.write_all(&b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n".repeat(2)).unwrap();
    eventually_blocking("both are executed", Duration::from_secs(1), || server.ask::<Option<u64>>("GET n") == Some(2));
    connection.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(connection.read(&mut [0; 64]).is_err(), "nothing comes");
}

#[test]
fn forgotten_plans_do_nothing() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    proxy.plan(ANY, Fault::CutBeforeForward);
    proxy.forget_plans();
    assert_eq!(count(&mut connect(&proxy)).unwrap(), 1);
}
