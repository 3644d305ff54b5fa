//! From the schedule to the dial: who is next, and where it goes.

use std::{collections::VecDeque, sync::Arc};

use proto::{frame::ErrorCode, time::Micros};

use super::{Core, Departure, PAUSE_AFTER_FAILURE, Phase, Slot, Storm, Ticket};
use crate::{
    caller::Caller,
    engine::{Target, agenda::Start, event::StormStep, routes::Granted, targets::choose},
    ledger::{FailureCause, LedgerEvent},
    plan::{SessionPlan, turn},
    record::{Counter, Metric, Sample},
    transport::Dial,
};

/// A session that is to be dialled as soon as may be.
pub(super) struct Waiting {
    pub(super) start: Start,
    pub(super) session: SessionPlan,
    /// Backends that refused it, and the last of them.
    pub(super) refusals: u32,
    pub(super) refused_by: Option<usize>,
    /// It comes back from one.
    pub(super) storm: Option<Storm>,
}

/// Where a session goes.
struct Way {
    backend: usize,
    granted: Option<Granted>,
}

impl Core {
    /// The next session to connect, as long as there are not too many handshakes under way.
    pub(in crate::engine) fn depart(&mut self) -> Option<Departure> {
        let now = self.clock.now();
        while let Some(start) = self.agenda.due(now) {
            self.schedule(start, now);
        }
        self.let_return(now);
        while self.dialling < self.options.handshakes.max(1) {
            let next = self.refused.pop_front().or_else(|| self.waiting.pop_front())?;
            if let Some(departure) = self.send_off(next, now) {
                return Some(departure);
            }
        }
        None
    }

    fn schedule(&mut self, start: Start, now: Micros) {
        let Some(lane) = self.plan.scenarios.get(usize::from(start.scenario)).and_then(|s| s.lanes.get(start.position)) else { return };
        let session = self.plan.session(usize::from(start.scenario), lane.number, start.iteration, start.at);
        self.log(&session, now, scheduled(start, &session));
        // What it waits from here on for a dial is the target's doing: it shows in the startup, not in the driver's own lag.
        let lag = Sample { metric: Metric::ScheduleLag, intended: session.start, actual: session.start, to: now };
        self.recorder.record(start.scenario, &lag);
        self.waiting.push_back(Waiting { start, session, refusals: 0, refused_by: None, storm: None });
    }

    /// A conversation goes on in this session, in the lane of the one before; first, for somebody is in the middle of it.
    pub(super) fn resume(&mut self, start: Start, session: SessionPlan, now: Micros) {
        self.log(&session, now, scheduled(start, &session));
        self.waiting.push_front(Waiting { start, session, refusals: 0, refused_by: None, storm: None });
    }

    /// Makes the slot of a session that goes somewhere; none when there is nowhere to go.
    fn send_off(&mut self, waiting: Waiting, now: Micros) -> Option<Departure> {
        let lane = waiting.session.scenario.lanes.get(waiting.start.position).copied()?;
        let Some(Way { backend, granted }) = self.way(&waiting) else {
            let cause = FailureCause::NoBackend;
            if let Some(at) = self.tries_again_at(waiting.storm, waiting.session.index, &lane, cause, now) {
                self.try_again(waiting, at);
                return None;
            }
            if let Some(storm) = waiting.storm {
                self.storm_step(storm.fault, now, StormStep::GivenUp);
            }
            self.log(&waiting.session, now, LedgerEvent::Failed { cause });
            self.count_unspoken(waiting.start.scenario, at_stake(&waiting.session, cause));
            if self.phase == Phase::Running {
                self.agenda.repeat(waiting.start, &lane, now + PAUSE_AFTER_FAILURE);
            }
            return None;
        };
        let Waiting { start, session, refusals, storm, .. } = waiting;
        let (protocol, service, client_ref) =
            (session.scenario.protocol, Arc::clone(&session.scenario.service), session.client_ref.clone());
        let own_connection = session.scenario.own_connection || session.end.needs_own_connection();
        let report_age_us = granted.as_ref().and_then(Granted::report_age_us);
        let attempted = LedgerEvent::Attempted { backend: (!self.options.front).then_some(backend), report_age_us };
        self.log(&session, now, attempted);
        if let Some(storm) = storm {
            self.storm_step(storm.fault, now, StormStep::Dials);
        }
        self.serial += 1;
        self.dialling += 1;
        let known = (!self.options.front).then_some(backend);
        let dies_at = self.strikes.deadline(&session, known, now);
        let ears = self.strikes.ears();
        let mut caller = Caller::new(session, now);
        if let Some(at) = dies_at {
            caller.dies_at(at);
        }
        let slot = Slot {
            serial: self.serial,
            caller,
            start,
            lane,
            link: None,
            task: None,
            wake: Micros::NEVER,
            stop_at: lane.stop + lane.grace,
            dialling: true,
            accepted: false,
            granted,
            refusals,
            backend: known,
            ears: ears.clone(),
            dies_at,
            storm,
            scattered: None,
        };
        let key = self.slots.insert(slot);
        self.rearm(key);
        let ticket = Ticket { key, serial: self.serial };
        let Some(target) = self.ways.targets.get(backend) else {
            // A scenario may name a backend that is not there.
            self.closed(ticket, FailureCause::Unreachable);
            return None;
        };
        let Target { authority, address, endpoint, .. } = target;
        let dial = Dial { backend, address, authority, endpoint, service, client_ref, own_connection };
        Some(Departure { ticket, protocol, dial, ears })
    }

