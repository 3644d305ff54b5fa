//! The defects at work: a [`Meddler`] between the sessions and their counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use super::defect::{Defect, DefectKind, Diffusion};
use crate::tracker::{Entry, Meddler, Outcome, Sessions, Snapshot};

/// Between the two halves of a torn snapshot.
const TEAR: Duration = Duration::from_millis(20);

/// The defects of a server. Loud by design: [`Self::strikes`] belongs in its log and metrics.
#[derive(Debug)]
pub struct Defects {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    defects: Vec<(DefectKind, Diffusion)>,
    /// Sessions that ended and were not counted, by number: further ends of them are nothing.
    withheld: BTreeSet<u64>,
    /// Ends to be counted later, by due time (unix microseconds) and session number.
    late: BTreeMap<(u64, u64), (Arc<Entry>, Outcome)>,
}

/// What becomes of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Counted,
    CountedTwice,
    Withheld,
    Late(Duration),
}

impl Defects {
    /// Of the listed kinds; of a kind that is listed twice the last holds.
    pub fn new(defects: &[Defect]) -> Arc<Self> {
        let mut by_name: BTreeMap<&str, Defect> = BTreeMap::new();
        by_name.extend(defects.iter().map(|defect| (defect.kind.name(), *defect)));
        let defects = by_name.into_values().map(|defect| (defect.kind, Diffusion::new(defect))).collect();
        Arc::new(Self { state: Mutex::new(State { defects, withheld: BTreeSet::new(), late: BTreeMap::new() }) })
    }

    /// How often each kind that is switched on has struck, by name.
    pub fn strikes(&self) -> BTreeMap<String, u64> {
        self.state.lock().defects.iter().map(|(kind, diffusion)| (kind.name().to_owned(), diffusion.strikes())).collect()
    }

    /// A snapshot as this server gives it. For a torn one `pause` must let the given time pass while sessions go on.
    pub fn snapshot(&self, sessions: &Sessions, pause: impl FnOnce(Duration)) -> Snapshot {
        let torn = self.state.lock().strikes(|kind| kind == DefectKind::TornSnapshot).is_some();
        let gauges = sessions.snapshot();
        if !torn {
            return gauges;
        }
        pause(TEAR);
        let ended = sessions.snapshot().ended;
        Snapshot { ended, exact: true, active_interval: (gauges.active, gauges.active), ..gauges }
    }
}

impl State {
    /// One event that qualifies for the kinds so chosen; the first of them that strikes.
    fn strikes(&mut self, qualifies: impl Fn(DefectKind) -> bool) -> Option<DefectKind> {
        self.defects.iter_mut().filter(|(kind, _)| qualifies(*kind)).find_map(|(kind, diffusion)| diffusion.strike().then_some(*kind))
    }

    fn fate(&mut self, outcome: Outcome) -> Fate {
        let struck = self.strikes(|kind| match kind {
            DefectKind::Ghost | DefectKind::LateDecrement { .. } => outcome == Outcome::Cancelled,
            DefectKind::ForgetOnTimeout => outcome == Outcome::TimedOut,
            DefectKind::DoubleDecrement => true,
            DefectKind::DecrementOnReject | DefectKind::TornSnapshot => false,
        });
        match struck {
            Some(DefectKind::Ghost | DefectKind::ForgetOnTimeout) => Fate::Withheld,
            Some(DefectKind::LateDecrement { after }) => Fate::Late(after),
            Some(DefectKind::DoubleDecrement) => Fate::CountedTwice,
            Some(DefectKind::DecrementOnReject | DefectKind::TornSnapshot) | None => Fate::Counted,
        }
    }

    fn settle(&mut self, sessions: &Sessions) {
        let now = sessions.unix_us();
        while let Some(first) = self.late.first_entry().filter(|first| first.key().0 <= now) {
            let ((due, number), (entry, outcome)) = first.remove_entry();
            self.withheld.remove(&number);
            sessions.count_end(&entry, outcome, due);
        }
    }
}

impl Meddler for Defects {
    fn end(&self, sessions: &Sessions, entry: &Arc<Entry>, outcome: Outcome) -> bool {
        // Held to the end, so that of two racing ends of one session only the first meets its fate.
        let mut state = self.state.lock();
        state.settle(sessions);
        if state.withheld.contains(&entry.number()) {
            return false;
        }
        let now = sessions.unix_us();
        let Some(phase) = entry.phase() else {
            return sessions.count_end(entry, outcome, now);
        };
        match state.fate(outcome) {
            Fate::Counted => sessions.count_end(entry, outcome, now),
            Fate::CountedTwice => {
                let counted = sessions.count_end(entry, outcome, now);
                sessions.count_false_end(entry, phase, Outcome::Cancelled);
                counted
            }
            Fate::Withheld => state.withheld.insert(entry.number()),
            Fate::Late(after) => {
                let due = now.saturating_add(after.as_micros() as u64);
                state.late.insert((due, entry.number()), (Arc::clone(entry), outcome));
                state.withheld.insert(entry.number())
            }
        }
    }

    fn refused(&self, sessions: &Sessions, client_ref: &str) {
        if self.state.lock().strikes(|kind| kind == DefectKind::DecrementOnReject).is_some() {
            sessions.count_false_end_of_refused(client_ref, Outcome::Cancelled);
        }
    }

    fn settle(&self, sessions: &Sessions) {
        self.state.lock().settle(sessions);
    }
}
