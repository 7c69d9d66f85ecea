//! Reads what the scripts return. No reply causes a panic, whatever it contains.

use lock_wire::{integer, text};
use redis::Value;

use crate::BackendError;
use crate::store::{Reach, StoreError};

/// `{ now µs, answer… }`.
pub(super) struct Reply {
    pub(super) store_micros: u64,
    pub(super) answers: Vec<Value>,
}

impl Reply {
    pub(super) fn read(value: Value) -> Option<Self> {
        let mut answers = items(value).ok()?;
        if answers.is_empty() {
            return None;
        }
        let store_micros = integer(&answers.remove(0)).and_then(|micros| u64::try_from(micros).ok())?;
        mutant!(AnswersShifted => answers.rotate_left(1));
        Some(Self { store_micros, answers })
    }
}

/// The items of an array, or the value itself as an error.
pub(super) fn items(value: Value) -> Result<Vec<Value>, Value> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(other),
    }
}

/// The code of the first error that a script caught for one of its keys: `{ -2, message }`, `{ -3, message }`, or the message itself.
pub(super) fn caught(value: &Value) -> Option<&str> {
    let Value::Array(answers) = value else { return None };
    answers.iter().find_map(|answer| {
        let message = match answer {
            Value::Array(fields) => match fields.as_slice() {
                [Value::Int(-2 | -3), message] => message,
                _ => return None,
            },
            message => message,
        };
        match message {
            Value::BulkString(text) => std::str::from_utf8(text).ok()?.split(' ').next(),
            Value::ServerError(error) => Some(error.code()),
            _ => None,
        }
    })
}

/// The error that a script caught for one of its keys.
pub(super) fn error_of_one(value: Value) -> StoreError {
    let message = match value {
        Value::ServerError(error) => format!("{} {}", error.code(), error.details().unwrap_or_default()),
        other => match text(other) {
            Some(message) => message,
            None => return StoreError::no_answer(),
        },
    };
    let problem = BackendError::new(super::failure::server_message(&message));
    // A server that is loading, being promoted or writing its data to disk will soon accept again. Any other refusal will recur.
    let passes = ["OOM", "READONLY", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "BUSY", "TRYAGAIN"];
    let code = message.split_whitespace().next().unwrap_or_default();
    let error = if passes.contains(&code) { StoreError::later(problem) } else { StoreError::never(problem) };
    StoreError { reach: Reach::Refused, ..error }
}
