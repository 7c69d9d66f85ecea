//! Medians and spreads.

/// Several measurements of one thing, one per round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In ascending order.
    pub(crate) fn values(&self) -> &[f64] {
        &self.0
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    /// Between the two nearest values. The median of an even number of values lies between the middle ones.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index among measurements"
    )]
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let at = part * self.0.len().saturating_sub(1) as f64;
        let (low, high) = (at.floor() as usize, at.ceil() as usize);
        match (self.0.get(low), self.0.get(high)) {
            (Some(low), Some(high)) => low + (high - low) * at.fract(),
            _ => f64::NAN,
        }
    }
}

/// Jain's index: 1 when all got the same, 1/n when one got everything.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (float(shares.len()) * squares)
}

/// Counts are far below the 2⁵³ from which this would lose digits.
#[expect(clippy::cast_precision_loss, reason = "counts of things that were done one by one")]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert!((Sample::new([4.0, 1.0, 3.0, 2.0]).median() - 2.5).abs() < 1e-9);
    }

    #[test]
    fn jain_is_one_for_equal_shares_and_one_nth_for_a_monopoly() {
        assert!((jain(&[3.0, 3.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[5.0, 0.0]) - 0.5).abs() < 1e-9);
    }
}
