//! [`Output`]: commands that are written and not with the socket yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncWrite;

use super::releases::Releases;

/// A buffer that became larger than this is given up when it is empty.
const MOST_KEPT: usize = 64 * 1024;

#[derive(Default)]
pub(super) struct Output {
    /// What goes out in the same write, behind the `bytes`.
    pub(super) releases: Releases,
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

    pub(super) fn is_flushed(&self) -> bool {
        self.bytes.is_empty() && self.releases.is_empty() && !self.is_unflushed
    }

    /// Writes commands behind all others. Returns how many bytes they have.
    pub(super) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let before = self.bytes.len();
        write(&mut self.bytes);
        self.bytes.len() - before
    }

    /// Writes the script for the [`releases`](Self::releases). Returns whose answers its reply has, and how many bytes it has.
    pub(super) fn write_releases(&mut self) -> (Vec<usize>, usize) {
        let before = self.bytes.len();
        let places = self.releases.write(&mut self.bytes);
        (places, self.bytes.len() - before)
    }

    /// How many bytes are not with the socket.
    pub(super) fn unsent(&self) -> usize {
        self.bytes.len() - self.written
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
        while let Some(rest) = self.bytes.get(self.written..).filter(|rest| !rest.is_empty()) {
            match Pin::new(&mut *writer).poll_write(&mut context, rest) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(()),
            }
            self.is_unflushed = true;
        }
        self.written = 0;
        if self.bytes.capacity() > MOST_KEPT {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        if self.is_unflushed
            && let Poll::Ready(flushed) = Pin::new(writer).poll_flush(&mut context)
        {
            self.is_unflushed = false;
            flushed?;
        }
        Ok(())
    }
}
