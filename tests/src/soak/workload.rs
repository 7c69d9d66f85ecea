//! The loop of one task that uses locks.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;

use super::plan::{Plan, Wish};
use super::register::Register;
use history::diary::Kept;
use history::event::now;
use history::{Diary, Hold, Lock, Share, Wanted, What};

/// A task of a worker.
pub(super) struct Task<'a, L> {
    pub(super) plan: &'a Plan,
    pub(super) lock: &'a L,
    pub(super) register: &'a Register,
    pub(super) diary: Diary,
    pub(super) random: Rng,
}

impl<L: Lock> Task<'_, L> {
    /// All tasks contend for one lock until `end`; only then can the checks see the order of waiters. Where locks are shared,
    /// some tasks use the first shared lock instead.
    pub(super) async fn rush(&mut self, number: u32, end: u64) {
        let name =
            if self.plan.shared > 0 { ["hot", "hot", "hot", "read", "permit"][number as usize % 5] } else { "hot" };
        while now() < end {
            let share = if name == "hot" { Share::Alone } else { self.plan.share(name, 0, &mut self.random) };
            let wanted = Wanted { timeout: 5000, expire: 1000, share, ..Wanted::default() };
            if let Some(kept) = self.diary.acquire(self.lock, &format!("soak:{name}0"), wanted, None).await {
                self.rest(0..2000).await;
                self.give_back(kept).await;
            }
        }
    }

    /// Tries uncontended locks, one after the other, until `end`.
    pub(super) async fn flood(&mut self, name: &str, end: u64) {
        let mut number = 0;
        while now() < end {
            number += 1;
            let key = format!("soak:flood-{name}-{number}");
            let wanted = Wanted { timeout: self.random.u64(20..150), expire: 1000, ..Wanted::default() };
            if let Some(kept) = self.diary.acquire(self.lock, &key, wanted, None).await {
                self.give_back(kept).await;
                // Slow down while all is well: this is no load test.
                sleep(Duration::from_millis(200)).await;
            }
        }
    }

    /// Acquires random locks until `end`.
    pub(super) async fn work(&mut self, end: u64) {
        while now() < end {
            let wish = self.plan.wish(&mut self.random);
            let gives_up = L::DROPS && self.random.u32(..8) == 0;
            let patience = gives_up.then(|| Duration::from_micros(self.random.u64(..60_000)));
            if let Some(kept) = self.diary.acquire_all(self.lock, &wish.keys, wish.wanted, patience).await {
                self.hold(&kept, &wish).await;
                self.give_back(kept).await;
            }
            sleep(Duration::from_micros(self.random.u64(..8000))).await;
        }
    }

    /// Together, the tasks of a worker acquire every lock once more with a long timeout, to see that none is stuck.
    pub(super) async fn probe(&mut self, number: usize) {
        let timeout = u64::try_from(self.plan.patience.as_millis()).unwrap_or_default();
        let tasks = usize::try_from(self.plan.tasks).unwrap_or(1);
        for key in self.plan.keys().into_iter().skip(number).step_by(tasks) {
            let wanted =
                Wanted { timeout, expire: self.plan.leases[0], renew: true, fenced: true, ..Wanted::default() };
            if let Some(kept) = self.diary.acquire(self.lock, &key, wanted, None).await {
                self.diary.release(kept).await;
            }
        }
    }

    async fn hold(&mut self, kept: &Kept<L::Hold>, wish: &Wish) {
        let mut opened = Vec::new();
        for key in &wish.keys {
            let fence = if wish.keys.len() > 1 { kept.hold.fence_of(key) } else { kept.hold.fence() };
            let Some(fence) = fence else { continue };
            self.diary.recorder().note(What::Sent { key: key.to_owned(), fence, value: None });
            let answer = self.register.open(key, fence).await;
            let (accepted, value) = (answer.map(|value| value.is_some()), answer.flatten());
            self.diary.recorder().note(What::Opened { key: key.to_owned(), fence, accepted, value });
            opened.extend(value.map(|value| (key, fence, value + 1)));
        }
        self.body(kept, wish.wanted, wish.is_hot).await;
        for (key, fence, value) in opened {
            self.diary.recorder().note(What::Sent { key: key.to_owned(), fence, value: Some(value) });
            let accepted = self.register.write(key, fence, value).await;
            self.diary.recorder().note(What::Wrote { key: key.to_owned(), fence, value, accepted });
        }
    }

    async fn body(&mut self, kept: &Kept<L::Hold>, wanted: Wanted, is_hot: bool) {
        let expire = wanted.expire();
        // On the contended locks most bodies are short.
        let kind = if is_hot && self.random.u32(..10) < 9 { 0 } else { self.random.u32(..10) };
        match kind {
            0..=3 => self.rest(0..3000).await,
            4 | 5 => self.rest(3000..40_000).await,
            6 | 7 => {
                self.rest(1000..5000).await;
                self.diary.extend(kept, expire).await;
                sleep(expire * 7 / 10).await;
            }
            // Longer than the lease: a renewed hold outlasts it, another one expires.
            _ if wanted.expire <= 1000 => {
                let steps = self.random.u32(5..8);
                for _ in 0..steps {
                    sleep(expire / 4).await;
                    if !self.diary.look(kept) {
                        break;
                    }
                }
            }
            _ => self.rest(0..3000).await,
        }
        self.diary.look(kept);
    }

    async fn rest(&mut self, micros: std::ops::Range<u64>) {
        match self.random.u64(micros) {
            0..200 => tokio::task::yield_now().await,
            time => sleep(Duration::from_micros(time)).await,
        }
    }

    async fn give_back(&mut self, kept: Kept<L::Hold>) {
        if L::DROPS && self.random.u32(..3) == 0 {
            self.diary.drop(kept);
        } else {
            self.diary.release(kept).await;
        }
    }
}
