//! Which defect strikes which event: pure, so that a model of a server can have the same defects as a server.

use std::{collections::BTreeMap, time::Duration};

use super::{
    defect::{Defect, DefectKind},
    rate::Diffusion,
};
use crate::tracker::Outcome;

/// What becomes of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// As it should be.
    Counted,
    /// And once more.
    CountedTwice,
    /// Never.
    Withheld,
    /// So much later.
    Late(Duration),
    /// As it should be, and then the session is there again.
    Undone,
}

/// The defects of a server and how far each has come.
#[derive(Debug, Default)]
pub struct Fates(Vec<(DefectKind, Diffusion)>);

impl Fates {
    /// Of the listed kinds; of a kind that is listed twice the last holds.
    pub fn new(defects: &[Defect]) -> Self {
        let mut by_name: BTreeMap<&str, Defect> = BTreeMap::new();
        by_name.extend(defects.iter().map(|defect| (defect.kind.name(), *defect)));
        Self(by_name.into_values().map(|defect| (defect.kind, Diffusion::new(defect.rate))).collect())
    }

    /// There is one.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// How often each kind has struck.
    pub fn strikes(&self) -> impl Iterator<Item = (DefectKind, u64)> + '_ {
        self.0.iter().map(|(kind, diffusion)| (*kind, diffusion.strikes()))
    }

    /// One event that is about this kind alone: a refused start, a snapshot.
    pub fn struck(&mut self, kind: DefectKind) -> bool {
        self.strike(|other| other == kind).is_some()
    }

    /// What becomes of an end.
    pub fn of_end(&mut self, outcome: Outcome) -> Fate {
        let struck = self.strike(|kind| match kind {
            DefectKind::Ghost | DefectKind::LateDecrement { .. } => outcome == Outcome::Cancelled,
            DefectKind::ForgetOnTimeout => outcome == Outcome::TimedOut,
            DefectKind::DoubleDecrement | DefectKind::Resurrect => true,
            DefectKind::DecrementOnReject | DefectKind::TornSnapshot => false,
        });
        match struck {
            Some(DefectKind::Ghost | DefectKind::ForgetOnTimeout) => Fate::Withheld,
            Some(DefectKind::LateDecrement { after }) => Fate::Late(after),
            Some(DefectKind::DoubleDecrement) => Fate::CountedTwice,
            Some(DefectKind::Resurrect) => Fate::Undone,
            Some(DefectKind::DecrementOnReject | DefectKind::TornSnapshot) | None => Fate::Counted,
        }
    }

    /// One event that qualifies for the kinds so chosen; the first of them that strikes.
    fn strike(&mut self, qualifies: impl Fn(DefectKind) -> bool) -> Option<DefectKind> {
        self.0.iter_mut().filter(|(kind, _)| qualifies(*kind)).find_map(|(kind, diffusion)| diffusion.strike().then_some(*kind))
    }
}
