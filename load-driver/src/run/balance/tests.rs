use std::{collections::BTreeMap, time::Duration};

use agent_server::admin::wire::{LoadJson, SnapshotJson};
use proto::{frame::Outcome, ids::PlanIndex};

use super::*;
use crate::{
    ledger::{FailureCause, Finish, Ledger, LedgerConfig},
    plan::{EndKind, Protocol},
};

const START: u64 = 1_700_000_000_000_000;
const SOURCE: SourceId = SourceId { worker: 0, shard: 0 };

fn at(ms: u64) -> u64 {
    START + ms * 1_000
}

/// A run as it is told: first all of it is said, then it is fed in some order.
struct Story {
    backends: usize,
    balancing: Balancing,
    entries: Vec<LedgerEntry>,
    looks: Vec<Look>,
}

impl Story {
    fn of(backends: usize) -> Self {
        Self::with(backends, Vec::new())
    }

    fn with(backends: usize, pinned: Vec<bool>) -> Self {
        let book =
            BookConfig { backends, target: 0.8, report_interval: Duration::from_secs(1), disturbances: vec![Micros::from_millis(1_000)] };
        let setup = Setup { book, joins: vec![Micros::ZERO; backends], expect: Vec::new(), pinned, start_us: START };
        let mut balancing = Balancing::new(setup);
        balancing.open(SOURCE, START);
        Self { backends, balancing, entries: Vec::new(), looks: Vec::new() }
    }

    fn say(&mut self, ms: u64, index: u64, event: LedgerEvent) {
        self.entries.push(LedgerEntry { index: PlanIndex(index), at_us: at(ms), event });
    }

    fn scheduled(&mut self, ms: u64, index: u64, end: EndKind) {
        self.say(ms, index, LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Grpc, end, client_ref: format!("r-{index}") });
    }

    fn attempted(&mut self, ms: u64, index: u64, backend: Option<usize>) {
        self.say(ms, index, LedgerEvent::Attempted { backend, report_age_us: Some(5_000) });
    }

    fn accepted(&mut self, ms: u64, index: u64, backend: usize) {
        let backend_id = format!("backend-{backend}");
        self.say(ms, index, LedgerEvent::Accepted { session_id: format!("s{index}"), backend_id, boot_id: "x".into() });
    }

    /// Dialled at once, accepted 2 ms later.
    fn begins(&mut self, ms: u64, index: u64, backend: usize) {
        self.scheduled(ms, index, EndKind::Graceful);
        self.attempted(ms, index, Some(backend));
        self.accepted(ms + 2, index, backend);
    }

    fn ends(&mut self, ms: u64, index: u64, finish: Finish) {
        self.say(ms, index, LedgerEvent::Ended { finish });
    }

    /// A look that is asked for and answered a millisecond later.
    fn look(&mut self, ms: u64, backend: usize, active: i64, change: impl FnOnce(&mut SnapshotJson)) {
        let mut snapshot = snapshot(ms, backend, active);
        change(&mut snapshot);
        let sample = CounterSample { backend, asked_at_us: at(ms), answered_at_us: at(ms + 1), snapshot, ends: None, sessions: None };
        self.looks.push(Look::Sample(Box::new(sample)));
    }

    fn everybody(&mut self, ms: u64, active: i64) {
        for backend in 0..self.backends {
            self.look(ms, backend, active, |_| {});
        }
    }

    /// Steps in batches of so many, looks before all of them.
    fn told(mut self, batch: usize) -> Result<Balance, String> {
        self.entries.sort_by_key(|entry| entry.at_us);
        for look in &self.looks {
            self.balancing.look(look);
        }
        for entries in self.entries.chunks(batch) {
            self.balancing.entries(SOURCE, entries, entries.last().map_or(START, |entry| entry.at_us));
        }
        self.balancing.source_done(SOURCE);
        let verdict = Ledger::new(LedgerConfig::new("r", START, Vec::new())).verdict();
        self.balancing.close(&verdict, &Registry::new(START, Vec::new()))
    }
}

