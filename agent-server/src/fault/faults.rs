//! The faults at work: which session, hang-up or refusal each strikes, and how often it came about.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;

use super::{
    kind::{Fault, FaultKind},
    rate::Diffusion,
};

/// What goes wrong in one session, decided when it begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionFates(u16);

impl SessionFates {
    /// Of these kinds.
    pub fn of(kinds: impl IntoIterator<Item = FaultKind>) -> Self {
        Self(kinds.into_iter().fold(0, |bits, kind| bits | (1 << kind as u16)))
    }

    /// This goes wrong.
    pub const fn has(self, kind: FaultKind) -> bool {
        self.0 & (1 << kind as u16) != 0
    }

    /// Nothing goes wrong.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The faults of a server. Loud by design: [`Self::strikes`] belongs in its log and metrics.
#[derive(Debug)]
pub struct Faults {
    /// None where no fault is switched on: then nothing here takes a lock.
    state: Option<Mutex<Vec<Switched>>>,
}

#[derive(Debug)]
struct Switched {
    fault: Fault,
    chosen: Diffusion,
    /// How often it came about; a session that was chosen may end before.
    strikes: u64,
}

impl Faults {
    /// Of the listed kinds; of a kind that is listed twice the last holds.
    pub fn new(faults: &[Fault]) -> Self {
        let by_kind: BTreeMap<FaultKind, Fault> = faults.iter().map(|fault| (fault.kind, *fault)).collect();
        let switched = |fault: Fault| Switched { fault, chosen: Diffusion::new(fault.rate), strikes: 0 };
        let all: Vec<Switched> = by_kind.into_values().map(switched).collect();
        Self { state: (!all.is_empty()).then(|| Mutex::new(all)) }
    }

    /// What goes wrong in a session that begins now.
    pub fn of_session(&self) -> SessionFates {
        let Some(state) = &self.state else { return SessionFates::default() };
        let mut all = state.lock();
        let mine = all.iter_mut().filter(|one| one.fault.kind.is_of_a_session());
        SessionFates::of(mine.filter_map(|one| one.chosen.strike().then_some(one.fault.kind)))
    }

    /// A peer hung up: how long its session lives on.
    pub fn of_hangup(&self) -> Option<Duration> {
        self.struck(FaultKind::GhostAfterHangup).map(|fault| fault.afterlife)
    }

    /// One event that is about this kind alone; it comes about at once.
    pub fn struck(&self, kind: FaultKind) -> Option<Fault> {
        let mut all = self.state.as_ref()?.lock();
        let one = all.iter_mut().find(|one| one.fault.kind == kind)?;
        let struck = one.chosen.strike();
        one.strikes += u64::from(struck);
        struck.then_some(one.fault)
    }

    /// This kind is switched on.
    pub fn on(&self, kind: FaultKind) -> bool {
        self.state.as_ref().is_some_and(|state| state.lock().iter().any(|one| one.fault.kind == kind))
    }

    /// A fault that was decided before came about.
    pub fn came_about(&self, kind: FaultKind) {
        let Some(state) = &self.state else { return };
        if let Some(one) = state.lock().iter_mut().find(|one| one.fault.kind == kind) {
            one.strikes += 1;
        }
    }

    /// How often each kind that is switched on came about, by name.
    pub fn strikes(&self) -> BTreeMap<String, u64> {
        let Some(state) = &self.state else { return BTreeMap::new() };
        state.lock().iter().map(|one| (one.fault.kind.name().to_owned(), one.strikes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_sessions_is_chosen_and_what_came_about_is_counted() {
        let faults = Faults::new(&["output_gaps=0.5".parse().unwrap(), "no_turn_end".parse().unwrap()]);
        let chosen: Vec<_> = (0..4).map(|_| faults.of_session()).collect();
        assert_eq!(chosen.iter().map(|one| one.has(FaultKind::OutputGaps)).collect::<Vec<_>>(), [true, false, true, false]);
        assert!(chosen.iter().all(|one| one.has(FaultKind::NoTurnEnd) && !one.has(FaultKind::VadDrop)));
        faults.came_about(FaultKind::OutputGaps);
        faults.came_about(FaultKind::VadDrop);
        assert_eq!(faults.strikes(), BTreeMap::from([("no_turn_end".to_owned(), 0), ("output_gaps".to_owned(), 1)]));
    }

    #[test]
    fn a_hangup_is_struck_by_its_own_kind_alone() {
        let faults = Faults::new(&["ghost_after_hangup=0.5:3s".parse().unwrap()]);
        assert_eq!([faults.of_hangup(), faults.of_hangup(), faults.of_hangup()].map(|d| d.map(|d| d.as_secs())), [Some(3), None, Some(3)]);
        assert!(faults.of_session().is_empty());
        assert_eq!(faults.strikes()["ghost_after_hangup"], 2);
        assert!(Faults::new(&[]).of_hangup().is_none());
    }
}
