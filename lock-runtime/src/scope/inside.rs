//! [`Inside`]: a future that is polled inside of a value. [`Stack`]: the values that the polls of a thread are inside
//! of.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::LocalKey;

use pin_project_lite::pin_project;

use super::task::Task;

/// The values that the running polls of one thread are inside of, each with the task of its poll. The innermost is the
/// last.
///
/// A task-local of tokio would not be enough. An executor that is driven inside of a poll polls other tasks there, and
/// these would see the task-local. And a future that moves to another task would keep the surroundings of the first
/// task.
#[derive(Debug)]
pub(super) struct Stack<T>(RefCell<Vec<(Task, T)>>);

impl<T> Stack<T> {
    pub(super) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// The first value that is `chosen`, among the values that the running task is inside of, innermost first.
    pub(super) fn find<R>(&self, chosen: impl FnMut(&T) -> Option<R>) -> Option<R> {
        let polls = self.0.borrow();
        if polls.is_empty() {
            return None;
        }
        let running = Task::running();
        // A task may be polled inside of another task's poll. It is not inside of what that other task is inside of.
        let own = polls.iter().rev().take_while(|(task, _)| is_same_task(*task, running));
        own.map(|(_, value)| value).find_map(chosen)
    }
}

fn is_same_task(task: Task, running: Task) -> bool {
    mutant!(StrangerIsInside => return true);
    task == running
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

impl<T: 'static, F> Inside<T, F> {
    pub(super) fn new(stack: &'static LocalKey<Stack<T>>, value: T, future: F) -> Self {
        Self { stack, value: Some(value), future: Some(future) }
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

/// Runs `body` inside of `value`, on this thread.
pub(super) fn run<V: 'static, T>(stack: &'static LocalKey<Stack<V>>, value: V, body: impl FnOnce() -> T) -> T {
    let mut value = Some(value);
    let _poll = Polling::begin(stack, &mut value);
    body()
}

/// A running poll. The value moves to the stack and back: counting references would cost more.
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
        // Polls end in the opposite order of their beginnings, also after a panic. So the last entry belongs to this
        // poll.
        let last = self.stack.try_with(|stack| stack.0.borrow_mut().pop());
        *self.value = last.ok().flatten().map(|(_, value)| value);
    }
}
