//! What the book counts of dials without keeping them: refusals, and how fast workers dial.

use std::collections::{BTreeMap, VecDeque};

use super::{
    entry::{FailureCause, LedgerEntry, LedgerEvent},
    merge::{SourceId, WorkerLoss},
    session::Session,
};

/// Spans of which the fullest is kept, shortest first.
const SPANS_US: [u64; 3] = [100_000, 1_000_000, 10_000_000];

/// Of all dials.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// By backend.
    refusals: BTreeMap<Option<usize>, Refusals>,
    /// By worker.
    paces: BTreeMap<u32, Pace>,
}

/// Dials that came to nothing, and are not in doubt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Refusals {
    /// Who was dialled said that it takes no more.
    pub(super) sure: u64,
    /// Who was dialled may have counted it as a refusal, or not.
    pub(super) possible: u64,
    /// The last of the sure, on the driver's clock.
    pub(super) last_us: u64,
}

/// How many dials a worker made, at most, in a span of time.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pace {
    recent: VecDeque<u64>,
    most: [u64; SPANS_US.len()],
}

impl Tally {
    /// A step of this session, before the book takes it in.
    pub(super) fn see(&mut self, source: SourceId, entry: &LedgerEntry, session: Option<&Session>) {
        match entry.event {
            LedgerEvent::Attempted { .. } => self.paces.entry(source.worker).or_default().dial(entry.at_us),
            LedgerEvent::Failed { cause } | LedgerEvent::Retried { cause } => {
                if let Some(session) = session.filter(|session| session.dialling())
                    && may_be_refusal(cause)
                {
                    let refusals = self.refusals.entry(session.backend()).or_default();
                    refusals.possible += 1;
                    if cause == FailureCause::Rejected {
                        refusals.sure += 1;
                        refusals.last_us = entry.at_us;
                    }
                }
            }
            _ => {}
        }
    }

    /// Of the backend; without one: of all. What a front refuses may be its own word.
    pub(super) fn refusals(&self, backend: Option<usize>) -> Refusals {
        let here = |at: Option<usize>| backend.is_none() || at.is_none() || at == backend;
        let all = self.refusals.iter().filter(|(at, _)| here(**at));
        all.fold(Refusals::default(), |sum, (at, one)| Refusals {
            sure: sum.sure + if at.is_some() { one.sure } else { 0 },
            possible: sum.possible + one.possible,
            last_us: sum.last_us.max(one.last_us),
        })
    }

    /// How many sessions a worker that is gone can have begun without a word of it; none where nothing tells.
    pub(super) fn untold(&self, loss: &WorkerLoss) -> Option<u64> {
        let Some(known_us) = loss.known_to_us.values().copied().min() else { return Some(0) };
        let span_us = loss.at_us.saturating_sub(known_us);
        if span_us == 0 {
            return Some(0);
        }
        let pace = self.paces.get(&loss.worker)?;
        let at = SPANS_US.iter().position(|span| *span >= span_us).unwrap_or(SPANS_US.len() - 1);
        // Twice its fastest: that it was never faster is likely and not certain.
        Some((2 * pace.most[at]).saturating_mul(span_us.div_ceil(SPANS_US[at])) + 1)
    }
}

impl Pace {
    fn dial(&mut self, at_us: u64) {
        self.recent.push_back(at_us);
        let longest = SPANS_US[SPANS_US.len() - 1];
        while self.recent.front().is_some_and(|first| first.saturating_add(longest) < at_us) {
            self.recent.pop_front();
        }
        for (most, span) in self.most.iter_mut().zip(SPANS_US) {
            let from = self.recent.partition_point(|at| at.saturating_add(span) < at_us);
            *most = (*most).max((self.recent.len() - from) as u64);
        }
    }
}

/// What was dialled may have counted a dial that came to nothing so as a refusal. Dials in doubt the book keeps.
const fn may_be_refusal(cause: FailureCause) -> bool {
    use FailureCause::{ConnectTimeout, Draining, NotAnAgent, NotFound, Rejected, Unauthorized};
    matches!(cause, Rejected | Draining | Unauthorized | NotFound | NotAnAgent | ConnectTimeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_can_have_begun_untold_follows_its_pace() {
        let mut tally = Tally::default();
        let loss =
            |untold_us: u64| WorkerLoss { worker: 1, at_us: 60_000_000 + untold_us, planned: true, known_to_us: [(0, 60_000_000)].into() };
        assert_eq!((tally.untold(&loss(0)), tally.untold(&loss(50_000))), (Some(0), None));
        // Ten at once, then one every half second.
        let pace = tally.paces.entry(1).or_default();
        (0..10).for_each(|n| pace.dial(n));
        assert_eq!(pace.most, [10, 10, 10]);
        (2..120).for_each(|n| pace.dial(n * 500_000));
        assert_eq!(pace.most, [10, 11, 29]);
        assert!(pace.recent.len() <= 21, "{}", pace.recent.len());
        assert_eq!([50_000, 900_000, 5_000_000, 25_000_000].map(|us| tally.untold(&loss(us))), [21, 23, 59, 175].map(Some));
        let told = WorkerLoss { known_to_us: BTreeMap::new(), ..loss(9) };
        assert_eq!(tally.untold(&told), Some(0));
    }
}
