//! [`Lost`] and [`Protected`]: watching a hold, and running a body only while it lasts.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::sync::futures::Notified;

use super::handle::HoldHandle;
use crate::LockError;
use crate::observe::spans::HoldSpan;

pin_project! {
    /// Resolves when a hold is lost. It reads the clock in each of its polls, except in the poll in which the hold began. The
    /// keeper wakes it at the deadline.
    #[derive(Debug)]
    pub(crate) struct Lost<'a> {
        handle: &'a HoldHandle,
        // The hold began in the poll that comes first: the clock was read for that.
        has_just_begun: bool,
        #[pin]
        changed: Notified<'a>,
    }
}

impl<'a> Lost<'a> {
    pub(super) fn new(handle: &'a HoldHandle, has_just_begun: bool) -> Self {
        Self { handle, has_just_begun, changed: handle.changed().notified() }
    }
}

impl Future for Lost<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        loop {
            let is_held =
                if std::mem::take(this.has_just_begun) { this.handle.is_in_slot() } else { this.handle.is_valid() };
            if !is_held {
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
    /// A body under a hold. The deadline is checked before each of its polls (rule 13: no step starts after the
    /// deadline). Its first poll belongs to the poll in which the hold began, on a lease with time left.
    ///
    /// It is a struct and not an `async fn`, which would hold the body twice: as its argument and pinned.
    #[derive(Debug)]
    pub(crate) struct Protected<'a, B> {
        // Polled before the body. `None` for a body that runs on when its hold is lost.
        #[pin]
        lost: Option<Lost<'a>>,
        // The holds of other keys that the body needs, too.
        others: Box<[Pin<Box<Lost<'a>>>]>,
        handle: &'a HoldHandle,
        span: &'a HoldSpan,
        #[pin]
        body: B,
    }
}

impl<'a, B> Protected<'a, B> {
    /// `has_just_begun`: the hold begins in the poll that polls this future first.
    pub(crate) fn new(
        handle: &'a HoldHandle,
        span: &'a HoldSpan,
        stop_when_lost: bool,
        has_just_begun: bool,
        body: B,
    ) -> Self {
        let lost = is_stopped(stop_when_lost).then(|| Lost::new(handle, has_just_begun));
        Self { lost, others: Box::default(), handle, span, body }
    }

    /// The body needs these holds, too: it is stopped when one of them is lost.
    pub(crate) fn with_others(mut self, others: impl Iterator<Item = &'a HoldHandle>) -> Self {
        if let Some(Lost { has_just_begun, .. }) = self.lost {
            self.others = others.map(|handle| Box::pin(Lost::new(handle, has_just_begun))).collect();
        }
        self
    }
}

/// Whether the body is stopped when its hold is lost.
fn is_stopped(stop_when_lost: bool) -> bool {
    mutant!(BodyPolledOn => return false);
    stop_when_lost
}

impl<B: Future> Future for Protected<'_, B> {
    type Output = Result<B::Output, LockError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Some(lost) = this.lost.as_pin_mut()
            && lost.poll(context).is_ready()
        {
            return Poll::Ready(Err(this.handle.lost_error(false)));
        }
        for lost in &mut *this.others {
            if lost.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(lost.handle.lost_error(false)));
            }
        }
        let _inside = this.span.enter();
        this.body.poll(context).map(Ok)
    }
}
