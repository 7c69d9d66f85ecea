//! [`Place`]: where the locks are, and how to connect a manager there.

use std::time::Duration;

use lock_runtime::{Builder, LockManager};

use crate::arguments::PlaceArguments;
#[cfg(feature = "tls")]
use crate::certificates;
use crate::failure::Failure;

#[derive(Debug)]
pub(crate) struct Place {
    arguments: PlaceArguments,
}

impl Place {
    pub(crate) fn new(arguments: PlaceArguments) -> Self {
        Self { arguments }
    }

    /// `instead`, or the URL from the command line.
    fn url(&self, instead: Option<String>) -> Result<String, Failure> {
        let missing = || Failure::misuse("no URL: give --url, or set REDIS_URL");
        let url = instead.or_else(|| self.arguments.url.clone()).filter(|url| !url.is_empty()).ok_or_else(missing)?;
        if url.starts_with("memory:") {
            return Err(Failure::misuse("memory:// has the locks of one process alone: nobody else would be kept out"));
        }
        Ok(url)
    }

    pub(crate) async fn connect(&self) -> Result<LockManager, Failure> {
        self.connect_to(None, |builder| builder).await
    }

    /// Connects to `instead` if given, with more settings.
    pub(crate) async fn connect_to(
        &self,
        instead: Option<String>,
        set: impl FnOnce(Builder) -> Builder,
    ) -> Result<LockManager, Failure> {
        let url = self.url(instead)?;
        let builder = LockManager::builder()
            .url(&url)
            .connect_timeout(self.arguments.connect_timeout.max(Duration::from_millis(1)))
            .drain(Duration::ZERO);
        #[cfg(feature = "tls")]
        let builder = match certificates::config(&self.arguments.certificates, &url)? {
            Some(config) => builder.tls(config),
            None => builder,
        };
        Ok(set(builder).connect().await?)
    }
}
