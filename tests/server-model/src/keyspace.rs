//! [`Keyspace`]: keys with their values and expiry.

use std::collections::{BTreeMap, VecDeque};

use crate::sorted::SortedSet;

/// Milliseconds since the epoch, the unit of a server's expiry.
pub(crate) type Millis = i64;

#[derive(Default)]
pub(crate) struct Keyspace {
    slots: BTreeMap<Vec<u8>, Slot>,
    /// No key expires before this.
    earliest_end: Option<Millis>,
    /// The keys that were changed since the last [`take_changed`](Self::take_changed).
    changed: Vec<Vec<u8>>,
}

pub(crate) struct Slot {
    pub(crate) value: Value,
    /// The last millisecond in which the key exists.
    end: Option<Millis>,
}

pub(crate) enum Value {
    Text(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Sorted(SortedSet),
}

impl Slot {
    pub(crate) fn end(&self) -> Option<Millis> {
        self.end
    }

    /// Whether the key has expired; in its last millisecond it still exists.
    pub(crate) fn is_over(&self, now: Millis) -> bool {
        self.end.is_some_and(|end| now > end)
    }
}

impl Keyspace {
    /// Removes the expired keys. Called once per command, so that during a script a key either exists all the time or not
    /// at all.
    pub(crate) fn expire(&mut self, now: Millis) {
        if self.earliest_end.is_some_and(|end| now > end) {
            let changed = &mut self.changed;
            self.slots.retain(|key, slot| {
                let is_over = slot.is_over(now);
                changed.extend(is_over.then(|| key.clone()));
                !is_over
            });
            self.earliest_end = self.slots.values().filter_map(Slot::end).min();
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Slot> {
        self.slots.get(key)
    }

    pub(crate) fn value_mut(&mut self, key: &[u8]) -> Option<&mut Value> {
        self.changed.push(key.to_vec());
        self.slots.get_mut(key).map(|slot| &mut slot.value)
    }

    pub(crate) fn set(&mut self, key: &[u8], value: Value, end: Option<Millis>) {
        self.changed.push(key.to_vec());
        self.slots.insert(key.to_vec(), Slot { value, end });
        self.note(end);
    }

    /// Sets the expiry of an existing key.
    pub(crate) fn set_end(&mut self, key: &[u8], end: Millis) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.end = Some(end);
            self.changed.push(key.to_vec());
            self.note(Some(end));
        }
    }

    /// Removes the expiry of a key. Returns whether it had one.
    pub(crate) fn persist(&mut self, key: &[u8]) -> bool {
        let had_end = self.slots.get_mut(key).is_some_and(|slot| slot.end.take().is_some());
        self.changed.extend(had_end.then(|| key.to_vec()));
        had_end
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let was_there = self.slots.remove(key).is_some();
        self.changed.extend(was_there.then(|| key.to_vec()));
        was_there
    }

    /// The keys that were changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All entries, sorted by key.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (&[u8], &Slot)> {
        self.slots.iter().map(|(key, slot)| (key.as_slice(), slot))
    }

    fn note(&mut self, end: Option<Millis>) {
        self.earliest_end = match (self.earliest_end, end) {
            (Some(earliest), Some(end)) => Some(earliest.min(end)),
            (earliest, end) => earliest.or(end),
        };
    }
}
