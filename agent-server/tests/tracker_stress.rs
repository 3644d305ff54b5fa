//! Real threads against the tracker: every exact snapshot holds, the last place is given once, and the check itself can fail.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    thread,
};

use agent_server::tracker::{Outcome, Phase, Sessions, Tracker};

const WRITERS: usize = 4;
/// Sessions that each writer holds at most.
const HELD: usize = 3;
const MOST: i64 = (WRITERS * HELD) as i64;

/// What a reader claims to be the state of one instant.
struct Claim<'a> {
    started: u64,
    ended: u64,
    active: i64,
    phases: &'a [i64],
}

/// Invariants 1 and 2, given that no more than [`MOST`] sessions are ever live.
fn violation(claim: &Claim) -> Option<String> {
    let Claim { started, ended, active, phases } = *claim;
    if started as i64 != active + ended as i64 {
        return Some(format!("started {started} is not active {active} + ended {ended}"));
    }
    if !(0..=MOST).contains(&active) {
        return Some(format!("active {active} is not within 0..={MOST}"));
    }
    if phases.iter().any(|&gauge| gauge < 0) || phases.iter().sum::<i64>() != active {
        return Some(format!("phases {phases:?} do not make {active}"));
    }
    None
}

/// Tells the writers to stop, also when the reader fails: its scope would wait for them for ever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `write(writer, round)` on four threads until `read` says that it has seen enough.
fn under_load(write: impl Fn(usize, usize) + Sync, mut read: impl FnMut() -> bool) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        for writer in 0..WRITERS {
            let (write, stop) = (&write, &stop);
            scope.spawn(move || {
                for round in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    write(writer, round);
                }
            });
        }
        while !read() {}
    });
}

/// A few hundred nanoseconds between transitions, as a busy backend has; without them no two reads would ever agree.
fn breathe(round: usize) {
    for _ in 0..200 + round % 400 {
        std::hint::spin_loop();
    }
}

#[test]
fn every_exact_snapshot_under_load_holds_the_invariants() {
    let tracker = Tracker::new(WRITERS, Some(MOST as u64));
    let (mut exact, mut intervals, mut seen_active) = (0_u32, 0_u32, 0_i64);
    under_load(
        |writer, round| {
            let seats: Vec<_> = (0..HELD).map(|i| tracker.start(writer + i).expect("the cap is what all writers hold")).collect();
            for (i, seat) in seats.iter().enumerate() {
                breathe(round);
                tracker.set_phase(seat, Phase::ALL[1 + (round + i) % 4]);
            }
            for (i, seat) in seats.iter().enumerate() {
                breathe(round);
                assert!(tracker.end(seat, Outcome::ALL[(round + i) % 5]));
                assert!(!tracker.end(seat, Outcome::Cancelled));
            }
        },
        || {
            let snapshot = tracker.snapshot();
            let (low, high) = snapshot.active_interval;
            assert!(low <= high);
            if !snapshot.exact {
                intervals += 1;
                assert!((0..=MOST).contains(&low), "{snapshot:?}");
                return false;
            }
            exact += 1;
            seen_active = seen_active.max(snapshot.active);
            let ended = snapshot.ended.iter().sum();
            let claim = Claim { started: snapshot.started, ended, active: snapshot.active, phases: &snapshot.phases };
            assert_eq!(violation(&claim), None, "{snapshot:?}");
            exact >= 20_000
        },
    );
    assert!(seen_active > 0, "the reader saw nothing live: no load, no proof");
    let rest = tracker.snapshot();
    assert!(rest.exact);
    assert_eq!((rest.active, rest.phases), (0, [0; 5]));
    assert_eq!(rest.late_ends, rest.started, "each session was ended twice");
    eprintln!("{exact} exact snapshots, {intervals} intervals, {} sessions", rest.started);
}

#[test]
fn every_interval_under_full_load_meets_what_was() {
    const FLOOR: i64 = 5;
    let tracker = Tracker::new(WRITERS, None);
    let held: Vec<_> = (0..FLOOR).map(|i| tracker.start(i as usize).unwrap()).collect();
    let mut reads = 0;
    under_load(
        |writer, round| {
            // On another shard each time, so that a careless reader would see ends without their starts.
            let seat = tracker.start(writer + round).unwrap();
            tracker.end(&seat, Outcome::Completed);
        },
        || {
            let snapshot = tracker.snapshot_within(reads % 2);
            let (low, high) = snapshot.active_interval;
            // Between the floor and one more for each writer are live at any instant.
            assert!(low <= high && low <= FLOOR + WRITERS as i64 && high >= FLOOR, "{snapshot:?}");
            reads += 1;
            reads >= 20_000
        },
    );
    drop(held);
}

