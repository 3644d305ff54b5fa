//! The defects at work: a [`Meddler`] between the sessions and their counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    defect::{Defect, DefectKind},
    fates::{Fate, Fates},
    faults::Faults,
    kind::FaultKind,
};
use crate::tracker::{Entry, Meddler, Outcome, Sessions, Snapshot};

/// Between the two halves of a torn snapshot.
const TEAR: Duration = Duration::from_millis(20);

/// The defects of a server. Loud by design: [`Self::strikes`] belongs in its log and metrics.
#[derive(Debug)]
pub struct Defects {
    state: Mutex<State>,
    /// Of these, those that are about places: sessions are counted right, and the cap is kept wrong.
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct State {
    fates: Fates,
    /// Sessions that ended and were not counted, by number: further ends of them are nothing.
    withheld: BTreeSet<u64>,
    /// Ends to be counted later, by due time (unix microseconds) and session number.
    late: BTreeMap<(u64, u64), (Arc<Entry>, Outcome)>,
}

impl Defects {
    /// Of the listed kinds; of a kind that is listed twice the last holds.
    pub fn new(defects: &[Defect]) -> Arc<Self> {
        Self::with_faults(defects, Arc::new(Faults::new(&[])))
    }

    /// As [`Self::new`], with the faults that are about places.
    pub fn with_faults(defects: &[Defect], faults: Arc<Faults>) -> Arc<Self> {
        let state = State { fates: Fates::new(defects), withheld: BTreeSet::new(), late: BTreeMap::new() };
        Arc::new(Self { state: Mutex::new(state), faults })
    }

    /// How often each kind that is switched on has struck, by name.
    pub fn strikes(&self) -> BTreeMap<String, u64> {
        self.state.lock().fates.strikes().map(|(kind, strikes)| (kind.name().to_owned(), strikes)).collect()
    }

    /// A snapshot as this server gives it. For a torn one `pause` must let the given time pass while sessions go on.
    pub fn snapshot(&self, sessions: &Sessions, pause: impl FnOnce(Duration)) -> Snapshot {
        let torn = self.state.lock().fates.struck(DefectKind::TornSnapshot);
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
        match state.fates.of_end(outcome) {
            Fate::Counted => {
                let counted = sessions.count_end(entry, outcome, now);
                if counted && outcome == Outcome::Cancelled && self.faults.struck(FaultKind::PoolLeak).is_some() {
                    sessions.lose_place();
                }
                counted
            }
            Fate::CountedTwice => {
                let counted = sessions.count_end(entry, outcome, now);
                sessions.count_false_end(entry, phase, Outcome::Cancelled);
                counted
            }
            Fate::Undone => {
                let counted = sessions.count_end(entry, outcome, now);
                if counted {
                    sessions.count_false_return(entry);
                }
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
        if self.state.lock().fates.struck(DefectKind::DecrementOnReject) {
            sessions.count_false_end_of_refused(client_ref, Outcome::Cancelled);
        }
    }

    fn races(&self) -> bool {
        self.faults.on(FaultKind::AdmissionRace)
    }

    fn lets_in(&self) -> bool {
        self.faults.struck(FaultKind::AdmissionRace).is_some()
    }

    fn settle(&self, sessions: &Sessions) {
        self.state.lock().settle(sessions);
    }
}
