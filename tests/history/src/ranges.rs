//! Arithmetic with ranges of time.

/// The first instant is included, the second is not.
pub(crate) type Range = (u64, u64);

/// The intersection of two ranges.
pub(crate) fn shared(one: Range, other: Range) -> Option<Range> {
    let both = (one.0.max(other.0), one.1.min(other.1));
    (both.0 < both.1).then_some(both)
}

/// The parts of `whole` outside of `holes`.
pub(crate) fn without(whole: Range, holes: impl IntoIterator<Item = Range>) -> Vec<Range> {
    let mut holes: Vec<Range> = holes.into_iter().filter_map(|hole| shared(whole, hole)).collect();
    holes.sort_unstable();
    let mut left = Vec::new();
    let mut from = whole.0;
    for (start, end) in holes {
        if from < start {
            left.push((from, start));
        }
        from = from.max(end);
    }
    if from < whole.1 {
        left.push((from, whole.1));
    }
    left
}

/// How much of `whole` is covered by `parts`.
pub(crate) fn covered(whole: Range, parts: impl IntoIterator<Item = Range>) -> u64 {
    let left: u64 = without(whole, parts).iter().map(|part| part.1 - part.0).sum();
    whole.1.saturating_sub(whole.0) - left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_cut_out_where_they_overlap_too() {
        assert_eq!(without((0, 10), [(2, 4), (3, 6), (9, 20)]), [(0, 2), (6, 9)]);
        assert_eq!(without((0, 10), [(0, 10)]), []);
        assert_eq!(covered((0, 10), [(2, 4), (3, 6), (9, 20)]), 5);
    }
}
