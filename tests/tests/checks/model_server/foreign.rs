//! How the scripts reply after another client's command has changed a key of a lock, as listed in `foreign.md` next to this file.
//!
//! The tests make that table by running the scripts, on the model server and on a real one.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use server_model::{Client, ModelServer, Reply};
use tests::server::{Kind, Server};

use super::real::Connection;
use super::steps::{self, Script};

const NOW: u64 = 1_700_000_000_000_000;
const LOCK: &str = "p:k";
const LEASE: &str = "30000";
const LONGER: &str = "40000";
const CLAIM: &str = "2500";
const HEADER: &str = "| the lock is | its key | another client | ask | renew | release | draw | inspect | force |";

/// Processes by number: the holder, a second reader, a waiting writer, and the one that asks.
const HOLDER: usize = 0;
const BESIDE: usize = 1;
const WAITER: usize = 2;
const ASKER: usize = 3;

fn token(process: usize) -> String {
    format!("{process:032x}.1@host")
}

fn helper(name: &str) -> String {
    format!("{{{LOCK}}}:{name}")
}

/// The holder of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Alone,
    Shared,
    Forced,
}

const STATES: [(State, &str, &[&str]); 3] = [
    (State::Alone, "held", &["lock", "queue", "fence"]),
    (State::Shared, "shared", &["lock", "shared", "head", "queue", "fence"]),
    (State::Forced, "forced", &["lock"]),
];

/// Another client's commands; `KEY` stands for the key.
const COMMANDS: [(&str, &[&str]); 4] = [
    ("deletes it", &["DEL KEY"]),
    ("writes a text", &["SET KEY theirs"]),
    ("makes it a list", &["DEL KEY", "RPUSH KEY theirs"]),
    ("takes its end away", &["PERSIST KEY"]),
];

/// The columns of the table.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Ask,
    Renew,
    Release,
    Draw,
    Inspect,
    Force,
}

const VERBS: [Verb; 6] = [Verb::Ask, Verb::Renew, Verb::Release, Verb::Draw, Verb::Inspect, Verb::Force];

/// A real server or the model.
enum Place {
    Model(Box<ModelServer>, Vec<Client>),
    Real(Vec<Connection>),
}

impl Place {
    fn model(patches: &[(&str, &str)]) -> Self {
        let mut server = ModelServer::new();
        for (from, to) in patches {
            server.patch(from, to);
        }
        let clients = (HOLDER..=ASKER).map(|_| server.connect()).collect();
        Self::Model(Box::new(server), clients)
    }

    fn real(server: &Server) -> Self {
        Self::Real((HOLDER..=ASKER).map(|_| Connection::to(server)).collect())
    }

    fn ask(&mut self, process: usize, command: &[String]) -> Reply {
        let command: Vec<_> = command.iter().map(|word| word.as_bytes().to_vec()).collect();
        match self {
            Self::Model(server, clients) => server.execute(clients[process], NOW, &command),
            Self::Real(connections) => connections[process].ask(&[command]).remove(0),
        }
    }

    fn tell(&mut self, process: usize, command: &str) -> Reply {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        self.ask(process, &words)
    }

    fn script(&mut self, process: usize, script: &Script, keys: &[&str], arguments: &[&str]) -> Reply {
        let key = |name: &&str| if *name == "lock" { LOCK.to_owned() } else { helper(name) };
        let arguments = arguments.iter().map(ToString::to_string).collect();
        self.ask(process, &script.command(true, keys.iter().map(key).collect(), arguments))
    }

    /// Makes a lock in this state, with waiters.
    fn prepare(&mut self, state: State) {
        self.tell(HOLDER, "FLUSHALL");
        for process in HOLDER..=ASKER {
            self.tell(process, &format!("SUBSCRIBE cache_lock:{process:032x}"));
        }
        let keys = ["lock", "queue", "fence", "shared", "head"];
        if state == State::Shared {
            for reader in [HOLDER, BESIDE] {
                self.script(reader, &steps::SHARED_ASK, &keys, &[&token(reader), LEASE, "0", "1", "1", "0"]);
            }
        } else {
            self.script(HOLDER, &steps::ASK, &keys[..3], &[&token(HOLDER), LEASE, "1", "1", "0"]);
        }
        self.script(WAITER, &steps::ASK, &keys[..3], &[&token(WAITER), CLAIM, "1", "0", "0"]);
        if state == State::Forced {
            self.script(ASKER, &steps::FORCE, &["lock", "queue", "shared"], &[CLAIM]);
        }
    }

