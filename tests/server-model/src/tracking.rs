//! [`Tracking`]: who is told when a key changes: `CLIENT TRACKING ON OPTIN NOLOOP`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Client, Reply};

#[derive(Default)]
pub(crate) struct Tracking {
    /// Who asked to be told, and whether for its next command (`CLIENT CACHING YES`).
    clients: BTreeMap<Client, bool>,
    readers: BTreeMap<Vec<u8>, BTreeSet<Client>>,
    /// Whose command is executed, and whether what it reads is tracked.
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

    /// Nobody's command: what changes from here on was changed by the server itself.
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

    /// Who is told of a changed key, and what. Whoever changed it is not told, and is not tracked any more.
    pub(crate) fn on_change(&mut self, key: &[u8]) -> Vec<(Client, Reply)> {
        let readers = self.readers.remove(key).unwrap_or_default();
        let others = readers.into_iter().filter(|reader| self.current.is_none_or(|(client, _)| client != *reader));
        others.map(|reader| (reader, invalidate(Reply::Array(vec![Reply::bulk(key)])))).collect()
    }

    /// Who is told that all keys are gone.
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
