//! [`Slot::while_wanted`]: how a task waits for the answer to its ask, which may be withdrawn meanwhile (rule L7).

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::Slot;
use crate::protocol::Ask;
use crate::token::Token;

impl Slot {
    /// Waits for the answer to an ask. `None` if the token was given up meanwhile.
    ///
    /// A command is sent when its future is polled: first when there is a connection, and again when the server did not know the script, or
    /// the connection broke. If the task is polled late, its ask may have been withdrawn before. Then the command would be granted, and the
    /// grant would be unused until its claim ends.
    ///
    /// So the token is withdrawn behind the command, because the connection may have sent the command already. If another task is just
    /// releasing a lease of this token, the token is withdrawn after that release: to that task an earlier withdrawal would look like a
    /// loss.
    pub(in crate::local) fn while_wanted<T>(
        &self,
        overtakes: u32,
        ask: &Ask,
        mut command: Pin<&mut impl Future<Output = T>>,
    ) -> impl Future<Output = Option<T>> {
        poll_fn(move |context| match command.as_mut().poll(context) {
            Poll::Pending if self.is_given_up(overtakes, &ask.token) => {
                if !self.note(|lock| lock.leave_to_release(&ask.token)) {
                    self.core.withdraw(ask.withdrawal());
                }
                Poll::Ready(None)
            }
            polled => polled.map(Some),
        })
    }

    /// Takes the mutex only if a task was overtaken: this runs at each poll.
    fn is_given_up(&self, overtakes: u32, token: &Token) -> bool {
        mutant!(GivenUpIsSent => return false);
        self.overtakes() != overtakes && !self.peek(|lock| lock.wants(token))
    }
}
