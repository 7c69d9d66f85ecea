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

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua", "9c1fdb800a89dc21713563fc921c4c7bcebe9c8a");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua", "2d7de8989179fef87b774e36b6196cdb0afd15c8");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua", "9e3add67995637094033cf765c04593a2459b25e");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua", "e6363617e8a4dd38cd3298787da70d02f7865ba9");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua", "8dcfe05ce579c70beb088420b4ad8c0890e16113");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua", "245cab125d422790cac9f9f1ea6b10a00e97a787");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua", "a22702e2cf65fe053d5d984d2f8695e7a4a261b7");
pub(super) static INSPECT: LazyLock<Script> = script!(7, "inspect.lua", "5fb1ae3ddbf877f95922c668c8e142d635540c9a");
pub(super) static FORCE: LazyLock<Script> = script!(8, "force.lua", "3b52d9681eb6071eb630b7e4bac11582c34fb23f");

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
