//! [`Greeted`]: a new connection, what the server says about itself, and whether the server can be used.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use redis::{ErrorKind, Pipeline, RedisConnectionInfo, RedisError, ServerError, Value};
use tokio::task::JoinSet;

use crate::clock::Moment;
use crate::failure::{CallError, RESP3};
use crate::wire::{Hear, NoReply, Peer, Socket, Wire, text};

/// A feature that a server may lack, and a harmless command that tests for it. A one-word command is sent with too few arguments.
pub type Ability = (&'static str, &'static [&'static str]);

/// This library's name, and the number of its wire format: a server shows it for each connection.
const LIBRARY: &str = "lock-runtime(wire-1)";

/// Adds the tests for all of these.
pub(crate) fn ask_for_abilities(needs: &[Ability], commands: &mut Pipeline) {
    for (_, words) in needs {
        let mut command = redis::Cmd::new();
        command.arg(words);
        commands.add_command(command);
    }
}

/// Called once a connection no longer leads to the right server.
pub(crate) type OnFailover = Arc<dyn Fn() + Send + Sync>;

/// A connection, and what the server says about itself.
pub(crate) struct Greeted {
    pub(crate) wire: Wire,
    /// The tasks that call [`OnFailover`], if any. They end with this value.
    pub(crate) listening: Option<JoinSet<()>>,
    pub(crate) hello: Value,
    /// The answers to the commands that were sent along with the greeting.
    pub(crate) replies: Vec<Value>,
    /// The instant before everything was sent.
    pub(crate) asked: Moment,
    /// How long the answer took.
    pub(crate) round_trip: Duration,
}

impl Greeted {
    /// A field of the reply to `HELLO`.
    pub(crate) fn hello_field(&self, name: &str) -> Option<String> {
        hello_field(&self.hello, name)
    }

    /// Refuses a server that this client can't use.
    pub(crate) fn check(&self) -> Result<(), CallError> {
        check(&self.hello)
    }

    /// Refuses a server that lacks something, by its `replies` to [`ask_for_abilities`].
    pub(crate) fn check_abilities(
        &self,
        needs: &[Ability],
        replies: &mut impl Iterator<Item = Value>,
    ) -> Result<(), CallError> {
        needs.iter().zip(replies).try_for_each(|((what, words), reply)| {
            if words.len() == 1 && is_known_command(&reply) {
                return Ok(());
            }
            match self.need(what, Some(reply)) {
                Err(error @ CallError::Lacks(..)) => Err(error),
                // The server is busy, the user lacks a right, or another node has the slot: the first command will report that.
                _ => Ok(()),
            }
        })
    }

    /// The server's `reply` to a command that shows whether it can do `what`.
    pub(crate) fn need(&self, what: &'static str, reply: Option<Value>) -> Result<Value, CallError> {
        match reply {
            Some(Value::ServerError(error)) if is_unable(&error) => Err(CallError::Lacks(name(&self.hello), what)),
            reply => Ok(reply.unwrap_or(Value::Nil).extract_error()?),
        }
    }

    /// Refuses a server that sends no pushes, by its `reply` to `SUBSCRIBE`.
    pub(crate) fn need_pushes(&self, reply: Option<Value>) -> Result<(), CallError> {
        match self.need("`SUBSCRIBE`", reply)? {
            Value::Push { .. } => Ok(()),
            _ => Err(CallError::Lacks(name(&self.hello), "pushes (RESP3): it answers `SUBSCRIBE` as in RESP2")),
        }
    }

    /// Whether the server has hash slots.
    pub(crate) fn has_slots(&self) -> bool {
        hello_field(&self.hello, "mode").as_deref() == Some("cluster")
    }

    /// Refuses a server that shares the hash slots with others: it would refuse most locks.
    pub(crate) async fn check_alone(&mut self) -> Result<(), CallError> {
        if !self.has_slots() {
            return Ok(());
        }
        let mut command = redis::cmd("CLUSTER");
        let ranges = self.wire.until(None).send(command.arg("SLOTS")).await?.extract_error()?;
        let is_all = |range: &Value| matches!(range, Value::Array(range) if range.starts_with(&[Value::Int(0), Value::Int(16_383)]));
        let serves_all = matches!(&ranges, Value::Array(ranges) if ranges.first().is_some_and(is_all));
        if serves_all && hello_field(&self.hello, "role").as_deref() == Some("master") {
            return Ok(());
        }
        let text = "it is one of several servers of a cluster: write redis-cluster://host:port,host:port";
        Err(CallError::Unsuitable(text.to_owned()))
    }
}

/// A field of a reply that is a map.
pub(crate) fn hello_field(hello: &Value, name: &str) -> Option<String> {
    hello.as_map_iter()?.find_map(|(key, value)| {
        let is_it = text(key.clone())? == name;
        is_it.then(|| text(value.clone())).flatten()
    })
}

/// Refuses a sentinel, and a server that does not switch to the requested protocol.
fn check(hello: &Value) -> Result<(), CallError> {
    if hello_field(hello, "mode").as_deref() == Some("sentinel") {
        let text = "a sentinel answers there: write redis-sentinel://host:port/master-name";
        return Err(CallError::Unsuitable(text.to_owned()));
    }
    let is_proto =
        |(key, value): (&Value, &Value)| text(key.clone()).as_deref() == Some("proto") && *value == Value::Int(3);
    if hello.as_map_iter().is_some_and(|mut fields| fields.any(is_proto)) {
        Ok(())
    } else {
        Err(CallError::Lacks(name(hello), RESP3))
    }
}

/// The server's own name and version.
fn name(hello: &Value) -> String {
    let field = |name, unknown: &str| hello_field(hello, name).unwrap_or_else(|| unknown.to_owned());
    format!("{} {}", field("server", "a server"), field("version", "of no version"))
}

/// Whether the server does not know the command, or not in this form.
fn is_unable(error: &ServerError) -> bool {
    const SAYINGS: [&str; 6] = [
        "unknown command",
        "syntax error",
        "wrong number of arguments",
        "not supported",
        "unsupported",
        // Valkey from 9.1 on, without its module for Lua.
        "could not find scripting engine",
    ];
    let said = error.details().unwrap_or_default().to_ascii_lowercase();
    SAYINGS.iter().any(|saying| said.contains(saying))
}

/// Whether the server knows the command that got this reply, and that had too few arguments.
pub fn is_known_command(reply: &Value) -> bool {
    let Value::ServerError(error) = reply else { return false };
    error.details().is_some_and(|said| said.to_ascii_lowercase().contains("wrong number of arguments"))
}

/// Connects to a server. The greeting and the `commands` take one round trip together.
pub(crate) async fn greet(peer: &Peer, hear: impl Hear, commands: &Pipeline) -> Result<Greeted, CallError> {
    greet_over(peer.open().await?, hear, Some(peer), commands).await
}

/// Like [`greet`], over a socket to that `peer`; `None` for a server without users and databases.
pub(crate) async fn greet_over(
    socket: Socket,
    hear: impl Hear,
    peer: Option<&Peer>,
    commands: &Pipeline,
) -> Result<Greeted, CallError> {
    let login = if let Some(peer) = peer { peer.login().await? } else { None };
    let of_setup = |error| CallError::of_setup(error, peer.is_some_and(Peer::is_tls));
    let wire = Wire::over(socket, hear);
    let introduction = introduction(peer.map(Peer::settings));
    let selects = peer.is_some_and(|peer| peer.settings().db() != 0);
    let mut all = introduction.clone();
    for command in commands.cmd_iter() {
        all.add_command(command.clone());
    }
    let asked = Moment::now();
    // The reply to `HELLO` has its own place: an error that is followed by a closed connection must not be lost.
    let mut hello = redis::cmd("HELLO");
    hello.arg(3);
    if let Some(login) = &login {
        login.write(&mut hello);
    }
    let sender = wire.until(None);
    let (hello, replies) = join(sender.send(&hello), sender.send_all(&all)).await;
    let round_trip = asked.elapsed();
    let of_wire = |error: NoReply| of_setup(error.into());
    let changing = peer.and_then(Peer::credentials).zip(login);
    let hello = hello.map_err(of_wire)?.extract_error().map_err(|error| match &changing {
        Some((credentials, used)) if is_refused(&error) => credentials.refusal(used, error),
        _ => of_setup(error),
    })?;
    let mut replies = replies.map_err(of_wire)?;
    let introduced: Vec<_> = replies.drain(..introduction.len().min(replies.len())).collect();
    if selects {
        introduced.into_iter().next().unwrap_or(Value::Nil).extract_error().map_err(of_setup)?;
    }
    if let (Some(peer), Some((credentials, used))) = (peer, changing) {
        credentials.attach(&wire, &peer.address(), used).await.map_err(of_wire)?;
    }
    Ok(Greeted { wire, listening: None, hello, replies, asked, round_trip })
}

/// Whether the server refused the user name or the password.
fn is_refused(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed || error.code() == Some("WRONGPASS")
}

/// Selects the database, and names this library. A server may refuse the latter.
fn introduction(settings: Option<&RedisConnectionInfo>) -> Pipeline {
    let mut commands = redis::pipe();
    let Some(settings) = settings else { return commands };
    if settings.db() != 0 {
        commands.cmd("SELECT").arg(settings.db());
    }
    if !settings.skip_set_lib_name() {
        let (name, version) = (settings.lib_name(), settings.lib_ver());
        commands.cmd("CLIENT").arg("SETINFO").arg("LIB-NAME").arg(name.unwrap_or(LIBRARY));
        commands.cmd("CLIENT").arg("SETINFO").arg("LIB-VER").arg(version.unwrap_or(env!("CARGO_PKG_VERSION")));
    }
    commands
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_greeting_makes_it_panic(version in "[0-9]{0,25}(\\.[0-9a-z]{0,25}){0,3}|.*", other in crate::wire::value()) {
            let version = (Value::SimpleString("version".into()), Value::BulkString(version.into_bytes()));
            for hello in [Value::Map(vec![(other.clone(), other.clone()), version]), other] {
                let _ = (check(&hello), name(&hello));
            }
        }
    }
}
