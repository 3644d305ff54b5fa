//! How far a count of live sessions was off, with its sign, over time.
//!
//! What a count may show is an interval: from the sessions that were surely live to all that may have been. Within it nothing is known. What lies
//! outside of it is *certain*, and the difference at least so large; so is what is known by name: sessions whose ends the backend did not count
//! within their windows, ends that it counted twice, sessions that it never added. Where name and count differ, the count has the last word,
//! for that is what a balancer sees.
//!
//! Between two looks that both showed a difference it was at least the smaller one all the time. A look that no other one bears out takes no
//! time, and neither does a pause in which nobody looked.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::truth::DriftSum;

/// More points become half as many, each twice as wide.
const MAX_POINTS: usize = 600;

/// What one look proves, in sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Off {
    /// Counted, and over.
    pub(super) over: u64,
    /// Live, and not counted, by number.
    pub(super) under: u64,
}

impl Off {
    /// Counted less live.
    pub(super) fn net(self) -> i64 {
        signed(self.over) - signed(self.under)
    }

    /// What the count itself says beyond what is known by name: the difference is `least` at least and `most` at most.
    pub(super) fn beyond(self, least: i64, most: i64) -> Self {
        let net = self.net();
        Self { over: least.saturating_sub(net).max(0) as u64, under: net.saturating_sub(most).max(0) as u64 }
    }

    /// By name, and beyond it. What the count denies of the names is taken off them.
    pub(super) fn and(self, beyond: Self) -> Self {
        let (more, fewer) = (beyond.over, beyond.under);
        let (over, under) = (self.over.saturating_sub(fewer), self.under.saturating_sub(more));
        Self { over: over + more.saturating_sub(self.under), under: under + fewer.saturating_sub(self.over) }
    }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// How far the count of one source was off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DriftRow {
    /// Whose count: `backend 0`, or the name of a source of sums.
    pub source: String,
    /// Looks that could show a difference.
    pub looks: u64,
    /// The highest difference, counted less live; 0 when it was never above.
    pub most: i64,
    /// The lowest; 0 when it was never below.
    pub least: i64,
    /// Session-seconds that were counted for sessions that were over.
    pub ghost_seconds: f64,
    /// Session-seconds that were not counted for sessions that lived.
    pub false_capacity_seconds: f64,
    /// Run time at which the first difference was seen, seconds; none without one.
    pub began_s: Option<f64>,
    /// When the last one was seen to be gone, or its process was; none while it lasts, and without one.
    pub ended_s: Option<f64>,
    /// How often one began.
    pub episodes: u64,
    /// It lasts.
    pub lasts: bool,
    /// Seconds that a point covers.
    pub width_s: u64,
    /// In order of time; where there is none, nothing was off.
    pub points: Vec<DriftPoint>,
}

impl DriftRow {
    /// Of a run whose start was so much earlier.
    #[must_use]
    pub fn later_by(mut self, by_s: f64) -> Self {
        self.began_s = self.began_s.map(|at| at + by_s);
        self.ended_s = self.ended_s.map(|at| at + by_s);
        for point in &mut self.points {
            point.at_s += by_s as u64;
        }
        self
    }
}

/// The difference in a part of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriftPoint {
    /// Start, seconds of run time.
    pub at_s: u64,
    /// Highest of the looks that showed one.
    pub most: i64,
    /// Lowest of them.
    pub least: i64,
}

/// Of one source.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Drift {
    looks: u64,
    last: Option<(u64, Off)>,
    most: i64,
    least: i64,
    over_us: u128,
    under_us: u128,
    began_us: Option<u64>,
    ended_us: Option<u64>,
    episodes: u64,
    width_s: u64,
    /// Lowest and highest by number of the point.
    points: BTreeMap<u64, (i64, i64)>,
}

impl Drift {
    /// A look at this time (unix) showed so much. `start_us`: of the run. What is longer than `pause_us` after the look before is a pause.
    pub(super) fn look(&mut self, at_us: u64, off: Off, start_us: u64, pause_us: u64) {
        self.looks += 1;
        let was = self.last.replace((at_us, off));
        let none = Off::default();
        if let Some((from_us, before)) = was {
            let took_us = at_us.saturating_sub(from_us);
            let took_us = u128::from(if took_us > pause_us { 0 } else { took_us });
            self.over_us += took_us * u128::from(before.over.min(off.over));
            self.under_us += took_us * u128::from(before.under.min(off.under));
        }
        let was_off = was.is_some_and(|(_, before)| before != none);
        if off == none {
            if was_off {
                self.ended_us = Some(at_us);
            }
            return;
        }
        if !was_off {
            self.episodes += 1;
            self.ended_us = None;
            self.began_us.get_or_insert(at_us);
        }
        let net = off.net();
        (self.most, self.least) = (self.most.max(net), self.least.min(net));
        self.put(at_us.saturating_sub(start_us) / 1_000_000, (net, net));
    }

    /// The process is gone, and its count with it.
    pub(super) fn restart(&mut self, at_us: u64) {
        if self.last.take().is_some_and(|(_, off)| off != Off::default()) {
            self.ended_us = Some(at_us);
        }
    }

