//! The service as its callers and its operators see it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "so fails a test")]

mod answers;
mod instance;
mod load;
#[cfg(feature = "page")]
mod page;
mod shutdown;
mod together;
