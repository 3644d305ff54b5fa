//! Faults of the timeline that a shard makes on its own sessions. The plan and the seed say whom they strike, so that nobody has to be told.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use proto::time::Micros;

use super::{Core, Phase, Slot, Ticket, ears::Ears};
use crate::{
    engine::{EngineEvent, event::StormStep},
    ledger::LedgerEvent,
    plan::{EndKind, Fault, FaultKind, Maker, Plan, SessionPlan},
};

/// What a shard has to strike, and what came of it.
#[derive(Debug, Default)]
pub(super) struct Strikes {
    /// Still to come, in order of time.
    coming: VecDeque<Fault>,
    /// Some of them make callers deaf.
    deafens: bool,
    /// Who does not read, and until when.
    deaf: Vec<(Micros, Vec<Ticket>)>,
    /// Not told yet, by fault.
    struck: BTreeMap<u16, u64>,
    steps: BTreeMap<u16, Vec<(u64, StormStep)>>,
}

impl Strikes {
    pub(super) fn new(plan: &Plan) -> Self {
        let coming: VecDeque<Fault> = plan.faults.iter().filter(|fault| fault.kind.name().maker() == Maker::Shards).cloned().collect();
        let deafens = coming.iter().any(|fault| fault.kind == FaultKind::SlowReader);
        Self { coming, deafens, ..Self::default() }
    }

    /// For a new session, where one can be needed.
    pub(super) fn ears(&self) -> Option<Rc<Ears>> {
        self.deafens.then(Rc::default)
    }

    /// When a session that begins now is to be cut in a race: where the dialect can ask for a deadline, it asks for that one.
    pub(super) fn deadline(&self, session: &SessionPlan, backend: Option<usize>, now: Micros) -> Option<Micros> {
        if !session.scenario.service.dialect.asks_for_deadlines() {
            return None;
        }
        let mut races = self.coming.iter().filter(|fault| fault.kind == FaultKind::Race && fault.at > now);
        races.find(|fault| strikes(fault, session, backend)).map(|fault| fault.at)
    }

    pub(super) fn step(&mut self, fault: u16, at_us: u64, step: StormStep) {
        self.steps.entry(fault).or_default().push((at_us, step));
    }

    fn due(&mut self, now: Micros) -> Option<Fault> {
        self.coming.pop_front_if(|fault| fault.at <= now)
    }
}

fn strikes(fault: &Fault, session: &SessionPlan, backend: Option<usize>) -> bool {
    fault.target.scenario.is_none_or(|number| number == session.scenario.number)
        && fault.target.backend.is_none_or(|number| backend == Some(number))
        && fault.strikes(session.seed, session.index.0)
}

impl Core {
    /// Makes the faults that are due, and ends those that are over.
    pub(super) fn strike(&mut self, now: Micros) {
        if self.strikes.deaf.iter().any(|(until, _)| *until <= now) {
            let over = self.strikes.deaf.extract_if(.., |(until, _)| *until <= now).flat_map(|(_, all)| all).collect::<Vec<_>>();
            for ticket in over {
                self.slot(ticket).and_then(|slot| slot.ears.as_ref()).into_iter().for_each(|ears| ears.listen(now));
            }
        }
        while self.phase == Phase::Running
            && let Some(fault) = self.strikes.due(now)
        {
            self.make(&fault, now);
        }
    }

    fn make(&mut self, fault: &Fault, now: Micros) {
        let hit = |slot: &Slot| slot.accepted && strikes(fault, slot.caller.plan(), slot.backend);
        let keys: Vec<usize> = self.slots.iter().filter(|(_, slot)| hit(slot)).map(|(key, _)| key).collect();
        let mut deaf = Vec::new();
        let mut struck = 0;
        for key in keys {
            let made = match fault.kind {
                FaultKind::End(kind) => self.cut(key, now, None, |slot, actions| slot.caller.cut(kind, now, actions)),
                FaultKind::Race => self.race(key, fault, now),
                FaultKind::ReconnectStorm { .. } => self.scatter(key, fault, now),
                FaultKind::SlowReader => self.deafen(key, fault.ends_at(), now, &mut deaf),
                _ => false,
            };
            struck += u64::from(made);
        }
        if !deaf.is_empty() {
            self.strikes.deaf.push((fault.ends_at(), deaf));
        }
        if struck > 0 {
            *self.strikes.struck.entry(fault.number).or_default() += struck;
        }
    }

    /// Ends a session at once; `before` is logged of it first.
    fn cut(
        &mut self,
        key: usize,
        now: Micros,
        before: Option<LedgerEvent>,
        how: impl FnOnce(&mut Slot, &mut Vec<crate::caller::Action>) -> bool,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(key) else { return false };
        let made = how(slot, &mut self.actions);
        if let Some(event) = before.filter(|_| made) {
            self.log_of(key, now, event);
        }
        self.apply(key, now, false);
        made
    }

    fn race(&mut self, key: usize, fault: &Fault, now: Micros) -> bool {
        let asked = self.slots.get(key).is_some_and(|slot| slot.dies_at == Some(fault.at));
        self.cut(key, now, asked.then_some(LedgerEvent::Raced), |slot, actions| slot.caller.race(now, actions))
    }

    /// Cuts a session that will come back.
    fn scatter(&mut self, key: usize, fault: &Fault, now: Micros) -> bool {
        self.cut(key, now, None, |slot, actions| {
            let left = slot.caller.left(now);
            let made = slot.caller.cut(EndKind::TcpRst, now, actions);
            slot.scattered = made.then_some((fault.number, left));
            made
        })
    }

    fn deafen(&mut self, key: usize, until: Micros, now: Micros, deaf: &mut Vec<Ticket>) -> bool {
        let Some(slot) = self.slots.get_mut(key).filter(|slot| slot.caller.live()) else { return false };
        let Some(ears) = &slot.ears else { return false };
        ears.close(until);
        slot.caller.on_deafness();
        deaf.push(Ticket { key, serial: slot.serial });
        let until_us = self.clock.unix_us(until);
        self.log_of(key, now, LedgerEvent::Deaf { until_us });
        true
    }

    /// Something for the controller of what was struck.
    pub(super) fn strikes_due(&self) -> bool {
        !self.strikes.struck.is_empty() || !self.strikes.steps.is_empty()
    }

    /// The next of it.
    pub(super) fn take_strikes(&mut self) -> Option<EngineEvent> {
        if let Some((fault, sessions)) = self.strikes.struck.pop_first() {
            return Some(EngineEvent::Struck { fault, sessions });
        }
        self.strikes.steps.pop_first().map(|(fault, steps)| EngineEvent::Storm { fault, steps })
    }
}
