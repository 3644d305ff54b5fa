//! Each defect made on purpose shows in the counts as it is meant to, exactly as often as asked, and nothing else does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use agent_server::{
    fault::Defects,
    tracker::{LiveSession, Meddler, Outcome, Phase, Sessions},
};

/// A broken backend with a clock that stands until it is told.
struct Backend {
    sessions: Arc<Sessions>,
    defects: Arc<Defects>,
    now_us: Arc<AtomicU64>,
}

impl Backend {
    fn with(defects: &[&str], max_sessions: Option<u64>) -> Self {
        let defects = Defects::new(&defects.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>());
        let now_us = Arc::new(AtomicU64::new(1_000_000));
        let clock = Arc::clone(&now_us);
        let meddler: Arc<dyn Meddler> = defects.clone();
        let sessions = Sessions::with_meddler(2, max_sessions, Box::new(move || clock.load(Ordering::Relaxed)), Some(meddler));
        Self { sessions, defects, now_us }
    }

    fn admit(&self, count: usize) -> Vec<LiveSession> {
        (0..count).map(|i| self.sessions.admit(&format!("c-{i}")).unwrap()).collect()
    }

    fn active(&self) -> i64 {
        let snapshot = self.sessions.snapshot();
        assert!(snapshot.exact);
        assert_eq!(snapshot.phases.iter().sum::<i64>(), snapshot.active);
        assert_eq!(snapshot.started as i64 - snapshot.ended.iter().sum::<u64>() as i64, snapshot.active);
        snapshot.active
    }

    fn strikes(&self, kind: &str) -> u64 {
        self.defects.strikes()[kind]
    }

    fn pass(&self, time: Duration) {
        self.now_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }
}

#[test]
fn a_ghost_stays_counted_and_listed_for_ever() {
    let backend = Backend::with(&["ghost=0.25"], None);
    drop(backend.admit(8));
    assert_eq!((backend.active(), backend.strikes("ghost")), (2, 2));
    let listed: Vec<_> = backend.sessions.listing("", 10).unwrap().sessions.iter().map(|row| row.client_ref.to_string()).collect();
    assert_eq!(listed, ["c-0", "c-4"]);
    assert_eq!(backend.sessions.next_end(), 6);
    assert_eq!(backend.sessions.snapshot().late_ends, 0);
}

#[test]
fn ghosts_are_made_of_abrupt_ends_only() {
    let backend = Backend::with(&["ghost=1"], None);
    for session in backend.admit(5) {
        for outcome in [Outcome::Completed, Outcome::Failed, Outcome::TimedOut, Outcome::Drained] {
            session.end(outcome);
        }
    }
    assert_eq!((backend.active(), backend.strikes("ghost")), (0, 0));
}

#[test]
fn a_ghost_keeps_its_place_under_the_cap_and_further_ends_are_nothing() {
    let backend = Backend::with(&["ghost=1"], Some(1));
    let session = backend.sessions.admit("c").unwrap();
    let ender = session.ender();
    assert!(session.end(Outcome::Cancelled), "the backend believes that it counted");
    assert!(!ender.end(Outcome::TimedOut));
    drop(session);
    assert_eq!((backend.active(), backend.strikes("ghost")), (1, 1));
    assert!(backend.sessions.admit("d").is_err());
}

#[test]
fn a_double_decrement_counts_and_logs_one_session_twice() {
    let backend = Backend::with(&["double_decrement=0.5"], None);
    let kept = backend.admit(1);
    for mut session in backend.admit(4) {
        session.set_phase(Phase::AgentSpeaking);
        assert!(session.end(Outcome::Completed));
    }
    assert_eq!((backend.active(), backend.strikes("double_decrement")), (-1, 2));
    let snapshot = backend.sessions.snapshot();
    assert_eq!(snapshot.phases, [1, 0, 0, 0, -2]);
    let ends = backend.sessions.ends(0, 100).ends;
    let first: Vec<_> = ends.iter().filter(|end| end.session_id == ends[0].session_id).map(|end| end.outcome).collect();
    assert_eq!((first, ends.len()), (vec![Outcome::Completed, Outcome::Cancelled], 6));
    drop(kept);
}

#[test]
fn a_double_decrement_opens_a_place_that_is_not_there() {
    let backend = Backend::with(&["double_decrement=1"], Some(2));
    let mut sessions = backend.admit(2);
    sessions.remove(0).end(Outcome::Completed);
    let more = backend.admit(2);
    assert_eq!(sessions.len() + more.len(), 3, "one more than the cap is live");
    assert!(backend.sessions.admit("c").is_err());
}

#[test]
fn a_refused_start_decrements() {
    let backend = Backend::with(&["decrement_on_reject=0.5"], Some(2));
    let held = backend.admit(2);
    assert!(backend.sessions.admit("refused-0").is_err());
    assert_eq!((backend.active(), backend.sessions.snapshot().rejected, backend.strikes("decrement_on_reject")), (1, 1, 1));
    let end = &backend.sessions.ends(0, 10).ends[0];
    assert_eq!((end.session_id.as_str(), &*end.client_ref, end.outcome), ("", "refused-0", Outcome::Cancelled));
    drop(held);
    assert_eq!(backend.active(), -1);
}

