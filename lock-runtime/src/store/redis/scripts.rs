//! The Lua scripts, each in a file of `scripts/`. A line `-- include queue.lua` stands for the code about the queue that they
//! share, and in that code a line `-- include shared.lua` for its part about shared leases. `-- include values.lua` stands for
//! what all need, `-- include waiting.lua` for the code about the queue when only few runs need it, and `-- include take.lua` for what the scripts share that take a lock from its owner.

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

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua", "1bd1391dddcfd7cf259f3e1f5d8fb913610e12de");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua", "cb99bce3740b8ee4c436fd28e976a77ea73a4f22");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua", "9a58832f23987a9081be7fd9440c56e9b58f906c");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua", "d83c6d539f90d0cee05fd20ae5affb3607211cae");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua", "17b31ce6c0e6c4723c305040da2cc14d7238ed47");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua", "debf196f7cdf90d950dce7094e9bdc9c938554e2");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua", "8e22827a707ff2d6570cc49a711a62fd070594ba");
pub(super) static INSPECT: LazyLock<Script> = script!(7, "inspect.lua", "cbfc8ca59101e08a1adf0fe0f7a92c377ba71b40");
pub(super) static FORCE: LazyLock<Script> = script!(8, "force.lua", "ab531b904c781edc153e15d577e99d40a014253b");
pub(super) static SHARED_ASK: LazyLock<Script> =
    script!(9, "shared_ask.lua", "e9ff28826cf1c0d1e8927e8827f30406f971aab7");
pub(super) static SHARED_RELEASE: LazyLock<Script> =
    script!(10, "shared_release.lua", "cc994d09cac678de1728968c9f08ac5c7dfa9df5");
pub(super) static SHARED_RENEW: LazyLock<Script> =
    script!(11, "shared_renew.lua", "6d871010d15de6a4e5008b566212f480b17f6cda");
pub(super) static SHARED_DRAW: LazyLock<Script> =
    script!(12, "shared_draw.lua", "b0a55e9b542d07ea19436d2d7045c07fd008648a");

pub(super) static REST: LazyLock<Script> = script!(13, "rest.lua", "de24c44fcd105baed276bf84164afd33535c3c32");

pub(super) static TICKET: LazyLock<Script> = script!(14, "ticket.lua", "eab692bf719f73704e38fcd941b88ca1a2a1dc51");
pub(super) static ADOPT: LazyLock<Script> = script!(15, "adopt.lua", "2a5dcbdf9f34f408f26e3288c11b127502f2134f");
pub(super) static REPLACE: LazyLock<Script> = script!(16, "replace.lua", "6434a73d3a309120e7df3119a3c59c2dd5ce071c");

impl Script {
    fn new(number: u32, file: &str, digest: &'static str) -> Self {
        let text = file.replacen("-- include waiting.lua\n", include_str!("scripts/waiting.lua"), 1);
        let text = text.replacen("-- include queue.lua\n", include_str!("scripts/queue.lua"), 1);
        let text = text.replacen("-- include take.lua\n", include_str!("scripts/take.lua"), 1);
        let text = text.replacen("-- include shared.lua\n", include_str!("scripts/shared.lua"), 1);
        let text = text.replacen("-- include values.lua\n", include_str!("scripts/values.lua"), 1);
        Self { text, digest, number }
    }

    /// Whether it releases locks: then each command of the release has its own time.
    pub(super) fn is_for_releases(&self) -> bool {
        [&*FREE, &*RELEASE, &*SHARED_RELEASE, &*REST].iter().any(|script| script.number == self.number)
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

    const ALL: [&LazyLock<Script>; 17] = [
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
    ];

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

    /// Another client's value may have any size, and everybody waits while the server copies it.
    #[test]
    fn no_script_reads_a_whole_value() {
        for script in ALL {
            assert!(!["'GET'", "'MGET'"].iter().any(|read| script.text.contains(read)), "script {}", script.number);
        }
    }

    #[test]
    fn the_digest_of_each_script_is_that_of_its_text() {
        for script in ALL {
            let digest = sha1_smol::Sha1::from(&script.text).digest().to_string();
            assert_eq!(script.digest, digest, "the digest of script {} is now {digest}", script.number);
        }
    }
}
