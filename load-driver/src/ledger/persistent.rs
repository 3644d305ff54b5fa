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

#[cfg(test)]
mod tests {
    use super::*;

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
