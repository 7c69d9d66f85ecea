//! [`Output`]: commands that are written but not handed to the socket yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncWrite;

use super::group::{Group, Members};

/// When this many bytes are waiting, they are sent at once. While the socket is full, nothing is begun, and a command further than this
/// from the end is not taken back.
pub(super) const ENOUGH: usize = 64 * 1024;

#[derive(Default)]
pub(super) struct Output {
    /// What goes out in the same write, after the `bytes`.
    pub(super) group: Group,
    bytes: Vec<u8>,
    /// How many of the bytes the socket already has.
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

    /// Writes commands after all others. Returns their number of bytes.
    pub(super) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let before = self.bytes.len();
        write(&mut self.bytes);
        self.bytes.len() - before
    }

    /// Writes the run of the script for the [`group`](Self::group). Returns the places that its reply answers, and its number of bytes.
    #[inline]
    pub(super) fn write_group(&mut self) -> (Option<Members>, usize) {
        let before = self.bytes.len();
        let members = self.group.write(&mut self.bytes);
        (members, self.bytes.len() - before)
    }

    /// How many bytes the socket does not have yet.
    #[inline]
    pub(super) fn unsent(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Whether so much is waiting that it is sent at once.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.unsent() >= ENOUGH
    }

    /// Takes back `count` bytes that the socket does not have yet.
    pub(super) fn take_back(&mut self, before_end: usize, count: usize) {
        let start = self.bytes.len().saturating_sub(before_end);
        self.bytes.drain(start..(start + count).min(self.bytes.len()));
    }

    /// Hands over as much as the socket takes. The `driver` is woken when the socket takes more.
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

    /// Frees the space of what the socket has, even while the socket is full. The rest is moved only when it is no more than what is freed:
    /// so there is at most one move per byte written.
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

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.bytes.capacity()
    }
}
