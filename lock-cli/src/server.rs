//! A server's replies about itself, as text.

use std::collections::BTreeMap;

use lock_runtime::{BackendError, LockServer};
use redis::Value;

pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

pub(crate) fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        _ => Vec::new(),
    }
}

/// The lines `name:value` of a reply to `INFO` or `CLUSTER INFO`. Empty when the server refuses. The error means that it did not answer.
pub(crate) async fn facts(server: &LockServer, words: &[&str]) -> Result<BTreeMap<String, String>, BackendError> {
    let reply = server.ask(words).await?.ok().as_ref().and_then(text).unwrap_or_default();
    let fact = |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    Ok(reply.lines().filter_map(fact).collect())
}

/// A setting. `None` when the server refuses. The error means that it did not answer.
pub(crate) async fn setting(server: &LockServer, name: &str) -> Result<Option<String>, BackendError> {
    Ok(match server.ask(&["CONFIG", "GET", name]).await? {
        Ok(Value::Map(pairs)) => pairs.first().and_then(|(_, value)| text(value)),
        Ok(Value::Array(items)) => items.get(1).and_then(text),
        _ => None,
    })
}

/// Whether the server refused because of a missing right.
pub(crate) fn is_denied(refusal: &BackendError) -> bool {
    refusal.to_string().contains("NOPERM")
}
