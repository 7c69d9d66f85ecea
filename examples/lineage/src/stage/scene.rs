//! [`Scene`]: what happens to one victim.

use std::sync::mpsc::Sender;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fastrand::Rng;
use history::event::now;
use history::{Recorder, What};
use tests::proxy::{Direction, Proxy};
use tests::server::Server;

use super::{Actor, WireFault};
use crate::fault::{Fault, LEASE};
use crate::hall::Plate;
use crate::part::Part;

pub(super) struct Scene<'a> {
    pub(super) plate: &'a Plate,
    pub(super) server: &'a Server,
    /// The victim's own connection to the server.
    pub(super) proxy: Proxy,
    pub(super) fault: Fault,
    pub(super) number: usize,
    pub(super) part: Part,
    pub(super) seed: u64,
    pub(super) recorder: Recorder,
}

/// How long the victim may take to get a lock that nobody else wants.
const SOON: Duration = Duration::from_secs(2);

impl Scene<'_> {
    /// Whether the victim must not learn of its grant.
    fn is_unheard(&self) -> bool {
        self.fault == Fault::ReplyLost || self.fault == Fault::HolderKilled && self.number % 2 == 1
    }

    /// Runs before the victim starts.
    pub(super) fn prepare(&self) {
        if self.is_unheard() {
            self.proxy.plan(self.plate.commands[0], WireFault::MuteFromReply);
        }
    }

    /// Waits until the victim has its lock, reports that it is ready, and causes the fault. Returns whether the fault hit the victim.
    pub(super) fn play(&mut self, victim: &mut Actor, ready: Sender<()>) -> bool {
        let mut random = Rng::with_seed(self.seed);
        let (start, mut from) = (Instant::now(), now());
        while self.fault.hits_a_holder() && !self.is_owned_by_victim() && start.elapsed() < SOON {
            sleep(Duration::from_millis(2));
        }
        let in_time = start.elapsed() < SOON;
        if matches!(self.fault, Fault::CutOff | Fault::LateRelease) {
            // Until the victim knows of its grant, and has lengthened the lease.
            sleep(Duration::from_millis(15));
        }
        if self.fault != Fault::ReplyLost {
            from = now();
        }
        match self.fault {
            Fault::CutOff => self.proxy.black_hole(Direction::Both),
            Fault::LateRelease => {
                let late = WireFault::Delay(Duration::from_millis(LEASE * 5 / 2));
                self.proxy.plan(self.plate.commands[1], late);
            }
            Fault::HolderKilled if self.is_unheard() => self.kill(victim),
            _ => {}
        }
        drop(ready);
        match self.fault {
            Fault::HolderKilled if !self.is_unheard() => {
                sleep(Duration::from_millis(random.u64(20..150)));
                from = now();
                self.kill(victim);
            }
            Fault::CutOff => {
                sleep(Duration::from_millis(LEASE * 2));
                self.proxy.cut();
            }
            Fault::LateRelease => sleep(self.fault.act().mul_f32(0.9)),
            Fault::WaiterKilled => {
                sleep(Duration::from_millis(random.u64(200..400)));
                from = now();
                self.kill_while_it_waits(victim);
            }
            _ => {}
        }
        if self.fault != Fault::Calm && self.fault != Fault::SlowHolder {
            self.recorder.note(What::Fault { kind: format!("{:?}", self.fault), target: "wire".to_owned(), from });
        }
        in_time && self.proxy.is_through()
    }

    fn is_owned_by_victim(&self) -> bool {
        let owner = self.part.keys.first().and_then(|key| self.server.owner(key));
        owner.is_some_and(|token| token.ends_with(&format!("@{}", self.part.name)))
    }

    fn kill(&mut self, victim: &mut Actor) {
        self.recorder.note_of(now(), &self.part.name, What::Killed);
        victim.kill();
    }

    fn kill_while_it_waits(&mut self, victim: &mut Actor) {
        let end = Instant::now() + SOON;
        while Instant::now() < end {
            victim.stop();
            if !self.is_owned_by_victim() {
                return self.kill(victim);
            }
            victim.go_on();
            sleep(Duration::from_millis(7));
        }
    }
}
