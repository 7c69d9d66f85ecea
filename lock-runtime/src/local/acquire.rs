//! [`acquire`]: one task, from its request to its hold.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

mod drive;
mod failures;

use drive::{draw_fence, drive};
use failures::{error_at_timeout, forked_error, shut_down, taken, too_many};

use super::Core;
use super::hold::Hold;
use super::slot::{Entrance, Slot};
use super::waiter_limit::CountedWaiter;
use crate::LockError;
use crate::clock::{Deadline, Moment};
use crate::lock::{Attempt, Entered, ResolvedRequest, Step};
use crate::store::Store as _;

/// How far a timer may be off before it is reset.
const EXACT: Duration = Duration::from_millis(1);

/// Waits for the lock.
///
/// Cancel safe at every await: a dropped [`Task`] leaves the lock, which withdraws and releases what no task here needs.
pub(crate) async fn acquire(core: &Arc<Core>, request: &ResolvedRequest) -> Result<Hold, LockError> {
    if core.refuses(request.is_inside) {
        return Err(shut_down(request));
    }
    let mut attempt = Attempt::new(request, core.settings().command_timeout, Moment::now);
    if core.is_inherited_at(attempt.started) {
        return Err(forked_error(request));
    }
    // A task that need not wait reads the clock once.
    let mut now = attempt.started;
    loop {
        // In blocks: what is moved into a box takes no space in the future.
        let hold = {
            let driving = 'begun: {
                let (mut task, waiting) = match begin(core, request, &attempt, now)? {
                    Ok(begun) => begun,
                    Err(hold) => break 'begun Err(hold),
                };
                let step = if waiting.is_some() {
                    attempt.waited = true;
                    task.wait(request, &attempt, &mut now).await?
                } else {
                    task.poll(request, &attempt, now, None)
                };
                match step {
                    Step::Hold(started) => Err(Hold::new(&task.into_slot(), started, request)),
                    // Boxed: most waiters send no command. Above 1,032 bytes, glibc's `malloc` would take its slow way.
                    step => Ok(Box::pin(drive(core, task, step, request, &mut attempt, &mut now, waiting))),
                }
            };
            match driving {
                Ok(driving) => driving.await?,
                Err(hold) => hold,
            }
        };
        if !hold.lacks_fence(request) {
            return Ok(hold);
        }
        let slot = Arc::clone(hold.slot());
        let drawn = Box::pin(draw_fence(hold, request, attempt.by())).await?;
        now = Moment::now();
        match drawn {
            Some(hold) => return Ok(hold),
            // Without time for an answer it could only join and leave again.
            None if attempt.by().has_passed_at(now) => {
                return Err(error_at_timeout(&slot, request, &attempt, now));
            }
            // The hold of the readers was lost, or this reader was not polled for too long: start over.
            None => {}
        }
    }
}

/// Enters the lock: as the first task, as a counted waiter, or in the hold of other readers.
fn begin<'a>(
    core: &'a Arc<Core>,
    request: &ResolvedRequest,
    attempt: &Attempt,
    now: Moment,
) -> Result<Result<(Task, Option<CountedWaiter<'a>>), Hold>, LockError> {
    let (slot, entered, beside) = core.table().enter(core, request, now);
    if let Some(beside) = beside {
        beside.on_contention(true);
    }
    Ok(Ok(match entered {
        Entrance::Found(Entered::Joined(joined)) => return Ok(Err(Hold::new(&slot, joined, request))),
        Entrance::Found(Entered::Taken) => return Err(taken(&slot, request, attempt, true, now)),
        Entrance::Full(limit) => return Err(too_many(request, limit)),
        Entrance::Found(Entered::First { id, has_lease }) => {
            let task = Task::entrant(slot, id);
            // No command is sent that would notice a fork. The process has the lease; its child does not.
            if has_lease && core.is_inherited() {
                return Err(forked_error(request));
            }
            (task, None)
        }
        Entrance::Waits(id, waiting) => (Task::waiter(slot, id), Some(waiting.of(request.prefix()))),
        Entrance::Found(Entered::Waits(_) | Entered::InTheWay) => (core.enter_in_front(&request.key), None),
    }))
}

/// A task on its way to a hold. Dropping it leaves the lock.
#[derive(Debug)]
pub(super) struct Task {
    slot: Arc<Slot>,
    id: u64,
    /// How it entered, until it is first polled.
    entered: Option<Way>,
    /// Whether it still waits, or asks.
    is_armed: bool,
    /// [`Slot::overtakes`] before its last step.
    overtakes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    First,
    Waits,
}

impl Task {
    pub(super) fn entrant(slot: Arc<Slot>, id: u64) -> Self {
        Self { slot, id, entered: Some(Way::First), is_armed: true, overtakes: 0 }
    }

