//! A reconnect storm as the backends felt it: how many dials came at once, and how long it took until everybody was back.

use std::collections::BTreeMap;

use crate::engine::event::StormStep;

/// Width of the window in which dials are counted.
const SECOND_US: u64 = 1_000_000;
/// Steps of one storm that are kept; what comes after them is in none of its figures but the counts.
const MOST: usize = 4_000_000;

/// One storm.
#[derive(Debug, Default)]
pub(super) struct Storm {
    dials: Vec<u64>,
    /// Ends of dials.
    answers: Vec<u64>,
    first_cut_us: Option<u64>,
    last_back_us: u64,
    back: u64,
    failed: u64,
    given_up: u64,
}

impl Storm {
    pub(super) fn add(&mut self, steps: &[(u64, StormStep)]) {
        for (at_us, step) in steps {
            match step {
                StormStep::Cut => self.first_cut_us = Some(self.first_cut_us.map_or(*at_us, |first| first.min(*at_us))),
                StormStep::Dials if self.dials.len() < MOST => self.dials.push(*at_us),
                StormStep::Dials => {}
                StormStep::Fails => self.failed += 1,
                StormStep::Back => {
                    self.back += 1;
                    self.last_back_us = self.last_back_us.max(*at_us);
                }
                StormStep::GivenUp => self.given_up += 1,
            }
            if matches!(step, StormStep::Fails | StormStep::Back | StormStep::GivenUp) && self.answers.len() < MOST {
                self.answers.push(*at_us);
            }
        }
    }

    /// For the row of the fault.
    pub(super) fn figures(&self) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::from([
            ("peak_dials_per_s", self.peak_rate() as f64),
            ("peak_dialling", self.peak_dialling() as f64),
            ("came_back", self.back as f64),
            ("dials_failed", self.failed as f64),
            ("gave_up", self.given_up as f64),
        ]);
        if let Some(cut_us) = self.first_cut_us.filter(|_| self.back > 0) {
            figures.insert("all_back_after_s", self.last_back_us.saturating_sub(cut_us) as f64 / 1e6);
        }
        figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Most dials within any one second.
    fn peak_rate(&self) -> usize {
        let mut dials = self.dials.clone();
        dials.sort_unstable();
        let mut from = 0;
        let mut peak = 0;
        for (at, dial) in dials.iter().enumerate() {
            while dials.get(from).is_some_and(|first| dial - first >= SECOND_US) {
                from += 1;
            }
            peak = peak.max(at + 1 - from);
        }
        peak
    }

    /// Most dials under way at once. A dial that is answered when another begins is no longer under way.
    fn peak_dialling(&self) -> u64 {
        let mut steps: Vec<(u64, i64)> = self.answers.iter().map(|at| (*at, -1)).chain(self.dials.iter().map(|at| (*at, 1))).collect();
        steps.sort_unstable();
        let mut under_way = 0_i64;
        let peak = steps.into_iter().map(|(_, step)| {
            // Who gives up without a dial ends none.
            under_way = (under_way + step).max(0);
            under_way
        });
        peak.max().unwrap_or(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_that_of_any_second_and_dials_that_are_over_do_not_add_up() {
        let mut storm = Storm::default();
        let ms = |ms: u64| ms * 1_000;
        // Two shards, each in its own order of time: 30 dials, one each 50 ms, each answered after 120 ms.
        for shard in [0, 1] {
            let mut steps: Vec<(u64, StormStep)> = (0..30)
                .filter(|n| n % 2 == shard)
                .flat_map(|n| [(ms(n * 50), StormStep::Cut), (ms(1_000 + n * 50), StormStep::Dials), (ms(1_120 + n * 50), StormStep::Back)])
                .collect();
            steps.sort_by_key(|(at, _)| *at);
            storm.add(&steps);
        }
        let of = |name: &str| storm.figures()[name];
        assert_eq!((of("peak_dials_per_s"), of("peak_dialling"), of("came_back")), (20.0, 3.0, 30.0));
        assert!((of("all_back_after_s") - 2.57).abs() < 1e-9);
        assert_eq!((of("dials_failed"), of("gave_up")), (0.0, 0.0));
    }

    #[test]
    fn who_fails_and_gives_up_is_counted_and_nothing_is_made_of_nothing() {
        let mut storm = Storm::default();
        assert_eq!(storm.figures().get("all_back_after_s"), None);
        storm.add(&[
            (5, StormStep::GivenUp),
            (10, StormStep::Dials),
            (20, StormStep::Fails),
            (30, StormStep::Dials),
            (40, StormStep::GivenUp),
        ]);
        let figures = storm.figures();
        assert_eq!((figures["peak_dialling"], figures["dials_failed"], figures["gave_up"]), (1.0, 1.0, 2.0));
        assert_eq!(figures.get("all_back_after_s"), None);
    }
}
