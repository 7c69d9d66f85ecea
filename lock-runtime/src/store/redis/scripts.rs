//! The Lua scripts, each in a file of `scripts/`. A line `-- include FILE` stands for shared code: `queue.lua` is the queue, `shared.lua`
//! its part about shared leases, `waiting.lua` its part that only few runs need, `values.lua` what all scripts need, and `take.lua` what
//! the scripts share that take a lock from its owner.

use std::sync::LazyLock;

use redis::Cmd;

/// A script and its digest: SHA-1 in hexadecimal, by which a server knows the script.
pub(super) struct Script {
    text: String,
    digest: &'static str,
    /// The script's index in a set of scripts.
    number: u32,
}

macro_rules! script {
    ($number:literal, $file:literal, $digest:literal) => {
        LazyLock::new(|| Script::new($number, include_str!(concat!("scripts/", $file)), $digest))
    };
}

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua", "21e7216383b5084e2ad403679cf465985978aff5");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua", "e39d9bc638ab4447eb4f71d29b016c3908447716");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua", "596b6b71b92bf8955cd7200d5a418e6ed0fb738e");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua", "43f89bdb32023e26923fa99ce47e3664cbe5f61c");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua", "2658c62abccff577a6c5a5458010ca91c2321093");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua", "6824d7fb1788bf2bf07708d8aae38a8ebb0867dd");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua", "1c7edefc26f4bb2d8401747782c68997741ab7f4");
pub(super) static INSPECT: LazyLock<Script> = script!(7, "inspect.lua", "c9b09df7fbb2a5f379afb0735c5fd305b1200ed0");
pub(super) static FORCE: LazyLock<Script> = script!(8, "force.lua", "af2ee17ae18845bdb220745cebeddf783fcb38d8");
pub(super) static SHARED_ASK: LazyLock<Script> =
    script!(9, "shared_ask.lua", "e2f8f082b1685c5c6157230d0930acea0b3a50c7");
pub(super) static SHARED_RELEASE: LazyLock<Script> =
    script!(10, "shared_release.lua", "dea585a25a7397742c06c3982094693a0930c80f");
pub(super) static SHARED_RENEW: LazyLock<Script> =
    script!(11, "shared_renew.lua", "e1c6e9a90ae57e32430b749dea4f7204a83ea12b");
pub(super) static SHARED_DRAW: LazyLock<Script> =
    script!(12, "shared_draw.lua", "c1af745c694afa0951dddc55bce9900a74bfb47f");

pub(super) static REST: LazyLock<Script> = script!(13, "rest.lua", "e43e6ce6bdf226b0303ee2464e12386530978ee8");

pub(super) static TICKET: LazyLock<Script> = script!(14, "ticket.lua", "e376ef1f32794f69bfc48e6f7e777109def4e2a5");
pub(super) static ADOPT: LazyLock<Script> = script!(15, "adopt.lua", "79abb9735e06331ae33619f5e90fe61b593d4ca5");
pub(super) static REPLACE: LazyLock<Script> = script!(16, "replace.lua", "c7177f5aa5ba23a452e0c4cf97f4185d488df0cb");

impl Script {
    fn new(number: u32, file: &str, digest: &'static str) -> Self {
        let text = file.replacen("-- include waiting.lua\n", include_str!("scripts/waiting.lua"), 1);
        let text = text.replacen("-- include queue.lua\n", include_str!("scripts/queue.lua"), 1);
        let text = text.replacen("-- include take.lua\n", include_str!("scripts/take.lua"), 1);
        let text = text.replacen("-- include shared.lua\n", include_str!("scripts/shared.lua"), 1);
        let text = text.replacen("-- include values.lua\n", include_str!("scripts/values.lua"), 1);
        Self { text, digest, number }
    }

    /// Whether it releases locks: then each command of the release gets its full time.
    pub(super) fn is_for_releases(&self) -> bool {
        [&*FREE, &*RELEASE, &*SHARED_RELEASE, &*REST].iter().any(|script| script.number == self.number)
    }

    /// The script's bit in a set of scripts.
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

    /// Promise 4: each crashed waiter delays others by at most 3 s, and a lost wake-up by a second. When all waiters that ask every second
    /// are dead, the first one that pauses must ask soon enough.
    #[test]
    fn a_waiter_pauses_no_longer_than_the_dead_ones_in_front_of_it_may_cost() {
        let near = format!("local NEAR = {} ", number("NEAR"));
        assert!(
            include_str!("scripts/release.lua").contains(&near),
            "the short way leaves longer queues to the long one"
        );
        let round_trip = Duration::from_millis(40);
        let pause = Duration::from_millis(number("PAUSE").into()) + ASK_INTERVAL + FRESH_ANSWER + TICK + round_trip;
        let spare = Duration::from_secs(3).saturating_sub(CLAIM) * number("NEAR") + Duration::from_secs(1);
        assert!(pause <= spare, "{pause:?} {spare:?}");
        assert!(Duration::from_micros(number("YOUNG").into()) < ASK_INTERVAL);
        assert!(Duration::from_millis(number("QUEUE_TTL").into()) > pause + ASK_INTERVAL);
    }

    /// Another client's value may have any size, and all clients wait while the server copies it. A user may lack the right to read less.
    #[test]
    fn no_script_reads_a_whole_value_where_it_may_read_less() {
        for script in ALL {
            let reads_all =
                |line: &&str| line.contains("pcall('GET'") || line.contains("call('GET'") || line.contains("'MGET'");
            let found: Vec<_> =
                script.text.lines().filter(reads_all).filter(|line| !line.ends_with("-- not GETRANGE")).collect();
            assert!(found.is_empty(), "script {}: {found:?}", script.number);
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
