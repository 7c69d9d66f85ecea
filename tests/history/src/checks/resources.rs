//! C9: all resources are released.

use super::{Bounds, Violation};
use crate::claims::History;
use crate::event::What;

/// Every count is the same before and after the work.
#[must_use]
pub fn all_is_released(history: &History, _: &Bounds) -> Vec<Violation> {
    let left = history.events.iter().filter_map(|event| match &event.what {
        What::Left { thing, before, after } if after > before => Some(Violation {
            check: "",
            text: format!("{} has {after} {thing} after its work, {before} before", event.process),
            key: None,
            range: (event.t, event.t),
        }),
        _ => None,
    });
    left.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[test]
    fn what_is_left_is_found() {
        let left = |after| {
            let what = What::Left { thing: "threads".into(), before: 2, after };
            Sample::default().and(1, "a", what).finds(all_is_released)
        };
        assert_eq!(left(2), 0);
        assert_eq!(left(3), 1);
    }
}
