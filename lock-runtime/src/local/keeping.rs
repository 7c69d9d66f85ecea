//! [`keep_alive`]: a task whose acquire is not complete wakes itself, to be polled in time.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::clock::Moment;
use crate::keep_alive::KeepAlive;

/// How often the task wakes itself: several times per claim.
const TOUCHED_EVERY: Duration = Duration::from_millis(800);

/// Polls `future`, and keeps the holds alive meanwhile. `None` if the task was not polled for so long that they have ended.
pub(crate) async fn keep_alive<F: Future>(alive: &KeepAlive, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut timer = pin!(sleep(TOUCHED_EVERY));
    poll_fn(|context| {
        if !alive.touch(Moment::now()) {
            return Poll::Ready(None);
        }
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            while timer.as_mut().poll(context).is_ready() {
                timer.as_mut().reset(Instant::now() + TOUCHED_EVERY);
            }
        }
        polled.map(Some)
    })
    .await
}
