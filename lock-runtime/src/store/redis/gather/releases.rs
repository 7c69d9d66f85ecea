//! Releases that travel together: one script for one server, and a pipeline for each master of a cluster.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::{Cmd, Pipeline, Value};

use super::super::RedisStore;
use super::super::link::Link;
use super::super::release::free_arguments;
use super::super::scripts;
use super::{Batch, Entry, Item, by_link, longest};
use crate::clock::Moment;
use crate::store::{Release, Released, Store, each, exactly_one};

impl Item for Release {
    fn list(batch: &mut Batch) -> &mut Vec<Entry<Self>> {
        &mut batch.releases
    }
}

pub(super) async fn send(store: &RedisStore, releases: Vec<Entry<Release>>, now: Moment) {
    let groups = by_link(store, releases).into_iter();
    join_all(groups.map(|(link, releases)| async move {
        match link {
            Some(link) if store.servers.are_many() => send_to_master(store, &link, releases, now).await,
            Some(_) => send_as_script(store, releases, now).await,
            None => send_alone(store, releases, false).await,
        }
    }))
    .await;
}

/// Sends releases to one server.
async fn send_as_script(store: &RedisStore, entries: Vec<Entry<Release>>, now: Moment) {
    let deadline = longest(&entries, now);
    let (releases, answers): (Vec<_>, Vec<_>) = entries.into_iter().map(|entry| (entry.item, entry.answer)).unzip();
    let outcomes = each(store.release(&releases, deadline).await, releases.len());
    for (answer, outcome) in answers.into_iter().zip(outcomes) {
        // When nobody waits for the answer any more, the keeper repeats the release.
        let _ = answer.send(outcome);
    }
}

/// Sends releases to one master of a cluster. What `free.lua` does not release there goes by itself: somebody waits for the
/// lock, it is gone, or it is at another master.
async fn send_to_master(store: &RedisStore, link: &Arc<Link>, releases: Vec<Entry<Release>>, now: Moment) {
    if !link.has_sent(&scripts::FREE) {
        return send_alone(store, releases, false).await;
    }
    let mut commands = |_: &Link| pipeline(&releases);
    let Ok(mut called) = link.call_many(&mut commands, longest(&releases, now)).await else {
        // The releases may have taken effect.
        return send_alone(store, releases, true).await;
    };
    let mut rest = Vec::new();
    for (release, reply) in releases.into_iter().zip(called.take_values()) {
        if reply == Value::Int(1) {
            // When nobody waits for the answer any more, there is nothing left to do.
            let _ = release.answer.send(Ok(Released { owned: true, again: None }));
        } else {
            rest.push(release);
        }
    }
    send_alone(store, rest, called.repeated).await;
}

fn pipeline(releases: &[Entry<Release>]) -> Pipeline {
    let mut commands = Pipeline::with_capacity(releases.len());
    for release in releases {
        let arguments = |command: &mut Cmd| free_arguments(command, std::slice::from_ref(&release.item));
        commands.add_command(scripts::FREE.by_digest(2, &arguments));
    }
    commands
}

/// Sends each release by itself. With `repeated` the releases were sent before, and may have taken effect then.
async fn send_alone(store: &RedisStore, releases: Vec<Entry<Release>>, repeated: bool) {
    let now = Moment::now();
    join_all(releases.into_iter().map(|release| async move {
        let deadline = release.deadline.counted_from(now);
        let outcome = exactly_one(store.release(std::slice::from_ref(&release.item), deadline).await);
        // When nobody waits for the answer any more, the keeper repeats the release.
        let _ = release.answer.send(outcome.map(|released| Released { owned: released.owned || repeated, ..released }));
    }))
    .await;
}
