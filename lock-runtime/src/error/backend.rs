//! [`BackendError`]: what went wrong between this process and the server.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// What went wrong between this process and the server, in words. The cause is its [`source`](Error::source).
///
/// ```no_run
/// # use lock_runtime::{LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// if let Err(LockError::Connect { server, problem, .. }) = LockManager::connect("redis://10.0.1.1").await {
///     let cause = std::error::Error::source(&problem).map(ToString::to_string);
///     eprintln!("{server} is not reachable: {problem} ({})", cause.unwrap_or_default());
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BackendError {
    text: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl BackendError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), source: None }
    }

    pub(crate) fn caused_by(text: impl Into<String>, source: impl Error + Send + Sync + 'static) -> Self {
        Self::caused_by_shared(text, Arc::new(source))
    }

    /// The source is the error itself, so that a caller may downcast it.
    pub(crate) fn caused_by_shared(text: impl Into<String>, source: Arc<dyn Error + Send + Sync>) -> Self {
        Self { text: text.into(), source: Some(source) }
    }

    /// The same problem, with the name of its server in front, unless that is there.
    pub(crate) fn of(self, server: &str) -> Self {
        match self.text.strip_prefix(server) {
            Some(rest) if rest.starts_with(": ") => self,
            _ => Self { text: format!("{server}: {}", self.text), ..self },
        }
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
