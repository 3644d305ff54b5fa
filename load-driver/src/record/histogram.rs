//! The one place that says how latencies are binned, clamped, merged and read.
//!
//! # Range
//! Values are microseconds from 0 to [`LIMIT_US`] with 3 significant digits. The limit is 2^30 us, 17 min 53 s: above every wait that a
//! run can contain on purpose (a session queued behind an overloaded backend, a half-open peer that an idle timeout of minutes must
//! find), so that a clamped sample always means that something is wrong. Histograms grow on demand, so the wide range costs only those
//! that need it: 16 KiB up to 2 ms, 88 KiB up to 1 s, 136 KiB up to 1 min, 168 KiB at the limit.
//!
//! # Clamping
//! A sample at or above the limit is recorded *at* the limit. The limit is the lower edge of a bin, so that this bin holds clamped
//! samples and nothing else: [`clamped`] reads their number from any histogram, however often it was merged or sent.
//!
//! # Quantiles
//! [`quantile`] of `q` over `n` samples is `HdrHistogram`'s `value_at_quantile`: take the sample of rank `max(1, ceil(q * n))` in ascending
//! order, and return the *upper* edge of its bin, the highest value that 3 digits cannot tell from it. No interpolation. A quantile is
//! thus one of the samples, rounded up by less than 0.1 %, and exact below 2,048 us; [`max`] is rounded the same way, [`min`] down.
//! It follows that quantiles are monotone in `q`, and never above the maximum.

use hdrhistogram::Histogram;

/// Samples from here on are clamped to this value, microseconds.
pub const LIMIT_US: u64 = 1 << 30;

const SIGNIFICANT_DIGITS: u8 = 3;

/// An empty histogram that grows on demand.
pub fn empty() -> Histogram<u64> {
    sized(2)
}

/// An empty histogram with room up to `high` microseconds, which grows on demand.
pub fn sized(high: u64) -> Histogram<u64> {
    let mut histogram = with_bounds(high.clamp(2, LIMIT_US));
    histogram.auto(true);
    histogram
}

/// An empty histogram with the whole range, for formats that want every histogram alike.
pub fn full_range() -> Histogram<u64> {
    with_bounds(LIMIT_US)
}

fn with_bounds(high: u64) -> Histogram<u64> {
    // Infallible: low is 1, high is at least 2, 3 digits are representable.
    Histogram::new_with_bounds(1, high, SIGNIFICANT_DIGITS).expect("constant bounds are valid")
}

/// Records a value; true when it had to be clamped.
#[inline]
pub fn record(histogram: &mut Histogram<u64>, value_us: u64) -> bool {
    let clamp = value_us >= LIMIT_US;
    let stored = histogram.record(value_us.min(LIMIT_US)).is_ok();
    // A histogram that grows stores everything; one that came from elsewhere with a lower bound would count it as clamped.
    clamp || !stored
}

/// Adds all samples of `from`.
pub fn merge(into: &mut Histogram<u64>, from: &Histogram<u64>) {
    // Only a histogram that may not grow can refuse, and then it takes what it can hold at its bound.
    if into.add(from).is_err() {
        let high = into.high();
        for step in from.iter_recorded() {
            into.saturating_record_n(step.value_iterated_to().min(high), step.count_at_value());
        }
    }
}

/// Samples that were clamped.
pub fn clamped(histogram: &Histogram<u64>) -> u64 {
    if !histogram.is_empty() && histogram.max() >= LIMIT_US { histogram.count_at(LIMIT_US) } else { 0 }
}

/// Value at quantile `q` in 0..=1, microseconds, as the module says; none without samples.
pub fn quantile(histogram: &Histogram<u64>, q: f64) -> Option<u64> {
    (!histogram.is_empty()).then(|| histogram.value_at_quantile(q.clamp(0.0, 1.0)).min(histogram.max()))
}

/// Highest sample, rounded up; none without samples.
pub fn max(histogram: &Histogram<u64>) -> Option<u64> {
    (!histogram.is_empty()).then(|| histogram.max())
}

/// Lowest sample, rounded down; none without samples.
pub fn min(histogram: &Histogram<u64>) -> Option<u64> {
    (!histogram.is_empty()).then(|| histogram.min())
}

