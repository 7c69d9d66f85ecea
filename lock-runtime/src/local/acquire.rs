//! [`acquire`]: one task's way from a request to a hold.

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
use crate::observe::metrics;
use crate::store::Store as _;

/// A timer is moved when it is off by more.
const EXACT: Duration = Duration::from_millis(1);

/// Waits for the lock.
///
/// It is cancel safe at every await: a dropped [`Task`] leaves the lock, which withdraws and releases what nobody here needs.
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
        // In blocks: what is moved into a box takes no room in the future.
        let hold = {
            let driving = 'begun: {
                let (mut task, waiting) = match begin(core, request, &attempt, now)? {
                    Ok(begun) => begun,
                    Err(hold) => break 'begun Err(hold),
                };
                let step = if waiting.is_some() {
                    attempt.waited = true;
                    let (step, at) = task.wait(request, &attempt, now).await?;
                    now = at;
                    step
                } else {
                    task.poll(request, &attempt, now, None)
                };
                match step {
                    Step::Hold(started) => Err(Hold::new(&task.into_slot(), started, request)),
                    // Boxed: most waiters send no command.
                    step => Ok(Box::pin(drive(core, task, step, request, &mut attempt, &mut now, waiting))),
                }
            };
            match driving {
                Ok(driving) => driving.await?,
                Err(hold) => hold,
            }
        };
        if !hold.lacks_fence(request) {
            metrics::waited(request.prefix(), now.since(attempt.started));
            return Ok(hold);
        }
        let slot = Arc::clone(hold.slot());
        let drawn = Box::pin(draw_fence(hold, request, attempt.by())).await?;
        now = Moment::now();
        match drawn {
            Some(hold) => {
                metrics::waited(request.prefix(), now.since(attempt.started));
                return Ok(hold);
            }
            // Without time for an answer it could only join and leave again.
            None if attempt.by().has_passed_at(now) => return Err(error_at_timeout(core, &slot, request, &attempt)),
            // The hold of the readers was lost, or this reader was not polled for too long: it begins again.
            None => {}
        }
    }
}

/// Enters the lock: as a task that is first, or one that waits and is counted, or with the hold of other readers.
fn begin<'a>(
    core: &'a Arc<Core>,
    request: &ResolvedRequest,
    attempt: &Attempt,
    now: Moment,
) -> Result<Result<(Task, Option<CountedWaiter<'a>>), Hold>, LockError> {
    let (slot, entered, beside) = core.table().enter(core, request, now);
    if let Some(beside) = beside {
        core.note_others_wait(&beside);
    }
    Ok(Ok(match entered {
        Entrance::Found(Entered::Joined(joined)) => return Ok(Err(Hold::joined(&slot, joined, request))),
        Entrance::Found(Entered::Taken) => return Err(taken(core, &slot, request, attempt, true)),
        Entrance::Full(limit) => return Err(too_many(request, limit)),
        Entrance::Found(Entered::First { id, has_lease }) => {
            let task = Task::entrant(slot, id);
            // No command is sent that would find out about a fork. The process has the lease, and its child does not.
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
    /// Whether it was never polled.
    is_entrant: bool,
    /// Whether it still waits, or asks.
    is_armed: bool,
    /// [`Slot::overtakes`] before its last step.
    overtakes: u32,
}

impl Task {
    /// A task that has entered, and was never polled.
    pub(super) fn entrant(slot: Arc<Slot>, id: u64) -> Self {
        Self { slot, id, is_entrant: true, is_armed: true, overtakes: 0 }
    }

    /// A task that waits in the queue.
    fn waiter(slot: Arc<Slot>, id: u64) -> Self {
        Self { slot, id, is_entrant: false, is_armed: true, overtakes: 0 }
    }

    pub(super) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// The task has its hold.
    pub(super) fn into_slot(mut self) -> Arc<Slot> {
        self.is_armed = false;
        Arc::clone(&self.slot)
    }

    /// Decides what the task does next. When that is to wait, the task of the `context` is woken.
    fn poll(
        &mut self,
        request: &ResolvedRequest,
        attempt: &Attempt,
        now: Moment,
        context: Option<&Context<'_>>,
    ) -> Step {
        // Cloned without the lock's mutex: a waker is the executor's code.
        let waker = context.map(|context| context.waker().clone());
        self.overtakes = self.slot.overtakes();
        let Self { slot, id, is_entrant, .. } = self;
        slot.step(|lock, out| {
            if std::mem::take(is_entrant) {
                lock.begin();
            }
            let step = lock.poll(*id, request, attempt, slot.env(), now, out);
            if let (Step::Wait(_), Some(waker)) = (&step, waker) {
                lock.register(*id, waker, out);
            }
            step
        })
    }

    /// Waits until there is something to do, and returns when that was.
    fn wait<'a>(&'a mut self, request: &'a ResolvedRequest, attempt: &'a Attempt, now: Moment) -> Waiting<'a> {
        let timer = sleep_until(attempt.give_up().counted_from(now).on_timer());
        Waiting { task: self, request, attempt, timer }
    }

    /// Waits for room on the connection, until the task's time to ask is up. Its ask was not sent.
    async fn wait_for_room(&mut self, core: &Core, request: &ResolvedRequest, attempt: &Attempt) {
        let mut room = pin!(core.store().room(&request.key));
        let by = attempt.by();
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
    /// A task that waits. It is a struct and not an `async fn`, which would hold its arguments twice.
    struct Waiting<'a> {
        task: &'a mut Task,
        request: &'a ResolvedRequest,
        attempt: &'a Attempt,
        #[pin]
        timer: Sleep,
    }
}

impl Future for Waiting<'_> {
    type Output = Result<(Step, Moment), LockError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let now = Moment::now();
            let step = this.task.poll(this.request, this.attempt, now, Some(context));
            // Only now: a shutdown wakes a task once, which waits by then.
            if this.task.slot.core.refuses(this.request.is_inside) {
                return Poll::Ready(Err(shut_down(this.request)));
            }
            match step {
                Step::Wait(pause) => {
                    if !has_fired(&mut this.timer, Deadline::new(now, pause).on_timer(), context) {
                        return Poll::Pending;
                    }
                }
                step => return Poll::Ready(Ok((step, now))),
            }
        }
    }
}

/// Whether the timer has ended, which ends at `at`.
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
        let Self { slot, id, is_entrant, .. } = self;
        slot.step(|lock, out| {
            if *is_entrant {
                lock.begin();
            }
            lock.leave(*id, out);
        });
    }
}