fn snapshot(ms: u64, backend: usize, active: i64) -> SnapshotJson {
    SnapshotJson {
        backend_id: format!("backend-{backend}"),
        boot_id: format!("boot-{backend}"),
        captured_at_us: at(ms),
        exact: true,
        started: 0,
        active,
        active_interval: (active, active),
        ended: BTreeMap::new(),
        phases: BTreeMap::new(),
        max_sessions: None,
        rejected: 0,
        late_ends: 0,
        live_tasks: 0,
        draining: false,
        next_end: 0,
        frames_in: 0,
        frames_out: 0,
        cpu_us: 0,
        rss_bytes: 0,
        virtual_cost_us: 0,
        load: LoadJson::default(),
        defects: BTreeMap::new(),
        faults: BTreeMap::new(),
    }
}

#[track_caller]
fn near(got: Option<f64>, want: f64) {
    assert!(got.is_some_and(|got| (got - want).abs() < 1e-9), "{got:?}, not {want}");
}

/// Three sessions on one backend and one on the other, for ten seconds, with honest counters.
fn uneven() -> Story {
    let mut story = Story::of(2);
    story.everybody(0, 0);
    for (index, backend) in [(0, 0), (1, 0), (2, 0), (3, 1)] {
        story.begins(10, index, backend);
    }
    for ms in (100..10_000).step_by(100) {
        story.look(ms, 0, 3, |_| {});
        story.look(ms, 1, 1, |_| {});
    }
    for index in 0..4 {
        story.ends(10_000, index, Finish::Goodbye(Outcome::Completed));
    }
    story
}

#[test]
fn sessions_are_counted_by_the_driver_and_the_order_of_arrival_changes_nothing() {
    let balance = uneven().told(1).unwrap();
    assert_eq!((balance.assignments, balance.assigned.as_slice()), (4, [3, 1].as_slice()));
    // From the first look with sessions on: 100 of 10,000 ms are before it.
    let spread = balance.sessions.unwrap();
    assert!((spread.mean - 1.98).abs() < 0.001 && (spread.peak - 3.0).abs() < 1e-9, "{spread:?}");
    assert!((spread.cv - 0.495).abs() < 0.001 && (spread.min_to_max - 1.0 / 3.0).abs() < 0.001, "{spread:?}");
    assert_eq!((balance.counter_error_max, balance.counter_error_min), (Some(0.0), Some(0.0)));
    assert_eq!((balance.utilization, balance.overload_rate), (None, None), "nobody said, so nobody knows");
    near(balance.report_age_p99_ms, 5.003);
    for batch in [2, 3, 100] {
        assert_eq!(uneven().told(batch).unwrap(), balance);
    }
}

#[test]
fn what_may_be_news_under_way_is_no_error_of_the_counter_and_all_else_is() {
    let mut story = Story::of(1);
    story.look(0, 0, 0, |_| {});
    // Dialled while the counters are read, counted before the driver hears of it.
    story.scheduled(99, 0, EndKind::Graceful);
    story.attempted(99, 0, Some(0));
    story.look(100, 0, 1, |_| {});
    story.accepted(105, 0, 0);
    // The backend ends it before the driver knows.
    story.look(500, 0, 0, |_| {});
    story.ends(510, 0, Finish::ByServer(Outcome::Completed));
    // Still counted a moment after.
    story.look(600, 0, 1, |_| {});
    story.begins(5_000, 1, 0);
    story.ends(6_000, 1, Finish::Goodbye(Outcome::Completed));
    let honest = |story: Story| {
        let balance = story.told(1).unwrap();
        (balance.counter_error_min.unwrap(), balance.counter_error_max.unwrap())
    };
    let mut ghost = Story::of(1);
    (ghost.entries, ghost.looks) = (story.entries.clone(), Vec::new());
    assert_eq!(honest(story), (0.0, 0.0));
    for ms in [0, 1_000, 1_200, 5_100, 5_300] {
        // One too many while there is none, one too few while there is one.
        ghost.look(ms, 0, i64::from((1_000..5_000).contains(&ms)) * 2, |_| {});
    }
    assert_eq!(honest(ghost), (-1.0, 2.0));
}

