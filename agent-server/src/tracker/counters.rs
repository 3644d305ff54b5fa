//! The counters and the snapshot: the part whose interleavings are model-checked.
//!
//! `tests/tracker_loom.rs` compiles this very file against the model checker's atomics and against smaller `Phase` and
//! `Outcome`, so it may name nothing but `super::sync` for atomics, and no count of phases or outcomes but theirs.

use crossbeam_utils::CachePadded;

use super::{
    Outcome, Phase,
    sync::{AtomicU8, AtomicU64, Ordering},
};

/// Number of phases.
pub const PHASES: usize = Phase::ALL.len();
/// Number of outcomes.
pub const OUTCOMES: usize = Outcome::ALL.len();

/// Where every session begins.
const FIRST_PHASE: Phase = Phase::Listening;
/// Pairs of equal reads looked for before a snapshot gives an interval.
const SNAPSHOT_TRIES: usize = 8;
/// More shards than this only make the snapshot slow.
const MAX_SHARDS: usize = 1_024;

// Cells of a shard: one start, a move for each pair of phases, an end for each phase and outcome.
const STARTED: usize = 0;
const MOVES: usize = STARTED + 1;
const ENDS: usize = MOVES + PHASES * PHASES;
const CELLS: usize = ENDS + PHASES * OUTCOMES;

const fn move_cell(from: Phase, to: Phase) -> usize {
    MOVES + from as usize * PHASES + to as usize
}

const fn end_cell(phase: Phase, outcome: Outcome) -> usize {
    ENDS + phase as usize * OUTCOMES + outcome as usize
}

/// The cap is reached: the session was refused and nothing but `rejected` moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{max} sessions are active, which is the cap")]
pub struct AtCapacity {
    /// The cap.
    pub max: u64,
}

/// Counts sessions over padded shards. Every transition of a session is one `fetch_add` on one monotone cell.
#[derive(Debug)]
pub struct Tracker {
    shards: Box<[CachePadded<Shard>]>,
    cap: Option<CachePadded<Cap>>,
}

#[derive(Debug)]
struct Shard {
    cells: [AtomicU64; CELLS],
    late_ends: AtomicU64,
    rejected: AtomicU64,
}

#[derive(Debug)]
struct Cap {
    max: u64,
    taken: AtomicU64,
}

/// The state of one admitted session. Not a guard: whoever holds it must end it, as [`super::LiveSession`] does.
#[derive(Debug)]
pub struct Seat {
    state: AtomicU8,
    home: u16,
}

/// A cut through the counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Sessions admitted.
    pub started: u64,
    /// Ended, in the order of [`Outcome::ALL`].
    pub ended: [u64; OUTCOMES],
    /// Live, in the order of [`Phase::ALL`]; estimates when not exact.
    pub phases: [i64; PHASES],
    /// `started - sum(ended)`; the lower end of the interval when not exact.
    pub active: i64,
    /// `active` had a value in this closed interval while the counters were read; both ends equal when exact.
    pub active_interval: (i64, i64),
    /// The cut is linearizable.
    pub exact: bool,
    /// Ends that lost a race: a diagnostic, not part of the cut.
    pub late_ends: u64,
    /// Refused before admission: not sessions, not part of the cut.
    pub rejected: u64,
}

/// What the byte of a [`Seat`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    In(Phase),
    /// The owner is counting a move to this phase.
    MovingTo(Phase),
    Ended(Outcome),
}

impl State {
    const fn code(self) -> u8 {
        (match self {
            Self::In(phase) => phase as usize,
            Self::MovingTo(phase) => PHASES + phase as usize,
            Self::Ended(outcome) => 2 * PHASES + outcome as usize,
        }) as u8
    }

    const fn of(code: u8) -> Self {
        let code = code as usize;
        if code < PHASES {
            Self::In(Phase::ALL[code])
        } else if code < 2 * PHASES {
            Self::MovingTo(Phase::ALL[code - PHASES])
        } else {
            Self::Ended(Outcome::ALL[code - 2 * PHASES])
        }
    }
}

impl Seat {
    fn state(&self) -> State {
        State::of(self.state.load(Ordering::Acquire))
    }

    fn replace(&self, from: State, to: State) -> Result<(), State> {
        self.state.compare_exchange(from.code(), to.code(), Ordering::AcqRel, Ordering::Acquire).map(|_| ()).map_err(State::of)
    }

    /// The phase of a live session, the new one while it moves; nothing once it has ended.
    pub fn phase(&self) -> Option<Phase> {
        match self.state() {
            State::In(phase) | State::MovingTo(phase) => Some(phase),
            State::Ended(_) => None,
        }
    }

