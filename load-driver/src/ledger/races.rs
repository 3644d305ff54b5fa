//! Sessions that the driver cut, and that the backend says it had ended by itself in that very moment.
//!
//! One such end proves nothing: news crosses on the way. It takes that both fall into the same fraction of a second, so among cuts at any time it is seldom;
//! a backend that puts its ends down wrongly, or dates them before they were, has it all the time. Where the plan itself makes both fall together (a race, a
//! scenario that expects timeouts) they are not counted at all.

use std::collections::BTreeMap;

use proto::frame::Outcome;
use serde::{Deserialize, Serialize};

use super::{finding::Names, look::Last, reconcile::Faults, session::Session};

/// So many of anything that happens by chance prove nothing, whatever share they are.
pub(super) const FEW: u64 = 3;
/// One in so many of the sessions that were cut may have ended so by chance: news takes hundredths of a second, and cuts come once in a session.
const ONE_IN: u64 = 20;
/// Ages are told apart by so much. A deadline of the backend's strikes all sessions at one age, give or take the time that news takes.
const AGE_US: u64 = 100_000;

/// By backend.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Races(BTreeMap<usize, Ends>);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Ends {
    /// All sessions that were cut and have an end record.
    cut: u64,
    /// Of those: as if the backend had ended them in that moment.
    crossed: u64,
    /// By scenario, and by age in steps of [`AGE_US`].
    ages: BTreeMap<u16, BTreeMap<u64, u64>>,
    /// Under another outcome than the cut's.
    wrong: Names,
    pairs: BTreeMap<String, u64>,
    /// Under the cut's outcome, before the cut.
    early: Names,
}

impl Races {
    /// The driver cut a session of this backend, and its end was counted once.
    pub(super) fn cut(&mut self, backend: usize) {
        self.0.entry(backend).or_default().cut += 1;
    }

    /// It was counted as if the backend had ended it by itself in that moment. `expected`: the outcome of the cut, where it was counted under another.
    pub(super) fn crossed(&mut self, backend: usize, session: &Session, expected: Option<&str>) {
        let ends = self.0.entry(backend).or_default();
        ends.crossed += 1;
        let (from_us, to_us) = (session.accepted.as_ref().map_or(0, |a| a.at_us), session.record.map_or(0, |record| record.at_us));
        *ends.ages.entry(session.scenario).or_default().entry(to_us.saturating_sub(from_us) / AGE_US).or_default() += 1;
        match expected {
            Some(expected) => {
                ends.wrong.push(session.name());
                *ends.pairs.entry(pair(session, expected)).or_default() += 1;
            }
            None => ends.early.push(session.name()),
        }
    }
}

/// Expected and counted outcome, in words.
pub(super) fn pair(session: &Session, expected: &str) -> String {
    let got = session.record.and_then(|record| record.outcome).map_or("an unknown outcome", Outcome::name);
    format!("{expected} counted as {got}")
}

impl Ends {
    fn by_chance(&self) -> bool {
        self.crossed <= FEW || self.crossed.saturating_mul(ONE_IN) <= self.cut
    }

    /// Three in four had the same age as the others of their scenario.
    fn at_one_age(&self) -> bool {
        let near = |ages: &BTreeMap<u64, u64>, age: u64| ages.range(age..=age.saturating_add(2)).map(|(_, n)| *n).sum::<u64>();
        let most = |ages: &BTreeMap<u64, u64>| ages.keys().map(|age| near(ages, *age)).max().unwrap_or(0);
        4 * self.ages.values().map(most).sum::<u64>() >= 3 * self.crossed
    }
}

/// What is no chance is wrong; what a deadline may have done that the plan did not tell of is not proven.
pub(super) fn conclude(faults: &mut Faults, out: &mut Last) {
    for (backend, ends) in std::mem::take(&mut faults.races).0 {
        if ends.by_chance() {
            continue;
        }
        if ends.at_one_age() {
            let Ends { crossed, cut, .. } = ends;
            out.unverified.push(format!(
                "backend {backend}: {crossed} of {cut} sessions that the driver cut were counted as if the backend had ended them in that moment, at one age: a deadline of its own (then say `expect: timed_out`, or give them other lengths), or ends that it puts down wrongly"
            ));
            continue;
        }
        faults.wrong = faults.wrong.and(&ends.wrong);
        for (pair, n) in ends.pairs {
            *faults.wrong_pairs.entry(pair).or_default() += n;
        }
        faults.early = faults.early.and(&ends.early);
    }
}