#[test]
fn a_full_backend_is_overloaded_and_what_is_being_dialled_counts() {
    let mut story = Story::of(2);
    for backend in 0..2 {
        story.look(0, backend, 0, |s| s.max_sessions = Some(2));
    }
    for index in 0..3 {
        story.scheduled(10, index, EndKind::Graceful);
        story.attempted(10 + index, index, Some(0));
    }
    story.say(20, 2, LedgerEvent::Retried { cause: FailureCause::Rejected });
    story.attempted(21, 2, Some(1));
    for (index, backend) in [(0, 0), (1, 0), (2, 1)] {
        story.accepted(30, index, backend);
    }
    // Both are full from here on: it cannot be avoided.
    story.begins(40, 3, 1);
    story.begins(50, 4, 1);
    for index in 0..5 {
        story.ends(100, index, Finish::Goodbye(Outcome::Completed));
    }
    let balance = story.told(1).unwrap();
    assert_eq!(balance.assigned, [3, 3]);
    near(balance.overload_rate, 2.0 / 6.0);
    near(balance.avoidable_rate, 1.0 / 6.0);
    assert_eq!(balance.retried, BTreeMap::from([("rejected".to_owned(), 1)]));
}

#[test]
fn what_the_plan_pins_is_no_decision() {
    let assignments = |pinned: bool| {
        let mut story = Story::with(2, vec![pinned]);
        story.everybody(0, 0);
        story.begins(100, 1, 0);
        story.everybody(2_000, 1);
        story.told(1).expect("figures").assignments
    };
    assert_eq!((assignments(false), assignments(true)), (1, 0));
}

#[test]
fn utilization_is_cpu_time_over_at_least_a_second() {
    let mut story = Story::of(2);
    for ms in (0..=5_000).step_by(500) {
        for backend in 0..2 {
            // One core of two is busy on the first, half a core on the second.
            let load = LoadJson { used_us: ms * 1_000 / (backend as u64 + 1), cores: 2.0, target: 0.5, rate: 3.0, ..LoadJson::default() };
            story.look(ms, backend, 0, |s| s.load = load);
        }
    }
    story.begins(900, 0, 0);
    story.begins(2_000, 1, 0);
    story.begins(2_000, 2, 1);
    for index in 0..3 {
        story.ends(5_010, index, Finish::Goodbye(Outcome::Completed));
    }
    let balance = story.told(1).unwrap();
    near(balance.utilization.map(|u| u.peak), 0.5);
    assert!(balance.utilization.is_some_and(|u| (u.mean - 0.375).abs() < 0.01), "{balance:?}");
    // The first decision fell into a time of which nobody knows the utilization yet.
    near(balance.overload_rate, 0.5);
    near(balance.avoidable_rate, 0.5);
    near(balance.herd_ratio, 1.0 / 3.0);
}

#[test]
fn behind_a_balancer_the_accepting_backend_counts() {
    let mut story = Story::of(2);
    story.everybody(0, 0);
    for (index, backend) in [(0, 1), (1, 1), (2, 0)] {
        story.scheduled(10, index, EndKind::Graceful);
        story.attempted(10, index, None);
        story.accepted(20 + index, index, backend);
        story.ends(500, index, Finish::Goodbye(Outcome::Completed));
    }
    assert_eq!(story.told(2).unwrap().assigned, [1, 2]);
    let mut strange = Story::of(1);
    strange.everybody(0, 0);
    strange.scheduled(10, 0, EndKind::Graceful);
    strange.attempted(10, 0, None);
    strange.accepted(20, 0, 7);
    let why = strange.told(1).unwrap_err();
    assert!(why.contains("`backend-7`"), "{why}");
}