/// Mean of the bins' middles, microseconds; none without samples.
pub fn mean(histogram: &Histogram<u64>) -> Option<f64> {
    (!histogram.is_empty()).then(|| histogram.mean())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Histogram<u64> {
        let mut histogram = empty();
        for value in values {
            record(&mut histogram, *value);
        }
        histogram
    }

    /// artillery 415: what a percentile means must be written down and must not move.
    #[test]
    fn golden_quantiles() {
        // Ranks by hand: n = 10; p50 -> ceil(5) = 5th, p90 -> 9th, p91 -> ceil(9.1) = 10th, p99 -> 10th, p10 -> 1st, p10.1 -> 2nd.
        let ten = of(&[100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000]);
        for (q, expected) in
            [(0.0, 100), (0.1, 100), (0.101, 200), (0.5, 500), (0.51, 600), (0.9, 900), (0.91, 1_000), (0.99, 1_000), (1.0, 1_000)]
        {
            assert_eq!(quantile(&ten, q), Some(expected), "q = {q}");
        }
        // Above 2,047 us bins are wider than 1: 300,000 lies in 2^18..2^19, where a bin is 256 us wide: 299,776..=300,031.
        let wide = of(&[300_000]);
        assert_eq!((min(&wide), quantile(&wide, 0.5), max(&wide)), (Some(299_776), Some(300_031), Some(300_031)));
    }

    /// wrk2 138/90/117, k6 6200: no NaN, no infinity on nothing or next to nothing.
    #[test]
    fn nothing_has_no_quantiles_and_one_sample_is_all_of_them() {
        let nothing = empty();
        assert_eq!((quantile(&nothing, 0.99), min(&nothing), max(&nothing)), (None, None, None));
        assert!(mean(&nothing).is_none());
        let zero = of(&[0]);
        assert_eq!((quantile(&zero, 0.0), quantile(&zero, 0.99), max(&zero)), (Some(0), Some(0), Some(0)));
        let one = of(&[7]);
        assert_eq!((quantile(&one, 0.0), quantile(&one, 1.0)), (Some(7), Some(7)));
    }

    /// `HdrHistogram_rust` 135/72: an outlier neither panics nor vanishes.
    #[test]
    fn outliers_are_clamped_and_counted() {
        let values = of(&[LIMIT_US - 1, LIMIT_US, u64::MAX, 5]);
        assert_eq!(clamped(&values), 2);
        assert_eq!(values.len(), 4);
        assert_eq!(clamped(&of(&[5])), 0);
        assert_eq!(clamped(&of(&[LIMIT_US - 1])), 0, "a value within the range shares no bin with clamped ones");
        let mut merged = empty();
        merge(&mut merged, &values);
        merge(&mut merged, &values);
        assert_eq!(clamped(&merged), 4, "clamped samples survive a merge");
    }

    #[test]
    fn a_narrow_histogram_takes_a_wide_one_without_loss_of_count() {
        let mut narrow = Histogram::<u64>::new_with_bounds(1, 1_000, 3).unwrap();
        merge(&mut narrow, &of(&[500, 90_000_000]));
        assert_eq!(narrow.len(), 2);
    }

    proptest! {
        /// locust 331/777/1563: a percentile above the maximum.
        #[test]
        fn quantiles_are_monotone_and_never_above_max(
            values in prop::collection::vec(0..2 * LIMIT_US, 1..200), mut qs in prop::collection::vec(0.0..=1.0f64, 2..20)
        ) {
            let histogram = of(&values);
            qs.sort_by(f64::total_cmp);
            let read: Vec<u64> = qs.iter().map(|q| quantile(&histogram, *q).unwrap()).collect();
            prop_assert!(read.windows(2).all(|pair| pair[0] <= pair[1]));
            prop_assert!(*read.last().unwrap() <= max(&histogram).unwrap());
            prop_assert!(min(&histogram).unwrap() <= read[0]);
        }

        #[test]
        fn a_quantile_is_the_ranked_sample_within_a_thousandth(
            mut values in prop::collection::vec(1..LIMIT_US, 1..200), q in 0.0..=1.0f64
        ) {
            let read = quantile(&of(&values), q).unwrap();
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let spread = exact / 1_000 + 1;
            prop_assert!(read >= exact.saturating_sub(spread) && read <= exact + spread, "{read} for {exact}");
        }
    }
}