    fn send(&mut self, state: State, verb: Verb) -> Reply {
        let keys = ["lock", "queue", "fence", "shared", "head"];
        let (own, is_shared) = (token(HOLDER), state == State::Shared);
        match verb {
            Verb::Ask if is_shared => {
                self.script(ASKER, &steps::SHARED_ASK, &keys, &[&token(ASKER), CLAIM, "0", "1", "1", "0"])
            }
            Verb::Ask => self.script(ASKER, &steps::ASK, &keys[..3], &[&token(ASKER), CLAIM, "1", "1", "0"]),
            Verb::Renew if is_shared => {
                self.script(HOLDER, &steps::SHARED_RENEW, &["lock", "shared"], &[&own, "0", LONGER])
            }
            Verb::Renew => self.script(HOLDER, &steps::RENEW, &["lock"], &[&own, LONGER]),
            Verb::Release if is_shared => {
                self.script(HOLDER, &steps::SHARED_RELEASE, &keys, &[&own, LEASE, "0", "", "0"])
            }
            Verb::Release => {
                let value = if state == State::Forced { own + "|forced" } else { own };
                self.script(HOLDER, &steps::RELEASE, &keys[..3], &[&value, LEASE, "0", "0", "", "0"])
            }
            Verb::Draw if is_shared => {
                self.script(HOLDER, &steps::SHARED_DRAW, &["lock", "fence", "shared"], &[&own, "1", "0"])
            }
            Verb::Draw => self.script(HOLDER, &steps::DRAW, &["lock", "fence"], &[&own, "1"]),
            Verb::Inspect => self.script(ASKER, &steps::INSPECT, &["lock", "queue", "shared"], &["10"]),
            Verb::Force => self.script(ASKER, &steps::FORCE, &["lock", "queue", "shared"], &[CLAIM]),
        }
    }

    /// The reply to a verb after another client has sent its commands to a key.
    fn answer(&mut self, state: State, key: &str, commands: &[&str], verb: Verb) -> String {
        self.prepare(state);
        let name = if key == "lock" { LOCK.to_owned() } else { helper(key) };
        for command in commands {
            self.tell(ASKER, &command.replace("KEY", &name));
        }
        let reply = self.send(state, verb);
        let answer = word(verb, &reply);
        let owner = self.tell(ASKER, &format!("GET {LOCK}"));
        let is_passed_on = owner == Reply::Bulk(token(WAITER).into_bytes());
        let is_endless = matches!(verb, Verb::Renew | Verb::Force)
            && matches!(answer, "owned" | "told")
            && self.tell(ASKER, &format!("PTTL {LOCK}")) == Reply::Integer(-1);
        let more = if is_passed_on { ", passed on" } else { "" };
        format!("{answer}{}{more}", if is_endless { ", without an end" } else { "" })
    }
}

