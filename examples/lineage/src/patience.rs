//! [`Patience`]: how a published lock's caller waits: it asks again and again.

use std::time::{Duration, Instant};

use history::{Failure, Wanted};
use tokio::time::sleep;

/// The time left to a caller.
pub(crate) struct Patience {
    end: Instant,
}

impl Patience {
    pub(crate) fn of(wanted: &Wanted) -> Self {
        Self { end: Instant::now() + wanted.timeout() }
    }

    /// Waits until the next try. Busy if there is no time for it.
    pub(crate) async fn pause(&self, pause: Duration) -> Result<(), Failure> {
        if Instant::now() + pause > self.end {
            return Err(Failure::Busy("not obtained in time".to_owned()));
        }
        sleep(pause).await;
        Ok(())
    }
}
