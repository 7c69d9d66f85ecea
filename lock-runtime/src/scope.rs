//! The context of a running task: the default manager, and the locks that the task already holds.
//!
//! This is the only global state: one installed manager per process, and for each thread the scopes and bodies that its
//! running polls are inside of. A task starts outside of all of them, wherever it is polled. So re-entry does not leak
//! into work that runs concurrently with its parent, or inside of the poll of an unrelated task.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::thread::LocalKey;

use pin_project_lite::pin_project;

use crate::LockError;
use crate::engine::Engine;
use crate::local::{Core, HoldHandle, Reentry};
use crate::opaque::Opaque;
use crate::turns::Turns;

#[cfg(test)]
mod tests;

static INSTALLED: OnceLock<Installed> = OnceLock::new();

thread_local! {
    static SCOPED: Stack<Opaque<Engine>> = const { Stack(RefCell::new(Vec::new())) };
    static HELD: Stack<Frame> = const { Stack(RefCell::new(Vec::new())) };
}

/// A manager that was installed.
#[derive(Debug)]
struct Installed {
    engine: Opaque<Engine>,
    /// The manager that a child of this process installed, because the child can't use its parent's manager.
    in_child: OnceLock<Box<Installed>>,
}

impl Installed {
    fn last(&self) -> &Self {
        let mut last = self;
        while let Some(next) = last.in_child.get() {
            last = next;
        }
        last
    }
}

pub(crate) fn install(engine: &Opaque<Engine>) -> Result<(), LockError> {
    let new = Installed { engine: engine.clone(), in_child: OnceLock::new() };
    let Some(first) = INSTALLED.get() else {
        return INSTALLED.set(new).map_err(|_| LockError::AlreadyInstalled);
    };
    let last = first.last();
    if !last.engine.core().is_inherited() {
        return Err(LockError::AlreadyInstalled);
    }
    last.in_child.set(Box::new(new)).map_err(|_| LockError::AlreadyInstalled)
}

/// The manager of the enclosing scope, else the installed manager.
pub(crate) fn current() -> Option<Opaque<Engine>> {
    let scoped = SCOPED.try_with(|scoped| scoped.find(|engine| Some(engine.clone())));
    scoped.ok().flatten().or_else(|| INSTALLED.get().map(|first| first.last().engine.clone()))
}

pub(crate) async fn with_manager<F: Future>(engine: Opaque<Engine>, inside: F) -> F::Output {
    Inside { stack: &SCOPED, value: Some(engine), future: Some(inside) }.await
}

/// The keys of the locks of `core` that are held around the running task.
pub(crate) fn held_keys(core: &Arc<Core>) -> Vec<Arc<str>> {
    let mut keys = Vec::new();
    Frame::find_any(|frame| {
        keys.extend(frame.hold.key_in(core));
        None::<()>
    });
    keys
}

/// Whether the running task is inside of a body under a lock of `core`.
pub(crate) fn is_inside(core: &Arc<Core>) -> bool {
    Frame::find_any(|frame| frame.hold.key_in(core)).is_some()
}

/// A lock that the running body holds.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    hold: HoldHandle,
    /// Only in a nested body. The outermost body of a hold uses the hold's own.
    nested: Option<Arc<Reentry>>,
    /// The other locks of a body that holds several.
    others: Box<[Frame]>,
}

impl Frame {
    /// The frame of a body. A nested body has a borrowed hold.
    pub(crate) fn new(hold: HoldHandle, is_nested: bool, others: Box<[Self]>) -> Self {
        Self { hold, nested: is_nested.then(Arc::default), others }
    }

    /// The first result of `chosen` over the running task's frames, innermost first.
    fn find_any<T>(mut chosen: impl FnMut(&Self) -> Option<T>) -> Option<T> {
        let of_all = |frame: &Self| std::iter::once(frame).chain(&*frame.others).find_map(&mut chosen);
        // A thread that is ending is not inside of any body.
        HELD.try_with(|held| held.find(of_all)).ok().flatten()
    }

    /// The innermost frame of the running task whose hold `is_meant` accepts.
    pub(crate) fn find(is_meant: impl Fn(&HoldHandle) -> bool) -> Option<Self> {
        Self::find_any(|frame| is_meant(&frame.hold).then(|| frame.clone()))
    }

    pub(crate) fn hold(&self) -> &HoldHandle {
        &self.hold
    }

