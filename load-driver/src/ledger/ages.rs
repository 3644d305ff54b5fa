//! How old ghosts get: for how long a session had been over, by what the driver knows, while its backend still counted it.
//!
//! Ages are known where the backend lists its ends by name, and of sessions that are over for longer than their windows. The others are told
//! as a number only.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use proto::ids::PlanIndex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::book::BootIndex;

/// Ages are kept in milliseconds, up to a month.
const LONGEST_MS: u64 = 31 * 24 * 3_600_000;

/// Ages of ghosts, at three moments of their lives.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GhostAges {
    /// When a look first showed them, beyond their windows: every ghost is one sample.
    pub seen: Ages,
    /// When the backend counted their ends after all.
    pub gone: Ages,
    /// When their process was gone.
    pub gone_with_process: Ages,
    /// At the last look, of those that it still showed.
    pub still: Ages,
}

/// Some ages, seconds. Quantiles are none without samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Ages {
    pub count: u64,
    pub p50_s: Option<f64>,
    pub p95_s: Option<f64>,
    pub max_s: Option<f64>,
    /// In bins that double: up to so many seconds, and how many since the bin before.
    pub bins: Vec<(f64, u64)>,
}

impl Ages {
    fn of(ages: Option<&Histogram<u64>>) -> Self {
        let Some(ages) = ages.filter(|ages| !ages.is_empty()) else { return Self::default() };
        let seconds = |ms: u64| ms.min(ages.max()) as f64 / 1e3;
        let mut bins: Vec<(f64, u64)> = Vec::new();
        for age in ages.iter_recorded() {
            let mut up_to_s = 1.0;
            while seconds(ages.lowest_equivalent(age.value_iterated_to())) > up_to_s {
                up_to_s *= 2.0;
            }
            match bins.last_mut() {
                Some((last, n)) if *last >= up_to_s => *n += age.count_at_value(),
                _ => bins.push((up_to_s, age.count_at_value())),
            }
        }
        let quantile = |q| Some(seconds(ages.value_at_quantile(q)));
        Self { count: ages.len(), p50_s: quantile(0.5), p95_s: quantile(0.95), max_s: quantile(1.0), bins }
    }
}

/// A histogram that is made with its first sample.
#[derive(Debug, Default)]
struct Samples(Option<Histogram<u64>>);

impl Samples {
    fn add(&mut self, age_us: u64) {
        if self.0.is_none() {
            // The bounds are constants that the library takes: without a histogram there are no ages, never a panic.
            self.0 = Histogram::new_with_bounds(1, LONGEST_MS, 2).ok();
        }
        if let Some(ages) = &mut self.0 {
            ages.saturating_record((age_us / 1_000).max(1));
        }
    }
}

/// A session that is over and still counted.
#[derive(Debug, Clone, Copy)]
struct Ghost {
    boot: BootIndex,
    /// When it was over.
    end_us: u64,
    /// The last look that showed it.
    shown_us: u64,
}

/// Those that are known to be there, and the ages of all that ever were. No larger than the book, which keeps its ghosts as well.
#[derive(Debug, Default)]
pub(super) struct GhostBook {
    there: BTreeMap<PlanIndex, Ghost>,
    seen: Samples,
    gone: Samples,
    gone_with_process: Samples,
}

impl GhostBook {
    /// There is one of this process.
    pub(super) fn any(&self, boot: BootIndex) -> bool {
        self.there.values().any(|ghost| ghost.boot == boot)
    }

    /// A look at this moment showed these sessions of a process, each with the time of its end; whatever else was there is there no more.
    /// `counted_us`: when its end was counted.
    pub(super) fn look(
        &mut self,
        boot: BootIndex,
        at_us: u64,
        shown: &BTreeMap<PlanIndex, u64>,
        counted_us: impl Fn(PlanIndex) -> Option<u64>,
    ) {
        for (index, end_us) in shown {
            let ghost = self.there.entry(*index).or_insert_with(|| {
                self.seen.add(at_us.saturating_sub(*end_us));
                Ghost { boot, end_us: *end_us, shown_us: at_us }
            });
            ghost.shown_us = at_us;
        }
        for (index, ghost) in self.there.extract_if(.., |index, ghost| ghost.boot == boot && !shown.contains_key(index)) {
            self.gone.add(counted_us(index).unwrap_or(at_us).saturating_sub(ghost.end_us));
        }
    }

    /// The process was gone at this moment.
    pub(super) fn process_gone(&mut self, boot: BootIndex, at_us: u64) {
        for (_, ghost) in self.there.extract_if(.., |_, ghost| ghost.boot == boot) {
            self.gone_with_process.add(at_us.saturating_sub(ghost.end_us));
        }
    }

    /// As of the last look.
    pub(super) fn ages(&self) -> GhostAges {
        let mut still = Samples::default();
        for ghost in self.there.values() {
            still.add(ghost.shown_us.saturating_sub(ghost.end_us));
        }
        GhostAges {
            seen: Ages::of(self.seen.0.as_ref()),
            gone: Ages::of(self.gone.0.as_ref()),
            gone_with_process: Ages::of(self.gone_with_process.0.as_ref()),
            still: Ages::of(still.0.as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn each_ghost_is_one_age_when_it_is_seen_and_one_when_it_goes() {
        let mut book = GhostBook::default();
        let shown = |ids: &[u64]| ids.iter().map(|id| (PlanIndex(*id), id * SECOND)).collect::<BTreeMap<_, _>>();
        book.look(0, 10 * SECOND, &shown(&[1, 2, 3]), |_| None);
        book.look(0, 20 * SECOND, &shown(&[1, 2, 3, 4]), |_| None);
        book.look(1, 21 * SECOND, &BTreeMap::from([(PlanIndex(9), 9 * SECOND)]), |_| None);
        book.look(0, 30 * SECOND, &shown(&[1, 2]), |index| (index == PlanIndex(3)).then_some(28 * SECOND));
        book.process_gone(1, 40 * SECOND);
        assert!(book.any(0) && !book.any(1));
        let ages = book.ages();
        assert_eq!((ages.seen.count, ages.gone.count, ages.gone_with_process.count, ages.still.count), (5, 2, 1, 2));
        let near = |is: Option<f64>, due: f64| assert!(is.is_some_and(|s| (s - due).abs() <= due / 100.0), "{is:?}, not {due}");
        near(ages.seen.max_s, 16.0);
        near(ages.gone.max_s, 26.0);
        near(ages.gone_with_process.max_s, 31.0);
        near(ages.still.max_s, 29.0);
        assert_eq!(ages.seen.bins.iter().map(|(_, n)| n).sum::<u64>(), 5);
        assert_eq!(ages.seen.bins, [(8.0, 2), (16.0, 3)]);
    }

    #[test]
    fn without_ghosts_there_is_nothing() {
        let mut book = GhostBook::default();
        book.look(0, SECOND, &BTreeMap::new(), |_| None);
        assert_eq!(book.ages(), GhostAges::default());
    }
}
