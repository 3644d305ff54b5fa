//! The state of a shard: its callers, when each acts next, what was measured. Everything that happens in a shard happens here, on one
//! thread, one thing after the other.

mod actions;
mod ending;
mod report;

use std::{collections::VecDeque, rc::Rc, sync::Arc, time::Duration};

use agent_server::runtime::{clock::Clock, ticker::TICK, wheel::Wheel};
use proto::{frame::ServerEvent, time::Micros};
use slab::Slab;
use tokio::task::AbortHandle;

use self::report::INTERVAL;
use super::{
    EngineOptions,
    agenda::{Agenda, Start},
    targets::{Targets, choose},
};
use crate::{
    caller::{Action, Caller},
    ledger::{FailureCause, LedgerEntry, LedgerEvent},
    plan::{Lane, Plan, Protocol, SessionPlan},
    record::{Metric, Sample, ShardRecorder},
    transport::{Dial, How, Link, socket},
};

/// A lane whose session failed begins the next so much later, so that a refused port is a failure a second and not a busy loop.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Length of a tick.
const TICK_US: u64 = TICK.as_micros() as u64;

/// Names a session to its task: a slot that was given to another session has another serial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    key: usize,
    serial: u64,
}

/// What the task of a session does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Read on.
    Continue,
    /// The session is over in order: let the peer finish the stream, for a bounded time.
    Drain,
    /// Nothing is left to do.
    Stop,
}

/// A session that is to be connected now.
pub(super) struct Departure {
    pub(super) ticket: Ticket,
    pub(super) protocol: Protocol,
    pub(super) dial: Dial,
}

/// A session in being.
struct Slot {
    serial: u64,
    caller: Caller,
    start: Start,
    lane: Lane,
    link: Option<Box<dyn Link>>,
    task: Option<AbortHandle>,
    /// As set in the wheel.
    wake: Micros,
    /// When it is told to stop; never once it was.
    stop_at: Micros,
    dialling: bool,
    accepted: bool,
}

/// Why the shard runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// Nothing begins; sessions say goodbye by then.
    Stopping(Micros),
    Aborted,
}

/// One shard.
pub(super) struct Core {
    shard: usize,
    plan: Arc<Plan>,
    options: EngineOptions,
    targets: Arc<Targets>,
    clock: Clock,
    phase: Phase,
    agenda: Agenda,
    /// Scheduled, waiting for one of the dials under way to finish.
    waiting: VecDeque<(Start, SessionPlan)>,
    dialling: usize,
    slots: Slab<Slot>,
    serial: u64,
    wheel: Wheel,
    /// Where in a millisecond the ticks fall, so that the wheel's slots begin there too; else wakes would wait for half a tick more.
    phase_us: Option<u64>,
    due: Vec<usize>,
    actions: Vec<Action>,
    recorder: ShardRecorder,
    ledger: Vec<LedgerEntry>,
    confirmed: Micros,
    interval_from: Micros,
    interval_to: Micros,
    held: VecDeque<(Micros, std::net::TcpStream)>,
    /// Tasks of sessions and closes that are not over.
    pub(super) tasks: Rc<()>,
}

impl Core {
    pub(super) fn new(shard: usize, plan: Arc<Plan>, options: EngineOptions, targets: Arc<Targets>, clock: Clock) -> Self {
        let now = clock.now();
        let spread = INTERVAL * shard as u32 / options.shards.max(1) as u32;
        let mut core = Self {
            shard,
            agenda: Agenda::new(&plan, shard, options.shards.max(1)),
            recorder: ShardRecorder::new(plan.scenarios.len()),
            plan,
            options,
            targets,
            clock,
            phase: Phase::Running,
            waiting: VecDeque::new(),
            dialling: 0,
            slots: Slab::new(),
            serial: 0,
            wheel: Wheel::new(now),
            phase_us: None,
            due: Vec::new(),
            actions: Vec::new(),
            ledger: Vec::new(),
            confirmed: now,
            interval_from: now,
            interval_to: now,
            held: VecDeque::new(),
            tasks: Rc::new(()),
        };
        core.interval_to = core.next_interval(now + spread);
        core
    }

    /// One tick: steps the callers that are due, each at its own time, and lets silent sockets go.
    pub(super) fn tick(&mut self) {
        let now = self.clock.now();
        let mut due = std::mem::take(&mut self.due);
        self.align(now);
        self.wheel.advance(self.in_phase(now), &mut due);
        for key in due.drain(..) {
            self.step(key);
        }
        self.due = due;
        while self.held.front().is_some_and(|(until, _)| *until <= now) {
            self.held.pop_front().into_iter().for_each(|(_, stream)| socket::release(stream));
        }
    }

    /// Ticks come late at times, never early: the earliest that is seen is where they fall.
    fn align(&mut self, now: Micros) {
        let phase = *self.phase_us.get_or_insert(now.0 % TICK_US);
        let earlier = (phase + TICK_US - now.0 % TICK_US) % TICK_US;
        if earlier < TICK_US / 2 {
            self.phase_us = Some((phase + TICK_US - earlier) % TICK_US);
        }
    }

