//! [`Scripts`]: Lua as the server runs it.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{Function, Lua, LuaOptions, Result, StdLib, Table, Value, Variadic};

use crate::convert::{self, to_lua, to_reply};
use crate::data::{Data, Refusal};
use crate::{Reply, connection};

/// What a script's name is in messages.
const CHUNK: &str = "@user_script";

pub(crate) struct Scripts {
    lua: Lua,
    /// Runs a compiled script; returns whether it went well, and the value or the error.
    protected: Function,
    /// By digest.
    texts: HashMap<String, Script>,
    patches: Vec<(String, String)>,
    patched: HashSet<String>,
}

struct Script {
    text: Vec<u8>,
    /// Of the text with all patches.
    compiled: Option<Function>,
}

impl Scripts {
    #[expect(clippy::expect_used, reason = "a state can only fail to be made for lack of memory")]
    pub(crate) fn new(data: &Arc<Mutex<Data>>) -> Self {
        let (lua, protected) = state(data).expect("a Lua state");
        Self { lua, protected, texts: HashMap::new(), patches: Vec::new(), patched: HashSet::new() }
    }

    pub(crate) fn run_text(&mut self, text: &[u8], keys: &[&[u8]], values: &[&[u8]]) -> Reply {
        let digest = sha1_smol::Sha1::from(text).digest().to_string();
        let script = Script { text: text.to_vec(), compiled: None };
        self.texts.entry(digest.clone()).or_insert(script);
        let reply = self.run(&digest, keys, values);
        // A text that is no script is not kept.
        self.texts.retain(|known, script| *known != digest || script.compiled.is_some());
        reply.unwrap_or_else(no_script)
    }

    pub(crate) fn run_digest(&mut self, digest: &[u8], keys: &[&[u8]], values: &[&[u8]]) -> Reply {
        let digest = String::from_utf8_lossy(digest).to_ascii_lowercase();
        self.run(&digest, keys, values).unwrap_or_else(no_script)
    }

    fn run(&mut self, digest: &str, keys: &[&[u8]], values: &[&[u8]]) -> Option<Reply> {
        let script = match self.compiled(digest)? {
            Ok(script) => script,
            Err(error) => return Some(Reply::error(format!("ERR Error compiling script (new function): {error}"))),
        };
        Some(self.called(&script, digest, keys, values).unwrap_or_else(|error| Reply::error(format!("ERR {error}"))))
    }

    fn compiled(&mut self, digest: &str) -> Option<Result<Function>> {
        let script = self.texts.get_mut(digest)?;
        if let Some(compiled) = &script.compiled {
            return Some(Ok(compiled.clone()));
        }
        let mut text = script.text.clone();
        for (from, to) in &self.patches {
            let before = String::from_utf8_lossy(&text);
            if before.contains(from) {
                text = before.replace(from, to).into_bytes();
                self.patched.insert(digest.to_owned());
            }
        }
        let compiled = self.lua.load(&text[..]).set_name(CHUNK).set_mode(mlua::chunk::ChunkMode::Text).into_function();
        script.compiled = compiled.as_ref().ok().cloned();
        Some(compiled)
    }

    fn called(&self, script: &Function, digest: &str, keys: &[&[u8]], values: &[&[u8]]) -> Result<Reply> {
        let globals = self.lua.globals();
        globals.raw_set("KEYS", self.strings(keys)?)?;
        globals.raw_set("ARGV", self.strings(values)?)?;
        let (went_well, value): (bool, Value) = self.protected.call(script)?;
        let mut reply = to_reply(&value)?;
        if let (false, Value::Table(error), Reply::Error(message)) = (went_well, &value, &mut reply)
            && let (Some(source), Some(line)) = (error.raw_get("source")?, error.raw_get("line")?)
        {
            let (source, line): (String, u64) = (source, line);
            // To a text this can't fail.
            let _ = write!(message, " script: {digest}, on {source}:{line}.");
        }
        Ok(reply)
    }