    pub(crate) fn turns(&self) -> &Arc<Turns> {
        self.nested.as_deref().unwrap_or_else(|| self.hold.reentry()).get_or_init(Arc::default)
    }

    /// Runs `body` inside of this frame, on this thread.
    pub(crate) fn run<T>(self, body: impl FnOnce() -> T) -> T {
        let mut frame = Some(self);
        let _poll = Polling::begin(&HELD, &mut frame);
        body()
    }

    /// A future that runs `body` inside of this frame, in each of its polls and while it is dropped.
    pub(crate) fn around<F: Future>(self, body: F) -> Inside<Self, F> {
        Inside { stack: &HELD, value: Some(self), future: Some(body) }
    }
}

/// The values that the running polls of one thread are inside of, each with the task of its poll. The innermost is last.
///
/// A task-local of tokio would not be enough. An executor that is driven inside of a poll polls other tasks there, and these would see the
/// task-local. And a future that moves to another task would keep the context of the first task.
#[derive(Debug)]
struct Stack<T>(RefCell<Vec<(Task, T)>>);

impl<T> Stack<T> {
    /// The first result of `chosen` over the values that the running task is inside of, innermost first.
    fn find<R>(&self, chosen: impl FnMut(&T) -> Option<R>) -> Option<R> {
        let polls = self.0.borrow();
        if polls.is_empty() {
            return None;
        }
        let running = Task::running();
        // A task may be polled inside of another task's poll. It is not inside of that task's values.
        let own = polls.iter().rev().take_while(|(task, _)| mutant!(StrangerIsInside => true, else *task == running));
        own.map(|(_, value)| value).find_map(chosen)
    }
}

pin_project! {
    /// A future that is inside of `value` in each of its polls, and while it is dropped.
    #[derive(Debug)]
    pub(crate) struct Inside<T: 'static, F> {
        stack: &'static LocalKey<Stack<T>>,
        // `None` while the value is on the stack.
        value: Option<T>,
        // `None` when the future is done.
        #[pin]
        future: Option<F>,
    }

    impl<T: 'static, F> PinnedDrop for Inside<T, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.future.is_some() {
                let _poll = Polling::begin(this.stack, this.value);
                this.future.set(None);
            }
        }
    }
}

impl<T: 'static, F: Future> Future for Inside<T, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let _poll = Polling::begin(this.stack, this.value);
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            // A future that is done is not polled again.
            return Poll::Pending;
        };
        let outcome = future.poll(context);
        if outcome.is_ready() {
            this.future.set(None);
        }
        outcome
    }
}

/// A running poll. The value moves to the stack and back: reference counting would cost more.
struct Polling<'a, T: 'static> {
    stack: &'static LocalKey<Stack<T>>,
    value: &'a mut Option<T>,
}

impl<'a, T> Polling<'a, T> {
    fn begin(stack: &'static LocalKey<Stack<T>>, value: &'a mut Option<T>) -> Option<Self> {
        let inside = value.take()?;
        // A thread that is ending has no stack any more. There the future is not inside of anything.
        stack.try_with(|stack| stack.0.borrow_mut().push((Task::running(), inside))).ok()?;
        Some(Self { stack, value })
    }
}

impl<T> Drop for Polling<'_, T> {
    fn drop(&mut self) {
        // Polls end in the reverse order of their starts, even after a panic. So the last entry belongs to this poll.
        let last = self.stack.try_with(|stack| stack.0.borrow_mut().pop());
        *self.value = last.ok().flatten().map(|(_, value)| value);
    }
}

/// A task, as far as this crate can know: the unit that one executor polls by itself.
///
/// Futures that a body joins, selects or buffers have their own wakers, but the task of the body polls them. So a waker does not identify a
/// task. The identity is what an executor reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Task {
    /// The id of the task that tokio polls, also on a `LocalSet` and on a runtime inside of another runtime. The root
    /// of a runtime that is driven inside of a task has the id of that task, and is part of it. The same is true for
    /// the task of another executor.
    id: Option<tokio::task::Id>,
    /// Whether an executor of the futures crate polls the task. That executor does not tell its root from its tasks.
    is_in_pool: bool,
}

impl Task {
    /// The task that is running on this thread.
    fn running() -> Self {
        // The executor can't be entered twice. When entering succeeds here, its guard is dropped at once.
        Self { id: tokio::task::try_id(), is_in_pool: futures_executor::enter().is_err() }
    }
}
