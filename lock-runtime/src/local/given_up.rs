//! [`Slot::while_wanted`]: a command of a task that may come late to its own turn (rule L7).

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::Poll;

use super::slot::{Slot, State};
use crate::store::Ask;
use crate::token::Token;

impl Slot {
    /// How often a turn was taken from a late task so far. A command of a task is good for as long as this stays the same.
    pub(super) fn takings(&self) -> u32 {
        self.takings.load(Ordering::Relaxed)
    }

    pub(super) fn note_taking(&self) {
        self.takings.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the answer to a command that asks for a lock; `None` when its token was given up meanwhile.
    ///
    /// A command is sent when its future is polled: the first when there is a connection, and another one when the server did
    /// not know the script, or the connection broke. When the task comes to that late, its ask may have been withdrawn before.
    /// What it sends then would be granted, and nobody would use the grant until its claim ends.
    ///
    /// Then the token is withdrawn behind the command: the connection may have sent it already.
    pub(super) async fn while_wanted<T>(
        &self,
        takings: u32,
        ask: &Ask,
        mut command: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        poll_fn(|context| match command.as_mut().poll(context) {
            Poll::Pending if self.is_given_up(takings, &ask.token) => {
                self.core.withdraw(ask.withdrawal());
                Poll::Ready(None)
            }
            polled => polled.map(Some),
        })
        .await
    }

    /// Whether nobody here has a use for the token any more. Of a lease that a task just gives back, that task hears.
    pub(crate) fn has_given_up(&self, token: &Token) -> bool {
        let mut state = self.locked();
        !state.wants(token) && !state.is_ending(token)
    }

    /// Looks at the state only when a turn was taken from somebody: this is asked at each poll.
    fn is_given_up(&self, takings: u32, token: &Token) -> bool {
        mutant!(GivenUpIsSent => return false);
        self.takings() != takings && !self.locked().wants(token)
    }
}

impl State {
    /// Whether the token is that of the lease, or of what was asked for.
    pub(super) fn wants(&self, token: &Token) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.token == *token)
            || self.pending.as_ref().is_some_and(|pending| pending.token == *token)
    }
}
