//! How leases are lengthened, and their alarms armed: the server then reports when another client changes a lock.

use lock_wire::Link;
use redis::Cmd;

use super::answer::read_renewed;
use super::reply::items;
use super::verb::Verb;
use super::{Outgoing, RedisStore, helper_key, millis, scripts};
use crate::clock::Deadline;
use crate::share::Share;
use crate::store::{Answers, Renewal, Renewed, StoreError};

impl Verb for Renewal {
    type Answer = Renewed;

    async fn send(store: &RedisStore, renewals: &[Self], deadline: Deadline) -> Answers<Renewed> {
        let is_shared = renewals.iter().any(Verb::is_shared);
        let arms = renewals.iter().any(|renewal| renewal.arms);
        let arguments = |_: &Link, command: &mut Cmd| {
            for renewal in renewals {
                command.arg(&*renewal.key);
                if is_shared {
                    helper_key(command, &renewal.key, "shared");
                }
            }
            for renewal in renewals {
                command.arg(renewal.token.as_str());
                if let Some(share) = renewal.share {
                    command.arg(share.capacity());
                }
                command.arg(millis(renewal.lease + renewal.grace));
            }
            if arms {
                command.arg("arm");
            }
        };
        let keys_each = if is_shared { 2 } else { 1 };
        let keys = (renewals.first().map_or("", |renewal| &renewal.key), keys_each * renewals.len());
        let script = if is_shared { &scripts::SHARED_RENEW } else { &scripts::RENEW };
        let outgoing = |command: Cmd| Outgoing::from(command).arming(arms);
        let mut called = store.run_as(outgoing, script, keys, arguments, deadline).await?;
        let answers = items(called.take_value()).map_err(|_| StoreError::no_answer())?;
        let read = |(answer, renewal)| read_renewed(answer, renewal, called.sent, called.link.drift());
        let mut answers: Vec<_> = answers.into_iter().zip(renewals).map(read).collect();
        // A replica that has not seen the renewal may become the master, and would end the lease as if there had been no renewal.
        let is_renewed = |renewed: &Renewed| matches!(renewed, Renewed::Until(_));
        store.wait_for_replicas_of((&called, keys.0), &mut answers, is_renewed, deadline).await;
        Ok(answers)
    }

    fn key(&self) -> &str {
        &self.key
    }

    fn share(&self) -> Option<Share> {
        self.share
    }
}