/// The reply, in a word.
fn word(verb: Verb, reply: &Reply) -> &'static str {
    let is_wrong_type = |reply: &Reply| match reply {
        Reply::Error(text) => text.starts_with("WRONGTYPE"),
        Reply::Bulk(text) => text.starts_with(b"WRONGTYPE"),
        _ => false,
    };
    if is_wrong_type(reply) {
        return "error";
    }
    let part = |index: usize| match reply {
        Reply::Array(parts) => parts.get(index).cloned().unwrap_or(Reply::Nil),
        _ => Reply::Nil,
    };
    let code = |answer: &Reply| match answer {
        Reply::Integer(code) => *code,
        Reply::Array(fields) => match fields.first() {
            Some(Reply::Integer(code)) => *code,
            _ => i64::MIN,
        },
        other => panic!("{verb:?}: {other:?}"),
    };
    match verb {
        Verb::Ask => match code(&part(1)) {
            1 => "granted",
            0 => "busy",
            -2 => "error",
            other => panic!("{other}"),
        },
        Verb::Renew if is_wrong_type(&part(0)) => "error",
        Verb::Renew => {
            if code(&part(0)) == 1 {
                "owned"
            } else {
                "not owned"
            }
        }
        Verb::Release => match code(&part(0)) {
            1 => "released",
            0 => "not owned",
            -3 => "released, told",
            _ => "error",
        },
        Verb::Draw => {
            if code(reply) > 0 {
                "drawn"
            } else {
                "not owned"
            }
        }
        Verb::Inspect => {
            if *reply == Reply::Array(Vec::new()) {
                "free"
            } else {
                "held"
            }
        }
        Verb::Force => match reply {
            Reply::Integer(0) => "free",
            Reply::Integer(_) => "taken away",
            _ => "told",
        },
    }
}

fn table(place: &mut Place) -> String {
    let mut table = format!("{HEADER}\n|{}", "---|".repeat(9));
    for (state, name, keys) in STATES {
        for key in keys {
            for (what, commands) in COMMANDS {
                let _ = write!(table, "\n| {name} | {key} | {what} |");
                for verb in VERBS {
                    let _ = write!(table, " {} |", place.answer(state, key, commands, verb));
                }
            }
        }
    }
    table
}

/// The table in `foreign.md`.
fn written() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checks/model_server/foreign.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = page.lines().skip_while(|line| *line != HEADER).take_while(|line| line.starts_with('|'));
    rows.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_docs_say_what_the_scripts_do_after_another_clients_command() {
    let table = table(&mut Place::model(&[]));
    assert!(written() == table, "foreign.md should have:\n{table}");
}

#[test]
fn a_real_server_does_what_the_docs_say_after_another_clients_command() {
    let server = Server::of(Kind::Redis, &[]);
    let table = table(&mut Place::real(&server));
    assert!(written() == table, "foreign.md should have:\n{table}");
}

/// Each of these seeded bugs must change the table.
#[test]
fn each_bug_with_another_clients_commands_shows_in_the_table() {
    let whole = table(&mut Place::model(&[]));
    let bugs: [(&str, &[(&str, &str)]); 7] = [
        ("renew.lua leaves a lock without an end", &[("if done == 0 then", "if false then")]),
        ("renew.lua takes another type for an error", &[("string.find(owner.err, '^WRONGTYPE') and 0 or", "")]),
        ("the scripts take another type for an error", &[("return nothing or error(value)", "return error(value)")]),
        (
            "a list of shared leases of another type keeps the lock",
            &[("first = call_or({}, 'ZRANGE',", "first = redis.call('ZRANGE',")],
        ),
        (
            "a queue of another type keeps a shared lock",
            &[
                ("  return { ownership == 1 and -3 or -2, message_of(failure) }", "  error(failure)"),
                ("  if not owner and value_of(lock) == value", "  if false and value_of(lock) == value"),
            ],
        ),
        ("a queue of another type hides who has the lock", &[("pcall(leave, queue, entry)", "leave(queue, entry)")]),
        (
            "force.lua leaves a forced lock without an end",
            &[("if redis.call('PEXPIRE', lock, claim, 'LT') == 1 then", "if false then")],
        ),
    ];
    for (name, patches) in bugs {
        assert!(table(&mut Place::model(patches)) != whole, "{name} does not show");
    }
}

/// Another client may use any word as the value of its lock.
#[test]
fn the_mark_of_a_shared_lock_is_no_word() {
    let mut place = Place::model(&[]);
    for value in ["shared", "forced", "theirs"] {
        place.prepare(State::Alone);
        place.tell(ASKER, &format!("SET {LOCK} {value}"));
        assert_eq!(word(Verb::Ask, &place.send(State::Shared, Verb::Ask)), "busy", "{value}");
        assert_eq!(place.tell(ASKER, &format!("GET {LOCK}")), Reply::Bulk(value.as_bytes().to_vec()));
    }
}
