//! [`Slots`]: slots by their keys and modes.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;

use super::RandomState;
use crate::local::slot::Slot;
use crate::share::{Share, SharedLeases};

/// Slots by their keys, one for each mode. A slot knows its key, so a key in use takes one word here.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: HashTable<Arc<Slot>>,
    hasher: RandomState,
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn get(&self, key: &str, share: Option<Share>) -> Option<&Arc<Slot>> {
        self.slots.find(self.hasher.hash_one(key), |slot| slot.is_for(key, share))
    }

    /// The slots of one key, one for each mode.
    pub(super) fn of_key(&self, key: &str) -> impl Iterator<Item = &Arc<Slot>> {
        self.slots.iter_hash(self.hasher.hash_one(key)).filter(move |slot| *slot.key == *key)
    }

    /// The slot of a key in this mode. If there is none, adds a `new` one, which counts its leases together with the key's other slots.
    pub(super) fn get_or_add(
        &mut self,
        key: &str,
        share: Option<Share>,
        new: impl FnOnce(Option<SharedLeases>) -> Slot,
    ) -> Arc<Slot> {
        let Self { slots, hasher } = self;
        let hash = hasher.hash_one(key);
        if let Some(slot) = slots.find(hash, |slot| slot.is_for(key, share)) {
            return Arc::clone(slot);
        }
        let of_others = || slots.iter_hash(hash).filter(|slot| *slot.key == *key).find_map(|slot| slot.leases.clone());
        let leases = share.map(|_| of_others().unwrap_or_default());
        let added = slots.insert_unique(hash, Arc::new(new(leases)), |slot| hasher.hash_one(&*slot.key));
        Arc::clone(added.get())
    }

    /// Removes `slot` if it is here, and the `condition` holds.
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
