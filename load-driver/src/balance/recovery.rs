//! How long it takes until sessions lie evenly again after a disturbance.
//!
//! A disturbance upsets the balance at two moments: when it happens, and when a backend comes into the fleet after it (a kill is felt when
//! the backend is back, empty). Only what is uneven at the first look at one of these moments is its doing; sessions that run out unevenly at the
//! end of a run are not.

use std::time::Duration;

use proto::time::Micros;

/// Even enough.
pub(super) const EVEN: f64 = 0.95;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No look since.
    Unseen,
    /// It has not upset the balance, so far.
    Even,
    /// It has.
    Upset,
    /// And that is over, so long after the disturbance.
    Recovered(Duration),
}

/// Watches the balance after each disturbance.
#[derive(Debug)]
pub(super) struct Recoveries {
    /// In order of time.
    all: Vec<(Micros, State)>,
    /// Of those: how many have been seen.
    seen: usize,
    /// Of the seen ones: some are upset.
    upset: bool,
}

impl Recoveries {
    pub(super) fn new(mut disturbances: Vec<Micros>) -> Self {
        disturbances.sort_unstable();
        disturbances.dedup();
        Self { all: disturbances.into_iter().map(|at| (at, State::Unseen)).collect(), seen: 0, upset: false }
    }

    /// A look: Jain's index of sessions, whether there are sessions at all, and whether a backend is new in the fleet since the last look.
    pub(super) fn look(&mut self, at: Micros, jain: f64, idle: bool, joined: bool) {
        let before = self.seen;
        while self.all.get(self.seen).is_some_and(|(disturbed, _)| *disturbed <= at) {
            self.all[self.seen].1 = State::Even;
            self.seen += 1;
        }
        let even = jain > EVEN;
        if !even {
            // The new ones; else, what comes in belongs to the last disturbance before it.
            let from = if joined && self.seen == before { self.seen.saturating_sub(1) } else { before };
            for (_, state) in &mut self.all[from..self.seen] {
                if *state == State::Even {
                    (*state, self.upset) = (State::Upset, true);
                }
            }
        } else if self.upset && !idle {
            for (disturbed, state) in &mut self.all[..self.seen] {
                if *state == State::Upset {
                    *state = State::Recovered(at.since(*disturbed));
                }
            }
            self.upset = false;
        }
    }

    /// The longest recovery, none without a disturbance or when one was never recovered from; and how many were not.
    pub(super) fn close(&self, at: Micros) -> (Option<Duration>, u64) {
        let (mut longest, mut unrecovered) = (None, 0);
        for (_, state) in self.all.iter().filter(|(disturbed, _)| *disturbed <= at) {
            match state {
                // Nobody looked: that it was well is not known.
                State::Unseen | State::Upset => unrecovered += 1,
                State::Even => longest = longest.max(Some(Duration::ZERO)),
                State::Recovered(took) => longest = longest.max(Some(*took)),
            }
        }
        (longest.filter(|_| unrecovered == 0), unrecovered)
    }
}
