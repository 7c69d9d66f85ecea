//! [`Plan`]: everything that the seed of a round decides.

use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::ours::LINGER;
use super::strike::{Kind, Place, Strike};
use crate::server;
use history::{Bounds, Lock, Share, Wanted};

/// The settings of one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent settings")]
pub struct Plan {
    /// Decides every random choice.
    pub seed: u64,
    /// Where the locks are.
    pub place: Place,
    /// The make of the servers.
    pub servers: server::Kind,
    /// The number of processes.
    pub workers: u32,
    /// The number of tasks in each process.
    pub tasks: u32,
    /// The number of contended locks.
    pub hot: u32,
    /// The number of locks with little contention.
    pub cold: u32,
    /// The number of locks that readers share, and of locks with permits.
    pub shared: u32,
    /// Whether some tasks acquire several locks together.
    pub together: bool,
    /// Leases to choose from, in milliseconds.
    pub leases: Vec<u64>,
    /// Timeouts to choose from, in milliseconds.
    pub timeouts: Vec<u64>,
    /// How long the calm phase at the start lasts.
    pub calm: Duration,
    /// How long the phase with faults lasts.
    pub faults: Duration,
    /// The time from one fault to the next, in milliseconds: at least the first, less than the second.
    pub pause: (u64, u64),
    /// How often single commands and replies are late, relative to other faults; usually 1.
    pub delays: u32,
    /// Now and then faults pause, for the checks that only apply without faults.
    pub rests: bool,
    /// How long a worker waits for each lock at the end.
    pub patience: Duration,
    /// Whether faults may delete the server's data.
    pub forgetful: bool,
    /// Before all other faults the server is away for this long, while extra tasks of each worker keep trying locks.
    pub outage: Option<Duration>,
    /// The latency to the servers, where there is a proxy in front of them.
    pub round_trip: Duration,
    /// Whether the threads of the workers' runtimes are blocked now and then, so that tasks are polled late.
    pub is_busy: bool,
    /// Like at a provider of hosted servers: the workers' password changes every few seconds, and in a cluster a replica confirms
    /// each grant.
    #[serde(default)]
    pub hosted: bool,
}

/// The number of extra tasks in each worker that keep trying locks while the server is away.
pub(super) const FLOOD: u32 = 8;

/// The longest lease on a quorum, in milliseconds; short, so that a restarted server soon votes again.
pub const MAX_LEASE: u64 = 1000;

/// A lease in milliseconds of which much is left when a replica has confirmed the grant.
const CONFIRMED_IN_TIME: u64 = 600;

