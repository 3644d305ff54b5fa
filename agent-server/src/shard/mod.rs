//! A shard: one thread, one current-thread runtime, and the sessions of the connections that were dealt to it.
//!
//! Sessions live in a slab and wake by one entry each in a [`Wheel`]; one [`Ticker`] steps those that are due, inline. A session has no task,
//! timer or channel of its own: the task of its connection or stream reads events into it ([`Conversation`]) and writes what waits in its
//! bounded queue. Locks are there because hyper wants `Send`; only the admin thread could ever contend for one, and it takes none of them. The
//! one lock that shards share is that of the processor of `--cost virtual:`.
//!
//! While that processor is behind, a session is counted when it is admitted and its acceptance is held back for as long as the processor needs:
//! its queue lets nothing out meanwhile, not even the session's end. The drain, and a client that leaves without goodbye, end the wait.

mod conversation;
mod ending;
mod queue;
mod reservation;
mod shared;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Waker},
};

use parking_lot::Mutex;
use proto::{
    frame::{Outcome, ServerEvent, SessionError, SessionStart},
    time::Micros,
};
use slab::Slab;
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{conversation::Link, queue::SendQueue};
pub use self::{
    conversation::{Conversation, Next},
    ending::Ending,
    reservation::Reservation,
    shared::{Counters, Shared, Wrongs},
};
use crate::{
    runtime::{ticker::Ticker, wheel::Wheel},
    session::{Effect, Session},
    tracker::{AtCapacity, LiveSession, Place},
};

/// How a stream closes, for the dialect to put on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    /// As counted; absent for a stream that never became a session.
    pub outcome: Option<Outcome>,
    /// Present when it closes with an error status.
    pub error: Option<SessionError>,
}

/// The sessions of one thread.
#[derive(Debug)]
pub struct Shard {
    shared: Arc<Shared>,
    table: Mutex<Table>,
    /// Effects on their way from a session to its queue; a shard needs one such buffer.
    scratch: Mutex<Vec<Effect>>,
    /// Sessions that have not ended. The slab may hold a few more, whose last words are held back.
    live: AtomicU64,
    /// Streams that are open and began a session or were refused one: somebody may still have words to hear. And places that are held for
    /// sessions: their clients were let in, and their starts are on the way.
    started: AtomicU64,
    /// The drain has ended all sessions: one whose place was held until now goes the same way.
    drained: AtomicBool,
    /// Wakes the ticker when the first session comes.
    first: Notify,
    /// Tasks of this shard's connections and streams.
    tasks: TaskTracker,
    /// What this shard counts.
    pub counters: Counters,
}

#[derive(Debug)]
struct Table {
    slots: Slab<Arc<Slot>>,
    wheel: Wheel,
}

/// One session and what waits for its client.
#[derive(Debug)]
struct Slot {
    key: usize,
    state: Mutex<SlotState>,
}

#[derive(Debug)]
struct SlotState {
    session: Session,
    /// What counts it.
    counted: LiveSession,
    queue: SendQueue,
    /// When the queue opens; none once it is open. Only the tick and the ends of the wait open it, so that no reader asks for the time.
    held: Option<Micros>,
    /// Set by the session's end.
    close: Option<Close>,
    /// The writer, when it waits for the queue.
    waker: Option<Waker>,
    /// Wake that the wheel holds; a later one is not worth moving it for.
    wake_at: Micros,
}

impl Shard {
    /// Empty.
    pub fn new(shared: Arc<Shared>) -> Arc<Self> {
        let now = shared.clock.now();
        Arc::new(Self {
            shared,
            table: Mutex::new(Table { slots: Slab::new(), wheel: Wheel::new(now) }),
            scratch: Mutex::new(Vec::new()),
            live: AtomicU64::new(0),
            started: AtomicU64::new(0),
            drained: AtomicBool::new(false),
            first: Notify::new(),
            tasks: TaskTracker::new(),
            counters: Counters::default(),
        })
    }

    /// What all shards share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Owns the shard's tasks.
    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Sessions that have not ended, as the slab holds them: what `active` must come to.
    pub fn live(&self) -> u64 {
        self.live.load(Relaxed)
    }

    /// Open streams that began a session or were refused one, and places that are held for one.
    pub fn started(&self) -> u64 {
        self.started.load(Relaxed)
    }

