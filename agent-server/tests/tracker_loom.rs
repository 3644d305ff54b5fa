//! Model-checks the interleavings of the session counters: the very source file, on the model checker's atomics.
//!
//! Two phases and two outcomes stand for the five of each, so that a snapshot is few enough reads to explore.

use loom::{model::Builder, sync::Arc, thread};

/// What `counters.rs` takes its atomics from.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering};
}

#[path = "../src/tracker/counters.rs"]
#[expect(dead_code, unreachable_pub, reason = "the file is a library module; this program uses a part of it")]
mod counters;

use counters::{Seat, Snapshot, Tracker};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Listening,
    Speaking,
}

impl Phase {
    const ALL: [Self; 2] = [Self::Listening, Self::Speaking];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Completed,
    Cancelled,
}

impl Outcome {
    const ALL: [Self; 2] = [Self::Completed, Self::Cancelled];
}

/// Explores every schedule with at most `preemptions` forced switches.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn ended(snapshot: &Snapshot) -> u64 {
    snapshot.ended.iter().sum()
}

/// The invariants of every snapshot, with at most `most` sessions ever live at once.
fn holds(snapshot: &Snapshot, most: i64) {
    let (low, high) = snapshot.active_interval;
    assert!(0 <= low && low <= high, "{snapshot:?}");
    if !snapshot.exact {
        return;
    }
    assert_eq!(snapshot.started as i64, snapshot.active + ended(snapshot) as i64, "{snapshot:?}");
    assert!((0..=most).contains(&snapshot.active), "{snapshot:?}");
    assert!(snapshot.phases.iter().all(|&gauge| gauge >= 0), "{snapshot:?}");
    assert_eq!(snapshot.phases.iter().sum::<i64>(), snapshot.active, "{snapshot:?}");
}

fn tracker_with(shards: usize, max: Option<u64>) -> (Arc<Tracker>, Arc<Seat>) {
    let tracker = Tracker::new(shards, max);
    let seat = tracker.start(0).expect("the first place is free");
    (Arc::new(tracker), Arc::new(seat))
}

#[test]
fn racing_ends_count_once() {
    check(6, || {
        let (tracker, seat) = tracker_with(1, None);
        let enders: Vec<_> = [Outcome::Completed, Outcome::Cancelled]
            .into_iter()
            .map(|outcome| {
                let (tracker, seat) = (Arc::clone(&tracker), Arc::clone(&seat));
                thread::spawn(move || tracker.end(&seat, outcome))
            })
            .collect();
        let third = tracker.end(&seat, Outcome::Cancelled);
        let wins = enders.into_iter().map(|ender| ender.join().unwrap()).chain([third]).filter(|&won| won).count();
        let snapshot = tracker.snapshot();
        assert_eq!((wins, ended(&snapshot), snapshot.late_ends), (1, 1, 2));
        assert_eq!(snapshot.ended[seat.outcome().unwrap() as usize], 1, "the outcome that the seat shows is the one that was counted");
        holds(&snapshot, 1);
    });
}

#[test]
fn an_end_that_meets_a_move_is_counted_once_in_the_right_phase() {
    check(6, || {
        let (tracker, seat) = tracker_with(1, None);
        let ender = {
            let (tracker, seat) = (Arc::clone(&tracker), Arc::clone(&seat));
            thread::spawn(move || tracker.end(&seat, Outcome::Cancelled))
        };
        let moved = tracker.set_phase(&seat, Phase::Speaking);
        let back = tracker.set_phase(&seat, Phase::Listening);
        assert!(moved || !back, "an ended session moves no more");
        assert!(ender.join().unwrap(), "the only end wins, even when the mover counts it");
        let snapshot = tracker.snapshot();
        assert!(snapshot.exact);
        assert_eq!((snapshot.active, snapshot.phases, ended(&snapshot)), (0, [0, 0], 1));
    });
}

#[test]
fn no_snapshot_shows_a_negative_gauge_while_a_move_and_an_end_race() {
    check(3, || {
        let (tracker, seat) = tracker_with(1, None);
        let mover = {
            let (tracker, seat) = (Arc::clone(&tracker), Arc::clone(&seat));
            thread::spawn(move || {
                tracker.set_phase(&seat, Phase::Speaking);
            })
        };
        let ender = {
            let (tracker, seat) = (Arc::clone(&tracker), Arc::clone(&seat));
            thread::spawn(move || {
                tracker.end(&seat, Outcome::Completed);
            })
        };
        holds(&tracker.snapshot(), 1);
        mover.join().unwrap();
        ender.join().unwrap();
        assert_eq!(tracker.snapshot().active, 0);
    });
}

