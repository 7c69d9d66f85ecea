//! The Lua scripts, each in a file of `scripts/`. A line `-- include queue.lua` stands for the code that they
//! share, and in that code a line `-- include shared.lua` for its part about shared leases. `-- include take.lua` stands for
//! what the scripts share that take a lock from its owner.

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

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua", "48f2aa1f3d3e89b06c4f9fd083dffbc8a65de7bd");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua", "68c3231994c85ba71c36322bb940689a4a32a11e");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua", "62ad9b0521a0a5120e8f66efe673459b48efc549");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua", "92de722b40f7aaeb8d2805f24b91ce7c2a595cff");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua", "a354282002d58f61b58f156694164d474e10639e");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua", "7bca53ab6e6243c8fb6a6b9d9b6dca6d1f637a0d");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua", "2898aa7ce6b1c975881ecae7b2afc0847e535c7d");
pub(super) static INSPECT: LazyLock<Script> = script!(7, "inspect.lua", "f060e10d58341c09c6e03b7a09482dc51ea36a41");
pub(super) static FORCE: LazyLock<Script> = script!(8, "force.lua", "e26677947118626a8eff2758797b362ee7110250");
pub(super) static SHARED_ASK: LazyLock<Script> =
    script!(9, "shared_ask.lua", "b7a560940ec1d22e2b7c0e67448d761461462d4b");
pub(super) static SHARED_RELEASE: LazyLock<Script> =
    script!(10, "shared_release.lua", "7ddb4b28bff5bc7f154a41472d36307727710c06");
pub(super) static SHARED_RENEW: LazyLock<Script> =
    script!(11, "shared_renew.lua", "aa09d158be189e6a0478147741594f42ca06bf95");
pub(super) static SHARED_DRAW: LazyLock<Script> =
    script!(12, "shared_draw.lua", "bf6c149adbf51b810a8f49e13e7961348a5bba83");

pub(super) static REST: LazyLock<Script> = script!(13, "rest.lua", "d81c24eef7e9e46fbc61eb77545df369728648e9");

pub(super) static TICKET: LazyLock<Script> = script!(14, "ticket.lua", "9809f82a2b6e4d0c67e3d5863ed683fa1f8cf4eb");
pub(super) static ADOPT: LazyLock<Script> = script!(15, "adopt.lua", "c61ad5423a847fa47a61216f1ba4d323c6b9aee5");
pub(super) static REPLACE: LazyLock<Script> = script!(16, "replace.lua", "0555184bcd804fbcb813c17d0d8a2057fe8d89b9");

impl Script {
    fn new(number: u32, file: &str, digest: &'static str) -> Self {
        let text = file.replacen("-- include queue.lua\n", include_str!("scripts/queue.lua"), 1);
        let text = text.replacen("-- include take.lua\n", include_str!("scripts/take.lua"), 1);
        let text = text.replacen("-- include shared.lua\n", include_str!("scripts/shared.lua"), 1);
        Self { text, digest, number }
    }

    /// The script's place in a set of scripts, as a bit.
    pub(super) fn bit(&self) -> u32 {
        1 << self.number
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn digest(&self) -> &'static str {
        self.digest
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
            &REST,
            &TICKET,
            &ADOPT,
            &REPLACE,
        ] {
            let digest = sha1_smol::Sha1::from(&script.text).digest().to_string();
            assert_eq!(script.digest, digest, "the digest of script {} is now {digest}", script.number);
        }
    }
}
