//! [`watch`]: an interrupted run stops everything that it started.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

/// Becomes true when this process gets a signal to end. Loops that check it then end in an orderly way.
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