#[test]
fn a_kill_drops_sessions_and_the_backend_is_back_with_its_next_process() {
    let mut story = Story::of(2);
    story.everybody(0, 0);
    for index in 0..6 {
        story.begins(10, index, (index % 2) as usize);
    }
    story.scheduled(20, 6, EndKind::KillBackend);
    story.attempted(20, 6, Some(1));
    story.accepted(22, 6, 1);
    for ms in [200, 600] {
        story.look(ms, 0, 3, |_| {});
        story.look(ms, 1, 4, |_| {});
    }
    for index in [1, 3, 5, 6] {
        story.ends(1_005, index, Finish::Lost(FailureCause::Eof));
    }
    story.look(1_200, 0, 3, |_| {});
    story.look(2_000, 0, 3, |_| {});
    story.look(2_000, 1, 0, |s| s.boot_id = "again".into());
    for (n, ms) in [2_100, 2_200, 2_300].into_iter().enumerate() {
        story.begins(ms, 10 + n as u64, 1);
    }
    story.look(3_000, 0, 3, |_| {});
    story.look(3_000, 1, 3, |_| {});
    for index in [0, 2, 4, 10, 11, 12] {
        story.ends(4_000, index, Finish::Goodbye(Outcome::Completed));
    }
    story.balancing.backend_killed(1, at(1_000));
    let balance = story.told(1).unwrap();
    assert_eq!(balance.dropped, BTreeMap::from([("kill_backend".to_owned(), 3)]), "the fourth was meant to end so");
    near(balance.recovery_s, 2.001);
    assert_eq!((balance.unrecovered, balance.rejected.len()), (0, 0));
    assert_eq!((balance.counter_error_max, balance.counter_error_min), (Some(0.0), Some(0.0)));
}

#[test]
fn troubles_are_told_by_cause_and_what_the_plan_wants_is_none() {
    let mut story = Story::of(1);
    story.everybody(0, 0);
    for index in 0..5 {
        story.scheduled(10, index, EndKind::Graceful);
    }
    story.say(11, 0, LedgerEvent::Failed { cause: FailureCause::NoBackend });
    story.say(12, 1, LedgerEvent::Failed { cause: FailureCause::Aborted });
    for index in 2..5 {
        story.attempted(20, index, Some(0));
        story.accepted(22, index, 0);
    }
    story.ends(100, 2, Finish::Lost(FailureCause::Reset));
    story.ends(100, 3, Finish::ByServer(Outcome::Failed));
    story.say(90, 4, LedgerEvent::Forced { kind: EndKind::TcpRst });
    story.ends(100, 4, Finish::Forced(EndKind::TcpRst));
    let balance = story.told(1).unwrap();
    assert_eq!(balance.rejected, BTreeMap::from([("no_backend".to_owned(), 1)]));
    assert_eq!(balance.dropped, BTreeMap::from([("reset".to_owned(), 1), ("ended_failed".to_owned(), 1)]));
}

#[test]
fn the_target_is_told_when_it_is_one() {
    let look = |target: f64| {
        let mut snapshot = snapshot(0, 0, 0);
        snapshot.load = LoadJson { cores: 1.0, target, ..LoadJson::default() };
        Look::Sample(Box::new(CounterSample { backend: 0, asked_at_us: 0, answered_at_us: 1, snapshot, ends: None, sessions: None }))
    };
    assert!((target_of_all(&[look(0.8), look(0.8)]) - 0.8).abs() < 1e-9);
    for looks in [vec![], vec![look(0.8), look(0.7)], vec![look(0.0), look(0.8)]] {
        assert!(target_of_all(&looks).is_nan());
    }
}
