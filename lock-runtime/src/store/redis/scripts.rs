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

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua", "8cd0e6d2a1d5cad8df41907e50c0ba0552aa1171");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua", "2d7de8989179fef87b774e36b6196cdb0afd15c8");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua", "de3e395950ae6893d8379bc03e0db1c9c516bca3");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua", "b6c2e1bed6a40f82b48018a993cf0662d9d599dc");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua", "ad59adfbb5865f171045e6c39f89e1eb5a5818fd");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua", "e5cd5a26381ddddda06bbdc559cd0a3b9915919f");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua", "31896bf8929c41845ce1dbae81fdd803c7f03158");
pub(super) static INSPECT: LazyLock<Script> = script!(7, "inspect.lua", "879c5ee22dd8f3da5c34afa5d9c033adcbf195d7");
pub(super) static FORCE: LazyLock<Script> = script!(8, "force.lua", "6f568ba13455c75e1b15c37aabdc29610e95e288");
pub(super) static SHARED_ASK: LazyLock<Script> =
    script!(9, "shared_ask.lua", "e511f778486b7f5d399625121b91be8398d6d6c2");
pub(super) static SHARED_RELEASE: LazyLock<Script> =
    script!(10, "shared_release.lua", "784679ded471b6ae2f82114d7b281d22658936c6");
pub(super) static SHARED_RENEW: LazyLock<Script> =
    script!(11, "shared_renew.lua", "d367168a936513efaa1f10429af4b71f458f4fc9");
pub(super) static SHARED_DRAW: LazyLock<Script> =
    script!(12, "shared_draw.lua", "3044d2a8f05a8cab4931014e71366df22ddc6f6d");

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
    use std::time::Duration;

    use super::*;
    use crate::timing::{ASK_INTERVAL, CLAIM, FRESH_ANSWER, TICK};

    /// The number of this constant in `queue.lua`.
    fn number(name: &str) -> u32 {
        let (_, rest) = include_str!("scripts/queue.lua").split_once(&format!("local {name} = ")).unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Promise 4: each crashed waiter delays others by at most 3 s, and a lost wake-up by a second. When all waiters are
    /// dead that ask every second, the first that pauses has to ask soon enough.
    #[test]
    fn a_waiter_pauses_no_longer_than_the_dead_ones_in_front_of_it_may_cost() {
        let round_trip = Duration::from_millis(40);
        let pause = Duration::from_millis(number("PAUSE").into()) + ASK_INTERVAL + FRESH_ANSWER + TICK + round_trip;
        let spare = Duration::from_secs(3).saturating_sub(CLAIM) * number("NEAR") + Duration::from_secs(1);
        assert!(pause <= spare, "{pause:?} {spare:?}");
        assert!(Duration::from_micros(number("YOUNG").into()) < ASK_INTERVAL);
        assert!(Duration::from_millis(number("QUEUE_TTL").into()) > pause + ASK_INTERVAL);
    }

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