    /// How the session ended, if it has.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.state() {
            State::Ended(outcome) => Some(outcome),
            State::In(_) | State::MovingTo(_) => None,
        }
    }

    /// The shard that counts it.
    pub fn home(&self) -> usize {
        usize::from(self.home)
    }
}

impl Tracker {
    /// `shards` is rounded up to a power of two (one for each thread that starts sessions is enough); `max_sessions` is a hard cap.
    pub fn new(shards: usize, max_sessions: Option<u64>) -> Self {
        let shards = shards.clamp(1, MAX_SHARDS).next_power_of_two();
        Self {
            shards: (0..shards).map(|_| CachePadded::new(Shard::new())).collect(),
            cap: max_sessions.map(|max| CachePadded::new(Cap { max, taken: AtomicU64::new(0) })),
        }
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The hard cap, if any.
    pub fn max_sessions(&self) -> Option<u64> {
        self.cap.as_ref().map(|cap| cap.max)
    }

    /// No session would be admitted at this instant.
    pub fn full(&self) -> bool {
        self.cap.as_ref().is_some_and(|cap| cap.taken.load(Ordering::Acquire) >= cap.max)
    }

    /// Admits a session, phase [`Phase::Listening`], and counts it on shard `home` (taken modulo the number of shards).
    pub fn start(&self, home: usize) -> Result<Seat, AtCapacity> {
        self.take_place(home)?;
        Ok(self.start_in_place(home))
    }

    /// Takes a place for a session that may come: under the cap it counts as one that lives, and in no cut. [`Self::start_in_place`] makes it
    /// the session's, else it must be given back. Without room the refusal is counted on shard `home`.
    pub fn take_place(&self, home: usize) -> Result<(), AtCapacity> {
        match &self.cap {
            Some(cap) if !cap.take() => {
                self.shards[home & (self.shards.len() - 1)].rejected.fetch_add(1, Ordering::Relaxed);
                Err(AtCapacity { max: cap.max })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The session for which a place was taken starts: still one increment, and the permit is older than it, as always.
    pub fn start_in_place(&self, home: usize) -> Seat {
        let home = home & (self.shards.len() - 1);
        self.shards[home].count(STARTED);
        Seat { state: AtomicU8::new(State::In(FIRST_PHASE).code()), home: home as u16 }
    }

    /// The session for which a place was taken does not come.
    pub fn give_place_back(&self) {
        if let Some(cap) = &self.cap {
            cap.release();
        }
    }

    /// Moves the session to a phase; false when it has ended. Only one thread at a time may move a session: [`super::LiveSession`]
    /// takes `&mut self` for it. Ends may race with it.
    pub fn set_phase(&self, seat: &Seat, to: Phase) -> bool {
        let from = match seat.state() {
            State::In(from) => from,
            State::MovingTo(_) => {
                debug_assert!(false, "two threads move one session");
                return true;
            }
            State::Ended(_) => return false,
        };
        if from == to {
            return true;
        }
        if seat.replace(State::In(from), State::MovingTo(to)).is_err() {
            return false;
        }
        self.shard(seat).count(move_cell(from, to));
        match seat.replace(State::MovingTo(to), State::In(to)) {
            // Somebody ended the session while it moved and left the counting to us: only we know that the move is counted.
            Err(State::Ended(outcome)) => {
                self.count_end(seat, to, outcome);
                false
            }
            Ok(()) | Err(State::In(_) | State::MovingTo(_)) => true,
        }
    }

    /// Ends the session; true for the one end that counts. Any number of threads may race.
    pub fn end(&self, seat: &Seat, outcome: Outcome) -> bool {
        let mut seen = seat.state();
        loop {
            if let State::Ended(_) = seen {
                self.shard(seat).late_ends.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            match (seat.replace(seen, State::Ended(outcome)), seen) {
                (Ok(()), State::In(phase)) => {
                    self.count_end(seat, phase, outcome);
                    return true;
                }
                // The mover finds this when it is done, and counts.
                (Ok(()), _) => return true,
                (Err(now), _) => seen = now,
            }
        }
    }

    /// Counts an end that no session had: what a broken backend does. Only defects made on purpose call this.
    pub fn count_false_end(&self, home: usize, phase: Phase, outcome: Outcome) {
        self.shards[home & (self.shards.len() - 1)].count(end_cell(phase, outcome));
        self.give_place_back();
    }

    /// The cap is reached, and not yet passed.
    pub fn just_full(&self) -> bool {
        self.cap.as_ref().is_some_and(|cap| cap.taken.load(Ordering::Acquire) == cap.max)
    }

    /// Takes a place over the cap; false when one over it is taken already. Only faults made on purpose call this.
    pub fn take_place_over_cap(&self) -> bool {
        self.cap.as_ref().is_some_and(|cap| cap.take_up_to(cap.max.saturating_add(1)))
    }

    /// Takes a place for nobody. Only faults made on purpose call this.
    pub fn lose_place(&self) {
        if let Some(cap) = &self.cap {
            cap.take_up_to(cap.max);
        }
    }

    /// Reads every counter at one instant, or says that it could not.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_within(SNAPSHOT_TRIES)
    }

    /// As [`Self::snapshot`], looking for at most `tries` pairs of equal readings; with none it gives the interval at once.
    pub fn snapshot_within(&self, tries: usize) -> Snapshot {
        let mut before = self.collect();
        for _ in 0..tries {
            let after = self.collect();
            if before == after {
                return self.cut(&after);
            }
            before = after;
        }
        self.interval(&before)
    }

    fn shard(&self, seat: &Seat) -> &Shard {
        &self.shards[seat.home()]
    }

    fn count_end(&self, seat: &Seat, phase: Phase, outcome: Outcome) {
        self.shard(seat).count(end_cell(phase, outcome));
        // After the count: the permits never run below the sessions that a cut shows.
        self.give_place_back();
    }

    fn collect(&self) -> Totals {
        let mut totals = Totals([0; CELLS]);
        for shard in &self.shards {
            for (total, cell) in totals.0.iter_mut().zip(&shard.cells) {
                *total = total.wrapping_add(cell.load(Ordering::SeqCst));
            }
        }
        totals
    }

    fn cut(&self, totals: &Totals) -> Snapshot {
        let (started, ended) = (totals.started(), totals.ended());
        let active = started.wrapping_sub(ended.iter().sum()) as i64;
        let (late_ends, rejected) = self.diagnostics();
        Snapshot { started, ended, phases: totals.phases(), active, active_interval: (active, active), exact: true, late_ends, rejected }
    }

    /// Reads ends, starts, ends again. At the first start read no more was active than starts less the first ends, at the last no
    /// less than starts less the last ends, and `active` moves by ones: so in between it had a value in the interval.
    fn interval(&self, estimate: &Totals) -> Snapshot {
        let ended_before: u64 = self.collect().ended().iter().sum();
        let started = self.collect().started();
        let ended = self.collect().ended();
        let most = started.wrapping_sub(ended_before) as i64;
        // Only false ends can make the most negative; the interval must hold even then.
        let least = (started.wrapping_sub(ended.iter().sum()) as i64).max(0).min(most);
        let (late_ends, rejected) = self.diagnostics();
        let phases = estimate.phases().map(|gauge| gauge.max(0));
        Snapshot { started, ended, phases, active: least, active_interval: (least, most), exact: false, late_ends, rejected }
    }

    fn diagnostics(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(late, rejected), shard| {
            (late + shard.late_ends.load(Ordering::Relaxed), rejected + shard.rejected.load(Ordering::Relaxed))
        })
    }
}

impl Shard {
    fn new() -> Self {
        Self { cells: std::array::from_fn(|_| AtomicU64::new(0)), late_ends: AtomicU64::new(0), rejected: AtomicU64::new(0) }
    }

    fn count(&self, cell: usize) {
        self.cells[cell].fetch_add(1, Ordering::SeqCst);
    }
}

impl Cap {
    fn take(&self) -> bool {
        self.take_up_to(self.max)
    }

    fn take_up_to(&self, most: u64) -> bool {
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| (taken < most).then(|| taken + 1)).is_ok()
    }

    /// Stops at zero, which only false ends can reach.
    fn release(&self) {
        let _ = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| taken.checked_sub(1));
    }
}

/// The sum of every cell over the shards, as one pass read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Totals([u64; CELLS]);

impl Totals {
    fn started(&self) -> u64 {
        self.0[STARTED]
    }

    fn ended(&self) -> [u64; OUTCOMES] {
        Outcome::ALL.map(|outcome| Phase::ALL.iter().map(|&phase| self.0[end_cell(phase, outcome)]).fold(0, u64::wrapping_add))
    }

    fn phases(&self) -> [i64; PHASES] {
        Phase::ALL.map(|phase| {
            let admitted = if phase == FIRST_PHASE { self.started() } else { 0 };
            let came = Phase::ALL.iter().map(|&from| self.0[move_cell(from, phase)]).fold(admitted, u64::wrapping_add);
            let moved = Phase::ALL.iter().map(|&to| self.0[move_cell(phase, to)]).fold(0, u64::wrapping_add);
            let ended = Outcome::ALL.iter().map(|&outcome| self.0[end_cell(phase, outcome)]).fold(0, u64::wrapping_add);
            came.wrapping_sub(moved).wrapping_sub(ended) as i64
        })
    }
}