    /// A connection was dealt to this shard.
    pub fn count_connection(&self) {
        self.counters.connections.fetch_add(1, Relaxed);
    }

    /// A connection was given up because its peer went silent.
    pub fn count_silent(&self) {
        self.counters.silent.fetch_add(1, Relaxed);
    }

    /// A stream was given up because its client did not read the end of its session.
    pub fn count_unread(&self) {
        self.counters.unread.fetch_add(1, Relaxed);
    }

    /// Admits a session, in the place that is held for it if there is one, and gives its first events to its queue.
    fn open(self: &Arc<Self>, start: SessionStart, place: Option<Place>) -> Result<Link, AtCapacity> {
        let counted = match place {
            Some(place) => place.admit(&start.client_ref),
            None => self.shared.sessions.admit(&start.client_ref)?,
        };
        let config = &self.shared.config;
        self.account(config.cost.charge_start());
        let wait = self.shared.virtual_delay().unwrap_or_default();
        let now = self.shared.clock.now();
        let mut scratch = self.scratch.lock();
        let fates = self.shared.faults.of_session();
        let mut session = Session::new(Arc::clone(&self.shared.session), counted.number(), counted.id(), start, wait, now, &mut scratch);
        if !fates.is_empty() {
            session.doom(fates, now + wait, &mut scratch);
        }
        let mut state = SlotState {
            session,
            counted,
            queue: SendQueue::new(config.send_queue),
            held: (!wait.is_zero()).then(|| now + wait),
            close: None,
            waker: None,
            wake_at: Micros::NEVER,
        };
        let mut table = self.table.lock();
        let entry = table.slots.vacant_entry();
        let key = entry.key();
        self.apply(&mut state, &mut scratch);
        let slot = Arc::new(Slot { key, state: Mutex::new(state) });
        entry.insert(Arc::clone(&slot));
        drop(table);
        drop(scratch);
        if self.live.fetch_add(1, Relaxed) == 0 {
            self.first.notify_one();
        }
        self.settle(key, &mut slot.state.lock());
        // Set before the drain took the table's lock: either it found this slot there, or we see it here.
        if self.drained.load(Relaxed) {
            self.drain(&slot);
        }
        Ok(Link::new(Arc::clone(self), slot))
    }

    /// Lets the session of a slot act, unless it has ended. The caller is the slot's own writer and looks at the queue afterwards.
    fn act(&self, slot: &Slot, f: impl FnOnce(&mut Session, Micros, &mut Vec<Effect>)) {
        self.act_and(slot, f, |_| {});
    }

    /// Ends the session of a slot whose client is gone. What was held back for it is told to nobody.
    fn lose(&self, slot: &Slot, f: impl FnOnce(&mut Session, Micros, &mut Vec<Effect>)) {
        self.act_and(slot, f, |state| {
            if state.held.take().is_some() {
                state.queue.clear();
            }
        });
    }

    fn act_and(&self, slot: &Slot, f: impl FnOnce(&mut Session, Micros, &mut Vec<Effect>), then: impl FnOnce(&mut SlotState)) {
        let backlog = self.shared.virtual_delay();
        let mut scratch = self.scratch.lock();
        let mut state = slot.state.lock();
        if state.close.is_some() {
            return;
        }
        let taken = state.session.frames().0;
        if let Some(delay) = backlog {
            state.session.on_backlog(delay);
        }
        f(&mut state.session, self.shared.clock.now(), &mut scratch);
        // Only what the session took: a frame that it refused is no frame in its `Ended`, and must be none here.
        if state.session.frames().0 > taken {
            state.counted.frame_in();
        }
        self.apply(&mut state, &mut scratch);
        then(&mut state);
        self.settle(slot.key, &mut state);
    }

    /// Puts accounted cost on the books and before the processor, microseconds.
    fn account(&self, cost_us: u64) {
        if cost_us > 0 {
            self.counters.virtual_cost_us.fetch_add(cost_us, Relaxed);
            self.shared.charge_virtual(cost_us);
        }
    }

