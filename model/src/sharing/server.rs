//! The scripts about shared leases, each as one step, in the words of the Lua files.

use super::{HEAD_LIFE, Head, LEASE, Lock, Mode, Push, Rule, Server, Sharing, Ticks, World};

impl Server {
    /// What the lease of a process has left.
    pub(super) fn left(&self, process: usize) -> Ticks {
        let shared = || self.shared.iter().find(|(owner, _)| *owner == process).map_or(0, |(_, left)| *left);
        match self.lock {
            Lock::Alone(owner, left) if owner == process => left,
            Lock::Shared => shared(),
            _ => 0,
        }
    }
}

impl Sharing {
    /// `has_shared`: removes the leases that have ended.
    fn end_over(&self, world: &mut World) {
        if self.keeps(Rule::Ended) {
            world.server.shared.retain(|(_, left)| *left > 0 || world.server.lock != Lock::Shared);
        }
        if world.server.lock == Lock::Shared && world.server.shared.is_empty() {
            world.server.lock = Lock::Free;
        }
    }

    /// `ask.lua` and `shared_ask.lua`. Returns whether the process owns a lease now, and whether somebody waits behind.
    pub(super) fn grant_or_queue(&self, world: &mut World, process: usize) -> Option<bool> {
        self.end_over(world);
        let mode = self.modes[process];
        if world.server.lock == Lock::Free && !self.hand_off(world, Some(process)) {
            self.give(world, process);
        } else if world.server.lock == Lock::Shared && mode != Mode::Alone && !Self::owns(world, process) {
            self.admit(world, Some(process));
            if !Self::owns(world, process) && self.fits(world, mode) && self.is_next(world, process) {
                world.server.queue.retain(|waiter| *waiter != process);
                self.give(world, process);
                self.admit(world, None);
            }
        } else if world.server.lock == Lock::Shared && mode == Mode::Alone && !self.keeps(Rule::AloneWaits) {
            world.server.lock = Lock::Alone(process, LEASE);
        } else if matches!(world.server.lock, Lock::Alone(..)) && mode != Mode::Alone && !self.keeps(Rule::SharedWaits)
        {
            self.give(world, process);
        }
        if Self::owns(world, process) {
            world.server.queue.retain(|waiter| *waiter != process);
            return Some(!world.server.queue.is_empty());
        }
        if !world.server.queue.contains(&process) {
            world.server.queue.push(process);
            // It waits under another token than before.
            world.server.head.take_if(|head| head.waiter == process);
        }
        if world.server.lock == Lock::Shared && world.server.queue.first() == Some(&process) {
            world.server.head = Some(Head { waiter: process, left: HEAD_LIFE });
        }
        let told: Vec<usize> = match world.server.lock {
            Lock::Alone(owner, _) => vec![owner],
            _ => world.server.shared.iter().map(|(owner, _)| *owner).filter(|owner| *owner != process).collect(),
        };
        for owner in told {
            world.processes[owner].push(Push::Wait);
        }
        None
    }

    pub(super) fn owns(world: &World, process: usize) -> bool {
        world.server.left(process) > 0
    }

    fn fits(&self, world: &World, mode: Mode) -> bool {
        mode.fits_beside(world.server.shared.len()) || !self.keeps(Rule::Capacity)
    }

    /// Whether nobody waits in front.
    fn is_next(&self, world: &World, process: usize) -> bool {
        !self.keeps(Rule::OneQueue) || world.server.queue.first().is_none_or(|head| *head == process)
    }

    /// Whether the first waiter counts as alive.
    fn head_lives(&self, world: &mut World, waiter: usize) -> bool {
        if let Some(head) = world.server.head.filter(|head| head.waiter == waiter) {
            return head.left > 0 || !self.keeps(Rule::DeadHead);
        }
        let is_heard = world.processes[waiter].is_heard || !self.keeps(Rule::UnheardHead);
        if is_heard {
            world.server.head = Some(Head { waiter, left: HEAD_LIFE });
        }
        is_heard
    }

