//! The hash slots of a cluster: the slot of a key, and a text that puts a channel into the same slot.

use std::sync::OnceLock;

pub(crate) const SLOTS: u16 = 16_384;

/// The hash slot of a key. No key has braces, so all of it is hashed.
pub(crate) fn slot_of(key: &str) -> u16 {
    key.bytes().fold(0, checksum) % SLOTS
}

/// The checksum (CRC-16/XMODEM, as in the specification of Redis Cluster) after one more byte.
fn checksum(before: u16, byte: u8) -> u16 {
    let mixed = (before >> 8) ^ u16::from(byte);
    let mixed = mixed ^ (mixed >> 4);
    (before << 8) ^ (mixed << 12) ^ (mixed << 5) ^ mixed
}

/// The text in the braces of a slot's sharded channels: the smallest number whose decimal digits hash to the slot.
///
/// There is a channel per slot, not per key, so a process never has more channels than there are slots and need not unsubscribe.
pub(crate) fn tag_of(slot: u16) -> u32 {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    TAGS.get_or_init(all_tags).get(usize::from(slot)).copied().unwrap_or_default()
}

fn all_tags() -> Vec<u32> {
    let mut tags: Vec<Option<u32>> = vec![None; usize::from(SLOTS)];
    let mut missing = tags.len();
    for number in 0.. {
        let tag = tags.get_mut(usize::from(checksum_of(number) % SLOTS));
        if let Some(tag) = tag.filter(|tag| tag.is_none()) {
            *tag = Some(number);
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    tags.into_iter().flatten().collect()
}

/// The checksum of a number's decimal digits.
fn checksum_of(number: u32) -> u16 {
    let before = if number < 10 { 0 } else { checksum_of(number / 10) };
    let digit = u8::try_from(number % 10).unwrap_or_default();
    checksum(before, b'0' + digit)
}

/// A node of a cluster: the first 64 of the 160 random bits in the node's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeId(u64);

impl NodeId {
    /// Reads the node's name: 40 hex digits.
    pub fn read(name: &str) -> Option<Self> {
        let is_name = name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let first = name.get(..16).filter(|_| is_name)?;
        u64::from_str_radix(first, 16).ok().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of("123456789"), 0x31C3);
        assert_eq!(slot_of("foo"), 12_182);
        // The slot that `CLUSTER KEYSLOT` of Redis 7.0 returns.
        assert_eq!(slot_of("cache_lock:seckill:Größe-7"), 542);
    }

    #[test]
    fn each_slot_has_a_tag_of_its_own_that_is_in_it() {
        let slots = (0..SLOTS).map(|slot| slot_of(&tag_of(slot).to_string()));
        assert!(slots.eq(0..SLOTS));
        assert!((0..SLOTS).map(tag_of).max().unwrap() < 1_000_000);
        // No smaller number than its own is in the slot.
        assert_eq!([0, 1, 9].map(|number: u32| tag_of(slot_of(&number.to_string()))), [0, 1, 9]);
    }
}
