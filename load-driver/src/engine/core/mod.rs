//! The state of a shard: its callers, when each acts next, what was measured. Everything that happens in a shard happens here, on one
//! thread, one thing after the other.

mod actions;
mod departing;
pub(super) mod ears;
mod ending;
mod pace;
mod report;
mod returning;
mod strikes;

use std::{collections::VecDeque, rc::Rc, sync::Arc, time::Duration};

use agent_server::runtime::{clock::Clock, wheel::Wheel, wire::Parked};
use proto::{frame::ServerEvent, orca::OrcaLoadReport, time::Micros};
use slab::Slab;
use tokio::task::AbortHandle;

use self::{
    departing::Waiting,
    ears::Ears,
    pace::{Pace, TICK_US},
    report::INTERVAL,
    returning::{Returning, Storm},
    strikes::Strikes,
};
use super::{
    EngineOptions,
    agenda::{Agenda, Start},
    routes::{Granted, Routes},
    targets::Targets,
};
use crate::{
    caller::{Action, Caller},
    ledger::{FailureCause, LedgerEntry},
    plan::{Lane, Plan, Protocol},
    record::ShardRecorder,
    transport::{Dial, How, Link, Reasons},
    voice::VoiceNews,
};

/// A lane whose session failed, or was ended by the backend before its time, begins the next so much later, so that a refused port is a failure a second
/// and not a busy loop.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

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
    /// Where the session may be made not to read.
    pub(super) ears: Option<Rc<Ears>>,
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
    /// Of the router, where it chose the backend.
    granted: Option<Granted>,
    /// Backends that refused it.
    refusals: u32,
    /// Where it goes; none behind a front, which picks.
    backend: Option<usize>,
    ears: Option<Rc<Ears>>,
    /// The backend was asked for a deadline that falls on this time.
    dies_at: Option<Micros>,
    /// It comes back from a storm, and is not back yet.
    storm: Option<Storm>,
    /// A storm cuts it now, with so much of its length left.
    scattered: Option<(u16, Option<Duration>)>,
}

/// Where sessions can go, and who decides.
pub(super) struct Ways {
    pub(super) targets: Arc<Targets>,
    pub(super) routes: Option<Arc<Routes>>,
    /// What was said with failures.
    pub(super) reasons: Reasons,
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
    ways: Ways,
    clock: Clock,
    phase: Phase,
    agenda: Agenda,
    /// Scheduled, waiting for one of the dials under way to finish.
    waiting: VecDeque<Waiting>,
    /// Refused, waiting likewise, and first: they should have begun long ago.
    refused: VecDeque<Waiting>,
    /// Cut by a storm, to be dialled when their backoff is over.
    returning: Returning,
    strikes: Strikes,
    dialling: usize,
    slots: Slab<Slot>,
    serial: u64,
    wheel: Wheel,
    /// Where in a millisecond the ticks fall, so that the wheel's slots begin there too; else wakes would wait for half a tick more.
    phase_us: Option<u64>,
    due: Vec<usize>,
    actions: Vec<Action>,
    recorder: ShardRecorder,
    voice: VoiceNews,
    pace: Pace,
    ledger: Vec<LedgerEntry>,
    confirmed: Micros,
    interval_from: Micros,
    interval_to: Micros,
    /// Silent sockets, until their backend finds out.
    held: Vec<Parked>,
    /// Tasks of sessions and closes that are not over.
    pub(super) tasks: Rc<()>,
}

impl Core {
    pub(super) fn new(shard: usize, plan: Arc<Plan>, options: EngineOptions, ways: Ways, clock: Clock) -> Self {
        let now = clock.now();
        let spread = INTERVAL * shard as u32 / options.shards.max(1) as u32;
        let mut core = Self {
            shard,
            agenda: Agenda::new(&plan, shard, options.shards.max(1)),
            recorder: ShardRecorder::new(plan.scenarios.len()),
            strikes: Strikes::new(&plan),
            plan,
            options,
            ways,
            clock,
            phase: Phase::Running,
            waiting: VecDeque::new(),
            refused: VecDeque::new(),
            returning: Returning::default(),
            dialling: 0,
            slots: Slab::new(),
            serial: 0,
            wheel: Wheel::new(now),
            phase_us: None,
            due: Vec::new(),
            actions: Vec::new(),
            voice: VoiceNews::default(),
            pace: Pace::new(now),
            ledger: Vec::new(),
            confirmed: now,
            interval_from: now,
            interval_to: now,
            held: Vec::new(),
            tasks: Rc::new(()),
        };
        core.interval_to = core.next_interval(now + spread);
        core
    }

    /// One tick: steps the callers that are due, each at its own time.
    pub(super) fn tick(&mut self) {
        let now = self.clock.now();
        self.pace.tick(now);
        self.strike(now);
        let mut due = std::mem::take(&mut self.due);
        self.align(now);
        self.wheel.advance(self.in_phase(now), &mut due);
        for key in due.drain(..) {
            self.step(key);
        }
        self.due = due;
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
        let stall_us = self.pace.stalled_us(now);
        // A race must not be decided by who is heard of first.
        self.strike(now);
        let Some(slot) = self.slots.get_mut(ticket.key).filter(|slot| slot.serial == ticket.serial) else { return Flow::Stop };
        slot.caller.on_stall(stall_us);
        slot.caller.on_event(event, now, &mut self.actions);
        self.apply(ticket.key, now, true)
    }

    /// The stream of a session brought a report, which may be later than the session.
    pub(super) fn hear(&self, ticket: Ticket, backend: usize, report: &OrcaLoadReport) -> Flow {
        let slot = self.slots.get(ticket.key).filter(|slot| slot.serial == ticket.serial);
        if let Some(routes) = &self.ways.routes {
            routes.hear_in_band(backend, report, slot.and_then(|slot| slot.granted.as_ref()).and_then(Granted::pending_since));
        }
        if slot.is_some() { Flow::Continue } else { Flow::Stop }
    }

    /// The stream could not be had, or is over.
    pub(super) fn closed(&mut self, ticket: Ticket, cause: FailureCause) {
        let now = self.clock.now();
        self.strike(now);
        let Some(slot) = self.slots.get_mut(ticket.key).filter(|slot| slot.serial == ticket.serial) else { return };
        slot.caller.on_closed(cause, now, &mut self.actions);
        self.apply(ticket.key, now, true);
    }

    /// The backend has accepted the session.
    pub(super) fn is_accepted(&self, ticket: Ticket) -> bool {
        self.slots.get(ticket.key).is_some_and(|slot| slot.serial == ticket.serial && slot.accepted)
    }

    fn slot(&mut self, ticket: Ticket) -> Option<&mut Slot> {
        self.slots.get_mut(ticket.key).filter(|slot| slot.serial == ticket.serial)
    }
}
