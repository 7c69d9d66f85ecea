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

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua", "44f22473b82ad93cf02ff57b58d49f574b4f1160");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua", "2d7de8989179fef87b774e36b6196cdb0afd15c8");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua", "9bc8b56e04753ed2e880dd5699ad5cc0abc52c0e");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua", "e6363617e8a4dd38cd3298787da70d02f7865ba9");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua", "a62e4dc049444610a442f8bb437319b860381980");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua", "28f8b1a556af5f053c6908247c6434980758c1ff");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua", "31896bf8929c41845ce1dbae81fdd803c7f03158");
pub(super) static INSPECT: LazyLock<Script> = script!(7, "inspect.lua", "486461eae7e9c9ff7e1f19172c470fd3c16bfe81");
pub(super) static FORCE: LazyLock<Script> = script!(8, "force.lua", "5b8af32892c4bd69b668dded06e5e6790bdbde53");
pub(super) static SHARED_ASK: LazyLock<Script> =
    script!(9, "shared_ask.lua", "49dc42759024b848a166a4d06efe7cc9b667f2fd");
pub(super) static SHARED_RELEASE: LazyLock<Script> =
    script!(10, "shared_release.lua", "ecae6f5ddec4b0fd9c60c11d4ea23a3c5bf45949");
pub(super) static SHARED_RENEW: LazyLock<Script> =
    script!(11, "shared_renew.lua", "b1ebeafdf56ab727a07bd5202cdb1ab57ef51340");
pub(super) static SHARED_DRAW: LazyLock<Script> =
    script!(12, "shared_draw.lua", "ea5c4f56c1e5cf7413e07dcb06a27ca41958e8c8");

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