    /// Carries effects out.
    fn apply(&self, state: &mut SlotState, effects: &mut Vec<Effect>) {
        for effect in effects.drain(..) {
            match effect {
                // Nobody is there to hear it; a pipeline that lives on does not know.
                Effect::Send(event) if state.session.haunts() => {
                    if matches!(event, ServerEvent::Audio(_)) {
                        state.counted.frame_out();
                    }
                }
                Effect::Send(event) => {
                    if let ServerEvent::Error(error) = &event {
                        tracing::debug!(code = ?error.code, fatal = error.fatal, "session error: {error}");
                    }
                    if !state.queue.push(event) {
                        self.counters.dropped.fetch_add(1, Relaxed);
                    }
                }
                Effect::Phase(phase) => {
                    state.counted.set_phase(phase);
                }
                Effect::Fault(kind) => self.shared.faults.came_about(kind),
                Effect::Cost(phase) => self.account(self.shared.config.cost.charge(phase)),
                Effect::End { outcome, error } => {
                    state.counted.end(outcome);
                    self.live.fetch_sub(1, Relaxed);
                    state.close = Some(Close { outcome: Some(outcome), error });
                }
            }
        }
    }

    /// After a session acted: sets its next wake, or takes it out of the slab when it has ended and nothing of it is held back.
    fn settle(&self, key: usize, state: &mut SlotState) {
        if state.close.is_some() && state.held.is_none() {
            let mut table = self.table.lock();
            if table.slots.try_remove(key).is_some() {
                table.wheel.remove(key);
            }
            return;
        }
        let next = state.session.next_wake().min(state.held.unwrap_or(Micros::NEVER));
        if next < state.wake_at {
            state.wake_at = next;
            self.table.lock().wheel.set(key, next);
        }
    }

    /// Steps what is due. `due` and `writers` are the caller's to keep, so that a tick allocates nothing.
    fn tick(&self, due: &mut Vec<usize>, writers: &mut Vec<Waker>) {
        let now = self.shared.clock.now();
        self.table.lock().wheel.advance(now, due);
        for &key in due.iter() {
            let slot = self.table.lock().slots.get(key).cloned();
            if let Some(slot) = slot {
                let mut scratch = self.scratch.lock();
                let mut state = slot.state.lock();
                state.wake_at = Micros::NEVER;
                if state.held.is_some_and(|until| until <= now) {
                    state.held = None;
                }
                if let Some(delay) = self.shared.virtual_delay() {
                    state.session.on_backlog(delay);
                }
                state.session.step(now, &mut scratch);
                self.apply(&mut state, &mut scratch);
                self.settle(key, &mut state);
                if state.has_output() {
                    writers.extend(state.waker.take());
                }
            }
        }
        // After every lock is free: waking may run code that we do not know.
        writers.drain(..).for_each(Waker::wake);
    }

    /// Ends every session as drained, and lets out what was held back.
    pub fn drain_all(&self) {
        self.drained.store(true, Relaxed);
        let slots: Vec<Arc<Slot>> = self.table.lock().slots.iter().map(|(_, slot)| Arc::clone(slot)).collect();
        for slot in slots {
            self.drain(&slot);
            let writer = slot.state.lock().waker.take();
            writer.into_iter().for_each(Waker::wake);
        }
    }

    fn drain(&self, slot: &Slot) {
        slot.state.lock().held = None;
        self.act(slot, Session::on_drain);
    }

    /// Ticks while there are sessions; returns when the server stops.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) -> io::Result<()> {
        let mut ticker = Ticker::new(&self.shared.clock)?;
        let (mut due, mut writers) = (Vec::new(), Vec::new());
        loop {
            if self.table.lock().slots.is_empty() {
                ticker.pause()?;
                tokio::select! {
                    biased;
                    () = self.first.notified() => {}
                    () = stop.cancelled() => return Ok(()),
                }
            }
            tokio::select! {
                biased;
                tick = ticker.tick() => tick?,
                () = stop.cancelled() => return Ok(()),
            }
            self.tick(&mut due, &mut writers);
        }
    }
}

impl SlotState {
    /// Wakes this task when there is output, or the end.
    fn wake(&mut self, cx: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    fn has_output(&self) -> bool {
        self.held.is_none() && (self.close.is_some() || !self.queue.is_empty())
    }

    /// The next word for the client, unless all are held back.
    fn next_event(&mut self) -> Option<ServerEvent> {
        if self.held.is_some() { None } else { self.queue.pop() }
    }

    /// How the stream closes, once all is said that comes before that.
    fn closing(&self) -> Option<&Close> {
        self.close.as_ref().filter(|_| self.held.is_none())
    }
}
