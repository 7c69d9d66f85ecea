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

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua", "e728bf5b44ac397212891ec22d701195007d042b");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua", "68c3231994c85ba71c36322bb940689a4a32a11e");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua", "e329d0c9087cd34cdad27a404a9240a01f62ad59");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua", "a74fed52a771e12036cc8658edc16fe4acfd8a41");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua", "b3e0b850bbcab8140905807ab2a6ed6f9d010498");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua", "c936550a7a684f1d4ea3693e570e818ae4551e79");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua", "c03e083e834c16e915441a838e915da8492e5b03");
pub(super) static INSPECT: LazyLock<Script> = script!(7, "inspect.lua", "54e4c67e900057859ddb5d9b5c9b8b10c32a627d");
pub(super) static FORCE: LazyLock<Script> = script!(8, "force.lua", "94e7fe58fe0967ed0614a36f0363825e8d6075c8");
pub(super) static SHARED_ASK: LazyLock<Script> =
    script!(9, "shared_ask.lua", "e047d2165e0b9c0fe647fdfb829cbdfda9bceeb1");
pub(super) static SHARED_RELEASE: LazyLock<Script> =
    script!(10, "shared_release.lua", "5da43b16468c49440053722c75df0614b9f5e540");
pub(super) static SHARED_RENEW: LazyLock<Script> =
    script!(11, "shared_renew.lua", "9b2e236a371356788ebccbba4b70587a881f0da5");
pub(super) static SHARED_DRAW: LazyLock<Script> =
    script!(12, "shared_draw.lua", "8936133e2237937a8cbcbd643a89f1de5bfbf165");

pub(super) static REST: LazyLock<Script> = script!(13, "rest.lua", "5ca4051632b2026d961108afcd5218296355cfb1");

pub(super) static TICKET: LazyLock<Script> = script!(14, "ticket.lua", "fd44359405577726327e7887e9006cd48e80fb27");
pub(super) static ADOPT: LazyLock<Script> = script!(15, "adopt.lua", "0f460652ed4143e26cb94c31a6e12c932560fcef");
pub(super) static REPLACE: LazyLock<Script> = script!(16, "replace.lua", "a56f17360aa9c507957996b0023ad3a658c9147f");

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
