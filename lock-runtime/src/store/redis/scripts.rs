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

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua", "148f77d1c86287740a880138da0f3b89aa222f68");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua", "16ba1860d7d1ad470e3bd5a91f2e660ace102101");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua", "ebf5deaf18245014bd0597f5fa89fd3fd609cac7");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua", "e6363617e8a4dd38cd3298787da70d02f7865ba9");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua", "8e038a49ce087be461832467f85735de5e55174a");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua", "9e1f11b94b6efff61a1032cc4c31203352e968c9");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua", "08fb3461e9f547e89224b45cafb4c67db13847a6");
pub(super) static INSPECT: LazyLock<Script> = script!(7, "inspect.lua", "f7cc729168d3c4b110dceafe18721f2cf2d82878");
pub(super) static FORCE: LazyLock<Script> = script!(8, "force.lua", "130cf229b1d4932fbe221f20bb466c5db213b2ed");
pub(super) static SHARED_ASK: LazyLock<Script> = script!(9, "shared_ask.lua", "44f4d817c13c013c197e99b51e82197683f15cc2");
pub(super) static SHARED_RELEASE: LazyLock<Script> = script!(10, "shared_release.lua", "cfd5fc7e43e2655c77b2409857b3c4e4cb11e5a2");
pub(super) static SHARED_RENEW: LazyLock<Script> = script!(11, "shared_renew.lua", "30acf721341dd70323bc68423a76728e4114f8b5");
pub(super) static SHARED_DRAW: LazyLock<Script> = script!(12, "shared_draw.lua", "21446a1176e347c208c54e3d23522b497cabfbb7");

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
        for script in [&ASK, &FREE, &RELEASE, &RENEW, &DRAW, &RAISE, &DENIED, &INSPECT, &FORCE, &SHARED_ASK, &SHARED_RELEASE, &SHARED_RENEW, &SHARED_DRAW] {
            let digest = sha1_smol::Sha1::from(&script.text).digest().to_string();
            assert_eq!(script.digest, digest, "the digest of script {} is now {digest}", script.number);
        }
    }
}
