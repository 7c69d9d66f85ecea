//! The Lua scripts, each a file in `scripts/`; a line `-- include queue.lua` stands for what they share.

use std::sync::LazyLock;

use redis::Cmd;

/// A script and its digest.
pub(super) struct Script {
    text: String,
    digest: String,
}

macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| Script::new(include_str!(concat!("scripts/", $file))))
    };
}

pub(super) static ASK: LazyLock<Script> = script!("ask.lua");
pub(super) static FREE: LazyLock<Script> = script!("free.lua");
pub(super) static RELEASE: LazyLock<Script> = script!("release.lua");
pub(super) static RENEW: LazyLock<Script> = script!("renew.lua");
pub(super) static DRAW: LazyLock<Script> = script!("draw.lua");
#[cfg(feature = "quorum")]
pub(super) static RAISE: LazyLock<Script> = script!("raise.lua");
pub(super) static DENIED: LazyLock<Script> = script!("denied.lua");

impl Script {
    fn new(file: &str) -> Self {
        let text = file.replacen("-- include queue.lua\n", include_str!("scripts/queue.lua"), 1);
        let digest = redis::Script::new(&text).get_hash().to_owned();
        Self { text, digest }
    }

    pub(super) fn by_digest(&self, keys: usize, arguments: &impl Fn(&mut Cmd)) -> Cmd {
        command("EVALSHA", &self.digest, keys, arguments)
    }

    pub(super) fn by_text(&self, keys: usize, arguments: &impl Fn(&mut Cmd)) -> Cmd {
        command("EVAL", &self.text, keys, arguments)
    }
}

fn command(name: &str, script: &str, keys: usize, arguments: &impl Fn(&mut Cmd)) -> Cmd {
    // One allocation for all that follows.
    let mut command = Cmd::with_capacity(3 + 4 * keys, script.len() + 128 * (keys + 1));
    command.arg(name).arg(script).arg(keys);
    arguments(&mut command);
    command
}