    /// Turns that were due and nobody spoke.
    pub(super) fn count_unspoken(&mut self, scenario: u16, turns: u64) {
        for (counter, by) in Counter::unspoken(turns) {
            self.recorder.count(scenario, counter, by);
        }
    }

    /// What the scenario pins, what the router says, or whose turn it is.
    fn way(&self, waiting: &Waiting) -> Option<Way> {
        let session = &waiting.session;
        match &self.ways.routes {
            Some(routes) if session.scenario.backend.is_none() => {
                let granted = routes.grant(turn(session.index), waiting.refused_by)?;
                Some(Way { backend: granted.backend(), granted: Some(granted) })
            }
            _ => Some(Way { backend: choose(session, &self.ways.targets), granted: None }),
        }
    }

    /// The session may go to another backend after this.
    pub(super) fn may_retry(&self, key: usize, cause: FailureCause) -> bool {
        let (Some(routes), Some(slot)) = (&self.ways.routes, self.slots.get(key)) else { return false };
        self.phase == Phase::Running && slot.granted.is_some() && slot.refusals < routes.retries() && is_refusal(cause)
    }

    /// Takes the session back from the backend that refused it; it goes to another.
    pub(super) fn retry(&mut self, key: usize, inside: bool) {
        let Some(slot) = self.take_out(key, inside) else { return };
        let refused_by = slot.granted.as_ref().map(Granted::backend);
        let session = slot.caller.plan().clone();
        self.refused.push_back(Waiting { start: slot.start, session, refusals: slot.refusals + 1, refused_by, storm: slot.storm });
    }

    /// Takes the session of a storm back from a dial that came to nothing; it tries again at this time.
    pub(super) fn retry_at(&mut self, key: usize, at: Micros, inside: bool) {
        let Some(slot) = self.take_out(key, inside) else { return };
        let session = slot.caller.plan().clone();
        self.try_again(Waiting { start: slot.start, session, refusals: 0, refused_by: None, storm: slot.storm }, at);
    }

    /// Sessions that were scheduled and have no slot.
    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = Waiting> + use<> {
        let refused: VecDeque<Waiting> = std::mem::take(&mut self.refused);
        refused.into_iter().chain(std::mem::take(&mut self.waiting))
    }
}

pub(super) fn scheduled(start: Start, session: &SessionPlan) -> LedgerEvent {
    LedgerEvent::Scheduled {
        scenario: start.scenario,
        protocol: session.scenario.protocol,
        end: session.end,
        client_ref: session.client_ref.clone(),
    }
}

/// Turns of a conversation that a session was to go on with, and never began for this cause. The end of the run cuts every conversation.
pub(super) fn at_stake(session: &SessionPlan, cause: FailureCause) -> u64 {
    if cause == FailureCause::Aborted { 0 } else { session.turns_at_stake() }
}

/// The backend has not counted the session, and another may take it.
fn is_refusal(cause: FailureCause) -> bool {
    matches!(
        cause,
        FailureCause::Rejected
            | FailureCause::Draining
            | FailureCause::ConnectionRefused
            | FailureCause::ServerError(ErrorCode::Overloaded | ErrorCode::Draining)
    )
}
