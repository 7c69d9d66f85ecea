//! What a process does.

use super::{LEASE, Mode, Phase, Process, Push, Rule, Sharing, Task, Ticks, World};

impl Process {
    pub(super) fn new(tasks: Vec<Task>) -> Self {
        Self {
            is_gone: false,
            is_heard: true,
            tasks,
            lease: None,
            lingers: false,
            is_contended: false,
            asked: None,
            pushes: Vec::new(),
            reserve: None,
        }
    }

    pub(super) fn holders(&self) -> usize {
        if self.is_gone {
            return 0;
        }
        self.tasks.iter().filter(|task| task.phase == Phase::Holding).count()
    }

    /// Whether a task waits.
    pub(super) fn wants(&self) -> bool {
        self.tasks.iter().any(|task| task.phase == Phase::Waiting)
    }

    pub(super) fn push(&mut self, push: Push) {
        // To hear twice that somebody waits is to hear it once.
        if !self.is_gone && self.pushes.last() != Some(&push) {
            self.pushes.push(push);
        }
    }

    /// The hold is over, and what runs under it stops.
    pub(super) fn lose(&mut self) {
        self.lease = None;
        self.lingers = false;
        self.is_contended = false;
        self.reserve = None;
        for task in self.tasks.iter_mut().filter(|task| task.phase == Phase::Holding) {
            task.phase = Phase::Idle;
        }
    }

    /// A grant is for one token, which is never used again after its release.
    pub(super) fn forget_grants(&mut self) {
        self.pushes.retain(|push| !matches!(push, Push::Grant(..)));
    }

    pub(super) fn tick(&mut self) {
        self.lease = self.lease.map(|left| left.saturating_sub(1));
        if self.lease == Some(0) {
            self.lose();
        }
        self.asked = self.asked.map(|asked| (asked + 1).min(1));
        for push in &mut self.pushes {
            if let Push::Grant(age, _) = push {
                *age = (*age + 1).min(LEASE);
            }
        }
    }
}

impl Sharing {
    /// A hold begins for all who wait here.
    fn begin(&self, world: &mut World, process: usize, left: Ticks, is_contended: bool) {
        let me = &mut world.processes[process];
        me.lease = Some(left);
        me.is_contended = is_contended;
        me.asked = None;
        for task in 0..me.tasks.len() {
            if world.processes[process].tasks[task].phase == Phase::Waiting {
                self.hold(world, process, task);
            }
        }
    }

    /// A task begins to hold, with a fencing token.
    fn hold(&self, world: &mut World, process: usize, task: usize) {
        world.processes[process].tasks[task].phase = Phase::Holding;
        if let Some(is_stale) = world.processes[process].reserve.take() {
            world.seen.is_stale |= is_stale;
            return;
        }
        for other in &mut world.processes {
            other.reserve = other.reserve.map(|_| true);
        }
        if !self.keeps(Rule::OneToken) {
            world.processes[process].reserve = Some(false);
        }
    }

    /// Tasks that waited for the hold of their process, which has ended, ask for themselves.
    pub(super) fn ask_for_those_who_wait(&self, world: &mut World) {
        for process in 0..world.processes.len() {
            let me = &world.processes[process];
            if !me.is_gone && me.wants() && me.lease.is_none() && me.asked.is_none() {
                self.ask(world, process);
            }
        }
    }

    pub(super) fn start(&self, world: &mut World, process: usize, task: usize) {
        let me = &mut world.processes[process];
        me.tasks[task].rounds -= 1;
        let may_join = !me.is_contended || !self.keeps(Rule::Phases);
        let reads = matches!(self.modes[process], Mode::Read(_));
        if reads && me.holders() > 0 && may_join {
            // Rule S5: a reader that knows of a waiter does not overtake it.
            world.seen.is_overtaken |= me.is_contended;
            return self.hold(world, process, task);
        }
        if std::mem::take(&mut me.lingers) {
            world.seen.has_lingered = true;
            return self.hold(world, process, task);
        }
        me.tasks[task].phase = Phase::Waiting;
        // A task that waits here asks for all of them.
        if me.holders() == 0 && me.asked.is_none() {
            self.ask(world, process);
        }
    }

    pub(super) fn ask(&self, world: &mut World, process: usize) {
        world.processes[process].asked = Some(0);
        if let Some(is_contended) = self.grant_or_queue(world, process) {
            // It may have been granted some time ago, and the push was lost.
            let left = world.server.left(process);
            self.begin(world, process, left, is_contended);
            // The grant that was pushed for the same ask says nothing new.
            world.processes[process].forget_grants();
        }
    }

    pub(super) fn read(&self, world: &mut World, process: usize) {
        let me = &mut world.processes[process];
        match me.pushes.remove(0) {
            Push::Wait if me.lingers => {
                if self.keeps(Rule::LingerYields) {
                    self.release_lease(world, process);
                }
            }
            Push::Wait => me.is_contended |= me.lease.is_some(),
            Push::Grant(age, is_contended) if me.wants() && me.asked.is_some() && age < LEASE => {
                self.begin(world, process, LEASE - age, is_contended);
                world.seen.has_passed = true;
            }
            // Rule 12: nobody waits for this grant.
            Push::Grant(..) if me.lease.is_none() && me.asked.is_none() => self.release(world, process),
            Push::Grant(..) => {}
        }
    }

    pub(super) fn end(&self, world: &mut World, process: usize, task: usize) {
        let me = &mut world.processes[process];
        me.tasks[task].phase = Phase::Idle;
        let others = me.tasks.iter().any(|task| task.phase == Phase::Holding);
        if others && self.keeps(Rule::LastReader) {
            return;
        }
        self.release_lease(world, process);
        // Those who wait here ask behind everybody else.
        if world.processes[process].wants() {
            self.ask(world, process);
        }
    }

    pub(super) fn release_lease(&self, world: &mut World, process: usize) {
        let me = &mut world.processes[process];
        (me.lease, me.lingers, me.is_contended, me.reserve) = (None, false, false, None);
        self.release(world, process);
    }

    /// Whether the lease of a process may linger when the hold of a task ends: it is the last reader's, and nobody is known to wait.
    pub(super) fn may_linger(&self, world: &World, process: usize) -> bool {
        let me = &world.processes[process];
        matches!(self.modes[process], Mode::Read(_)) && me.holders() == 1 && !me.wants() && !me.is_contended
    }

    pub(super) fn give_up(&self, world: &mut World, process: usize, task: usize) {
        let me = &mut world.processes[process];
        me.tasks[task].phase = Phase::Idle;
        if me.asked.is_some() && !me.wants() {
            me.asked = None;
            self.release(world, process);
        }
    }

    pub(super) fn renew(&self, world: &mut World, process: usize) {
        if Self::lengthen(world, process) {
            world.processes[process].lease = Some(LEASE);
            return;
        }
        world.processes[process].lose();
        self.ask_for_those_who_wait(world);
    }

    /// Remembers that the lock was shared.
    pub(super) fn note_sharing(world: &mut World) {
        let holders: Vec<usize> = world.processes.iter().map(Process::holders).collect();
        world.seen.has_joined |= holders.iter().any(|count| *count > 1);
        world.seen.has_shared |= holders.iter().filter(|count| **count > 0).count() > 1;
    }
}
