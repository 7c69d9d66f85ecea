//! [`Channels`]: subscriptions and pushes.

use std::collections::BTreeMap;

use crate::{Client, Reply};

#[derive(Default)]
pub(crate) struct Channels {
    /// In the order of subscription.
    listeners: BTreeMap<Vec<u8>, Vec<Client>>,
    /// The subscriptions to sharded channels, also in order.
    sharded: BTreeMap<Vec<u8>, Vec<Client>>,
    pushes: Vec<(Client, Reply)>,
}

impl Channels {
    /// Publishes to the subscribers on all nodes. Returns how many of them are connected to the publishing node.
    pub(crate) fn publish(&mut self, channel: &[u8], message: &[u8], is_here: impl Fn(Client) -> bool) -> usize {
        let listeners = self.listeners.get(channel).map(Vec::as_slice).unwrap_or_default();
        for listener in listeners {
            self.pushes.push((*listener, told("message", channel, message)));
        }
        listeners.iter().filter(|listener| is_here(**listener)).count()
    }

    /// Publishes to a sharded channel.
    pub(crate) fn spublish(&mut self, channel: &[u8], message: &[u8], is_here: impl Fn(Client) -> bool) -> usize {
        let listeners = self.sharded.get(channel).map(Vec::as_slice).unwrap_or_default();
        for listener in listeners {
            self.pushes.push((*listener, told("smessage", channel, message)));
        }
        listeners.iter().filter(|listener| is_here(**listener)).count()
    }

    /// Subscribes to a sharded channel; the reply is the confirmation.
    pub(crate) fn ssubscribe(&mut self, client: Client, channel: &[u8]) -> Reply {
        let listeners = self.sharded.entry(channel.to_vec()).or_default();
        if !listeners.contains(&client) {
            listeners.push(client);
        }
        let count = self.sharded.values().filter(|listeners| listeners.contains(&client)).count();
        Reply::Push(vec![Reply::bulk("ssubscribe"), Reply::bulk(channel), Reply::count(count)])
    }

    /// Ends these clients' subscriptions to these sharded channels, and notifies the clients in the order in which they connected, because
    /// the names of channels are random.
    pub(crate) fn end_sharded(&mut self, is_meant: impl Fn(&[u8]) -> bool, ends: impl Fn(Client) -> bool) {
        let mut told = Vec::new();
        for (channel, listeners) in self.sharded.iter_mut().filter(|(channel, _)| is_meant(channel)) {
            for client in listeners.extract_if(.., |client| ends(*client)) {
                let push = vec![Reply::bulk("sunsubscribe"), Reply::bulk(channel), Reply::Integer(0)];
                told.push((client, Reply::Push(push)));
            }
        }
        told.sort_by_key(|(client, _)| *client);
        self.pushes.extend(told);
    }

    /// Adds pushes that belong to no channel.
    pub(crate) fn tell(&mut self, pushes: Vec<(Client, Reply)>) {
        self.pushes.extend(pushes);
    }

    /// The reply confirms the first channel; pushes confirm the others.
    pub(crate) fn subscribe(&mut self, client: Client, channels: &[&[u8]]) -> Reply {
        let confirm = |all: &mut Self, channel: &&[u8]| {
            let listeners = all.listeners.entry(channel.to_vec()).or_default();
            if !listeners.contains(&client) {
                listeners.push(client);
            }
            all.confirmation("subscribe", client, Some(channel))
        };
        let confirmations: Vec<Reply> = channels.iter().map(|channel| confirm(self, channel)).collect();
        self.reply(client, confirmations)
    }

    /// Unsubscribes from all channels if none is named.
    pub(crate) fn unsubscribe(&mut self, client: Client, channels: &[&[u8]]) -> Reply {
        let mut channels: Vec<Vec<u8>> = channels.iter().map(|channel| channel.to_vec()).collect();
        if channels.is_empty() {
            channels = self.of(client).map(<[u8]>::to_vec).collect();
        }
        let leave = |all: &mut Self, channel: &Vec<u8>| {
            if let Some(listeners) = all.listeners.get_mut(channel) {
                listeners.retain(|listener| *listener != client);
            }
            all.confirmation("unsubscribe", client, Some(channel))
        };
        let mut confirmations: Vec<Reply> = channels.iter().map(|channel| leave(self, channel)).collect();
        if confirmations.is_empty() {
            confirmations.push(self.confirmation("unsubscribe", client, None));
        }
        self.reply(client, confirmations)
    }

    pub(crate) fn disconnect(&mut self, client: Client) {
        self.listeners.retain(|_, listeners| {
            listeners.retain(|listener| *listener != client);
            !listeners.is_empty()
        });
        self.sharded.retain(|_, listeners| {
            listeners.retain(|listener| *listener != client);
            !listeners.is_empty()
        });
        self.pushes.retain(|(listener, _)| *listener != client);
    }

    pub(crate) fn take_pushes(&mut self) -> Vec<(Client, Reply)> {
        std::mem::take(&mut self.pushes)
    }

    fn of(&self, client: Client) -> impl Iterator<Item = &[u8]> {
        let listened = self.listeners.iter().filter(move |(_, listeners)| listeners.contains(&client));
        listened.map(|(channel, _)| channel.as_slice())
    }

    fn confirmation(&self, kind: &str, client: Client, channel: Option<&[u8]>) -> Reply {
        let channel = channel.map_or(Reply::Nil, Reply::bulk);
        Reply::Push(vec![Reply::bulk(kind), channel, Reply::count(self.of(client).count())])
    }

    fn reply(&mut self, client: Client, confirmations: Vec<Reply>) -> Reply {
        let mut confirmations = confirmations.into_iter();
        let first = confirmations.next().unwrap_or(Reply::Nil);
        self.pushes.extend(confirmations.map(|further| (client, further)));
        first
    }
}

fn told(kind: &str, channel: &[u8], message: &[u8]) -> Reply {
    Reply::Push(vec![Reply::bulk(kind), Reply::bulk(channel), Reply::bulk(message)])
}
