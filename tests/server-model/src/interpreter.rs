//! [`Interpreter`]: a Lua state with the server's functions. Making one and compiling all scripts takes longer than most
//! simulated worlds run scripts, so each thread reuses the states of its earlier servers.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{Function, Lua, LuaOptions, Result, StdLib, Table, Value, Variadic};

use crate::convert::{self, to_lua};
use crate::data::{Data, Refusal};
use crate::{Reply, connection};

/// The name of a script in messages.
const CHUNK: &str = "@user_script";

thread_local! {
    /// The states of this thread; one that no server uses is free for the next server.
    static MADE: RefCell<Vec<Arc<Interpreter>>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Interpreter {
    lua: Lua,
    /// The Lua function that runs a compiled script; it returns whether the script succeeded, and the value or the error.
    protected: Function,
    /// The compiled scripts by text.
    compiled: Mutex<Vec<(Vec<u8>, Function)>>,
}

/// The data that scripts see, kept in the Lua state.
type Seen = Arc<Mutex<Data>>;

impl Interpreter {
    #[expect(clippy::expect_used, reason = "making a state fails only if memory runs out")]
    pub(crate) fn over(data: &Seen) -> Arc<Self> {
        let interpreter = MADE.with_borrow_mut(|made| {
            if let Some(free) = made.iter().find(|interpreter| Arc::strong_count(interpreter) == 1) {
                return Arc::clone(free);
            }
            let new = Arc::new(Self::new().expect("a Lua state"));
            made.push(Arc::clone(&new));
            new
        });
        interpreter.lua.set_app_data(Arc::clone(data));
        interpreter
    }

    /// A state with the libraries and functions for scripts.
    fn new() -> Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        // The functions here don't panic, so Lua's own `pcall` is enough.
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let invoke = lua.create_function(|lua, words: Variadic<Value>| to_lua(lua, &invoke(lua, &words)?))?;
        let status = lua.create_function(|lua, text: mlua::LuaString| convert::field(lua, "ok", &text.as_bytes()))?;
        let error =
            lua.create_function(|lua, text: mlua::LuaString| convert::error(lua, &coded(&text.to_string_lossy())))?;
        let located = lua.create_function(located)?;
        let protected =
            lua.load(include_str!("prelude.lua")).set_name("@prelude").call((invoke, status, error, located))?;
        Ok(Self { lua, protected, compiled: Mutex::default() })
    }

    pub(crate) fn compile(&self, text: &[u8]) -> Result<Function> {
        let mut compiled = locked(&self.compiled);
        if let Some((_, script)) = compiled.iter().find(|(known, _)| known == text) {
            return Ok(script.clone());
        }
        let script = self.lua.load(text).set_name(CHUNK).set_mode(mlua::chunk::ChunkMode::Text).into_function()?;
        compiled.push((text.to_vec(), script.clone()));
        Ok(script)
    }

    /// Returns whether the script succeeded, and the value or the error.
    pub(crate) fn run(&self, script: &Function, keys: &[&[u8]], values: &[&[u8]]) -> Result<(bool, Value)> {
        let globals = self.lua.globals();
        globals.raw_set("KEYS", self.strings(keys)?)?;
        globals.raw_set("ARGV", self.strings(values)?)?;
        self.protected.call(script)
    }

    fn strings(&self, words: &[&[u8]]) -> Result<Table> {
        let table = self.lua.create_table_with_capacity(words.len(), 0)?;
        for word in words {
            table.raw_push(self.lua.create_string(word)?)?;
        }
        Ok(table)
    }
}

/// One command of a script.
fn invoke(lua: &Lua, words: &[Value]) -> Result<Reply> {
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
    let Some(seen) = lua.app_data_ref::<Seen>() else {
        return Ok(Reply::error("ERR this state belongs to no server"));
    };
    let mut data = locked(&seen);
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error as a table, with the line of the script where it was raised.
fn located(lua: &Lua, error: Value) -> Result<Table> {
    let table = match error {
        Value::Table(table) => table,
        other => convert::error(lua, &format!("ERR {}", other.to_string()?))?,
    };
    // The innermost level of the script; above it are this function and the functions that the script calls.
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

/// The message of a script's error; a message without a code gets the code `ERR`.
fn coded(message: &str) -> String {
    let message = message.strip_prefix('-').unwrap_or(message);
    if message.contains(' ') { message.to_owned() } else { format!("ERR {message}") }
}
