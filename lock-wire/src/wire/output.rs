//! [`Output`]: commands that are written and not with the socket yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncWrite;

use super::group::{Group, Members};

/// When so many bytes wait, they go out at once. While the socket takes no more, nobody begins to ask, and a command that lies farther
/// from the end is not taken back.
pub(super) const ENOUGH: usize = 64 * 1024;

#[derive(Default)]
pub(super) struct Output {
    /// What goes out in the same write, behind the `bytes`.
    pub(super) group: Group,
    bytes: Vec<u8>,
    /// So many bytes are with the socket already.
    written: usize,
    is_unflushed: bool,
    /// `None` when the connection has ended.
    writer: Option<Box<dyn AsyncWrite + Send + Unpin>>,
}

impl Output {
    pub(super) fn to(writer: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        Self { writer: Some(writer), ..Self::default() }
    }

    #[inline]
    pub(super) fn is_flushed(&self) -> bool {
        self.bytes.is_empty() && self.group.is_empty() && !self.is_unflushed
    }

    /// Writes commands behind all others. Returns how many bytes they have.
    pub(super) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let before = self.bytes.len();
        write(&mut self.bytes);
        self.bytes.len() - before
    }

    /// Writes the run of the script for the [`group`](Self::group). Returns whose answers its reply has, and how many bytes it has.
    #[inline]
    pub(super) fn write_group(&mut self) -> (Option<Members>, usize) {
        let before = self.bytes.len();
        let members = self.group.write(&mut self.bytes);
        (members, self.bytes.len() - before)
    }

    /// How many bytes are not with the socket.
    #[inline]
    pub(super) fn unsent(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Whether so much waits that it goes out at once.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.unsent() >= ENOUGH
    }

    /// Takes back so many bytes that are not with the socket.
    pub(super) fn take_back(&mut self, before_end: usize, count: usize) {
        let start = self.bytes.len().saturating_sub(before_end);
        self.bytes.drain(start..(start + count).min(self.bytes.len()));
    }

    /// Hands as much to the socket as it takes. The `driver` is woken when the socket takes more.
    pub(super) fn flush(&mut self, driver: &Waker) -> io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let mut context = Context::from_waker(driver);
        let mut is_full = false;
        while let Some(rest) = self.bytes.get(self.written..).filter(|rest| !rest.is_empty() && !is_full) {
            match Pin::new(&mut *writer).poll_write(&mut context, rest) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => {
                    self.written += count;
                    self.is_unflushed = true;
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => is_full = true,
            }
        }
        if self.is_unflushed
            && !is_full
            && let Poll::Ready(flushed) = Pin::new(writer).poll_flush(&mut context)
        {
            self.is_unflushed = false;
            flushed?;
        }
        self.forget_written();
        Ok(())
    }

    /// Gives back the room of what is with the socket, also while the socket takes no more. What stays is moved only when it is no more
    /// than what goes: so a byte costs one move.
    fn forget_written(&mut self) {
        mutant!(WrittenIsKept => if self.unsent() > 0 {
            return;
        });
        if self.unsent() <= self.written {
            self.bytes.drain(..self.written);
            self.written = 0;
            if self.bytes.capacity() > ENOUGH.max(4 * self.bytes.len()) {
                self.bytes.shrink_to(2 * self.bytes.len());
            }
        }
    }

    /// How much room the buffer has.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.bytes.capacity()
    }
}
