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

pub(super) static ASK: LazyLock<Script> = script!(0, "ask.lua", "a888199d200412e74132b3594113a3b475eb9f45");
pub(super) static FREE: LazyLock<Script> = script!(1, "free.lua", "08184a8f27599f72161ed94702e93e2181e18e38");
pub(super) static RELEASE: LazyLock<Script> = script!(2, "release.lua", "32cc8a7a7cbb26c765781f512114235c5872bafd");
pub(super) static RENEW: LazyLock<Script> = script!(3, "renew.lua", "80a4a0a7bffb9cb1b0844cc9f8f071ef72051dbc");
pub(super) static DRAW: LazyLock<Script> = script!(4, "draw.lua", "2f7ab810100ca5162ce384b5fa1217ee678f2a75");
pub(super) static RAISE: LazyLock<Script> = script!(5, "raise.lua", "55121809a1343b9483f6e5c72c9b5755929dfc6e");
pub(super) static DENIED: LazyLock<Script> = script!(6, "denied.lua", "54af2f010cc1135cef92e6de7d0d4f5358049b08");
pub(super) static INSPECT: LazyLock<Script> = script!(7, "inspect.lua", "2ddeb1e1cc59db02026b133104e33bf9f3812360");
pub(super) static FORCE: LazyLock<Script> = script!(8, "force.lua", "305ad069b9eabc23d3e3588819393066116e7444");
pub(super) static SHARED_ASK: LazyLock<Script> =
    script!(9, "shared_ask.lua", "bf06494b44c841389ce75293de5673e4114c522d");
pub(super) static SHARED_RELEASE: LazyLock<Script> =
    script!(10, "shared_release.lua", "1e666604011c2be818941342fdcad939d4932d47");
pub(super) static SHARED_RENEW: LazyLock<Script> =
    script!(11, "shared_renew.lua", "5791c01e5bef518eb15e090ed59278a254466b35");
pub(super) static SHARED_DRAW: LazyLock<Script> =
    script!(12, "shared_draw.lua", "3c8fda78720f13db27b283dacbd1d7630cd449f2");

pub(super) static REST: LazyLock<Script> = script!(13, "rest.lua", "aab0b57f8e6140bc730d7efee5912f35267d8dce");

pub(super) static TICKET: LazyLock<Script> = script!(14, "ticket.lua", "3a2322f440895fcc0677124bf299b812f1c81d27");
pub(super) static ADOPT: LazyLock<Script> = script!(15, "adopt.lua", "9009eae4ec7490c745ab18566056e1179e56d85c");
pub(super) static REPLACE: LazyLock<Script> = script!(16, "replace.lua", "a63da1b209cc6b1a32ad656b96b0c470f6decd34");

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

    /// Another client's value may have any size, and everybody waits while the server copies it. A user may lack the right to read less.
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
