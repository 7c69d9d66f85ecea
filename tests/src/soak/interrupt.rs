//! [`watch`]: a run that is told to end takes down all that it started.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

/// Becomes true when this process is told to end. What looks at it ends in order.
#[must_use]
pub fn watch() -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&interrupted);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let mut terminated = signal(SignalKind::terminate()).expect("signals");
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminated.recv() => {}
            }
        });
        told.store(true, Ordering::SeqCst);
    });
    interrupted
}
