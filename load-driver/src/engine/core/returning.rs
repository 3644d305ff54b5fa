//! After a storm: sessions that come back by themselves, each after a backoff of its own, and try again when they fail.

use std::{collections::BTreeMap, time::Duration};

use proto::{ids::PlanIndex, time::Micros};

use super::{
    Core, Phase, Slot,
    departing::{Waiting, scheduled},
};
use crate::{
    engine::{agenda::Start, event::StormStep},
    ledger::{FailureCause, LedgerEvent},
    plan::Lane,
};

/// Who failed so often gives up.
const MAX_TRIES: u32 = 16;

/// A session that comes back from a storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Storm {
    /// Its fault.
    pub(super) fault: u16,
    /// Tries before this one.
    pub(super) tries: u32,
}

/// Sessions that wait out their backoff.
#[derive(Default)]
pub(super) struct Returning(BTreeMap<(Micros, PlanIndex), Waiting>);

impl Returning {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn due(&mut self, now: Micros) -> Option<Waiting> {
        let first = self.0.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    fn wait(&mut self, at: Micros, waiting: Waiting) {
        self.0.insert((at, waiting.session.index), waiting);
    }
}

/// From this time on a session of the lane is told to stop.
fn closes(lane: &Lane) -> Micros {
    lane.stop + lane.grace
}

impl Core {
    /// A storm cut the session of this slot. False when nobody comes back from it.
    pub(super) fn come_back(&mut self, slot: &Slot, (fault, left): (u16, Option<Duration>), now: Micros) -> bool {
        self.storm_step(fault, now, StormStep::Cut);
        let plan = slot.caller.plan();
        let wait = self.plan.faults.get(usize::from(fault)).map(|fault| fault.comes_back_after(plan.seed, plan.index.0, 0));
        let at = wait.map(|wait| now + wait).filter(|at| *at < closes(&slot.lane));
        let Some((at, session)) = at.and_then(|at| Some((at, plan.again(at, left)?))) else {
            self.storm_step(fault, now, StormStep::GivenUp);
            return false;
        };
        let storm = Some(Storm { fault, tries: 0 });
        self.returning.wait(at, Waiting { start: Start { at, ..slot.start }, session, refusals: 0, refused_by: None, storm });
        true
    }

    /// Those whose backoff is over are dialled like all others.
    pub(super) fn let_return(&mut self, now: Micros) {
        while let Some(waiting) = self.returning.due(now) {
            if waiting.storm.is_some_and(|storm| storm.tries == 0) {
                self.log(&waiting.session, now, scheduled(waiting.start, &waiting.session));
            }
            self.waiting.push_back(waiting);
        }
    }

    /// When a session that came back and failed tries again, if it does.
    pub(super) fn tries_again_at(
        &self,
        storm: Option<Storm>,
        index: PlanIndex,
        lane: &Lane,
        cause: FailureCause,
        now: Micros,
    ) -> Option<Micros> {
        let storm = storm.filter(|storm| self.phase == Phase::Running && cause != FailureCause::Aborted && storm.tries < MAX_TRIES)?;
        let fault = self.plan.faults.get(usize::from(storm.fault))?;
        Some(now + fault.comes_back_after(self.plan.seed, index.0, storm.tries + 1)).filter(|at| *at < closes(lane))
    }

    /// It does, at this time.
    pub(super) fn try_again(&mut self, mut waiting: Waiting, at: Micros) {
        (waiting.refusals, waiting.refused_by) = (0, None);
        if let Some(storm) = &mut waiting.storm {
            storm.tries += 1;
        }
        self.returning.wait(at, waiting);
    }

    /// Nobody comes back any more.
    pub(super) fn abandon_returning(&mut self, now: Micros) {
        for waiting in std::mem::take(&mut self.returning).0.into_values() {
            let Some(storm) = waiting.storm else { continue };
            self.storm_step(storm.fault, now, StormStep::GivenUp);
            if storm.tries > 0 {
                self.log(&waiting.session, now, LedgerEvent::Failed { cause: FailureCause::Aborted });
            }
        }
    }

    pub(super) fn storm_step(&mut self, fault: u16, now: Micros, step: StormStep) {
        let at_us = self.clock.unix_us(now);
        self.strikes.step(fault, at_us, step);
    }
}
