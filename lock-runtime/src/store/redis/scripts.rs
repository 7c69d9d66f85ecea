//! The Lua scripts, each in a file of `scripts/`. A line `-- include queue.lua` stands for the code that they
//! share, and in that code a line `-- include shared.lua` for its part about shared leases.

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

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua", "ceb2ce04bcf8e68c490e4492a5a9de27e4edd444");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua", "2d7de8989179fef87b774e36b6196cdb0afd15c8");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua", "0b2f2f0840701377a616d873dc9ee2d592038ce3");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua", "b6c2e1bed6a40f82b48018a993cf0662d9d599dc");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua", "04c2153098d5a7b2ca2093f1ed40a84e8a8ddf96");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua", "497a0ce161fa16f710c0020f2b95024d644ad4aa");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua", "5c13ae22671049f816b32443db1be77035f81c4d");
pub(super) static INSPECT: LazyLock<Script> = script!(7, "inspect.lua", "95511916d8a7a4640c9875b4f1d00d5100caee9d");
pub(super) static FORCE: LazyLock<Script> = script!(8, "force.lua", "b87292794830b13d6fee3e1484f8468df737d19a");
pub(super) static SHARED_ASK: LazyLock<Script> =
    script!(9, "shared_ask.lua", "79170d7ff76072b6e7b917df40796fe5844ebf62");
pub(super) static SHARED_RELEASE: LazyLock<Script> =
    script!(10, "shared_release.lua", "fd907f879f85a2e9d0352bc4f3fde8edf6e18e1b");
pub(super) static SHARED_RENEW: LazyLock<Script> =
    script!(11, "shared_renew.lua", "b38adc8544b3b7b029589541b17ea3449d4046d1");
pub(super) static SHARED_DRAW: LazyLock<Script> =
    script!(12, "shared_draw.lua", "25a27dd50a748879ceb840d053697bad9b8be1b6");

impl Script {
    fn new(number: u32, file: &str, digest: &'static str) -> Self {
        let text = file.replacen("-- include queue.lua\n", include_str!("scripts/queue.lua"), 1);
        let text = text.replacen("-- include shared.lua\n", include_str!("scripts/shared.lua"), 1);
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
        for script in [
            &ASK,
            &FREE,
            &RELEASE,
            &RENEW,
            &DRAW,
            &RAISE,
            &DENIED,
            &INSPECT,
            &FORCE,
            &SHARED_ASK,
            &SHARED_RELEASE,
            &SHARED_RENEW,
            &SHARED_DRAW,
        ] {
            let digest = sha1_smol::Sha1::from(&script.text).digest().to_string();
            assert_eq!(script.digest, digest, "the digest of script {} is now {digest}", script.number);
        }
    }
}