#[test]
fn moves_and_ends_that_race_on_real_threads_come_to_rest_at_zero() {
    const ROUNDS: usize = 5_000;
    let tracker = Tracker::new(2, None);
    let seats: Vec<_> = (0..ROUNDS).map(|i| tracker.start(i).unwrap()).collect();
    let barrier = Barrier::new(3);
    let wins = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            barrier.wait();
            for seat in &seats {
                for phase in Phase::ALL {
                    tracker.set_phase(seat, phase);
                }
            }
        });
        for outcome in [Outcome::Cancelled, Outcome::TimedOut] {
            let (barrier, tracker, seats, wins) = (&barrier, &tracker, &seats, &wins);
            scope.spawn(move || {
                barrier.wait();
                for seat in seats {
                    wins.fetch_add(u64::from(tracker.end(seat, outcome)), Ordering::Relaxed);
                }
            });
        }
    });
    let rest = tracker.snapshot();
    assert_eq!((rest.active, rest.phases, rest.late_ends), (0, [0; 5], ROUNDS as u64));
    assert_eq!(wins.load(Ordering::Relaxed), ROUNDS as u64);
    for outcome in Outcome::ALL {
        let shown = seats.iter().filter(|seat| seat.outcome() == Some(outcome)).count() as u64;
        assert_eq!(rest.ended[outcome as usize], shown, "{outcome}: counted as the sessions show");
    }
}

#[test]
fn a_thousand_starts_that_race_for_the_last_place_admit_one() {
    const RIVALS: usize = 1_000;
    let sessions = Sessions::new(8, Some(5), Box::new(|| 0));
    let held: Vec<_> = (0..4).map(|_| sessions.admit("held").unwrap()).collect();
    let barrier = Barrier::new(RIVALS);
    let admitted: Vec<_> = thread::scope(|scope| {
        let rivals: Vec<_> = (0..RIVALS)
            .map(|_| {
                let start = || {
                    barrier.wait();
                    sessions.admit("rival").ok()
                };
                thread::Builder::new().stack_size(64 * 1024).spawn_scoped(scope, start).unwrap()
            })
            .collect();
        rivals.into_iter().filter_map(|rival| rival.join().unwrap()).collect()
    });
    assert_eq!(admitted.len(), 1);
    let snapshot = sessions.snapshot();
    assert_eq!((snapshot.started, snapshot.active, snapshot.rejected), (5, 5, RIVALS as u64 - 1));
    drop((held, admitted));
    assert_eq!(sessions.snapshot().active, 0);
    assert!(sessions.admit("next").is_ok());
}

/// Gives up only after far more reads than any machine needs to show the fault.
const PATIENCE: u32 = 50_000_000;

#[test]
fn the_check_finds_a_reader_of_starts_then_ends() {
    let counters: [(AtomicU64, AtomicU64); WRITERS] = std::array::from_fn(|_| Default::default());
    let mut found = None;
    let mut reads = 0;
    under_load(
        |writer, round| {
            counters[writer].0.fetch_add(1, Ordering::SeqCst);
            breathe(round);
            counters[writer].1.fetch_add(1, Ordering::SeqCst);
        },
        || {
            let started: u64 = counters.iter().map(|shard| shard.0.load(Ordering::SeqCst)).sum();
            thread::yield_now();
            let ended: u64 = counters.iter().map(|shard| shard.1.load(Ordering::SeqCst)).sum();
            let active = started as i64 - ended as i64;
            found = violation(&Claim { started, ended, active, phases: &[active] });
            reads += 1;
            found.is_some() || reads == PATIENCE
        },
    );
    assert!(found.is_some(), "starts-then-ends passed {reads} reads: the check proves nothing");
}

#[test]
fn the_check_finds_an_adder_of_signed_cells() {
    // A session may be counted up on one cell and down on another, as with LongAdder: the sum is no snapshot.
    let cells: Arc<[AtomicI64; 16]> = Arc::new(std::array::from_fn(|_| AtomicI64::new(0)));
    let mut found = None;
    let mut reads = 0;
    under_load(
        |writer, round| {
            let (up, down) = ((writer + round) % 16, (writer + round * 7 + 5) % 16);
            cells[up].fetch_add(1, Ordering::SeqCst);
            breathe(round);
            cells[down].fetch_sub(1, Ordering::SeqCst);
        },
        || {
            let (first, rest) = cells.split_at(8);
            let half: i64 = first.iter().map(|cell| cell.load(Ordering::SeqCst)).sum();
            thread::yield_now();
            let active = half + rest.iter().map(|cell| cell.load(Ordering::SeqCst)).sum::<i64>();
            // It keeps no starts and ends: only the bounds can convict it.
            found = violation(&Claim { started: active as u64, ended: 0, active, phases: &[active] });
            reads += 1;
            found.is_some() || reads == PATIENCE
        },
    );
    assert!(found.is_some(), "signed cells passed {reads} reads: the check proves nothing");
}
