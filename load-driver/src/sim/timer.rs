//! What happens to backends and balancers, and when.

use std::{cmp::Ordering, collections::BinaryHeap};

use crate::routing::Report;

/// Something that happens.
#[derive(Debug)]
pub(super) enum Happening {
    /// The backends of a model look at their counters.
    Look(usize),
    /// The backends of a model report.
    Report(usize),
    /// Reports are heard after their lag: of these backends, and of which process of each.
    Hear(Vec<(u32, u32, Report)>),
    /// The truth is looked at.
    See,
    /// A backend dies for so long.
    Kill(u32, u64),
    /// Its successor runs.
    Restart(u32),
    /// Balancers notice that this process of a backend is gone.
    Down(u32),
    /// They try to reach it, and wait that long if it is not there.
    Try(u32, u64),
    /// The worker of a scenario dies.
    KillWorker(u16),
    /// An end that this process of a backend counts late; in it, somebody spoke.
    LateEnd(u32, u32, bool),
}

#[derive(Debug)]
struct Entry {
    at: u64,
    number: u64,
    what: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The heap gives the greatest first: that is the earliest, and at one time the one that was set first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// All of it, in order.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Entry>,
    set: u64,
}

impl Timers {
    pub(super) fn set(&mut self, at: u64, what: Happening) {
        self.set += 1;
        self.heap.push(Entry { at, number: self.set, what });
    }

    /// When the next one is.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Happening)> {
        self.heap.pop().map(|entry| (entry.at, entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_at_one_time_the_first_that_was_set() {
        let mut timers = Timers::default();
        for (at, number) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            timers.set(at, Happening::Look(number));
        }
        assert_eq!(timers.next_at(), Some(3));
        let order: Vec<usize> = std::iter::from_fn(|| timers.pop())
            .map(|(_, what)| match what {
                Happening::Look(number) => number,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(order, [1, 3, 0, 2]);
    }
}
