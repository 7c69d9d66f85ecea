//! [`Scripts`]: the scripts that the server knows.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use mlua::{Function, Result, Value};

use crate::Reply;
use crate::convert::to_reply;
use crate::data::Data;
use crate::interpreter::Interpreter;

pub(crate) struct Scripts {
    interpreter: Arc<Interpreter>,
    /// By digest.
    texts: HashMap<String, Script>,
    patches: Vec<(String, String)>,
    patched: HashSet<String>,
}

struct Script {
    text: Vec<u8>,
    /// The text with all patches applied.
    compiled: Option<Function>,
}

impl Scripts {
    pub(crate) fn new(data: &Arc<Mutex<Data>>) -> Self {
        let interpreter = Interpreter::over(data);
        Self { interpreter, texts: HashMap::new(), patches: Vec::new(), patched: HashSet::new() }
    }

    pub(crate) fn run_text(&mut self, text: &[u8], keys: &[&[u8]], values: &[&[u8]]) -> Reply {
        let known = self.texts.iter().find(|(_, script)| script.text == text).map(|(digest, _)| digest.clone());
        let digest = known.unwrap_or_else(|| {
            let digest = sha1_smol::Sha1::from(text).digest().to_string();
            self.texts.insert(digest.clone(), Script { text: text.to_vec(), compiled: None });
            digest
        });
        let reply = self.run(&digest, keys, values);
        // A text that does not compile is not stored.
        if self.texts.get(&digest).is_some_and(|script| script.compiled.is_none()) {
            self.texts.remove(&digest);
        }
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
        let compiled = self.interpreter.compile(&text);
        script.compiled = compiled.as_ref().ok().cloned();
        Some(compiled)
    }

    fn called(&self, script: &Function, digest: &str, keys: &[&[u8]], values: &[&[u8]]) -> Result<Reply> {
        let (went_well, value) = self.interpreter.run(script, keys, values)?;
        let mut reply = to_reply(&value)?;
        if let (false, Value::Table(error), Reply::Error(message)) = (went_well, &value, &mut reply)
            && let (Some(source), Some(line)) = (error.raw_get("source")?, error.raw_get("line")?)
        {
            let (source, line): (String, u64) = (source, line);
            // Writing to a `String` can't fail.
            let _ = write!(message, " script: {digest}, on {source}:{line}.");
        }
        Ok(reply)
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