    fn put(&mut self, at_s: u64, (least, most): (i64, i64)) {
        self.width_s = self.width_s.max(1);
        let joined = |old: &mut (i64, i64)| *old = (old.0.min(least), old.1.max(most));
        self.points.entry(at_s / self.width_s).and_modify(joined).or_insert((least, most));
        while self.points.len() > MAX_POINTS {
            let narrow = self.width_s;
            self.width_s *= 2;
            for (number, values) in std::mem::take(&mut self.points) {
                self.put(number * narrow, values);
            }
        }
    }

    /// Adds its figures to those of other counts.
    pub(super) fn add_to(&self, sum: &mut DriftSum) {
        sum.looks += self.looks;
        sum.ghost_seconds += self.over_us as f64 / 1e6;
        sum.false_capacity_seconds += self.under_us as f64 / 1e6;
        sum.most = sum.most.max(self.most.unsigned_abs()).max(self.least.unsigned_abs());
    }

    /// As the results tell it.
    pub(super) fn row(&self, source: String, start_us: u64) -> DriftRow {
        let seconds = |us: u128| us as f64 / 1e6;
        let run_time = |us: u64| us.saturating_sub(start_us) as f64 / 1e6;
        let lasts = self.last.is_some_and(|(_, off)| off != Off::default());
        DriftRow {
            source,
            looks: self.looks,
            most: self.most,
            least: self.least,
            ghost_seconds: seconds(self.over_us),
            false_capacity_seconds: seconds(self.under_us),
            began_s: self.began_us.map(run_time),
            ended_s: self.ended_us.filter(|_| !lasts).map(run_time),
            episodes: self.episodes,
            lasts,
            width_s: self.width_s.max(1),
            points: self
                .points
                .iter()
                .map(|(number, (least, most))| DriftPoint { at_s: number * self.width_s, most: *most, least: *least })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn off(over: u64, under: u64) -> Off {
        Off { over, under }
    }

    fn of(looks: &[(u64, u64, u64)]) -> DriftRow {
        let mut drift = Drift::default();
        for (at_s, over, under) in looks {
            drift.look(at_s * SECOND, off(*over, *under), 0, 2 * SECOND);
        }
        drift.row("backend 0".to_owned(), 0)
    }

    #[test]
    fn the_sign_the_peaks_and_the_time_are_kept() {
        let row = of(&[(1, 0, 0), (2, 3, 0), (3, 5, 0), (4, 0, 0), (5, 0, 2), (6, 0, 2), (7, 0, 0)]);
        assert_eq!((row.most, row.least, row.episodes, row.looks), (5, -2, 2, 7));
        assert_eq!((row.ghost_seconds, row.false_capacity_seconds), (3.0, 2.0), "the smaller of two looks");
        assert_eq!((row.began_s, row.ended_s, row.lasts), (Some(2.0), Some(7.0), false));
        assert_eq!(row.points.iter().map(|p| (p.at_s, p.most)).collect::<Vec<_>>(), [(2, 3), (3, 5), (5, -2), (6, -2)]);
    }

    #[test]
    fn one_look_alone_and_a_pause_take_no_time() {
        let row = of(&[(1, 0, 0), (2, 9, 0), (3, 0, 0)]);
        assert_eq!((row.most, row.ghost_seconds), (9, 0.0));
        let row = of(&[(1, 4, 0), (2, 4, 0), (60, 4, 0), (61, 4, 0)]);
        assert_eq!((row.ghost_seconds, row.lasts, row.ended_s, row.episodes), (8.0, true, None, 1));
    }

    #[test]
    fn a_process_takes_its_drift_with_it() {
        let mut drift = Drift::default();
        for at in 1..=3 {
            drift.look(at * SECOND, off(2, 0), 0, 2 * SECOND);
        }
        drift.restart(4 * SECOND);
        drift.look(5 * SECOND, off(0, 0), 0, 2 * SECOND);
        let row = drift.row(String::new(), 0);
        assert_eq!((row.ghost_seconds, row.ended_s, row.lasts), (4.0, Some(4.0), false));
    }

    #[test]
    fn eight_hours_of_drift_take_a_bounded_number_of_points() {
        let mut drift = Drift::default();
        for at in 0..8 * 3_600 {
            drift.look(at * SECOND, off(1 + at / 3_600, 0), 0, 2 * SECOND);
        }
        let row = drift.row(String::new(), 0);
        assert!(row.points.len() <= MAX_POINTS && row.points.len() > MAX_POINTS / 3, "{}", row.points.len());
        assert_eq!((row.most, row.points.last().unwrap().most, row.points[0].most), (8, 8, 1));
        assert!(row.points.windows(2).all(|pair| pair[0].at_s + row.width_s == pair[1].at_s));
    }

    proptest! {
        /// Names and count together are within what the count leaves open, and no more is claimed than needed.
        #[test]
        fn the_count_has_the_last_word(over in 0..50_u64, under in 0..50_u64, least in -60..60_i64, width in 0..30_i64) {
            let most = least + width;
            let named = off(over, under);
            let all = named.and(named.beyond(least, most));
            prop_assert_eq!(all.net(), named.net().clamp(least, most));
            if (least..=most).contains(&named.net()) {
                prop_assert_eq!(all, named);
            }
        }
    }
}
