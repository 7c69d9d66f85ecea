//! The Lua scripts, each a file in `scripts/`; a line `-- include queue.lua` stands for what they share.

use std::sync::LazyLock;

use redis::Cmd;

/// A script and its digest: SHA-1 in hexadecimal, by which a server knows it.
pub(super) struct Script {
    text: String,
    digest: &'static str,
    /// Its place in a set of scripts.
    number: u32,
}

macro_rules! script {
    ($number:literal, $file:literal, $digest:literal) => {
        LazyLock::new(|| Script::new($number, include_str!(concat!("scripts/", $file)), $digest))
    };
}

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua", "5395036d8d751000f07d038da1064ce623c21944");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua", "5b55a890a8d193cf49245f7be32759c07172e6ad");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua", "73cea841a5b32b37f29ed6f1847440f9d6d2a8a4");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua", "0c43b10a294f67afa7263ea63b27686289126969");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua", "a97b47e4fcd7c70a85974d44e429153966ad99ef");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua", "c4d0f6081b0cff653d913b5ffb6b369d622a0b44");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua", "23fd4f7f9d1250e3280d040fa0b396e5472dda13");

impl Script {
    fn new(number: u32, file: &str, digest: &'static str) -> Self {
        let text = file.replacen("-- include queue.lua\n", include_str!("scripts/queue.lua"), 1);
        Self { text, digest, number }
    }

    /// Its place in a set of scripts, as a bit.
    pub(super) fn bit(&self) -> u32 {
        1 << self.number
    }

    pub(super) fn by_digest(&self, keys: usize, arguments: &impl Fn(&mut Cmd)) -> Cmd {
        command("EVALSHA", self.digest, keys, arguments)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_each_script_is_that_of_its_text() {
        for script in [&ASK, &FREE, &RELEASE, &RENEW, &DRAW, &RAISE, &DENIED] {
            let digest = sha1_smol::Sha1::from(&script.text).digest().to_string();
            assert_eq!(script.digest, digest, "the digest of script {} is now {digest}", script.number);
        }
    }
}
