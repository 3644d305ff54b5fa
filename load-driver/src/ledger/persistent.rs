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
const OFTEN: u64 = 4;

/// A difference that goes and comes again: each time for too short to last, and too often for a slip.
#[derive(Debug, Default)]
pub(super) struct Recurrent {
    looks: u64,
    odd: u64,
    /// The least of them.
    least: u64,
}

impl Recurrent {
    /// A look showed so much; `telling`: it could have shown any.
    pub(super) fn push(&mut self, size: u64, telling: bool) {
        self.looks += u64::from(telling);
        if size > 0 {
            self.least = if self.odd == 0 { size } else { self.least.min(size) };
            self.odd += 1;
        }
    }

    /// What came again and again.
    pub(super) fn size(&self) -> u64 {
        if self.odd >= OFTEN && self.odd * ONE_IN >= self.looks { self.least } else { 0 }
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
        // Four slips in a long run.
        (0..100).for_each(|_| again.push(0, true));
        assert_eq!(again.size(), 0);
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
