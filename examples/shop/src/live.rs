//! [`Live`]: the data of the page at `/`, several times a second, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, StreamExt};
use lock_runtime::LockStats;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

use crate::Shop;

const BEAT: Duration = Duration::from_millis(250);

/// The last picture of the shop, for all viewers.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    last: watch::Sender<String>,
    stop: CancellationToken,
}

#[derive(Debug, Serialize)]
struct Picture {
    process: u32,
    is_connected: bool,
    items: Vec<Item>,
    unpaid: i64,
    /// In this instance: the locks that it holds, and the tasks that wait in it.
    held: u64,
    waiting: u64,
    /// Per second: from task to task in this instance, and from another instance.
    hand_overs: f64,
    hand_offs: f64,
}

#[derive(Debug, Serialize)]
struct Item {
    id: i64,
    name: String,
    at_start: i64,
    stock: i64,
    /// The label of the instance that sells this item now.
    holder: Option<String>,
    /// The instances that wait for it.
    waiting: Vec<String>,
}

impl Live {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { last: watch::Sender::default(), stop }
    }

    /// Takes pictures until the service stops. Without a viewer it takes none: each picture costs one command per item.
    pub(crate) async fn publish(self, shop: Arc<Shop>) {
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut before, mut since) = (shop.locks.stats(), Instant::now());
        while self.stop.run_until_cancelled(beats.tick()).await.is_some() {
            let stats = shop.locks.stats();
            let picture = (self.last.receiver_count() > 0).then(|| picture(&shop, before, stats, since.elapsed()));
            (before, since) = (stats, Instant::now());
            if let Some(picture) = picture {
                match picture.await {
                    Ok(picture) => drop(self.last.send_replace(serde_json::to_string(&picture).unwrap_or_default())),
                    Err(error) => tracing::warn!(%error, "no picture for the live page"),
                }
            }
        }
    }
}

async fn picture(shop: &Shop, before: LockStats, stats: LockStats, passed: Duration) -> sqlx::Result<Picture> {
    let rows: Vec<(i64, String, i64, i64)> = sqlx::query_as("SELECT id, name, at_start, stock FROM items ORDER BY id")
        .fetch_all(shop.database.pool())
        .await?;
    let unpaid = "SELECT COUNT(*) FROM orders WHERE paid = 0";
    let unpaid = sqlx::query_scalar(unpaid).fetch_one(shop.database.pool()).await?;
    let mut items = Vec::with_capacity(rows.len());
    for (id, name, at_start, stock) in rows {
        // While the server is away nobody knows the holders. The page says that the server is away.
        let lock = shop.locks.inspect("sale", &id).await.ok().flatten();
        let (holder, waiting) = lock.map_or_else(Default::default, |lock| (lock.holder, lock.waiting));
        items.push(Item { id, name, at_start, stock, holder, waiting });
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = |now: u64, before: u64| (now.saturating_sub(before)) as f64 / passed.as_secs_f64();
    Ok(Picture {
        process: std::process::id(),
        is_connected: shop.locks.is_connected(),
        items,
        unpaid,
        held: stats.held,
        waiting: stats.waiting,
        hand_overs: rate(stats.hand_overs, before.hand_overs),
        hand_offs: rate(stats.hand_offs, before.hand_offs),
    })
}

/// The pictures for one viewer. The stream ends when the service stops: a graceful shutdown waits for all answers, and this
/// answer would never end by itself.
pub(crate) async fn events(State(live): State<Live>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let pictures = WatchStream::new(live.last.subscribe()).filter(|picture| std::future::ready(!picture.is_empty()));
    let events = pictures.map(|picture| Ok(Event::default().data(picture)));
    Sse::new(events.take_until(live.stop.cancelled_owned())).keep_alive(KeepAlive::default())
}
