//! The Lua scripts, each in a file of `scripts/`. A line `-- include queue.lua` stands for the code that they share.

use std::sync::LazyLock;

use redis::Cmd;

/// A script and its digest: SHA-1 in hexadecimal, by which a server knows the script.
pub(super) struct Script {
    text: String,
    digest: &'static str,
    /// The script's place in a set of scripts.
    number: u32,
}

macro_rules! script {
    ($number:literal, $file:literal, $digest:literal) => {
        LazyLock::new(|| Script::new($number, include_str!(concat!("scripts/", $file)), $digest))
    };
}

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua", "e27b78bd76104faf633f43725b4dbdcf1772cd1b");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua", "16ba1860d7d1ad470e3bd5a91f2e660ace102101");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua", "bb265a3600733b6f5840b548178457a5bd084f29");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua", "e6363617e8a4dd38cd3298787da70d02f7865ba9");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua", "7135b25543739bd912766e4e41508035907ba5c3");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua", "44c891f6c2050979d67f67faf70b899098ddaca7");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua", "a22702e2cf65fe053d5d984d2f8695e7a4a261b7");
pub(super) static INSPECT: LazyLock<Script> = script!(7, "inspect.lua", "5fb1ae3ddbf877f95922c668c8e142d635540c9a");
pub(super) static FORCE: LazyLock<Script> = script!(8, "force.lua", "5f944f7dea1c8ac18943cbdace660d0036a81baf");

impl Script {
    fn new(number: u32, file: &str, digest: &'static str) -> Self {
        let text = file.replacen("-- include queue.lua\n", include_str!("scripts/queue.lua"), 1);
        Self { text, digest, number }
    }

    /// The script's place in a set of scripts, as a bit.
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
    // One allocation for the whole command.
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
        for script in [&ASK, &FREE, &RELEASE, &RENEW, &DRAW, &RAISE, &DENIED, &INSPECT, &FORCE] {
            let digest = sha1_smol::Sha1::from(&script.text).digest().to_string();
            assert_eq!(script.digest, digest, "the digest of script {} is now {digest}", script.number);
        }
    }
}
