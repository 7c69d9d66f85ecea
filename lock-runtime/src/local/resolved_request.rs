//! [`ResolvedRequest`]: a request with every default filled in.

use std::sync::Arc;
use std::time::Duration;

/// A request with the full name of its lock and a value for every option.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedRequest {
    pub(crate) key: Arc<str>,
    pub(crate) timeout: Duration,
    pub(crate) expire: Duration,
    pub(crate) renew: bool,
    pub(crate) fenced: bool,
    /// Whether the hold is around a body that is dropped when the hold is lost (rule L6: such a hold ends the whole
    /// lease).
    pub(crate) body: bool,
}
