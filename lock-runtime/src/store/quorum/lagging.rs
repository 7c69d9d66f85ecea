//! [`Lagging`]: locks that a majority granted while other servers have still to answer.
//!
//! A hold starts when a majority has granted it, and it may be over before the last server has the ask. A release that is sent on
//! another connection then overtakes the ask on that server, and the lock stays there until the claim ends. So such a release
//! is also sent behind the ask.

use std::sync::Arc;

use futures_util::StreamExt;

use super::{Pending, detach};
use crate::mutex::Mutex;
use crate::token::Token;

#[derive(Clone, Debug, Default)]
pub(super) struct Lagging(Arc<Mutex<Vec<Token>>>);

impl Lagging {
    /// Whether an ask for the token may still be on its way to a server.
    pub(super) fn has(&self, token: &Token) -> bool {
        mutant!(LaggingForgotten => return false);
        self.0.lock().contains(token)
    }

    /// Lets the `rest` of the asks end by themselves. Until then these tokens, which a majority granted, are known.
    pub(super) fn detach<T: Send + 'static>(&self, rest: Pending<T>, tokens: Vec<Token>) {
        if rest.is_empty() || tokens.is_empty() {
            return detach(rest);
        }
        self.0.lock().extend(tokens.iter().cloned());
        let followed = Followed { lagging: self.clone(), tokens };
        tokio::spawn(async move {
            rest.for_each(|_| std::future::ready(())).await;
            drop(followed);
        });
    }
}

/// Forgets the tokens when the last server has answered, and when the runtime ends before that.
struct Followed {
    lagging: Lagging,
    tokens: Vec<Token>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.lagging.0.lock().retain(|token| !self.tokens.contains(token));
    }
}
