//! A difference that lasts: what a single look shows may be the time that news takes.

use std::collections::VecDeque;

/// Differences of the looks in a row that showed one.
#[derive(Debug, Default)]
pub(super) struct Persistent {
    pub(super) recent: VecDeque<(u64, u64)>,
    /// The most that lasted.
    pub(super) most: u64,
}

impl Persistent {
    /// A look at this moment showed so much; `span_us` is how long it must last.
    pub(super) fn push(&mut self, at_us: u64, size: u64, span_us: u64) {
        if size == 0 {
            self.recent.clear();
            return;
        }
        self.recent.push_back((at_us, size));
        // One that is old enough stays.
        while self.recent.len() > 2 && self.recent.get(1).is_some_and(|(at, _)| at.saturating_add(span_us) <= at_us) {
            self.recent.pop_front();
        }
        self.most = self.most.max(self.lasting(span_us));
    }

    /// What has lasted up to the last look.
    pub(super) fn lasting(&self, span_us: u64) -> u64 {
        match (self.recent.front(), self.recent.back()) {
            (Some((from, _)), Some((to, _))) if self.recent.len() > 1 && to.saturating_sub(*from) >= span_us => {
                self.recent.iter().map(|(_, size)| *size).min().unwrap_or(0)
            }
            _ => 0,
        }
    }
}

/// Of looks that could show a difference one in so many does, at least.
const ONE_IN: u64 = 25;
/// And so many do.
const OFTEN: usize = 4;
/// An average is one of so long at least, microseconds,
const LONG_US: u64 = 10_000_000;
/// and of so many looks.
const MANY: u64 = 50;
/// What an average may be off by, as a share of the count.
const SHARE: u64 = 50;

/// A difference that goes and comes again: each time for too short to last, and too often for a slip.
#[derive(Debug, Default)]
pub(super) struct Recurrent {
    looks: u64,
    odd: u64,
    /// The least of them.
    least: u64,
    /// When it came, in looks, and how much it was, the last few times.
    came: VecDeque<(u64, u64)>,
    /// It was there at the last look.
    there: bool,
    /// The most that came so often in a part of the run.
    most: u64,
}

impl Recurrent {
    /// A look showed so much; `telling`: it could have shown any.
    pub(super) fn push(&mut self, size: u64, telling: bool) {
        self.looks += u64::from(telling);
        if size > 0 {
            self.least = if self.odd == 0 { size } else { self.least.min(size) };
            self.odd += 1;
        }
        let was_there = std::mem::replace(&mut self.there, size > 0);
        if size > 0 && !was_there {
            self.came.push_back((self.looks, size));
            if self.came.len() > OFTEN {
                self.came.pop_front();
            }
            let often = self.came.front().filter(|(from, _)| self.came.len() == OFTEN && self.looks - from < OFTEN as u64 * ONE_IN);
            if often.is_some() {
                self.most = self.most.max(self.came.iter().map(|(_, size)| *size).min().unwrap_or(0));
            }
        }
    }

    /// What came again and again, in all of the run or in a part of it.
    pub(super) fn size(&self) -> u64 {
        let all = if self.odd >= OFTEN as u64 && self.odd * ONE_IN >= self.looks { self.least } else { 0 };
        self.most.max(all)
    }
}

/// What a count lacks on average, over a stretch of the run: the time that news takes evens out, what is missing for good does not.
#[derive(Debug, Default)]
pub(super) struct Average {
    from_us: Option<u64>,
    looks: u64,
    lacks: i128,
    due: u128,
    /// The most of any stretch.
    most: u64,
}

impl Average {
    /// A look that could tell: so many were due, and so many were counted.
    pub(super) fn push(&mut self, at_us: u64, due: u64, counted: i64) {
        let from_us = *self.from_us.get_or_insert(at_us);
        self.looks += 1;
        self.lacks += i128::from(due) - i128::from(counted);
        self.due += u128::from(due);
        if self.looks >= MANY && at_us.saturating_sub(from_us) >= LONG_US {
            let looks = i128::from(self.looks);
            let (lacks, due) = ((self.lacks / looks).max(0) as u64, (self.due / looks as u128) as u64);
            if lacks.saturating_mul(SHARE) >= due {
                self.most = self.most.max(lacks);
            }
            self.restart();
        }
    }

    /// What comes is no part of what was.
    pub(super) fn restart(&mut self) {
        *self = Self { most: self.most, ..Self::default() };
    }

    pub(super) fn size(&self) -> u64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_counts_when_it_is_no_slip() {
        let mut again = Recurrent::default();
        for n in 0..7 {
            again.push(if n % 2 == 0 { 3 + n } else { 0 }, true);
            assert_eq!(again.size(), if n == 6 { 3 } else { 0 });
        }
        // Nothing that comes later makes it undone.
        (0..1_000).for_each(|_| again.push(0, true));
        assert_eq!(again.size(), 3);
        // Slips in a long run, and one that takes a few looks.
        let mut slips = Recurrent::default();
        (0..400).for_each(|n| slips.push(u64::from(n % 35 == 34 || (100..104).contains(&n)), true));
        assert_eq!(slips.size(), 0);
    }

    #[test]
    fn what_is_missing_on_average_is_missing() {
        let over = |seconds: std::ops::Range<u64>, counted: &dyn Fn(u64) -> i64| {
            let mut average = Average::default();
            for look in seconds.start * 10..seconds.end * 10 {
                average.push(look * 100_000, 15, counted(look));
            }
            average.size()
        };
        // As often too many as too few.
        assert_eq!(over(0..60, &|n| if n % 2 == 0 { 11 } else { 19 }), 0);
        assert_eq!(over(0..60, &|_| 14), 1);
        assert_eq!(over(0..60, &|n| if n < 105 { 12 } else { 20 }), 3, "in a part");
        assert_eq!(over(0..9, &|_| 0), 0, "too short to tell");
    }

    #[test]
    fn what_lasts_is_the_least_of_its_time() {
        let mut lasting = Persistent::default();
        for (at, size) in [(0, 4), (1, 9), (2, 5), (3, 6)] {
            lasting.push(at, size, 3);
        }
        assert_eq!((lasting.most, lasting.lasting(3)), (4, 4));
        lasting.push(4, 6, 3);
        assert_eq!(lasting.most, 5);
        lasting.push(5, 0, 3);
        assert_eq!((lasting.most, lasting.lasting(3)), (5, 0));
    }
}