    /// The time as the wheel counts it.
    fn in_phase(&self, at: Micros) -> Micros {
        if at == Micros::NEVER { at } else { Micros(at.0.saturating_sub(self.phase_us.unwrap_or(0))) }
    }

    fn step(&mut self, key: usize) {
        let now = self.clock.now();
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.wake = Micros::NEVER;
        if slot.stop_at <= now {
            slot.stop_at = Micros::NEVER;
            slot.caller.stop(now, now, &mut self.actions);
        }
        slot.caller.step(now, &mut self.actions);
        self.apply(key, now, false);
    }

    /// The next session to connect, as long as there are not too many handshakes under way.
    pub(super) fn depart(&mut self) -> Option<Departure> {
        let now = self.clock.now();
        while let Some(start) = self.agenda.due(now) {
            self.schedule(start, now);
        }
        if self.dialling >= self.options.handshakes.max(1) {
            return None;
        }
        let (start, session) = self.waiting.pop_front()?;
        let backend = choose(&session, &self.targets);
        let scenario = &session.scenario;
        let protocol = scenario.protocol;
        let own_connection = scenario.own_connection || session.end.needs_own_connection();
        let lane = scenario.lanes.get(start.position).copied()?;
        let stop_at = lane.stop + lane.grace;
        self.log(&session, now, LedgerEvent::Attempted { backend: Some(backend), report_age_us: None });
        self.serial += 1;
        self.dialling += 1;
        let caller = Caller::new(session, now);
        let slot = Slot {
            serial: self.serial,
            caller,
            start,
            lane,
            link: None,
            task: None,
            wake: Micros::NEVER,
            stop_at,
            dialling: true,
            accepted: false,
        };
        let key = self.slots.insert(slot);
        self.rearm(key);
        let ticket = Ticket { key, serial: self.serial };
        let Some(target) = self.targets.get(backend) else {
            // A scenario may name a backend that is not there.
            self.closed(ticket, FailureCause::Unreachable);
            return self.depart();
        };
        let dial = Dial { backend, address: target.address, authority: target.authority, own_connection };
        Some(Departure { ticket, protocol, dial })
    }

    fn schedule(&mut self, start: Start, now: Micros) {
        let Some(lane) = self.plan.scenarios.get(usize::from(start.scenario)).and_then(|s| s.lanes.get(start.position)) else { return };
        let session = self.plan.session(usize::from(start.scenario), lane.number, start.iteration, start.at);
        let event = LedgerEvent::Scheduled {
            scenario: start.scenario,
            protocol: session.scenario.protocol,
            end: session.end,
            client_ref: session.client_ref.clone(),
        };
        self.log(&session, now, event);
        // What it waits from here on for a dial is the target's doing: it shows in the startup, not in the driver's own lag.
        let lag = Sample { metric: Metric::ScheduleLag, intended: session.start, actual: session.start, to: now };
        self.recorder.record(start.scenario, &lag);
        self.waiting.push_back((start, session));
    }

    /// Remembers who reads for the session.
    pub(super) fn attach(&mut self, ticket: Ticket, task: AbortHandle) {
        if let Some(slot) = self.slot(ticket) {
            slot.task = Some(task);
        }
    }

    /// The stream is there.
    pub(super) fn connected(&mut self, ticket: Ticket, link: Box<dyn Link>, fresh: bool) -> Flow {
        let now = self.clock.now();
        let Some(slot) = self.slot(ticket) else {
            self.end(link, How::Cancel);
            return Flow::Stop;
        };
        slot.link = Some(link);
        let dialling = std::mem::take(&mut slot.dialling);
        self.dialling -= usize::from(dialling);
        let Some(slot) = self.slots.get_mut(ticket.key) else { return Flow::Stop };
        slot.caller.on_connected(fresh, now, &mut self.actions);
        self.apply(ticket.key, now, true)
    }

    /// The peer said something.
    pub(super) fn event(&mut self, ticket: Ticket, event: ServerEvent) -> Flow {
        let now = self.clock.now();
        let Some(slot) = self.slots.get_mut(ticket.key).filter(|slot| slot.serial == ticket.serial) else { return Flow::Stop };
        slot.caller.on_event(event, now, &mut self.actions);
        self.apply(ticket.key, now, true)
    }

    /// The stream could not be had, or is over.
    pub(super) fn closed(&mut self, ticket: Ticket, cause: FailureCause) {
        let now = self.clock.now();
        let Some(slot) = self.slots.get_mut(ticket.key).filter(|slot| slot.serial == ticket.serial) else { return };
        slot.caller.on_closed(cause, now, &mut self.actions);
        self.apply(ticket.key, now, true);
    }

    fn slot(&mut self, ticket: Ticket) -> Option<&mut Slot> {
        self.slots.get_mut(ticket.key).filter(|slot| slot.serial == ticket.serial)
    }
}