    /// Gives a lease that fits.
    fn give(&self, world: &mut World, process: usize) {
        let ahead = world.server.queue.iter().take_while(|waiter| **waiter != process);
        let is_live = |waiter: &usize| !world.processes[*waiter].is_gone && world.processes[*waiter].wants();
        world.seen.is_overtaken |= ahead.into_iter().any(is_live);
        if self.modes[process] == Mode::Alone {
            world.server.lock = Lock::Alone(process, LEASE);
            return;
        }
        if world.server.lock == Lock::Free {
            self.start_shared(world);
        }
        world.server.lock = Lock::Shared;
        world.server.shared.retain(|(owner, _)| *owner != process);
        world.server.shared.push((process, LEASE));
    }

    /// What is left of earlier leases does not come back.
    fn start_shared(&self, world: &mut World) {
        if self.keeps(Rule::Fresh) {
            world.server.shared.clear();
        }
    }

    /// `hand_off` of `queue.lua`: the lock is free, and goes to the first waiters. Returns whether somebody has it now.
    fn hand_off(&self, world: &mut World, caller: Option<usize>) -> bool {
        Self::pass_over(world);
        let Some(first) = world.server.queue.first().copied() else { return false };
        if self.modes[first] == Mode::Alone {
            world.server.queue.remove(0);
            world.server.lock = Lock::Alone(first, LEASE);
            Self::tell(world, first, caller);
            return true;
        }
        self.start_shared(world);
        world.server.lock = Lock::Shared;
        self.admit(world, caller);
        !world.server.shared.is_empty()
    }

    /// Rule 3: who can't be told is passed over.
    fn pass_over(world: &mut World) {
        while world.server.queue.first().is_some_and(|first| !world.processes[*first].is_heard) {
            world.server.queue.remove(0);
        }
    }

    /// `admit` of `shared.lua`.
    fn admit(&self, world: &mut World, caller: Option<usize>) {
        loop {
            self.admit_those_that_fit(world, caller);
            let Some(head) = world.server.queue.first().copied() else { return };
            if world.server.shared.is_empty() || caller == Some(head) || self.head_lives(world, head) {
                return;
            }
            world.server.queue.remove(0);
        }
    }

    fn admit_those_that_fit(&self, world: &mut World, caller: Option<usize>) {
        let mut granted = Vec::new();
        while let Some(first) = world.server.queue.first().copied() {
            let mode = self.modes[first];
            if mode == Mode::Alone || !self.fits(world, mode) {
                break;
            }
            world.server.queue.remove(0);
            if !world.processes[first].is_heard {
                continue;
            }
            world.server.shared.retain(|(owner, _)| *owner != first);
            world.server.shared.push((first, LEASE));
            granted.push(first);
            if !self.keeps(Rule::Together) {
                break;
            }
        }
        for process in granted {
            Self::tell(world, process, caller);
        }
    }

    fn tell(world: &mut World, process: usize, caller: Option<usize>) {
        if caller != Some(process) {
            let is_contended = !world.server.queue.is_empty();
            world.processes[process].push(Push::Grant(0, is_contended));
        }
    }

    /// `release.lua` and `shared_release.lua`.
    pub(super) fn release(&self, world: &mut World, process: usize) {
        world.processes[process].forget_grants();
        world.server.queue.retain(|waiter| *waiter != process);
        let owned = Self::owns(world, process);
        match world.server.lock {
            Lock::Alone(owner, _) if owner == process => world.server.lock = Lock::Free,
            Lock::Shared if owned => world.server.shared.retain(|(owner, _)| *owner != process),
            _ => {}
        }
        self.end_over(world);
        match world.server.lock {
            Lock::Free => drop(self.hand_off(world, None)),
            Lock::Shared => self.admit(world, None),
            Lock::Alone(..) => {}
        }
    }

    /// `renew.lua` and `shared_renew.lua`. Returns whether the lease is still owned.
    pub(super) fn lengthen(world: &mut World, process: usize) -> bool {
        if !Self::owns(world, process) {
            return false;
        }
        if let Lock::Alone(_, left) = &mut world.server.lock {
            *left = LEASE;
        }
        for (_, left) in world.server.shared.iter_mut().filter(|(owner, _)| *owner == process) {
            *left = LEASE;
        }
        true
    }
}