/// The plan's file. It is written last, so a folder that has it has the whole round.
const FILE: &str = "plan.json";

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl Plan {
    /// A round of half a minute.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            place: Place::Redis,
            servers: server::Kind::Redis,
            workers: 4,
            tasks: 5,
            hot: 2,
            cold: 12,
            shared: 0,
            together: false,
            leases: vec![150, 300, 600, 1000, 3000],
            timeouts: vec![0, 0, 20, 100, 500, 2000, 5000],
            calm: Duration::from_secs(3),
            faults: Duration::from_secs(16),
            pause: (50, 250),
            delays: 1,
            rests: true,
            patience: Duration::from_secs(9),
            forgetful: false,
            outage: None,
            round_trip: Duration::ZERO,
            is_busy: false,
            hosted: false,
        }
    }

    /// A round at this place. It is longer where there are several servers, because a failover takes seconds. One round in four has
    /// network latency, and one has busy runtimes.
    #[must_use]
    pub fn at(place: Place, seed: u64) -> Self {
        // A quorum has no shared locks.
        let shared = if place == Place::Quorum { 0 } else { 2 };
        let plan = Self { place, shared, together: true, ..Self::new(seed) };
        let mut random = plan.random("distance");
        let is_far = place.has_proxies() && random.u32(..4) == 0;
        let round_trip = if is_far { Duration::from_millis(random.u64(30..=200)) } else { Duration::ZERO };
        // One round in four has busy runtimes.
        let plan = Self { round_trip, is_busy: seed % 4 == 1, ..plan };
        // A lease must outlast its grant's reply: leave time for a grant, a renewal, and a renewal that fails.
        let shortest = if plan.is_busy { 3000 } else { 50 + 4 * millis(round_trip) };
        let leases = plan.leases.iter().map(|lease| *lease.max(&shortest)).collect();
        let plan = Self { leases, ..plan };
        let faults = Duration::from_secs(24);
        match place {
            // One round in four has an outage of a minute.
            Place::Redis if seed % 4 == 3 => {
                let outage = Duration::from_mins(1);
                Self { outage: Some(outage), faults: plan.faults + outage, ..plan }
            }
            Place::Redis => plan,
            Place::Sentinel | Place::Cluster => Self { faults, ..plan },
            Place::Quorum => {
                let leases =
                    [150, 300, 600, MAX_LEASE].iter().map(|lease| *lease.max(&shortest).min(&MAX_LEASE)).collect();
                Self { leases, faults, ..plan }
            }
        }
    }

    /// The same round at a provider of hosted servers. It has no leases that could expire before a replica confirms the grant.
    #[must_use]
    pub fn hosted(self) -> Self {
        let leases = self.leases.iter().map(|lease| *lease.max(&CONFIRMED_IN_TIME)).collect();
        Self { leases, hosted: true, ..self }
    }

    /// A round of a few seconds with short leases, for locks whose bugs show soon.
    #[must_use]
    pub fn short(seed: u64) -> Self {
        Self {
            workers: 3,
            tasks: 3,
            cold: 4,
            leases: vec![150, 300],
            timeouts: vec![0, 50, 300, 1000],
            calm: Duration::from_millis(300),
            faults: Duration::from_millis(4500),
            pause: (30, 100),
            delays: 4,
            rests: false,
            patience: Duration::from_secs(1),
            ..Self::new(seed)
        }
    }

    /// Writes the plan to the folder of its round's history.
    pub(super) fn keep(&self, folder: &Path) {
        let text = serde_json::to_string(self).expect("a plan is plain data");
        std::fs::write(folder.join(FILE), text).expect("room for the plan");
    }

    /// The plan of the round that is kept in this folder, if there is one.
    #[must_use]
    pub fn kept(folder: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(folder.join(FILE)).ok()?;
        Some(serde_json::from_str(&text).expect("a plan that was kept"))
    }

    /// The longest of the leases.
    #[must_use]
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.leases.iter().copied().max().unwrap_or_default())
    }

    /// How long the round continues after the last fault: what a crash may cost, and a little work.
    #[must_use]
    pub fn healing(&self) -> Duration {
        self.lease() * 3 / 2 + Duration::from_secs(1)
    }

    /// The bounds to check under this plan, for locks of type `L`.
    #[must_use]
    pub fn bounds<L: Lock>(&self) -> Bounds {
        Bounds {
            lease: self.lease(),
            noise: Duration::from_millis(250),
            round_trip: self.round_trip,
            answer: if L::TELLS { Duration::from_millis(500) } else { Duration::ZERO },
            forgetful: self.forgetful,
            tells: L::TELLS,
            queues: L::QUEUES && self.place != Place::Quorum,
            splits: self.place == Place::Quorum,
            linger: if L::TELLS && self.place != Place::Quorum { LINGER } else { Duration::ZERO },
        }
    }

    /// The random numbers of one part of the round, the same for the same seed.
    #[must_use]
    pub fn random(&self, part: &str) -> Rng {
        // FNV: unlike the standard hasher, it stays the same from release to release.
        let spread = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Rng::with_seed(part.bytes().fold(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xcbf2_9ce4_8422_2325, spread))
    }

    /// Every lock of the round.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let named = |name, count| (0..count).map(move |number| format!("soak:{name}{number}"));
        let shared = named("read", self.shared).chain(named("permit", self.shared));
        named("hot", self.hot).chain(named("cold", self.cold)).chain(shared).collect()
    }

    /// What a task asks for next.
    pub fn wish(&self, random: &mut Rng) -> Wish {
        let is_hot = random.u32(..10) < 7;
        let (name, count) = if is_hot { ("hot", self.hot) } else { ("cold", self.cold) };
        let mut keys = vec![format!("soak:{name}{}", random.u32(..count))];
        let mut share = Share::Alone;
        match random.u32(..10) {
            0..4 if self.shared > 0 => {
                let number = random.u32(..self.shared);
                let name = if random.bool() { "read" } else { "permit" };
                keys = vec![format!("soak:{name}{number}")];
                share = self.share(name, number, random);
            }
            4 if self.together => {
                let more = random.usize(1..3);
                let others = random.choose_multiple(0..self.cold, more).into_iter();
                keys.extend(
                    others.map(|number| format!("soak:cold{number}")).filter(|key| *key != keys[0]).collect::<Vec<_>>(),
                );
            }
            _ => {}
        }
        // Long leases are rare, because a killed holder keeps everybody out for the rest of its lease.
        let longest = if random.u32(..8) == 0 { self.leases.len() } else { self.leases.len().min(4) };
        let wanted = Wanted {
            timeout: self.timeouts[random.usize(..self.timeouts.len())],
            expire: self.leases[random.usize(..longest)],
            renew: random.u32(..10) < 3,
            fenced: random.bool(),
            share,
            ..Wanted::default()
        };
        Wish { keys, wanted, is_hot }
    }

    /// How a task shares the lock of this name: most share it, some have it alone.
    pub fn share(&self, name: &str, number: u32, random: &mut Rng) -> Share {
        match name {
            _ if random.u32(..6) == 0 => Share::Alone,
            "read" => Share::Read,
            // Tasks that ask for the last of these locks disagree on the number of permits.
            _ if number + 1 == self.shared => Share::Permit(random.u32(2..5)),
            _ => Share::Permit(2),
        }
    }

    /// The faults of the round.
    #[must_use]
    pub fn strikes(&self) -> Vec<Strike> {
        let mut random = self.random("nemesis");
        let often = |kind| if matches!(kind, Kind::DelayCommand | Kind::DelayReply) { self.delays } else { 1 };
        let all = self.place.kinds(self.forgetful);
        let kinds: Vec<_> = all.map(|(kind, weight)| (kind, weight * often(kind))).collect();
        let total: u32 = kinds.iter().map(|(_, weight)| weight).sum();
        let mut strikes = Vec::new();
        let (mut at, mut settled) = (Duration::ZERO, Duration::ZERO);
        if let Some(length) = self.outage {
            let kind = if random.bool() { Kind::StopServer } else { Kind::KillServer };
            strikes.push(Strike { at, kind, victim: 0, length });
            // Then leave a moment for everybody to find the server again.
            at = length + Duration::from_secs(3);
            settled = at;
        }
        while at < self.faults {
            let mut drawn = random.u32(..total);
            let kind = kinds.iter().find(|(_, weight)| {
                let hit = drawn < *weight;
                drawn = drawn.saturating_sub(*weight);
                hit
            });
            let kind = kind.map_or(Kind::StopWorker, |(kind, _)| *kind);
            let lease = self.leases[random.usize(..self.leases.len().min(4))];
            let part = match kind {
                Kind::StopServer | Kind::PauseAll | Kind::PauseWrites | Kind::SleepServer => random.u64(5..150),
                Kind::DeafLine | Kind::MuteLine | Kind::BlackHole => random.u64(100..300),
                _ => random.u64(10..200),
            };
            let length = Duration::from_millis(lease * part / 100);
            let strike = Strike { at, kind, victim: random.usize(..), length };
            // The servers suffer one fault at a time, and only during the phase with faults.
            if kind.lasts().is_zero() || (at >= settled && at + kind.lasts() <= self.faults) {
                settled = settled.max(at + kind.lasts());
                strikes.push(strike);
            }
            let pause = if self.rests && random.u32(..40) == 0 { 3000 } else { random.u64(self.pause.0..self.pause.1) };
            at += Duration::from_millis(pause);
        }
        strikes
    }
}

