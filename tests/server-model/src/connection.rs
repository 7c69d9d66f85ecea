//! The commands about connections and scripts, and the errors for refused commands.

use crate::data::{Refusal, integer};
use crate::scripts::no_script;
use crate::{Client, ModelServer, Reply};

/// The commands that a script must not call.
const NAMES: [&[u8]; 11] = [
    b"CLIENT",
    b"CONFIG",
    b"EVAL",
    b"EVALSHA",
    b"HELLO",
    b"RESET",
    b"SCRIPT",
    b"SELECT",
    b"SSUBSCRIBE",
    b"SUBSCRIBE",
    b"UNSUBSCRIBE",
];

pub(crate) fn is_name(name: &[u8]) -> bool {
    NAMES.contains(&name)
}

impl ModelServer {
    pub(crate) fn dispatch(&mut self, client: Client, written: &[u8], arguments: &[&[u8]]) -> Reply {
        let name = written.to_ascii_uppercase();
        if let Some(redirect) = self.redirect(&name, arguments) {
            return redirect;
        }
        match (name.as_slice(), arguments) {
            (b"EVALSHA", [digest, _, ..]) if digest.len() != 40 => no_script(),
            (b"EVALSHA", [digest, count, rest @ ..]) => {
                self.with_keys(count, rest, |server, keys, values| server.scripts.run_digest(digest, keys, values))
            }
            (b"EVAL", [text, count, rest @ ..]) => {
                self.with_keys(count, rest, |server, keys, values| server.scripts.run_text(text, keys, values))
            }
            (b"SCRIPT", [flush, ..]) if flush.eq_ignore_ascii_case(b"FLUSH") => {
                self.flush_scripts();
                Reply::ok()
            }
            (b"SUBSCRIBE", channels @ [_, ..]) => self.data().channels.subscribe(client, channels),
            (b"SSUBSCRIBE", [channel]) => self.data().channels.ssubscribe(client, channel),
            (b"UNSUBSCRIBE", channels) => self.data().channels.unsubscribe(client, channels),
            (b"HELLO", [] | [b"3", ..]) => hello(client, self.data().cluster.is_one()),
            (b"HELLO", _) => Reply::error("NOPROTO unsupported protocol version"),
            (b"CLIENT", [b"ID"]) => Reply::Integer(client.0.cast_signed()),
            (b"CLIENT", [tracking, on, ..]) if is(tracking, b"TRACKING") && is(on, b"ON") => {
                self.data().tracking.turn_on(client)
            }
            (b"CLIENT", [caching, yes]) if is(caching, b"CACHING") && is(yes, b"YES") => {
                self.data().tracking.track_next(client)
            }
            (b"CLIENT", _) | (b"SELECT", [b"0"]) => Reply::ok(),
            (b"SELECT", [_]) => Reply::error("ERR DB index is out of range"),
            (b"CONFIG", [get, b"maxmemory-policy"]) if get.eq_ignore_ascii_case(b"GET") => {
                Reply::Map(vec![(Reply::bulk("maxmemory-policy"), Reply::bulk("noeviction"))])
            }
            (b"CONFIG", [get, _]) if get.eq_ignore_ascii_case(b"GET") => Reply::Map(Vec::new()),
            (name, arguments) if is_name(name) => refused(Refusal::WrongCount, written, arguments),
            (name, arguments) => {
                let outcome = self.data().execute(name, arguments);
                outcome.unwrap_or_else(|refusal| refused(refusal, written, arguments))
            }
        }
    }

    /// The redirection for a command that another node must execute.
    fn redirect(&self, name: &[u8], arguments: &[&[u8]]) -> Option<Reply> {
        let key = match (name, arguments) {
            (b"EVAL" | b"EVALSHA", [_, count, key, ..]) if *count != b"0" => key,
            (b"SET" | b"GET" | b"GETRANGE" | b"SSUBSCRIBE" | b"SPUBLISH", [key, ..]) => key,
            _ => return None,
        };
        self.data().cluster.redirect(key)
    }

    fn with_keys(
        &mut self,
        count: &[u8],
        rest: &[&[u8]],
        run: impl FnOnce(&mut Self, &[&[u8]], &[&[u8]]) -> Reply,
    ) -> Reply {
        let count = match integer(count).map(usize::try_from) {
            Ok(Ok(count)) => count,
            Ok(Err(_)) => return Reply::error("ERR Number of keys can't be negative"),
            Err(error) => return error,
        };
        match rest.split_at_checked(count) {
            Some((keys, values)) => run(self, keys, values),
            None => Reply::error("ERR Number of keys can't be greater than number of args"),
        }
    }
}

fn is(word: &[u8], name: &[u8]) -> bool {
    word.eq_ignore_ascii_case(name)
}

fn hello(client: Client, is_cluster: bool) -> Reply {
    let fields = [
        ("server", Reply::bulk("redis")),
        ("version", Reply::bulk("7.0.15")),
        ("proto", Reply::Integer(3)),
        ("id", Reply::Integer(client.0.cast_signed())),
        ("mode", Reply::bulk(if is_cluster { "cluster" } else { "standalone" })),
        ("role", Reply::bulk("master")),
        ("modules", Reply::Array(Vec::new())),
    ];
    Reply::Map(fields.map(|(name, value)| (Reply::bulk(name), value)).into())
}

fn refused(refusal: Refusal, name: &[u8], arguments: &[&[u8]]) -> Reply {
    let name = String::from_utf8_lossy(name);
    match refusal {
        Refusal::WrongCount => {
            let name = name.to_ascii_lowercase();
            Reply::error(format!("ERR wrong number of arguments for '{name}' command"))
        }
        Refusal::Unknown => {
            let quoted = |argument: &&[u8]| format!("'{}' ", String::from_utf8_lossy(argument));
            let arguments: String = arguments.iter().map(quoted).collect();
            Reply::error(format!("ERR unknown command '{name}', with args beginning with: {arguments}"))
        }
    }
}
