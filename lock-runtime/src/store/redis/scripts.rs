//! The Lua scripts, each in a file of `scripts/`. A line `-- include queue.lua` stands for the code about the queue that they
//! share, and in that code a line `-- include shared.lua` for its part about shared leases. `-- include values.lua` stands for
//! what all need, and `-- include take.lua` for what the scripts share that take a lock from its owner.

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

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua", "a333492b63a550f82b230f4363b5589dded2c5ce");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua", "68c3231994c85ba71c36322bb940689a4a32a11e");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua", "e524a36b06afcee0fc110a101ffcb9ed3f41a0c8");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua", "92de722b40f7aaeb8d2805f24b91ce7c2a595cff");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua", "49943846bb7d9513c7c30ad2097d32eb1130c286");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua", "af4e6ad5524d64d0311abacb29ba1a0e903c1687");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua", "2898aa7ce6b1c975881ecae7b2afc0847e535c7d");
pub(super) static INSPECT: LazyLock<Script> = script!(7, "inspect.lua", "b8e0126b46a07a56d7c4a1cf03a6180a0b60b351");
pub(super) static FORCE: LazyLock<Script> = script!(8, "force.lua", "f3dacbb08ab920ba0a2dffbafdab026221c280b7");
pub(super) static SHARED_ASK: LazyLock<Script> =
    script!(9, "shared_ask.lua", "56d8d228d10f2d78d09cf4b483454693ddb198a7");
pub(super) static SHARED_RELEASE: LazyLock<Script> =
    script!(10, "shared_release.lua", "143109825e31455b99647374a27e664b314f04cd");
pub(super) static SHARED_RENEW: LazyLock<Script> =
    script!(11, "shared_renew.lua", "4b9ebbf1b22a668831b78a066136e6c943d158c0");
pub(super) static SHARED_DRAW: LazyLock<Script> =
    script!(12, "shared_draw.lua", "96cf7d62947fe38b2695d7dba95f74922e08c3c2");

pub(super) static REST: LazyLock<Script> = script!(13, "rest.lua", "bfc1f5e4c869e55f6bd438cefdc3e26d511d8f09");

pub(super) static TICKET: LazyLock<Script> = script!(14, "ticket.lua", "d76306d1f6b30de1f732a0c3cee8aa9d645ab35d");
pub(super) static ADOPT: LazyLock<Script> = script!(15, "adopt.lua", "629589b8540344a9b554b91f5e710e4fa5b0e782");
pub(super) static REPLACE: LazyLock<Script> = script!(16, "replace.lua", "2814f0c08bf35bc98a26c2e3d8dfcfd7b8303630");

impl Script {
    fn new(number: u32, file: &str, digest: &'static str) -> Self {
        let text = file.replacen("-- include queue.lua\n", include_str!("scripts/queue.lua"), 1);
        let text = text.replacen("-- include take.lua\n", include_str!("scripts/take.lua"), 1);
        let text = text.replacen("-- include shared.lua\n", include_str!("scripts/shared.lua"), 1);
        let text = text.replacen("-- include values.lua\n", include_str!("scripts/values.lua"), 1);
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
