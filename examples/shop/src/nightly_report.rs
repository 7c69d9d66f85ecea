//! The nightly report: once per night over all instances.

use std::sync::Arc;
use std::time::Duration;

use lock_runtime::cache_lock;
use tokio_util::sync::CancellationToken;

use crate::day::{today, until_midnight};
use crate::{Failure, Shop};

/// How long to wait when the report of a night could not be made, or another instance makes it.
const NEXT_TRY: Duration = Duration::from_mins(1);

/// The outcome for an instance that wanted to make a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Night {
    /// This instance has made the report.
    Made,
    /// The report existed already.
    MadeBefore,
}

impl Shop {
    /// Makes the report of a day, unless it was made.
    ///
    /// The lock alone is not enough: an instance that asks a second later finds the lock free. So the report is a row, and the
    /// holder of the lock looks for the row first. `timeout_ms = 0`: an instance that finds the lock busy does not wait, because
    /// another instance is making this very report. It looks again later, in case the other instance dies.
    ///
    /// # Errors
    ///
    /// When another instance makes it, or the lock or the database failed.
    ///
    /// # Cancel safety
    ///
    /// The report is made or not.
    #[cache_lock(prefix = "nightly_report", key = day, manager = &self.locks, timeout_ms = 0)]
    pub async fn report(&self, day: i64) -> Result<Night, Failure> {
        let pool = self.database.pool();
        let made: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM reports WHERE day = $1").bind(day).fetch_one(pool).await?;
        if made > 0 {
            return Ok(Night::MadeBefore);
        }
        let sold: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM orders WHERE day = $1").bind(day).fetch_one(pool).await?;
        // Here a real shop sends its mail.
        self.ask_others().await;
        let report = "INSERT INTO reports (day, sold, made_by) VALUES ($1, $2, $3)";
        let by = format!("process {}", std::process::id());
        sqlx::query(report).bind(day).bind(sold).bind(by).execute(pool).await?;
        Ok(Night::Made)
    }
}

/// Reports each night about the day before, until the service stops. A report that has begun is finished.
pub(crate) async fn report_each_night(shop: Arc<Shop>, stop: CancellationToken) {
    loop {
        let day = today() - 1;
        let pause = match shop.report(day).await {
            Ok(night) => {
                tracing::info!(day, ?night, "nightly report");
                until_midnight()
            }
            Err(failure) => {
                tracing::info!(day, %failure, "no nightly report yet");
                NEXT_TRY
            }
        };
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}
