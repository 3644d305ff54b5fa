//! The way in: sessions with names, counted by the [`Tracker`], listed while they live, logged when they end.

use std::{
    cell::Cell,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use super::{
    AtCapacity, Outcome, Phase, Snapshot, Tracker,
    endlog::{ENDS_KEPT, EndLog, EndPage},
    registry::{self, BadCursor, Entry, Frames, LivePage, Registry},
};

/// Unix time in microseconds. Given from outside, because a drop has no argument for it.
pub type UnixClock = Box<dyn Fn() -> u64 + Send + Sync>;

/// Stands between what happens to a session and its count: the place for defects made on purpose.
pub trait Meddler: fmt::Debug + Send + Sync {
    /// A session is to end; an honest one calls [`Sessions::count_end`] and returns its answer.
    fn end(&self, sessions: &Sessions, entry: &Arc<Entry>, outcome: Outcome) -> bool;

    /// A start was refused and counted as such.
    fn refused(&self, sessions: &Sessions, client_ref: &str);

    /// Somebody is about to look at the counts: what was put off and is due must be done now.
    fn settle(&self, sessions: &Sessions);

    /// A full backend may admit one session more.
    fn races(&self) -> bool {
        false
    }

    /// The backend is full, and one session more would be over the cap: it is admitted all the same.
    fn lets_in(&self) -> bool {
        false
    }
}

/// All sessions of a backend.
pub struct Sessions {
    tracker: Tracker,
    registry: Registry,
    ends: EndLog,
    admitted: AtomicU64,
    clock: UnixClock,
    meddler: Option<Arc<dyn Meddler>>,
}

/// A place under the cap, for a session that may come. Dropped without one it is given back.
#[derive(Debug)]
pub struct Place {
    sessions: Arc<Sessions>,
    /// It is the session's now.
    used: bool,
}

/// One admitted session; dropped without an end it ends as cancelled.
#[derive(Debug)]
pub struct LiveSession {
    sessions: Arc<Sessions>,
    entry: Arc<Entry>,
}

/// Another handle on the same session, for racing ends (a deadline beside a disconnect). Dropping it ends nothing.
#[derive(Debug, Clone)]
pub struct SessionEnder {
    sessions: Arc<Sessions>,
    entry: Arc<Entry>,
}

impl Sessions {
    /// `shards`: as many as threads that admit sessions. `max_sessions`: a hard cap.
    pub fn new(shards: usize, max_sessions: Option<u64>, clock: UnixClock) -> Arc<Self> {
        Self::with_meddler(shards, max_sessions, clock, None)
    }

    /// As [`Self::new`], with somebody between the sessions and their counts.
    pub fn with_meddler(shards: usize, max_sessions: Option<u64>, clock: UnixClock, meddler: Option<Arc<dyn Meddler>>) -> Arc<Self> {
        let tracker = Tracker::new(shards, max_sessions);
        let registry = Registry::new(tracker.shards());
        Arc::new(Self { tracker, registry, ends: EndLog::new(ENDS_KEPT), admitted: AtomicU64::new(0), clock, meddler })
    }

    /// Admits a session in phase [`Phase::Listening`] under the client's name for it.
    pub fn admit(self: &Arc<Self>, client_ref: &str) -> Result<LiveSession, AtCapacity> {
        self.take_place(client_ref)?;
        Ok(self.admit_in_place(client_ref))
    }

    /// Takes a place for a session that is not there yet; without room it is refused, and counted as refused, here and now.
    pub fn reserve(self: &Arc<Self>, client_ref: &str) -> Result<Place, AtCapacity> {
        self.take_place(client_ref)?;
        Ok(Place { sessions: Arc::clone(self), used: false })
    }

    fn take_place(&self, client_ref: &str) -> Result<(), AtCapacity> {
        self.settle();
        let racing = self.meddler.as_ref().filter(|meddler| meddler.races() && self.tracker.just_full());
        let raced = racing.is_some_and(|meddler| meddler.lets_in() && self.tracker.take_place_over_cap());
        if !raced && let Err(full) = self.tracker.take_place(home()) {
            self.refused(client_ref);
            return Err(full);
        }
        Ok(())
    }

    fn admit_in_place(self: &Arc<Self>, client_ref: &str) -> LiveSession {
        let seat = self.tracker.start_in_place(home());
        let number = self.admitted.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = Arc::new(Entry::new(seat, number, client_ref.into(), self.unix_us()));
        self.registry.insert(Arc::clone(&entry));
        LiveSession { sessions: Arc::clone(self), entry }
    }

    fn refused(&self, client_ref: &str) {
        if let Some(meddler) = &self.meddler {
            meddler.refused(self, client_ref);
        }
    }

    /// Reads every counter at one instant, or says that it could not.
    pub fn snapshot(&self) -> Snapshot {
        self.settle();
        self.tracker.snapshot()
    }

    /// Live sessions after the id `after` (empty: from the first), in the order of admission, at most `limit` (1 to 1,000).
    pub fn listing(&self, after: &str, limit: usize) -> Result<LivePage, BadCursor> {
        self.settle();
        self.registry.page(after, limit)
    }

    /// Listed sessions: equals `active` of a snapshot when nothing starts or ends.
    pub fn listed(&self) -> u64 {
        self.settle();
        self.registry.len()
    }

    /// Ends from sequence number `after` on, at most `limit` (1 to 4,096).
    pub fn ends(&self, after: u64, limit: usize) -> EndPage {
        self.settle();
        self.ends.page(after, limit)
    }

    /// The sequence number that the next end will get. A row is logged just after it is counted.
    pub fn next_end(&self) -> u64 {
        self.settle();
        self.ends.next()
    }

    /// Audio frames of all sessions since boot.
    pub fn frames(&self) -> Frames {
        self.registry.frames()
    }

    /// The hard cap, if any.
    pub fn max_sessions(&self) -> Option<u64> {
        self.tracker.max_sessions()
    }

    /// No session would be admitted at this instant.
    pub fn full(&self) -> bool {
        self.settle();
        self.tracker.full() && !(self.tracker.just_full() && self.meddler.as_ref().is_some_and(|meddler| meddler.races()))
    }

    /// Unix microseconds by the clock given at the start.
    pub fn unix_us(&self) -> u64 {
        (self.clock)()
    }

    /// Ends a session: counts it, lists it no more, logs it as of `at_us`. False, and only `late_ends` moves, when it has ended.
    pub fn count_end(&self, entry: &Entry, outcome: Outcome, at_us: u64) -> bool {
        let counted = self.tracker.end(&entry.seat, outcome);
        if counted {
            self.registry.remove(entry);
            self.ends.push(Some(entry.number()), entry.client_ref(), outcome, at_us);
        }
        counted
    }

    /// Counts and logs a second end of a session that was in `phase`. Only defects made on purpose call this.
    pub fn count_false_end(&self, entry: &Entry, phase: Phase, outcome: Outcome) {
        self.tracker.count_false_end(entry.seat.home(), phase, outcome);
        self.ends.push(Some(entry.number()), entry.client_ref(), outcome, self.unix_us());
    }

    /// Counts and logs an end for a start that was refused. Only defects made on purpose call this.
    pub fn count_false_end_of_refused(&self, client_ref: &str, outcome: Outcome) {
        self.tracker.count_false_end(home(), Phase::Listening, outcome);
        self.ends.push(None, client_ref, outcome, self.unix_us());
    }

    /// Counts and lists a session that has ended as one that lives, for ever. Only defects made on purpose call this.
    pub fn count_false_return(&self, ended: &Entry) {
        self.tracker.lose_place();
        let seat = self.tracker.start_in_place(ended.seat.home());
        self.registry.insert(Arc::new(Entry::new(seat, ended.number(), Arc::clone(ended.client_ref()), self.unix_us())));
    }

    /// A place that nobody holds is taken for ever. Only faults made on purpose call this.
    pub fn lose_place(&self) {
        self.tracker.lose_place();
    }

    fn end(&self, entry: &Arc<Entry>, outcome: Outcome) -> bool {
        match &self.meddler {
            None => self.count_end(entry, outcome, self.unix_us()),
            Some(meddler) => meddler.end(self, entry, outcome),
        }
    }

    fn settle(&self) {
        if let Some(meddler) = &self.meddler {
            meddler.settle(self);
        }
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("tracker", &self.tracker).field("meddler", &self.meddler).finish_non_exhaustive()
    }
}

impl Place {
    /// The session has come: admitted for certain, as [`Sessions::admit`] does it.
    pub fn admit(mut self, client_ref: &str) -> LiveSession {
        self.used = true;
        self.sessions.admit_in_place(client_ref)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.used {
            self.sessions.tracker.give_place_back();
        }
    }
}

impl LiveSession {
    /// The server's name of the session, unique within one boot.
    pub fn id(&self) -> String {
        registry::session_id(self.entry.number())
    }

    /// Counts admissions of this boot, from 1; the id is made of it.
    pub fn number(&self) -> u64 {
        self.entry.number()
    }

    /// Moves the session to a phase; false when it has ended.
    pub fn set_phase(&mut self, phase: Phase) -> bool {
        self.sessions.tracker.set_phase(&self.entry.seat, phase)
    }

    /// Counts a received audio frame.
    pub fn frame_in(&mut self) {
        self.sessions.registry.frame_in(&self.entry);
    }

    /// Counts a sent audio frame.
    pub fn frame_out(&mut self) {
        self.sessions.registry.frame_out(&self.entry);
    }

    /// Ends the session; true for the one end that counted.
    pub fn end(&self, outcome: Outcome) -> bool {
        self.sessions.end(&self.entry, outcome)
    }

    /// How the session was counted, once it has ended.
    pub fn outcome(&self) -> Option<Outcome> {
        self.entry.seat.outcome()
    }

    /// A handle for a racing end.
    pub fn ender(&self) -> SessionEnder {
        SessionEnder { sessions: Arc::clone(&self.sessions), entry: Arc::clone(&self.entry) }
    }
}

impl Drop for LiveSession {
    fn drop(&mut self) {
        // A drop after the end is the rule, not a late end.
        if !self.entry.has_ended() {
            self.end(Outcome::Cancelled);
        }
    }
}

impl SessionEnder {
    /// As [`LiveSession::end`].
    pub fn end(&self, outcome: Outcome) -> bool {
        self.sessions.end(&self.entry, outcome)
    }
}

/// The home shard of this thread: threads are dealt round, so that each keeps to its own cache lines.
fn home() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static HOME: Cell<Option<usize>> = const { Cell::new(None) };
    }
    HOME.with(|home| {
        home.get().unwrap_or_else(|| {
            let mine = THREADS.fetch_add(1, Ordering::Relaxed);
            home.set(Some(mine));
            mine
        })
    })
}
