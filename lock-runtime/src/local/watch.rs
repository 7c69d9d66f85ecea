//! [`Lost`], [`Watch`] and [`Protected`]: watching a hold, and running a body only while it lasts.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::sync::futures::Notified;

use super::handle::HoldHandle;
use crate::LockError;
use crate::observe::HoldSpan;

pin_project! {
    /// Resolves when a hold is lost. It reads the clock at each poll. The keeper wakes it at the deadline.
    #[derive(Debug)]
    pub(crate) struct Lost<'a> {
        handle: &'a HoldHandle,
        // Whether the hold has started in this poll of the task: then the clock was read just before. A loss since then has woken no one.
        is_new: bool,
        #[pin]
        changed: Notified<'a>,
    }
}

impl HoldHandle {
    pub(crate) fn lost(&self) -> Lost<'_> {
        Lost { handle: self, is_new: false, changed: self.changed().notified() }
    }
}

impl Lost<'_> {
    /// Waits for a change that may mean the loss of the hold. None is missed since the last one, or since the start of the hold.
    fn poll_change(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let changed = this.changed.as_mut().poll(context);
        if changed.is_ready() {
            this.changed.set(this.handle.changed().notified());
        }
        let was_lost_before = std::mem::take(this.is_new) && is_lost_before(this.handle);
        if was_lost_before { Poll::Ready(()) } else { changed }
    }

    fn is_lost(&self) -> bool {
        !self.is_new && !self.handle.is_valid()
    }
}

impl Future for Lost<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        while !self.is_lost() {
            if self.as_mut().poll_change(context).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }
}

pin_project! {
    /// What is checked before each step of a body: whether its holds are lost, or past their deadlines.
    ///
    /// It does not depend on the body's type, so it is compiled once, here, and not for each locked fn.
    #[derive(Debug)]
    pub(crate) struct Watch<'a> {
        // `None` for a body that runs on when its hold is lost.
        #[pin]
        lost: Option<Lost<'a>>,
        // The holds of other keys that the body also needs.
        others: Box<[Pin<Box<Lost<'a>>>]>,
    }
}

impl<'a> Watch<'a> {
    /// Watches `handle`, and the `others` that the body needs, unless the body runs on when they are lost. A hold `is_new` if it started in
    /// the same poll of the task in which its body is first polled.
    pub(crate) fn new(
        handle: &'a HoldHandle,
        others: impl Iterator<Item = &'a HoldHandle>,
        stop_when_lost: bool,
        is_new: bool,
    ) -> Self {
        if !is_stopped(stop_when_lost) {
            return Self { lost: None, others: Box::default() };
        }
        let lost = Some(Lost { is_new, ..handle.lost() });
        Self { lost, others: others.map(|handle| Box::pin(handle.lost())).collect() }
    }

    fn find_lost(&self) -> Option<LockError> {
        let mut all = self.lost.iter().chain(self.others.iter().map(|lost| &**lost));
        all.find(|lost| lost.is_lost()).map(|lost| lost.handle.lost_error(false))
    }

    /// Registers the body's task to be woken when a hold may be lost. Ready if one may be lost already.
    fn poll_change(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let first = this.lost.as_pin_mut().into_iter();
        let mut is_ready = false;
        for lost in first.chain(this.others.iter_mut().map(Pin::as_mut)) {
            is_ready |= lost.poll_change(context).is_ready();
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn is_lost_before(handle: &HoldHandle) -> bool {
    mutant!(LostBeforeUnseen => return false);
    handle.has_ended()
}

fn is_stopped(stop_when_lost: bool) -> bool {
    mutant!(BodyPolledOn => return false);
    stop_when_lost
}

pin_project! {
    /// A body under a hold. The deadline is checked before each of its polls (rule 13: no step starts after the deadline).
    ///
    /// A struct and not an `async fn`, which would hold the body twice: as its argument and pinned.
    #[derive(Debug)]
    pub(crate) struct Protected<'a, B> {
        #[pin]
        watch: Watch<'a>,
        span: &'a HoldSpan,
        #[pin]
        body: B,
    }
}

impl<'a, B> Protected<'a, B> {
    pub(crate) fn new(watch: Watch<'a>, span: &'a HoldSpan, body: B) -> Self {
        Self { watch, span, body }
    }
}

impl<B: Future> Future for Protected<'_, B> {
    type Output = Result<B::Output, LockError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(lost) = this.watch.find_lost() {
            return Poll::Ready(Err(lost));
        }
        let outcome = {
            let _inside = this.span.enter();
            this.body.poll(context)
        };
        if outcome.is_pending() {
            // Only now: a body that does not wait need not be woken.
            while this.watch.as_mut().poll_change(context).is_ready() {
                if let Some(lost) = this.watch.find_lost() {
                    return Poll::Ready(Err(lost));
                }
            }
        }
        outcome.map(Ok)
    }
}