#[test]
fn a_late_decrement_comes_when_it_is_due() {
    let backend = Backend::with(&["late_decrement=0.5:5s"], None);
    drop(backend.admit(4));
    assert_eq!((backend.active(), backend.sessions.next_end(), backend.sessions.listed()), (2, 2, 2));
    backend.pass(Duration::from_micros(4_999_999));
    assert_eq!(backend.active(), 2);
    backend.pass(Duration::from_micros(1));
    assert_eq!((backend.active(), backend.sessions.listed(), backend.strikes("late_decrement")), (0, 0, 2));
    let late: Vec<_> = backend.sessions.ends(2, 10).ends.iter().map(|end| (end.client_ref.clone(), end.at_us)).collect();
    assert_eq!(late, [("c-0".to_owned(), 6_000_000), ("c-2".to_owned(), 6_000_000)]);
    assert_eq!(backend.sessions.snapshot().late_ends, 0);
}

#[test]
fn a_late_decrement_gives_its_place_back_late() {
    let backend = Backend::with(&["late_decrement=1:1s"], Some(1));
    drop(backend.admit(1));
    assert!(backend.sessions.admit("c").is_err());
    backend.pass(Duration::from_secs(1));
    assert!(backend.sessions.admit("c").is_ok());
}

#[test]
fn a_torn_snapshot_mixes_two_instants_and_calls_itself_exact() {
    let backend = Backend::with(&["torn_snapshot=0.5"], None);
    let mut sessions = backend.admit(3);
    let mut paused = Duration::ZERO;
    let torn = backend.defects.snapshot(&backend.sessions, |time| {
        paused = time;
        sessions.pop();
    });
    assert!(torn.exact && paused > Duration::ZERO);
    assert_eq!((torn.started, torn.active, torn.ended.iter().sum::<u64>()), (3, 3, 1));
    let whole = backend.defects.snapshot(&backend.sessions, |_| panic!("every second snapshot is whole"));
    assert_eq!((whole.started, whole.active, whole.ended.iter().sum::<u64>()), (3, 2, 1));
    assert_eq!(backend.strikes("torn_snapshot"), 1);
}

#[test]
fn a_timeout_is_forgotten() {
    let backend = Backend::with(&["forget_on_timeout=0.5"], None);
    for session in backend.admit(4) {
        session.end(Outcome::TimedOut);
    }
    drop(backend.admit(4));
    assert_eq!((backend.active(), backend.strikes("forget_on_timeout")), (2, 2));
}

#[test]
fn a_session_that_ended_is_there_again_under_its_old_name() {
    let backend = Backend::with(&["resurrect=0.5"], Some(4));
    let ids: Vec<String> = backend.admit(4).iter().map(LiveSession::id).collect();
    assert_eq!((backend.active(), backend.strikes("resurrect"), backend.sessions.snapshot().started), (2, 2, 6));
    let ended: Vec<String> = backend.sessions.ends(0, 10).ends.into_iter().map(|end| end.session_id).collect();
    assert_eq!(ended, ids, "each end is counted and logged once");
    let listed = backend.sessions.listing("", 10).unwrap().sessions;
    let listed: Vec<_> = listed.iter().map(|row| (row.session_id.as_str(), &*row.client_ref)).collect();
    assert_eq!(listed, [(ids[0].as_str(), "c-0"), (ids[2].as_str(), "c-2")]);
    let more = backend.admit(2);
    assert!(backend.sessions.admit("c").is_err(), "they hold their places");
    drop(more);
}

#[test]
fn defects_of_several_kinds_do_not_disturb_each_other() {
    let backend = Backend::with(&["ghost=0.1", "forget_on_timeout=0.1", "ghost=0.5"], None);
    for session in backend.admit(10) {
        session.end(Outcome::TimedOut);
    }
    drop(backend.admit(10));
    assert_eq!((backend.strikes("ghost"), backend.strikes("forget_on_timeout"), backend.active()), (5, 1, 6));
}

#[test]
fn without_a_strike_nothing_differs_from_an_honest_backend() {
    let backend = Backend::with(&[], None);
    let session = backend.sessions.admit("c").unwrap();
    assert!(session.end(Outcome::Completed));
    assert!(!session.end(Outcome::Cancelled));
    drop(session);
    let honest = Sessions::new(2, None, Box::new(|| 1_000_000));
    let session = honest.admit("c").unwrap();
    session.end(Outcome::Completed);
    session.end(Outcome::Cancelled);
    assert_eq!(backend.sessions.snapshot(), honest.snapshot());
    assert_eq!(backend.sessions.ends(0, 10), honest.ends(0, 10));
    assert!(backend.defects.strikes().is_empty());
}
