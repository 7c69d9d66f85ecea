//! [`ResolvedRequest`]: a request with every default filled in.

use std::sync::Arc;
use std::time::Duration;

/// What a task asks for.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedRequest {
    pub(crate) key: Arc<str>,
    pub(crate) timeout: Duration,
    pub(crate) expire: Duration,
    pub(crate) renew: bool,
    pub(crate) fenced: bool,
    /// Whether the hold is around a body that is dropped when the hold is lost; see rule L6.
    pub(crate) body: bool,
}