    fn strings(&self, words: &[&[u8]]) -> Result<Table> {
        let table = self.lua.create_table_with_capacity(words.len(), 0)?;
        for word in words {
            table.raw_push(self.lua.create_string(word)?)?;
        }
        Ok(table)
    }

    pub(crate) fn flush(&mut self) {
        self.texts.clear();
    }

    pub(crate) fn patch(&mut self, from: &str, to: &str) {
        self.patches.push((from.to_owned(), to.to_owned()));
        for script in self.texts.values_mut() {
            script.compiled = None;
        }
    }

    pub(crate) fn patched(&self) -> usize {
        self.patched.len()
    }
}

pub(crate) fn no_script() -> Reply {
    Reply::error("NOSCRIPT No matching script. Please use EVAL.")
}

/// A state with the libraries and functions that scripts have.
fn state(data: &Arc<Mutex<Data>>) -> Result<(Lua, Function)> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
    // The functions here don't panic, so Lua's own pcall does.
    let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
    let data = Arc::clone(data);
    let invoke = lua.create_function(move |lua, words: Variadic<Value>| to_lua(lua, &invoke(lua, &data, &words)?))?;
    let status = lua.create_function(|lua, text: mlua::LuaString| convert::field(lua, "ok", &text.as_bytes()))?;
    let error =
        lua.create_function(|lua, text: mlua::LuaString| convert::error(lua, &coded(&text.to_string_lossy())))?;
    let located = lua.create_function(located)?;
    let protected =
        lua.load(include_str!("prelude.lua")).set_name("@prelude").call((invoke, status, error, located))?;
    Ok((lua, protected))
}

/// One command of a script.
fn invoke(lua: &Lua, data: &Mutex<Data>, words: &[Value]) -> Result<Reply> {
    let mut command = Vec::with_capacity(words.len());
    for word in words {
        command.push(match word {
            Value::String(text) => text.as_bytes().to_vec(),
            Value::Integer(number) => number.to_string().into_bytes(),
            Value::Number(number) => {
                let format: Function = lua.globals().get::<Table>("string")?.get("format")?;
                format.call::<mlua::LuaString>(("%.17g", *number))?.as_bytes().to_vec()
            }
            _ => return Ok(Reply::error("ERR Lua redis lib command arguments must be strings or integers")),
        });
    }
    let arguments: Vec<&[u8]> = command.iter().skip(1).map(Vec::as_slice).collect();
    let Some(name) = command.first().map(|name| name.to_ascii_uppercase()) else {
        return Ok(Reply::error("ERR Please specify at least one argument for this redis.call() call"));
    };
    let mut data = locked(data);
    data.clock.go_on();
    let outcome = data.execute(&name, &arguments);
    Ok(outcome.unwrap_or_else(|refusal| {
        Reply::error(match refusal {
            Refusal::WrongCount => "ERR Wrong number of args calling Redis command from script",
            Refusal::Unknown if connection::is_name(&name) => "ERR This Redis command is not allowed from script",
            Refusal::Unknown => "ERR Unknown Redis command called from script",
        })
    }))
}

fn locked(data: &Mutex<Data>) -> MutexGuard<'_, Data> {
    data.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error as a table, with the line of the script where it was raised.
fn located(lua: &Lua, error: Value) -> Result<Table> {
    let table = match error {
        Value::Table(table) => table,
        other => convert::error(lua, &format!("ERR {}", other.to_string()?))?,
    };
    // The innermost level that belongs to the script: above it are this function and those that a script calls.
    for level in 1.. {
        let line = lua.inspect_stack(level, |level| {
            (level.source().source.as_deref() == Some(CHUNK)).then(|| level.current_line()).flatten()
        });
        match line {
            Some(Some(line)) => {
                table.raw_set("source", CHUNK)?;
                table.raw_set("line", line)?;
                break;
            }
            Some(None) => {}
            None => break,
        }
    }
    Ok(table)
}

/// The message of an error that a script makes: one without a code gets the general one.
fn coded(message: &str) -> String {
    let message = message.strip_prefix('-').unwrap_or(message);
    if message.contains(' ') { message.to_owned() } else { format!("ERR {message}") }
}