#[test]
fn an_exact_snapshot_over_two_shards_is_a_state_that_was() {
    check(2, || {
        let tracker = Arc::new(Tracker::new(2, None));
        let writer = {
            let tracker = Arc::clone(&tracker);
            thread::spawn(move || {
                // At most one is live at any instant, though each is counted on a shard of its own.
                for home in [1, 0] {
                    let seat = tracker.start(home).unwrap();
                    tracker.end(&seat, Outcome::Completed);
                }
            })
        };
        let first = tracker.snapshot();
        let second = tracker.snapshot();
        holds(&first, 1);
        holds(&second, 1);
        assert!(
            !(first.exact && second.exact) || (first.started <= second.started && ended(&first) <= ended(&second)),
            "time runs one way"
        );
        writer.join().unwrap();
        let last = tracker.snapshot();
        assert_eq!((last.exact, last.started, ended(&last)), (true, 2, 2));
    });
}

#[test]
fn an_interval_meets_what_was() {
    check(2, || {
        let (tracker, _held) = tracker_with(2, None);
        let writer = {
            let tracker = Arc::clone(&tracker);
            thread::spawn(move || {
                for home in [1, 0] {
                    let seat = tracker.start(home).unwrap();
                    tracker.end(&seat, Outcome::Completed);
                }
            })
        };
        let snapshot = tracker.snapshot_within(0);
        // One or two are live at any instant.
        let (low, high) = snapshot.active_interval;
        assert!(!snapshot.exact && low <= high && low <= 2 && high >= 1, "{snapshot:?}");
        writer.join().unwrap();
        assert_eq!(tracker.snapshot_within(0).active_interval, (1, 1));
    });
}

#[test]
fn the_last_place_is_given_once_and_comes_back() {
    check(3, || {
        let tracker = Arc::new(Tracker::new(2, Some(1)));
        let rivals: Vec<_> = (0..2)
            .map(|home| {
                let tracker = Arc::clone(&tracker);
                thread::spawn(move || tracker.start(home).ok())
            })
            .collect();
        let seats: Vec<Seat> = rivals.into_iter().filter_map(|rival| rival.join().unwrap()).collect();
        assert_eq!(seats.len(), 1);
        let snapshot = tracker.snapshot();
        assert_eq!((snapshot.started, snapshot.rejected), (1, 1));
        assert!(tracker.end(&seats[0], Outcome::Completed));
        assert!(tracker.start(0).is_ok(), "the place is free again");
    });
}

#[test]
fn a_held_place_is_nobody_elses_and_no_session_before_its_start() {
    check(3, || {
        let tracker = Arc::new(Tracker::new(2, Some(1)));
        let holder = {
            let tracker = Arc::clone(&tracker);
            thread::spawn(move || tracker.take_place(0).is_ok().then(|| tracker.start_in_place(0)))
        };
        let rival = {
            let tracker = Arc::clone(&tracker);
            thread::spawn(move || {
                let took = tracker.take_place(1).is_ok();
                if took {
                    tracker.give_place_back();
                }
                took
            })
        };
        holds(&tracker.snapshot(), 1);
        let (seat, took) = (holder.join().unwrap(), rival.join().unwrap());
        let snapshot = tracker.snapshot();
        assert!(seat.is_some() || took, "somebody gets the place");
        assert_eq!((snapshot.started, snapshot.active), (u64::from(seat.is_some()), i64::from(seat.is_some())));
        assert_eq!(tracker.full(), seat.is_some(), "a place that was given back is free");
        assert_eq!(snapshot.rejected, u64::from(seat.is_none()) + u64::from(!took));
    });
}

#[test]
fn no_snapshot_shows_more_than_the_cap() {
    check(3, || {
        let (tracker, seat) = tracker_with(2, Some(1));
        let leaver = {
            let tracker = Arc::clone(&tracker);
            thread::spawn(move || {
                tracker.end(&seat, Outcome::Completed);
            })
        };
        let comer = {
            let tracker = Arc::clone(&tracker);
            thread::spawn(move || {
                let _ = tracker.start(1);
            })
        };
        holds(&tracker.snapshot(), 1);
        leaver.join().unwrap();
        comer.join().unwrap();
    });
}

/// A design that is no snapshot: starts are read, then ends. The checks above must be able to fail.
#[test]
#[should_panic(expected = "ended before it started")]
fn reading_starts_and_then_ends_is_found_out() {
    use sync::{AtomicU64, Ordering};
    check(3, || {
        let counters = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let writer = {
            let counters = Arc::clone(&counters);
            thread::spawn(move || {
                counters.0.fetch_add(1, Ordering::SeqCst);
                counters.1.fetch_add(1, Ordering::SeqCst);
            })
        };
        let started = counters.0.load(Ordering::SeqCst);
        let ended = counters.1.load(Ordering::SeqCst);
        assert!(ended <= started, "ended before it started");
        writer.join().unwrap();
    });
}
