//! C3: a resource that checks fencing tokens loses no write.

use std::collections::BTreeMap;

use super::{Bounds, Violation};
use crate::claims::History;
use crate::event::What;

/// Accepted writes have growing tokens, a rejected write has a smaller token than an earlier accepted one, and the final value
/// counts at least the acknowledged writes, and at most also those whose reply was lost.
#[must_use]
pub fn the_register_loses_nothing(history: &History, _: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut greatest: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut writes: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut violation = |key: &str, range, text| {
        found.push(Violation { check: "", text, key: Some(key.to_owned()), range });
    };
    for event in &history.events {
        match &event.what {
            What::Opened { key, fence, accepted, .. } | What::Wrote { key, fence, accepted, .. } => {
                let last = greatest.entry(key).or_insert((event.t, 0));
                let is_write = matches!(event.what, What::Wrote { .. });
                let (done, unknown) = writes.entry(key).or_default();
                // A process that was killed after it opened the register may have written without recording it.
                if history.killed.contains_key(&event.process) {
                    if is_write {
                        *unknown = unknown.saturating_sub(1);
                    } else {
                        *unknown += u64::from(*accepted == Some(true));
                    }
                }
                match accepted {
                    Some(true) if is_write => *done += 1,
                    None if is_write => *unknown += 1,
                    Some(false) if *fence > last.1 && last.1 > 0 => {
                        // The holder of a greater token may get its reply, and record it, later.
                        let greater = |what: &What| {
                            matches!(what, What::Opened { key: other, fence: theirs, .. }
                                | What::Wrote { key: other, fence: theirs, .. } if other == key && theirs > fence)
                        };
                        if !history.events.iter().any(|other| greater(&other.what)) {
                            let text = format!("{} was refused with the greatest token {fence}", event.process);
                            violation(key, (last.0, event.t), text);
                        }
                    }
                    _ => {}
                }
                if *accepted == Some(true) && *fence > last.1 {
                    *last = (event.t, *fence);
                }
            }
            What::Final { key, value } => {
                let (done, unknown) = writes.get(key.as_str()).copied().unwrap_or_default();
                if !(done..=done + unknown).contains(value) {
                    let text = format!("{done} writes were acknowledged, {unknown} unanswered, and {value} are there");
                    violation(key, (0, event.t), text);
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{KEY, Sample};

    fn wrote(fence: u64, accepted: Option<bool>) -> What {
        What::Wrote { key: KEY.into(), fence, value: 0, accepted }
    }

    fn writes(fates: &[Option<bool>], value: u64) -> usize {
        let mut sample = Sample::default();
        for (at, accepted) in (1..).zip(fates) {
            sample = sample.and(at, "a", wrote(at, *accepted));
        }
        sample.and(99, "a", What::Final { key: KEY.into(), value }).finds(the_register_loses_nothing)
    }

    #[test]
    fn a_lost_or_invented_write_is_found() {
        let (yes, unknown) = (Some(true), None);
        assert_eq!(writes(&[yes, yes], 2), 0);
        assert_eq!(writes(&[yes, yes], 1), 1);
        assert_eq!(writes(&[yes, unknown], 1), 0);
        assert_eq!(writes(&[yes, unknown], 2), 0);
        assert_eq!(writes(&[yes, unknown], 3), 1);
    }

    #[test]
    fn a_write_that_its_process_had_no_time_to_record_may_be_there() {
        let opened = What::Opened { key: KEY.into(), fence: 1, accepted: Some(true), value: Some(0) };
        let finds = |sample: Sample, value| {
            sample.and(99, "b", What::Final { key: KEY.into(), value }).finds(the_register_loses_nothing)
        };
        let sample = Sample::default().and(1, "a", opened);
        assert_eq!(finds(sample.clone(), 1), 1);
        let killed = sample.clone().and(9, "a", What::Killed);
        assert_eq!((finds(killed.clone(), 0), finds(killed.clone(), 1), finds(killed, 2)), (0, 0, 1));
        let noted = sample.and(2, "a", wrote(1, Some(true))).and(9, "a", What::Killed);
        assert_eq!((finds(noted.clone(), 1), finds(noted, 2)), (0, 1));
    }

    #[test]
    fn a_refusal_of_the_greatest_token_is_found() {
        assert_eq!(writes(&[Some(true), Some(false)], 1), 1);
        let stale = Sample::default().and(1, "b", wrote(2, Some(true))).and(2, "a", wrote(1, Some(false)));
        assert_eq!(stale.finds(the_register_loses_nothing), 0);
    }
}
