//! The proxy's faults hit the planned commands and connections, and no others.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redis::Connection;
use tests::patience::eventually_blocking;
use tests::proxy::{ANY, Direction, Distance, Fault, LineNumber, Proxy};
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

/// A client that still dials it must not find another test's server there.
#[test]
fn the_port_of_a_dropped_proxy_is_not_reused() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let address = proxy.address();
    drop(proxy);
    let is_refused = || TcpStream::connect(&address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    eventually_blocking("nobody listens", Duration::from_secs(2), is_refused);
    // Bind without the option that lets two sockets share a port, like a kernel that looks for a free one.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let error = socket.bind(&address.parse::<std::net::SocketAddr>().unwrap().into()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
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
        assert_eq!(count(&mut good).unwrap(), before + 1, "the server must execute the command that was hit");
    }
    assert_eq!(proxy.count(), 0, "the traffic is recorded");
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
    assert_eq!(server.ask::<u64>("GET n"), 1, "the server must execute it");
    assert_eq!(count(&mut connect(&proxy)).unwrap(), 2, "other connections must work");
}

/// A client would take a reply that came through for the reply to an earlier command.
#[test]
fn a_mute_connection_lets_no_delayed_reply_through() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let mut connection = TcpStream::connect(proxy.url().trim_start_matches("redis://")).unwrap();
    proxy.plan("INCR", Fault::MuteFromReply);
    proxy.plan("INCR", Fault::DelayReply(Duration::from_millis(1)));
    connection.write_all(&b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n".repeat(2)).unwrap();
    eventually_blocking("the server executes both", Duration::from_secs(1), || {
        server.ask::<Option<u64>>("GET n") == Some(2)
    });
    connection.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(connection.read(&mut [0; 64]).is_err(), "nothing comes");
}

/// A history records when a fault hit, not when it was planned.
#[test]
fn a_plan_knows_when_its_fault_hit() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let met = proxy.plan("INCR", Fault::DelayReply(Duration::from_millis(1)));
    let mut connection = connect(&proxy);
    let _: String = redis::cmd("PING").query(&mut connection).unwrap();
    assert_eq!(met.at(), None, "the fault hit another command");
    let before = history::event::now();
    count(&mut connection).unwrap();
    assert!((before..=history::event::now()).contains(&met.at().unwrap()));
}

#[test]
fn forgotten_plans_do_nothing() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    proxy.plan(ANY, Fault::CutBeforeForward);
    proxy.forget_plans();
    assert_eq!(count(&mut connect(&proxy)).unwrap(), 1);
}

/// Twenty pipelined commands take one round trip together, and the first bytes one more.
#[test]
fn a_distance_adds_latency_and_does_not_serialise() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    proxy.move_away(Distance::of_millis(100));
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    let mut replies = [0; 20 * "+PONG\r\n".len()];
    for at_least in [200, 100] {
        let start = Instant::now();
        for _ in 0..20 {
            stream.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
        }
        stream.read_exact(&mut replies).unwrap();
        let took = start.elapsed();
        assert!((at_least..at_least + 90).contains(&took.as_millis()), "{took:?}");
    }
}

#[test]
fn the_first_bytes_of_a_connection_can_be_made_to_wait() {
    let server = Server::start();
    let proxy = Proxy::blind(server.address());
    proxy.move_away(Distance { first_bytes: Duration::from_millis(300), ..Distance::default() });
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    for at_least in [300, 0] {
        let start = Instant::now();
        stream.write_all(b"PING\r\n").unwrap();
        stream.read_exact(&mut [0; 7]).unwrap();
        let took = start.elapsed();
        assert!((at_least..at_least + 150).contains(&took.as_millis()), "{took:?}");
    }
}
