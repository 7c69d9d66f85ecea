//! [`Lost`], [`Watch`] and [`Protected`]: watching a hold, and running a body only while it lasts.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::sync::futures::Notified;

use super::handle::HoldHandle;
use crate::LockError;
use crate::observe::spans::HoldSpan;

pin_project! {
    /// Resolves when a hold is lost. It reads the clock in each of its polls. The keeper wakes it at the deadline.
    #[derive(Debug)]
    pub(crate) struct Lost<'a> {
        handle: &'a HoldHandle,
        #[pin]
        changed: Notified<'a>,
    }
}

impl<'a> Lost<'a> {
    pub(super) fn new(handle: &'a HoldHandle) -> Self {
        Self { handle, changed: handle.changed().notified() }
    }
}

impl Future for Lost<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        loop {
            if !this.handle.is_valid() {
                return Poll::Ready(());
            }
            if this.changed.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            this.changed.set(this.handle.changed().notified());
        }
    }
}

pin_project! {
    /// What is looked at before each step of a body: the deadlines of its holds, and whether they are lost.
    ///
    /// It knows nothing of the body, so it is compiled here once, and not again for each locked fn.
    #[derive(Debug)]
    pub(crate) struct Watch<'a> {
        handle: &'a HoldHandle,
        // `None` for a body that runs on when its hold is lost.
        #[pin]
        lost: Option<Lost<'a>>,
        // The holds of other keys that the body needs, too.
        others: Box<[Pin<Box<Lost<'a>>>]>,
    }
}

impl<'a> Watch<'a> {
    /// Watches `handle`, and with it the `others` that the body needs, unless the body runs on when they are lost.
    pub(crate) fn new(
        handle: &'a HoldHandle,
        others: impl Iterator<Item = &'a HoldHandle>,
        stop_when_lost: bool,
    ) -> Self {
        if !is_stopped(stop_when_lost) {
            return Self { handle, lost: None, others: Box::default() };
        }
        Self { handle, lost: Some(handle.lost()), others: others.map(|handle| Box::pin(handle.lost())).collect() }
    }

    /// The error of the first hold that is lost. Wakes the task when one is lost later.
    fn poll_lost(self: Pin<&mut Self>, context: &mut Context<'_>) -> Option<LockError> {
        let this = self.project();
        if let Some(lost) = this.lost.as_pin_mut()
            && lost.poll(context).is_ready()
        {
            return Some(this.handle.lost_error(false));
        }
        let lost =
            this.others.iter_mut().find_map(|lost| lost.as_mut().poll(context).is_ready().then_some(lost.handle));
        lost.map(|handle| handle.lost_error(false))
    }
}

/// Whether the body is stopped when its hold is lost.
fn is_stopped(stop_when_lost: bool) -> bool {
    mutant!(BodyPolledOn => return false);
    stop_when_lost
}

pin_project! {
    /// A body under a hold. The deadline is checked before each of its polls (rule 13: no step starts after the
    /// deadline).
    ///
    /// It is a struct and not an `async fn`, which would hold the body twice: as its argument and pinned.
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
        let this = self.project();
        if let Some(lost) = this.watch.poll_lost(context) {
            return Poll::Ready(Err(lost));
        }
        let _inside = this.span.enter();
        this.body.poll(context).map(Ok)
    }
}
