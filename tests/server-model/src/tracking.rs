//! [`Tracking`]: notifies clients when a key changes: `CLIENT TRACKING ON OPTIN NOLOOP`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Client, Reply};

#[derive(Default)]
pub(crate) struct Tracking {
    /// The clients with tracking, and whether their next command is tracked (`CLIENT CACHING YES`).
    clients: BTreeMap<Client, bool>,
    readers: BTreeMap<Vec<u8>, BTreeSet<Client>>,
    /// The client whose command is executed, and whether its reads are tracked.
    current: Option<(Client, bool)>,
}

impl Tracking {
    pub(crate) fn turn_on(&mut self, client: Client) -> Reply {
        self.clients.insert(client, false);
        Reply::ok()
    }

    pub(crate) fn track_next(&mut self, client: Client) -> Reply {
        let Some(next) = self.clients.get_mut(&client) else {
            let message = "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled";
            return Reply::error(message);
        };
        *next = true;
        Reply::ok()
    }

    /// A command of `client` begins.
    pub(crate) fn begin(&mut self, client: Client) {
        let is_tracked = self.clients.get_mut(&client).is_some_and(std::mem::take);
        self.current = Some((client, is_tracked));
    }

    /// Ends the command: later changes are the server's own.
    pub(crate) fn end(&mut self) {
        self.current = None;
    }

    pub(crate) fn on_read(&mut self, keys: &[&[u8]]) {
        if let Some((client, true)) = self.current {
            for key in keys {
                self.readers.entry(key.to_vec()).or_default().insert(client);
            }
        }
    }

    /// The messages about a changed key. The client that changed it gets none, and no longer tracks it.
    pub(crate) fn on_change(&mut self, key: &[u8]) -> Vec<(Client, Reply)> {
        let readers = self.readers.remove(key).unwrap_or_default();
        let others = readers.into_iter().filter(|reader| self.current.is_none_or(|(client, _)| client != *reader));
        others.map(|reader| (reader, invalidate(Reply::Array(vec![Reply::bulk(key)])))).collect()
    }

    /// The messages that all keys are gone.
    pub(crate) fn on_flush(&mut self) -> Vec<(Client, Reply)> {
        self.readers.clear();
        self.clients.keys().map(|client| (*client, invalidate(Reply::Nil))).collect()
    }

    pub(crate) fn disconnect(&mut self, client: Client) {
        self.clients.remove(&client);
        self.readers.retain(|_, readers| {
            readers.remove(&client);
            !readers.is_empty()
        });
    }
}

fn invalidate(keys: Reply) -> Reply {
    Reply::Push(vec![Reply::bulk("invalidate"), keys])
}
