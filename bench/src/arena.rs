//! [`Arena`]: detects two bodies that are inside at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The critical sections of one process's locks, one entry per key.
#[derive(Clone, Debug)]
pub(crate) struct Arena {
    inside: Arc<[AtomicU32]>,
    overlaps: Arc<AtomicU64>,
}

/// A body is inside until this is dropped.
#[derive(Debug)]
pub(crate) struct Inside(Arena, usize);

impl Arena {
    pub(crate) fn new(keys: u32) -> Self {
        Self { inside: (0..keys).map(|_| AtomicU32::new(0)).collect(), overlaps: Arc::default() }
    }

    pub(crate) fn enter(&self, key: u32) -> Inside {
        let key = key as usize;
        if self.inside.get(key).is_some_and(|inside| inside.fetch_add(1, Ordering::SeqCst) > 0) {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        Inside(self.clone(), key)
    }

    pub(crate) fn overlaps(&self) -> u64 {
        self.overlaps.load(Ordering::SeqCst)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(inside) = self.0.inside.get(self.1) {
            inside.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