    fn waiter(slot: Arc<Slot>, id: u64) -> Self {
        Self { slot, id, entered: Some(Way::Waits), is_armed: true, overtakes: 0 }
    }

    pub(super) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Disarms the task: it has its hold.
    pub(super) fn into_slot(mut self) -> Arc<Slot> {
        self.is_armed = false;
        Arc::clone(&self.slot)
    }

    /// Decides what the task does next. If that is to wait, the waker of the `context` is registered.
    fn poll(
        &mut self,
        request: &ResolvedRequest,
        attempt: &Attempt,
        now: Moment,
        context: Option<&Context<'_>>,
    ) -> Step {
        // Cloned and dropped without the lock's mutex: a waker is the executor's code.
        let mut waker = context.map(|context| context.waker().clone());
        let Self { slot, id, entered, overtakes, .. } = self;
        let entered = entered.take();
        // It was not woken since it entered, so there is nothing to do.
        if entered == Some(Way::Waits) && slot.note(|lock| lock.register_unwoken(*id, &mut waker)) {
            return Step::Wait(attempt.give_up().remaining_at(now));
        }
        *overtakes = slot.overtakes();
        slot.step(|lock, out| {
            if entered == Some(Way::First) {
                lock.on_first_poll();
            }
            let step = lock.poll(*id, request, attempt, slot.env(), now, out);
            if let Step::Wait(_) = step
                && let Some(waker) = waker.take()
            {
                lock.register(*id, waker, out);
            }
            step
        })
    }

    /// Waits from `now` until there is something to do, and sets `now` to that time.
    fn wait<'a>(&'a mut self, request: &'a ResolvedRequest, attempt: &'a Attempt, now: &'a mut Moment) -> Waiting<'a> {
        let timer = sleep_until(attempt.give_up().counted_from(*now).on_timer());
        Waiting { task: self, request, attempt, now, is_new: true, timer }
    }

    /// Waits for room on the connection, until the task's time to ask is up. Its ask was not sent.
    async fn wait_for_room(&mut self, core: &Core, request: &ResolvedRequest, attempt: &Attempt) {
        let mut room = pin!(core.store().room(&request.key));
        let by = attempt.room_deadline(request);
        let mut timer = pin!(sleep_until(by.counted_from(Moment::now()).on_timer()));
        poll_fn(|context| {
            if core.refuses(request.is_inside) {
                return Poll::Ready(());
            }
            let (waker, now) = (context.waker().clone(), Moment::now());
            self.slot.step(|lock, out| lock.park(self.id, request, waker, by.remaining_at(now), now, out));
            if timer.as_mut().poll(context).is_ready() { Poll::Ready(()) } else { room.as_mut().poll(context) }
        })
        .await;
    }
}

pin_project! {
    /// A task that waits. A struct and not an `async fn`, which would hold its arguments twice.
    struct Waiting<'a> {
        task: &'a mut Task,
        request: &'a ResolvedRequest,
        attempt: &'a Attempt,
        now: &'a mut Moment,
        is_new: bool,
        #[pin]
        timer: Sleep,
    }
}

impl Future for Waiting<'_> {
    type Output = Result<Step, LockError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            // The first poll happens at `now`.
            if !std::mem::take(this.is_new) {
                **this.now = Moment::now();
            }
            let now = **this.now;
            let step = this.task.poll(this.request, this.attempt, now, Some(context));
            // Checked after the poll, which registers the waker: a shutdown wakes each waiter only once. A hold that has begun is kept:
            // nothing else would end it.
            if !matches!(step, Step::Hold(_)) && this.task.slot.core.refuses(this.request.is_inside) {
                return Poll::Ready(Err(shut_down(this.request)));
            }
            match step {
                Step::Wait(pause) => {
                    if !has_fired(&mut this.timer, Deadline::new(now, pause).on_timer(), context) {
                        return Poll::Pending;
                    }
                }
                step => return Poll::Ready(Ok(step)),
            }
        }
    }
}

/// Whether the timer, set to `at`, has fired.
fn has_fired(timer: &mut Pin<&mut Sleep>, at: Instant, context: &mut Context<'_>) -> bool {
    let deadline = timer.deadline();
    if at < deadline || at > deadline + EXACT || (timer.is_elapsed() && at > deadline) {
        timer.as_mut().reset(at);
    }
    timer.as_mut().poll(context).is_ready()
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.is_armed {
            return;
        }
        let Self { slot, id, entered, .. } = self;
        slot.step(|lock, out| {
            if *entered == Some(Way::First) {
                lock.on_first_poll();
            }
            lock.leave(*id, out);
        });
    }
}