/// What a task asks for.
#[derive(Clone, Debug)]
pub struct Wish {
    /// One lock, or several together.
    pub keys: Vec<String>,
    /// How to acquire and hold it.
    pub wanted: Wanted,
    /// Whether the lock is contended.
    pub is_hot: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_every_choice() {
        let all = |seed| {
            let plan = Plan::at(Place::Redis, seed);
            let mut random = plan.random("w1.0/2");
            let wishes: Vec<_> = (0..50).map(|_| plan.wish(&mut random)).collect();
            format!("{:?} {wishes:?}", plan.strikes())
        };
        assert_eq!(all(7), all(7));
        assert_ne!(all(7), all(8));
    }

    #[test]
    fn one_round_in_four_starts_with_an_outage_of_a_minute() {
        for seed in 0..8 {
            let plan = Plan::at(Place::Redis, seed);
            let first = plan.strikes().swap_remove(0);
            assert_eq!(first.length >= Duration::from_mins(1), seed % 4 == 3);
            assert_eq!(plan.outage.is_some(), seed % 4 == 3);
        }
    }

    #[test]
    fn every_mode_is_played_where_it_may_be() {
        let wishes = |place| {
            let plan = Plan::at(place, 1);
            let mut random = plan.random("w1.0/2");
            (0..500).map(move |_| plan.wish(&mut random)).collect::<Vec<_>>()
        };
        for place in [Place::Redis, Place::Sentinel, Place::Cluster, Place::Quorum] {
            let (all, is_quorum) = (wishes(place), place == Place::Quorum);
            for share in [Share::Read, Share::Permit(2), Share::Permit(4)] {
                assert_eq!(all.iter().any(|wish| wish.wanted.share == share), !is_quorum, "{share:?} at {place:?}");
            }
            assert!((2..=3).all(|count| all.iter().any(|wish| wish.keys.len() == count)), "{place:?}");
            let is_shared = |wish: &&Wish| wish.wanted.share != Share::Alone;
            assert!(all.iter().filter(is_shared).all(|wish| wish.keys.len() == 1), "{place:?}");
        }
    }

    #[test]
    fn a_server_forgets_only_when_it_is_meant_to() {
        let forgets = |forgetful| {
            let plan = Plan { forgetful, ..Plan::new(1) };
            plan.strikes().iter().any(|strike| matches!(strike.kind, Kind::FlushAll | Kind::RestartEmpty))
        };
        assert!(forgets(true) && !forgets(false));
    }
}
