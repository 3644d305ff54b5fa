//! The state of a shard: its callers, when each acts next, what was measured. Everything that happens in a shard happens here, on one
//! thread, one thing after the other.

use std::{collections::VecDeque, rc::Rc, sync::Arc, time::Duration};

use agent_server::runtime::{clock::Clock, wheel::Wheel};
use proto::{frame::ServerEvent, time::Micros};
use slab::Slab;
use tokio::task::AbortHandle;

use super::{
    EngineEvent, EngineOptions, IntervalReport,
    agenda::{Agenda, Start},
    targets::{Targets, choose},
};
use crate::{
    caller::{Action, Caller},
    ledger::{FailureCause, LedgerEntry, LedgerEvent},
    plan::{Lane, Plan, Protocol, SessionPlan},
    record::{Counter, ShardRecorder},
    transport::{CLOSE_BOUND, Dial, How, Link, Remains, Unsent, socket},
};

/// A lane whose session failed begins the next so much later, so that a refused port is a failure a second and not a busy loop.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Past the deadline of a stop, callers wait for the answer to their goodbye by themselves; who is still there after this is cut.
const GOODBYE: Duration = Duration::from_secs(6);
/// Length of an interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// A ledger without news is confirmed this often.
const WATERMARK: Duration = Duration::from_millis(50);

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

    // ----- time -----

    /// One tick: steps the callers that are due, each at its own time, and lets silent sockets go.
    pub(super) fn tick(&mut self) {
        let now = self.clock.now();
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(now, &mut due);
        for key in due.drain(..) {
            self.step(key);
        }
        self.due = due;
        while self.held.front().is_some_and(|(until, _)| *until <= now) {
            self.held.pop_front().into_iter().for_each(|(_, stream)| socket::release(stream));
        }
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

    // ----- beginnings -----

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
        self.log(&session, now, LedgerEvent::Attempted { backend });
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
        self.waiting.push_back((start, session));
    }

    /// Remembers who reads for the session.
    pub(super) fn attach(&mut self, ticket: Ticket, task: AbortHandle) {
        if let Some(slot) = self.slot(ticket) {
            slot.task = Some(task);
        }
    }

    // ----- from the session's task -----

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

    // ----- what callers want -----

    /// Does what the caller of `key` asked for. `inside` when the session's own task is what runs now.
    fn apply(&mut self, key: usize, now: Micros, inside: bool) -> Flow {
        let mut actions = std::mem::take(&mut self.actions);
        let mut failed = None;
        let mut forced = false;
        for action in actions.drain(..) {
            let Some(slot) = self.slots.get_mut(key) else { break };
            let scenario = slot.start.scenario;
            match action {
                Action::Send(event) => {
                    if slot.link.as_mut().is_some_and(|link| link.send(event) == Err(Unsent::Full)) {
                        self.recorder.count(scenario, Counter::SendDrops, 1);
                    }
                }
                Action::Measure(sample) => self.recorder.record(scenario, &sample),
                Action::Count(counter, by) => self.recorder.count(scenario, counter, by),
                Action::Force(kind) => {
                    forced = true;
                    if let Some(how) = How::of(kind) {
                        // Logged first: the backend may see it before the next entry.
                        self.log_of(key, now, LedgerEvent::Forced { kind });
                        self.end_of(key, how);
                    }
                }
                Action::Drop => {
                    forced = true;
                    self.end_of(key, How::Cancel);
                }
                Action::Accepted(accepted) => {
                    slot.accepted = true;
                    let (session_id, backend_id, boot_id) = (accepted.session_id, accepted.backend_id, accepted.boot_id);
                    self.log_of(key, now, LedgerEvent::Accepted { session_id, backend_id, boot_id });
                }
                Action::Ended(finish) => {
                    failed = Some(matches!(finish, crate::ledger::Finish::Lost(_)));
                    self.log_of(key, now, LedgerEvent::Ended { finish });
                }
                Action::Failed(cause) => {
                    failed = Some(true);
                    self.log_of(key, now, LedgerEvent::Failed { cause });
                }
            }
        }
        self.actions = actions;
        let Some(failed) = failed else {
            self.rearm(key);
            return Flow::Continue;
        };
        self.free(key, now, failed, inside);
        if forced || failed { Flow::Stop } else { Flow::Drain }
    }

    /// Sets the wheel to what the caller, or its end, wants next.
    fn rearm(&mut self, key: usize) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let wake = slot.caller.next_wake().min(slot.stop_at);
        if wake != slot.wake {
            slot.wake = wake;
            self.wheel.set(key, wake);
        }
    }

    /// The session is over: its lane goes on with the next.
    fn free(&mut self, key: usize, now: Micros, failed: bool, inside: bool) {
        self.end_of(key, How::Done);
        self.wheel.remove(key);
        let Some(slot) = self.slots.try_remove(key) else { return };
        self.dialling -= usize::from(slot.dialling);
        if let (Some(task), false) = (&slot.task, inside) {
            task.abort();
        }
        if self.phase == Phase::Running {
            let at = if failed { now + PAUSE_AFTER_FAILURE } else { now };
            self.agenda.repeat(slot.start, &slot.lane, at);
        }
    }

    /// Ends the stream of a session, if it still has one.
    fn end_of(&mut self, key: usize, how: How) {
        if let Some(link) = self.slots.get_mut(key).and_then(|slot| slot.link.take()) {
            self.end(link, how);
        }
    }

    fn end(&mut self, link: Box<dyn Link>, how: How) {
        match link.end(how) {
            Remains::Nothing => {}
            Remains::Closing(close) => {
                let alive = Rc::clone(&self.tasks);
                // Owned by the shard's task set, which is dropped with the shard.
                tokio::task::spawn_local(async move {
                    // A peer that does not finish is what the bound is for.
                    let _ = tokio::time::timeout(CLOSE_BOUND, close).await;
                    drop(alive);
                });
            }
            Remains::Held(stream) => {
                let until = self.options.half_open_hold.map_or(Micros::NEVER, |hold| self.clock.now() + hold);
                self.held.push_back((until, stream));
            }
        }
    }

    // ----- the end of the run -----

    /// Nothing begins any more; every session says goodbye by `deadline`.
    pub(super) fn stop(&mut self, deadline: Micros) {
        if self.phase != Phase::Running {
            return;
        }
        self.phase = Phase::Stopping(deadline);
        self.abandon_waiting();
        let now = self.clock.now();
        for key in self.keys() {
            let Some(slot) = self.slots.get_mut(key) else { continue };
            slot.stop_at = Micros::NEVER;
            slot.caller.stop(deadline, now, &mut self.actions);
            self.apply(key, now, false);
        }
    }

    /// Cuts everything now.
    pub(super) fn abort(&mut self) {
        if self.phase == Phase::Aborted {
            return;
        }
        self.phase = Phase::Aborted;
        self.abandon_waiting();
        let now = self.clock.now();
        for key in self.keys() {
            self.end_of(key, How::Cancel);
            let Some(slot) = self.slots.get_mut(key) else { continue };
            slot.caller.on_closed(FailureCause::Aborted, now, &mut self.actions);
            self.apply(key, now, false);
            // A caller that is not over after its stream was closed would keep the run from ending.
            if self.slots.contains(key) {
                self.log_of(key, now, LedgerEvent::Failed { cause: FailureCause::Aborted });
                self.free(key, now, true, false);
            }
        }
    }

    /// Past the deadline of a stop, goodbyes are over.
    pub(super) fn enforce(&mut self) {
        if let Phase::Stopping(deadline) = self.phase
            && self.clock.now() > deadline + GOODBYE
        {
            self.abort();
        }
    }

    fn keys(&self) -> Vec<usize> {
        self.slots.iter().map(|(key, _)| key).collect()
    }

    fn abandon_waiting(&mut self) {
        self.agenda.clear();
        let now = self.clock.now();
        for (_, session) in std::mem::take(&mut self.waiting) {
            self.log(&session, now, LedgerEvent::Failed { cause: FailureCause::Aborted });
        }
    }

    /// Every lane is over, every session ended.
    pub(super) fn finished(&self) -> bool {
        self.agenda.is_empty() && self.waiting.is_empty() && self.slots.is_empty()
    }

    /// Resets the sockets that were kept silent.
    pub(super) fn release_held(&mut self) {
        self.held.drain(..).for_each(|(_, stream)| socket::release(stream));
    }

    // ----- what the controller hears -----

    fn log_of(&mut self, key: usize, now: Micros, event: LedgerEvent) {
        if let Some(slot) = self.slots.get(key) {
            self.ledger.push(LedgerEntry { index: slot.caller.plan().index, at_us: self.clock.unix_us(now), event });
        }
    }

    fn log(&mut self, session: &SessionPlan, now: Micros, event: LedgerEvent) {
        self.ledger.push(LedgerEntry { index: session.index, at_us: self.clock.unix_us(now), event });
    }

    /// News for the ledger, or a confirmation that there is none.
    pub(super) fn ledger_due(&self) -> bool {
        !self.ledger.is_empty() || self.clock.now().since(self.confirmed) >= WATERMARK
    }

    pub(super) fn take_ledger(&mut self) -> EngineEvent {
        let now = self.clock.now();
        self.confirmed = now;
        EngineEvent::Ledger { shard: self.shard, entries: std::mem::take(&mut self.ledger), complete_to_us: self.clock.unix_us(now) }
    }

    pub(super) fn interval_due(&self) -> bool {
        self.clock.now() >= self.interval_to
    }

    pub(super) fn take_interval(&mut self) -> EngineEvent {
        let now = self.clock.now();
        let warmup = self.interval_from < Micros::ZERO + self.plan.warmup;
        let report = IntervalReport {
            shard: self.shard,
            from_us: self.clock.unix_us(self.interval_from),
            to_us: self.clock.unix_us(now),
            active: self.slots.iter().filter(|(_, slot)| slot.accepted).count() as u64,
            speaking: self.slots.iter().filter(|(_, slot)| slot.accepted && slot.caller.speaking()).count() as u64,
            warmup,
            scenarios: self.recorder.take(),
        };
        self.interval_from = now;
        self.interval_to = self.next_interval(now);
        EngineEvent::Interval(report)
    }

    /// A second on, but never across the end of the warm-up: what came before must not mix with what counts.
    fn next_interval(&self, now: Micros) -> Micros {
        let next = now + INTERVAL;
        let warm = Micros::ZERO + self.plan.warmup;
        if self.interval_from < warm && warm < next { warm } else { next }
    }
}
