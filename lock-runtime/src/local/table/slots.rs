//! [`Slots`]: slots by their keys.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::RandomState;
use crate::local::slot::Slot;

/// Slots by their keys. A slot knows its key, so a key in use takes one word here.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: HashTable<Arc<Slot>>,
    hasher: RandomState,
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Arc<Slot>> {
        self.slots.find(self.hasher.hash_one(key), |slot| *slot.key == *key)
    }

    pub(super) fn get_or_add(&mut self, key: &str, slot: impl FnOnce() -> Arc<Slot>) -> Arc<Slot> {
        let Self { slots, hasher } = self;
        let hash_of = |slot: &Arc<Slot>| hasher.hash_one(&*slot.key);
        match slots.entry(hasher.hash_one(key), |slot| *slot.key == *key, hash_of) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(place) => Arc::clone(place.insert(slot()).get()),
        }
    }

    /// Removes `slot` if it is here, and `condition` holds.
    pub(super) fn remove_if<T>(&mut self, slot: &Arc<Slot>, condition: impl FnOnce() -> Option<T>) -> Option<T> {
        let Self { slots, hasher } = self;
        let hash = hasher.hash_one(&*slot.key);
        let listed = slots.find_entry(hash, |listed| Arc::ptr_eq(listed, slot)).ok()?;
        let met = condition()?;
        listed.remove();
        if slots.is_empty() && slots.capacity() > 1024 {
            slots.shrink_to_fit(|slot| hasher.hash_one(&*slot.key));
        }
        Some(met)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.slots.iter()
    }
}
