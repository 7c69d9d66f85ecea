//! The Lua scripts, each a file in `scripts/`; a line `-- include queue.lua` stands for what they share.

use std::sync::LazyLock;

use redis::Cmd;

/// A script and its digest.
pub(super) struct Script {
    text: String,
    digest: String,
    /// Its place in a set of scripts.
    number: u32,
}

macro_rules! script {
    ($number:literal, $file:literal) => {
        LazyLock::new(|| Script::new($number, include_str!(concat!("scripts/", $file))))
    };
}

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua");

impl Script {
    fn new(number: u32, file: &str) -> Self {
        let text = file.replacen("-- include queue.lua\n", include_str!("scripts/queue.lua"), 1);
        let digest = redis::Script::new(&text).get_hash().to_owned();
        Self { text, digest, number }
    }

    /// Its place in a set of scripts, as a bit.
    pub(super) fn bit(&self) -> u32 {
        1 << self.number
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
