//! A backend's numbers as sums, and what it says wrongly in them.

use proto::frame::Outcome;

use super::{World, server::Server};
use crate::counters::{Counts, Shows};

/// What a backend that counts rightly says wrongly in its sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger::tests) enum Lie {
    /// No end is in `ended`.
    NoEnds,
    /// One in ten is not.
    FewerEnds,
    /// None of this outcome is.
    NoEndsAs(Outcome),
    /// None is until then.
    EndsLate(u64),
    /// Each is from its start on.
    EndsEarly,
    /// Goodbyes are twice.
    GoodbyesTwice,
    /// Goodbyes are cancellations.
    GoodbyesAsCancelled,
    /// Refusals are failures.
    RefusalsAsEnds,
    /// `rejected` so many times.
    Rejected(u64),
    /// `started` twice.
    StartedTwice,
    /// Less in `active`, always.
    Below(i64),
    /// Nothing moves in this time, and `active` is 0.
    FrozenAtZero(u64, u64),
    /// `active` is 0 for so many of 2500 ms, as long as sessions come.
    ZeroFor(u64),
}

impl World {
    pub(super) fn lied(&self, server: &mut Server, mut counts: Counts, at_ms: u64) -> Counts {
        let none = |counts: &mut Counts| {
            counts.ended = counts.ended.map(|_| 0);
            counts.outcomes.values_mut().for_each(|n| *n = 0);
        };
        let ended_as = |outcome: Outcome| server.ended.get(outcome.name()).copied().unwrap_or(0);
        let mut change = |outcome: Outcome, by: &dyn Fn(u64) -> u64| {
            if let Some(n) = counts.outcomes.get_mut(&outcome) {
                let was = *n;
                *n = by(was);
                counts.ended = counts.ended.map(|ended| ended - was + *n);
            }
        };
        match self.lie {
            Some(Lie::NoEnds) => none(&mut counts),
            Some(Lie::FewerEnds) => counts.ended = counts.ended.map(|n| n * 9 / 10),
            Some(Lie::NoEndsAs(outcome)) => change(outcome, &|_| 0),
            Some(Lie::EndsLate(until_ms)) if at_ms < until_ms => none(&mut counts),
            Some(Lie::EndsEarly) => counts.ended = Some(server.started + self.others),
            Some(Lie::GoodbyesTwice) => change(Outcome::Completed, &|n| 2 * n),
            Some(Lie::GoodbyesAsCancelled) => {
                let goodbyes = ended_as(Outcome::Completed);
                change(Outcome::Completed, &|_| 0);
                change(Outcome::Cancelled, &|n| n + goodbyes);
            }
            Some(Lie::RefusalsAsEnds) => change(Outcome::Failed, &|n| n + server.rejected),
            Some(Lie::Rejected(times)) => counts.rejected = counts.rejected.map(|n| n * times),
            Some(Lie::StartedTwice) => counts.started = counts.started.map(|n| 2 * n),
            Some(Lie::Below(by)) => counts.active -= by,
            Some(Lie::FrozenAtZero(from_ms, to_ms)) if (from_ms..to_ms).contains(&at_ms) => {
                let frozen = server.frozen.get_or_insert(counts).clone();
                counts = Counts { active: 0, ..frozen };
            }
            Some(Lie::ZeroFor(ms)) if at_ms % 2_500 < ms => counts.active = 0,
            None | Some(Lie::EndsLate(_) | Lie::FrozenAtZero(..) | Lie::ZeroFor(_)) => {}
        }
        counts
    }

    pub(super) fn sums_of(&self, server: &Server, active: i64, shows: &Shows) -> Counts {
        let ended = |outcome: &Outcome| (*outcome, server.ended.get(outcome.name()).copied().unwrap_or(0));
        Counts {
            active,
            started: shows.started.then_some(server.started + self.others),
            ended: shows.ended.then(|| server.ended.values().sum()),
            outcomes: shows.outcomes.iter().map(ended).collect(),
            rejected: shows.rejected.then_some(server.rejected),
            boot: shows.boot.then(|| server.boot.to_string()),
            ..Counts::default()
        }
    }
}
