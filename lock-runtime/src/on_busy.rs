//! [`OnBusy`]: what a request does about a lock that somebody holds.

/// What a request does about a lock that somebody holds.
///
/// ```
/// use std::time::Duration;
/// use lock_runtime::{LockError, LockManager, OnBusy};
///
/// /// Only the newest export of a report is of use: it ends the one that runs.
/// async fn export(locks: &LockManager, report: u64) -> Result<(), LockError> {
///     let work = async { /* minutes of work */ };
///     locks.lock("export", &report).timeout(Duration::from_secs(10)).on_busy(OnBusy::Replace).run(work).await
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnBusy {
    /// It waits behind those who came before.
    #[default]
    Wait,
    /// It takes the lock from its holder, who is told to stop, and waits in front of all others until the holder has stopped. If a newer
    /// request comes meanwhile, it fails as the holder does: only the newest ever runs.
    Replace,
}
