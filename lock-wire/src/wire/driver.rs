//! [`Driver`]: reads a connection, and writes what several tasks send together.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};

use redis::{PushKind, Value};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::{JoinHandle, yield_now};

use super::decode::Frames;
use super::{Ended, Hear, Shared};

/// Runs until the connection ends, or its last handle is gone.
pub(super) struct Driver {
    shared: Arc<Shared>,
    reader: Box<dyn AsyncRead + Send + Unpin>,
    frames: Frames,
    hear: Box<dyn Hear>,
    /// Whether all tasks that could run have run since there is output.
    has_yielded: bool,
    /// Ends when the runtime has polled its sockets. It exists while a task waits for what has arrived.
    look: Option<JoinHandle<()>>,
    /// Empty except while a reply is handled.
    to_wake: Vec<Waker>,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, reader: Box<dyn AsyncRead + Send + Unpin>, hear: Box<dyn Hear>) -> Self {
        Self { shared, reader, frames: Frames::default(), hear, has_yielded: false, look: None, to_wake: Vec::new() }
    }

    fn read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        loop {
            let mut room = ReadBuf::new(self.frames.room());
            ready!(Pin::new(&mut self.reader).poll_read(context, &mut room))?;
            let count = room.filled().len();
            if count == 0 {
                return Poll::Ready(Err(Ended::by_close()));
            }
            self.frames.on_read(count);
            while let Some(value) = self.frames.next().map_err(|_| Ended::Malformed)? {
                self.on_value(value)?;
            }
        }
    }

    fn on_value(&mut self, value: Value) -> Result<(), Ended> {
        let reply = match value {
            // The server answers a subscription with a push. The push for a subscription that ends by itself is not a reply.
            Value::Push { kind: PushKind::Subscribe | PushKind::SSubscribe, .. } => value,
            Value::Push { kind, data } if kind != PushKind::SUnsubscribe || !mutant!(UnsubscribedIsReply) => {
                self.hear.on_push(&kind, &data);
                return Ok(());
            }
            reply => reply,
        };
        let mut state = self.shared.lock();
        state.places.on_reply(reply, &mut self.to_wake).map_err(|_| Ended::Malformed)?;
        let calls = state.call_waiting();
        drop(state);
        self.to_wake.drain(..).for_each(Waker::wake);
        self.shared.call_for_room(calls);
        Ok(())
    }

    fn write(&mut self, context: &Context<'_>) -> io::Result<()> {
        let mut state = self.shared.lock();
        state.is_called = false;
        if state.output.is_flushed() {
            return Ok(());
        }
        if self.has_yielded {
            self.has_yielded = false;
            let flushed = state.flush(context.waker());
            let calls = state.call_waiting();
            drop(state);
            self.shared.call_for_room(calls);
            flushed
        } else {
            // The tasks that the replies woke may have more to send.
            self.has_yielded = true;
            context.waker().wake_by_ref();
            Ok(())
        }
    }

    /// Has the runtime poll its sockets, when a task waits for what has arrived. A runtime that was blocked polls them before it polls a
    /// task that has yielded. Returns whether it has done so.
    fn poll_look(&mut self, context: &mut Context<'_>) -> bool {
        let is_to_read = &self.shared.is_to_read;
        if is_to_read.load(Ordering::Relaxed) && self.look.is_none() {
            is_to_read.store(false, Ordering::Relaxed);
            self.look = Some(tokio::spawn(yield_now()));
        }
        let has_looked = self.look.as_mut().is_some_and(|look| Pin::new(look).poll(context).is_ready());
        if has_looked {
            self.look = None;
        }
        has_looked
    }

    fn end(&self, ended: &Ended) {
        if let Some(aftermath) = self.shared.end(ended) {
            self.hear.on_ended();
            aftermath.carry_out();
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        {
            let mut state = this.shared.lock();
            if state.is_left {
                return Poll::Ready(());
            }
            if state.driver.as_ref().is_none_or(|driver| !driver.will_wake(context.waker())) {
                state.driver = Some(context.waker().clone());
            }
        }
        let has_looked = this.poll_look(context);
        let read = this.read(context);
        if has_looked {
            this.shared.has_read.notify_waiters();
        }
        let ended = match read {
            Poll::Ready(Err(ended)) => ended,
            Poll::Ready(Ok(())) | Poll::Pending => match this.write(context) {
                Err(error) => error.into(),
                Ok(()) => return Poll::Pending,
            },
        };
        this.end(&ended);
        Poll::Ready(())
    }
}

impl Drop for Driver {
    /// The runtime may end before the connection does, and then there is no reader any more.
    fn drop(&mut self) {
        if let Some(aftermath) = self.shared.end(&Ended::by_close()) {
            aftermath.carry_out();
        }
    }
}
