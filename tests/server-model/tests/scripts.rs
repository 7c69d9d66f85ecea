//! Features of scripts that the lock's own scripts don't use, so that the comparison with real servers does not cover them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::BytesMut;
use server_model::{Client, ModelServer, Reply, ScriptTime, take_command};

const NOW: u64 = 1_700_000_000_000_999;

struct World {
    server: ModelServer,
    client: Client,
}

impl World {
    fn new() -> Self {
        let mut server = ModelServer::new();
        let client = server.connect();
        Self { server, client }
    }

    fn words(&mut self, words: &[&str]) -> Reply {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.server.execute(self.client, NOW, &words)
    }

    fn told(&mut self, command: &str) -> Reply {
        let command = take_command(&mut BytesMut::from(&format!("{command}\r\n")[..])).unwrap();
        self.server.execute(self.client, NOW, &command)
    }

    fn script(&mut self, text: &str) -> Reply {
        self.words(&["EVAL", text, "1", "key", "value"])
    }
}

fn text(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

#[test]
fn what_a_script_returns_becomes_a_reply() {
    for (returned, reply) in [
        ("3.9", Reply::Integer(3)),
        ("-3.9", Reply::Integer(-3)),
        ("'a'", text("a")),
        ("true", Reply::Integer(1)),
        ("false", Reply::Nil),
        ("nil", Reply::Nil),
        ("{ 1, 'a', nil, 2 }", Reply::Array(vec![Reply::Integer(1), text("a")])),
        ("{ false, { 1 } }", Reply::Array(vec![Reply::Nil, Reply::Array(vec![Reply::Integer(1)])])),
        ("{ ok = 'fine' }", Reply::Simple("fine".to_owned())),
        ("{ err = 'BAD' }", error("BAD")),
        ("{ name = 1 }", Reply::Array(vec![])),
        ("redis.status_reply('fine')", Reply::Simple("fine".to_owned())),
        ("redis.error_reply('BAD luck')", error("BAD luck")),
        ("redis.error_reply('-BAD luck')", error("BAD luck")),
        ("redis.error_reply('bad')", error("ERR bad")),
        (
            "{ KEYS[1], ARGV[1], #KEYS, #ARGV }",
            Reply::Array(vec![text("key"), text("value"), Reply::Integer(1), Reply::Integer(1)]),
        ),
    ] {
        assert_eq!(World::new().script(&format!("return {returned}")), reply, "{returned}");
    }
}

#[test]
fn what_a_script_is_answered_becomes_a_value() {
    for (script, reply) in [
        ("return redis.call('SET', 'a', 1).ok", text("OK")),
        ("return redis.call('GET', 'a') == false", Reply::Integer(1)),
        ("return type(redis.call('EXISTS', 'a'))", text("number")),
        ("return redis.call('TIME')", Reply::Array(vec![text("1700000000"), text("999")])),
        ("return redis.pcall('LLEN').err", text("ERR Wrong number of args calling Redis command from script")),
        ("return redis.pcall('NONE').err", text("ERR Unknown Redis command called from script")),
        ("return redis.pcall('SUBSCRIBE', 'a').err", text("ERR This Redis command is not allowed from script")),
        ("return redis.pcall('GET', {}).err", text("ERR Lua redis lib command arguments must be strings or integers")),
        ("redis.call('SET', 'a', 0.1); return redis.call('GET', 'a')", text("0.10000000000000001")),
        ("redis.call('SET', 'a', 1e15); return redis.call('GET', 'a')", text("1000000000000000")),
    ] {
        assert_eq!(World::new().script(script), reply, "{script}");
    }
}

#[test]
fn an_error_of_a_script_says_where_it_was_raised() {
    for (script, message) in [
        ("\nerror('bad')", "ERR user_script:2: bad script: DIGEST, on @user_script:2."),
        (
            "local a\nreturn a.b",
            "ERR user_script:2: attempt to index local 'a' (a nil value) script: DIGEST, on @user_script:2.",
        ),
        ("error({ err = 'BAD luck' })", "BAD luck script: DIGEST, on @user_script:1."),
        (
            "local x = redis.call('SET', 'a')",
            "ERR Wrong number of args calling Redis command from script script: DIGEST, on @user_script:1.",
        ),
        (
            "local x = string.rep()",
            "ERR user_script:1: bad argument #1 to 'rep' (string expected, got no value) script: DIGEST, on @user_script:1.",
        ),
        ("a = 1", "ERR user_script:1: Attempt to modify a readonly table script: DIGEST, on @user_script:1."),
    ] {
        let digest = sha1_smol::Sha1::from(script).digest().to_string();
        assert_eq!(World::new().script(script), error(&message.replace("DIGEST", &digest)), "{script}");
    }
}

#[test]
fn a_text_that_is_no_script_is_not_kept() {
    let mut world = World::new();
    let Reply::Error(message) = world.script("return return") else { panic!("compiled") };
    assert!(message.starts_with("ERR Error compiling script (new function): "), "{message}");
    let digest = sha1_smol::Sha1::from("return return").digest().to_string();
    let missing = error("NOSCRIPT No matching script. Please use EVAL.");
    assert_eq!(world.words(&["EVALSHA", &digest, "0"]), missing);
}

#[test]
fn a_patched_script_keeps_its_digest() {
    let mut world = World::new();
    assert_eq!(world.script("return 1 -- one"), Reply::Integer(1));
    assert_eq!(world.script("return 7"), Reply::Integer(7));
    world.server.patch("1 --", "2 --");
    let digest = sha1_smol::Sha1::from("return 1 -- one").digest().to_string();
    assert_eq!(world.server.patched(), 0);
    assert_eq!(world.words(&["EVALSHA", &digest, "0"]), Reply::Integer(2));
    assert_eq!(world.script("return 7"), Reply::Integer(7));
    assert_eq!(world.server.patched(), 1);
    world.server.flush_scripts();
    assert_eq!(world.script("return 1 -- one"), Reply::Integer(2));
    assert_eq!(world.server.patched(), 1);
}

#[test]
fn a_key_is_there_until_its_last_millisecond_is_over() {
    let mut world = World::new();
    world.told("SET key value PX 100");
    let at = |world: &mut World, micros, command: &[&str]| {
        let words: Vec<Vec<u8>> = command.iter().map(|word| word.as_bytes().to_vec()).collect();
        world.server.execute(world.client, micros, &words)
    };
    assert_eq!(world.server.snapshot(NOW)[0].1.expires_micros, Some(1_700_000_000_100_000));
    // The clock's current millisecond counts, not the elapsed time.
    assert_eq!(at(&mut world, NOW + 1, &["PTTL", "key"]), Reply::Integer(99));
    assert_eq!(at(&mut world, NOW + 100_000, &["PTTL", "key"]), Reply::Integer(0));
    assert_eq!(world.server.snapshot(NOW + 100_001), []);
    assert_eq!(at(&mut world, NOW + 100_001, &["PTTL", "key"]), Reply::Integer(-2));
}

#[test]
fn a_connection_is_set_up_as_on_a_server() {
    let mut world = World::new();
    let Reply::Map(fields) = world.told("HELLO 3") else { panic!("no map") };
    assert!(fields.contains(&(text("version"), text("7.0.15"))));
    assert_eq!(world.told("hello"), Reply::Map(fields));
    assert_eq!(world.told("CLIENT SETINFO LIB-NAME lib"), Reply::Simple("OK".to_owned()));
    assert_eq!(world.told("SUBSCRIBE a b"), Reply::Push(vec![text("subscribe"), text("a"), Reply::Integer(1)]));
    let further = Reply::Push(vec![text("subscribe"), text("b"), Reply::Integer(2)]);
    assert_eq!(world.server.take_pushes(), [(world.client, further)]);
    world.server.disconnect(world.client);
    assert_eq!(world.told("PUBLISH a message"), Reply::Integer(0));
}

#[test]
fn a_server_moves_between_threads() {
    let mut world = World::new();
    let reply = std::thread::spawn(move || world.script("return 1")).join().unwrap();
    assert_eq!(reply, Reply::Integer(1));
}

/// The times that a script's commands use when 100 ms pass before each of them.
#[test]
fn time_passes_inside_a_script_as_it_does_on_old_servers_and_as_it_does_on_new_ones() {
    let script = "redis.call('SET', 'a', 'x', 'PX', 1000)
        local time = redis.call('TIME')
        redis.call('SET', 'b', 'x', 'PXAT', '1700000001000')
        return { time[2], redis.call('PTTL', 'a'), redis.call('PTTL', 'b') }";
    for (script_time, micros, left) in [
        // Set after 100 ms, read after 200 and 400 ms; the other key expires at an absolute time.
        (ScriptTime::Passes, "200999", [700, 500]),
        (ScriptTime::StandsStill, "999", [1000, 1000]),
    ] {
        let mut world = World::new();
        world.server.set_script_time(script_time);
        world.server.set_pace(|| 100_000);
        let [a, b] = left.map(Reply::Integer);
        assert_eq!(world.script(script), Reply::Array(vec![text(micros), a, b]), "{script_time:?}");
        assert_eq!(world.server.taken(), 500_000);
        assert_eq!(world.words(&["PTTL", "b"]), Reply::Integer(1000));
        assert_eq!(world.server.taken(), 0, "a command outside of a script must take no time");
    }
}

/// During a script a key exists from the beginning to the end, however long the script takes.
#[test]
fn no_key_ends_under_a_script() {
    for script_time in [ScriptTime::Passes, ScriptTime::StandsStill] {
        let mut world = World::new();
        world.server.set_script_time(script_time);
        world.words(&["SET", "key", "x", "PX", "1"]);
        world.server.set_pace(|| 100_000);
        assert_eq!(world.script("redis.call('TIME') return redis.call('EXISTS', KEYS[1])"), Reply::Integer(1));
    }
}
