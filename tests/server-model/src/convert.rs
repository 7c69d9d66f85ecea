//! Conversions: replies to Lua values, and a script's result to a reply.

use mlua::{Lua, Result, Table, Value};

use crate::Reply;

/// A reply as a script sees it, in the types of RESP2: null is `false`, a map is a list.
pub(crate) fn to_lua(lua: &Lua, reply: &Reply) -> Result<Value> {
    Ok(match reply {
        Reply::Simple(text) => Value::Table(field(lua, "ok", text.as_bytes())?),
        Reply::Error(text) => Value::Table(error(lua, text)?),
        Reply::Integer(number) => Value::Integer(*number),
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Nil => Value::Boolean(false),
        Reply::Array(items) | Reply::Push(items) => list(lua, items.iter())?,
        Reply::Map(pairs) => list(lua, pairs.iter().flat_map(|(name, value)| [name, value]))?,
    })
}

/// An error as scripts see it: a table with the message.
pub(crate) fn error(lua: &Lua, message: &str) -> Result<Table> {
    field(lua, "err", message.as_bytes())
}

pub(crate) fn field(lua: &Lua, name: &str, text: &[u8]) -> Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, lua.create_string(text)?)?;
    Ok(table)
}

fn list<'a>(lua: &Lua, items: impl Iterator<Item = &'a Reply>) -> Result<Value> {
    let table = lua.create_table()?;
    for item in items {
        table.raw_push(to_lua(lua, item)?)?;
    }
    Ok(Value::Table(table))
}

/// The reply for a script's result. A number loses its fraction, and a list ends at its first nil.
pub(crate) fn to_reply(value: &Value) -> Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::bulk(text.as_bytes()),
        Value::Integer(number) => Reply::Integer(*number),
        #[expect(clippy::cast_possible_truncation, reason = "as the server does")]
        Value::Number(number) => Reply::Integer(*number as i64),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(table) => of_table(table)?,
        _ => Reply::Nil,
    })
}

fn of_table(table: &Table) -> Result<Reply> {
    if let Value::String(message) = table.raw_get("err")? {
        return Ok(Reply::Error(one_line(&message.to_string_lossy())));
    }
    if let Value::String(status) = table.raw_get("ok")? {
        return Ok(Reply::Simple(one_line(&status.to_string_lossy())));
    }
    let mut items = Vec::new();
    for index in 1.. {
        match table.raw_get(index)? {
            Value::Nil => break,
            item => items.push(to_reply(&item)?),
        }
    }
    Ok(Reply::Array(items))
}

/// Statuses and errors must be one line.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}
