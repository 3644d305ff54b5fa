//! How single ends are judged: what happens by chance is no fault, and what happens all the time is no chance.

use std::collections::BTreeMap;

use agent_server::admin::wire::{EndRecord, LoadJson, SnapshotJson};
use proto::{frame::Outcome, ids::PlanIndex};

use super::{
    mix, names,
    sim::{MS, Spec, T0, World},
};
use crate::{
    counters::CounterSample,
    ledger::{
        BackendConfig, Carried, DefectName, FailureCause, Finish, Judgement, Ledger, LedgerConfig, LedgerEntry, LedgerEvent, SourceId,
        Verdict,
    },
    plan::{EndKind, Expect, Protocol},
};

const SOURCE: SourceId = SourceId { worker: 0, shard: 0 };
const CUT: Finish = Finish::Forced(EndKind::Cancel);

/// A session: from when, how and when the driver saw it end, when and as what the backend counted that, in milliseconds; and one more step of it.
#[derive(Debug, Clone)]
struct One {
    from: u64,
    over: (u64, Finish),
    counted: (u64, Outcome),
    beside: Option<(u64, LedgerEvent)>,
}

#[derive(Debug, Default)]
struct Setting {
    draining_from: Option<u64>,
    expect: Option<Expect>,
    stood: Option<(u64, u64)>,
}

fn at(ms: u64) -> u64 {
    T0 + ms * MS
}

/// Sessions of many ages, cut by the driver, as an honest backend counts them.
fn cuts(n: u64) -> Vec<One> {
    let one = |i: u64| {
        let (from, length) = (100 + i * 150, 2_000 + i * 373 % 1_900);
        One { from, over: (from + length, CUT), counted: (from + length + 4, Outcome::Cancelled), beside: None }
    };
    (0..n).map(one).collect()
}

/// The first so many of them, counted as this, so many milliseconds before or after the cut.
fn counted(n: u64, of: u64, outcome: Outcome, after_ms: i64) -> Vec<One> {
    let mut all = cuts(of);
    for one in all.iter_mut().take(n as usize) {
        one.counted = (one.over.0.saturating_add_signed(after_ms), outcome);
    }
    all
}

fn sample(now: u64, all: &[One], setting: &Setting) -> CounterSample {
    let mut ended: Vec<(usize, &One)> = all.iter().enumerate().filter(|(_, one)| at(one.counted.0) <= now).collect();
    ended.sort_by_key(|(_, one)| one.counted.0);
    let started = all.iter().filter(|one| at(one.from + 5) <= now).count() as u64;
    let active = started as i64 - ended.len() as i64;
    let mut by_outcome: BTreeMap<String, u64> = BTreeMap::new();
    for (_, one) in &ended {
        *by_outcome.entry(one.counted.1.name().to_owned()).or_default() += 1;
    }
    let record = |(seq, (i, one)): (usize, &(usize, &One))| EndRecord {
        seq: seq as u64,
        session_id: format!("s{i}"),
        client_ref: format!("run-{i}"),
        outcome: one.counted.1.name().to_owned(),
        at_us: at(one.counted.0),
    };
    CounterSample {
        backend: 0,
        asked_at_us: now,
        answered_at_us: now + 2 * MS,
        snapshot: SnapshotJson {
            backend_id: "b0".into(),
            boot_id: "boot-1".into(),
            captured_at_us: now + MS,
            exact: true,
            started,
            active,
            active_interval: (active, active),
            ended: by_outcome,
            phases: BTreeMap::from([("listening".to_owned(), active)]),
            max_sessions: None,
            rejected: 0,
            late_ends: 0,
            live_tasks: 0,
            draining: setting.draining_from.is_some_and(|ms| at(ms) <= now),
            next_end: ended.len() as u64,
            frames_in: 0,
            frames_out: 0,
            cpu_us: 0,
            rss_bytes: 0,
            virtual_cost_us: 0,
            load: LoadJson::default(),
            defects: BTreeMap::new(),
            faults: BTreeMap::new(),
        },
        ends: Some(ended.iter().enumerate().map(record).collect()),
        sessions: None,
    }
}

fn told(all: &[One], setting: &Setting) -> Verdict {
    ledger_of(all, setting, &Carried::default()).verdict()
}

/// Of a run, or a part of one, in which nothing is left to see.
fn ledger_of(all: &[One], setting: &Setting, carried: &Carried) -> Ledger {
    let mut config = LedgerConfig::new("run", T0, vec![BackendConfig { watched: true, fresh: true }]);
    config.settle_us = 3_000 * MS;
    config.scenarios = vec![setting.expect];
    let mut ledger = Ledger::new(config).continuing(carried);
    ledger.open(SOURCE, T0);
    let mut steps: Vec<(u64, u64, LedgerEvent)> = Vec::new();
    for (i, one) in all.iter().enumerate() {
        let mut step = |ms, event| steps.push((ms, i as u64, event));
        let client_ref = format!("run-{i}");
        step(one.from, LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Grpc, end: EndKind::Cancel, client_ref });
        step(one.from, LedgerEvent::Attempted { backend: Some(0), report_age_us: None });
        step(one.from + 9, LedgerEvent::Accepted { session_id: format!("s{i}"), backend_id: "b0".into(), boot_id: "boot-1".into() });
        if let Some((ms, event)) = &one.beside {
            step(*ms, event.clone());
        }
        if let Finish::Forced(kind) = one.over.1 {
            step(one.over.0, LedgerEvent::Forced { kind });
        }
        step(one.over.0, LedgerEvent::Ended { finish: one.over.1 });
    }
    steps.sort_by_key(|(ms, _, _)| *ms);
    for ms in (0..200_000).step_by(250) {
        if let Some((from, to)) = setting.stood.filter(|(_, to)| (*to..to + 250).contains(&ms)) {
            ledger.stood_still(SOURCE, at(from), at(to));
        }
        // Whoever stands still tells nothing.
        if !setting.stood.is_some_and(|(from, to)| (from..to).contains(&ms)) {
            let now = steps.extract_if(.., |(step, _, _)| *step < ms);
            let now = now.map(|(ms, index, event)| LedgerEntry { index: PlanIndex(index), at_us: at(ms), event }).collect();
            ledger.entries(SOURCE, now, at(ms));
        }
        if steps.is_empty() {
            ledger.source_done(SOURCE);
        }
        ledger.sample(sample(at(ms), all, setting));
        if ledger.settled(at(ms)) {
            return ledger;
        }
    }
    panic!("never settled")
}

fn found(all: &[One]) -> Vec<(DefectName, u64)> {
    names(&told(all, &Setting::default()))
}

fn with(all: &[One], setting: &Setting) -> Vec<(DefectName, u64)> {
    names(&told(all, setting))
}

#[test]
fn an_end_of_the_backends_own_may_cross_a_cut_now_and_then() {
    assert_eq!(found(&cuts(60)), []);
    for (outcome, after_ms) in [(Outcome::TimedOut, 4), (Outcome::TimedOut, -40), (Outcome::Failed, -500), (Outcome::Drained, -1)] {
        assert_eq!(found(&counted(3, 60, outcome, after_ms)), [], "{outcome:?}");
        assert_eq!(found(&counted(3, 6, outcome, after_ms)), [], "few are few");
        assert_eq!(found(&counted(4, 60, outcome, after_ms)), [(DefectName::WrongOutcome, 4)], "{outcome:?}");
        assert_eq!(found(&counted(60, 60, outcome, after_ms)), [(DefectName::WrongOutcome, 60)], "{outcome:?}");
    }
    assert_eq!(found(&counted(4, 80, Outcome::TimedOut, 4)), [], "one in twenty");
    assert_eq!(found(&counted(1, 60, Outcome::Failed, 4)), [(DefectName::WrongOutcome, 1)], "after the cut only a timeout can race");
    assert_eq!(found(&counted(1, 60, Outcome::Completed, -4)), [(DefectName::WrongOutcome, 1)]);
    let verdict = told(&counted(60, 60, Outcome::TimedOut, 4), &Setting::default());
    assert!(verdict.findings[0].evidence.contains("cancelled counted as timed_out (60)"), "{:?}", verdict.findings);
    assert_eq!(verdict.findings[0].session_ids.len(), 20);
}

/// Counted as cut, but before the cut: the backend looked emptier than it was.
#[test]
fn ends_that_are_dated_before_the_cut_all_the_time_were_none() {
    assert_eq!(found(&counted(60, 60, Outcome::Cancelled, -90)), [], "the news takes its time");
    assert_eq!(found(&counted(3, 60, Outcome::Cancelled, -1_800)), []);
    assert_eq!(found(&counted(60, 60, Outcome::Cancelled, -1_800)), [(DefectName::FalseCapacity, 60)]);
}

#[test]
fn what_the_plan_or_the_driver_made_to_race_is_not_counted() {
    let late = counted(60, 60, Outcome::TimedOut, 4);
    assert_eq!(with(&late, &Setting { expect: Some(Expect::TimedOut), ..Setting::default() }), []);
    let beside = |event: LedgerEvent, before_ms: u64, outcome, after_ms| {
        let mut all = counted(60, 60, outcome, after_ms);
        for one in &mut all {
            one.beside = Some((one.over.0 - before_ms, event.clone()));
        }
        found(&all)
    };
    assert_eq!(beside(LedgerEvent::Raced, 1, Outcome::TimedOut, 4), []);
    assert_eq!(beside(LedgerEvent::Raced, 1, Outcome::Failed, -4), [(DefectName::WrongOutcome, 60)]);
    // It does not read, and hears of the end when it reads again.
    assert_eq!(beside(LedgerEvent::Deaf { until_us: at(60_000) }, 900, Outcome::TimedOut, -500), []);
    // Cuts of a driver that stands still all the while.
    assert_eq!(with(&counted(60, 60, Outcome::TimedOut, -500), &Setting { stood: Some((0, 20_000)), ..Setting::default() }), []);
}

/// The driver cannot tell a deadline that all its cuts fall on from a backend that puts them down as timeouts.
#[test]
fn cuts_at_a_deadline_that_the_plan_did_not_tell_of_prove_nothing() {
    let mut all = cuts(60);
    for (i, one) in all.iter_mut().enumerate() {
        one.over.0 = one.from + 2_000;
        one.counted = (one.over.0 - 20 + i as u64 % 40, Outcome::TimedOut);
    }
    let verdict = told(&all, &Setting::default());
    assert_eq!((verdict.judgement, names(&verdict)), (Judgement::Unverified, vec![(DefectName::Unverified, 1)]));
    assert!(verdict.findings[0].evidence.contains("60 of 60 sessions that the driver cut"), "{:?}", verdict.findings);
    assert_eq!(with(&all, &Setting { expect: Some(Expect::TimedOut), ..Setting::default() }), []);
}

#[test]
fn only_those_that_were_there_are_drained() {
    let from = |ms| Setting { draining_from: Some(ms), ..Setting::default() };
    let drained = counted(60, 60, Outcome::Drained, 4);
    assert_eq!(with(&drained, &from(0)), [(DefectName::WrongOutcome, 60)], "it took them while it drained");
    // All of them begin before 10 s. Those that are cut before it drains are not drained, and those that begin later.
    let over = |one: &One, ms| one.over.0 < ms;
    let honest = |ms| {
        let mut all = drained.clone();
        for one in all.iter_mut().filter(|one| over(one, ms)) {
            one.counted.1 = Outcome::Cancelled;
        }
        all
    };
    assert_eq!(with(&honest(9_500), &from(9_500)), []);
    let wrong = drained.iter().filter(|one| one.over.0 + 4 < 9_250).count() as u64;
    assert_eq!(with(&drained, &from(9_500)), [(DefectName::WrongOutcome, wrong)]);
    let late = drained.iter().filter(|one| one.from + 9 > 5_002).count() as u64;
    assert_eq!(with(&honest(5_000), &from(5_000)), [(DefectName::WrongOutcome, late)]);
}

/// What both sides say of an end must be of one time, but for what news may take.
#[test]
fn an_end_in_order_or_by_a_cut_was_not_long_before() {
    let one = |finish, before_ms, outcome| {
        let mut all = cuts(20);
        all[7].over.1 = finish;
        all[7].counted = (all[7].over.0 - before_ms, outcome);
        found(&all)
    };
    let early = [(DefectName::FalseCapacity, 1)];
    for (finish, outcome) in [
        (CUT, Outcome::Cancelled),
        (Finish::Goodbye(Outcome::Completed), Outcome::Completed),
        (Finish::ByServer(Outcome::TimedOut), Outcome::TimedOut),
    ] {
        assert_eq!(one(finish, 2_200, outcome), early, "{finish:?}");
        assert_eq!(one(finish, 1_800, outcome), [], "{finish:?}");
    }
    // A connection may take longer to break.
    assert_eq!(one(Finish::Lost(FailureCause::Reset), 2_200, Outcome::TimedOut), []);
}

/// What it is called at the end, it is while it lasts.
#[test]
fn a_session_that_is_counted_as_over_while_it_lives_is_drift() {
    let mut all = cuts(20);
    (all[0].over.0, all[0].counted.0) = (15_100, 3_100);
    let verdict = told(&all, &Setting::default());
    assert_eq!(names(&verdict), [(DefectName::FalseCapacity, 1)]);
    let [row] = &verdict.drift[..] else { panic!("{:?}", verdict.drift) };
    assert_eq!((row.most, row.least, row.lasts), (0, -1, false));
    // Without the times in which news may have been under way: 5 s after it was written down, 2 s before it was over.
    assert!((4.4..5.1).contains(&row.false_capacity_seconds), "{row:?}");
}

/// A driver that is killed now and then makes no chance of what happens all the time.
#[test]
fn what_crosses_cuts_is_counted_over_all_parts_of_a_run() {
    let few = counted(3, 40, Outcome::TimedOut, 4);
    assert_eq!(found(&few), []);
    let checkpoint = serde_json::to_string(&ledger_of(&few, &Setting::default(), &Carried::default()).carried()).expect("plain data");
    let carried: Carried = serde_json::from_str(&checkpoint).expect("its own");
    let resumed = |all: &[One]| names(&ledger_of(all, &Setting::default(), &carried).verdict());
    assert_eq!(resumed(&cuts(40)), []);
    assert_eq!(resumed(&few), [(DefectName::WrongOutcome, 6)]);
}

/// Completed takes a goodbye.
#[test]
fn a_session_that_broke_did_not_complete() {
    let broke = |cause, beside| {
        let mut all = cuts(20);
        all[7].over.1 = Finish::Lost(cause);
        all[7].counted.1 = Outcome::Completed;
        all[7].beside = beside;
        found(&all)
    };
    let wrong = [(DefectName::WrongOutcome, 1)];
    assert_eq!(broke(FailureCause::Reset, None), wrong);
    assert_eq!(broke(FailureCause::Eof, None), wrong);
    // It said goodbye, and the answer was lost.
    let goodbye = (cuts(20)[7].over.0 - 10, LedgerEvent::Forced { kind: EndKind::Graceful });
    assert_eq!(broke(FailureCause::Reset, Some(goodbye)), []);
    // A killed worker may have said it.
    assert_eq!(broke(FailureCause::WorkerLost, None), []);
}

/// Tells every end twice, the second time under another name.
fn twice(sample: &mut CounterSample, again: impl Fn(&EndRecord) -> EndRecord) {
    let at = &mut sample.snapshot;
    at.started += at.ended.values().sum::<u64>();
    at.ended.values_mut().for_each(|n| *n *= 2);
    at.next_end *= 2;
    for end in sample.ends.take().unwrap_or_default() {
        let (first, second) = (EndRecord { seq: 2 * end.seq, ..end.clone() }, EndRecord { seq: 2 * end.seq + 1, ..again(&end) });
        sample.ends.get_or_insert_default().extend([first, second]);
    }
    sample.ends.get_or_insert_default();
}

fn phantoms(sample: &mut CounterSample) {
    twice(sample, |end| EndRecord {
        session_id: format!("p{}", end.session_id),
        client_ref: format!("run-9000{}", end.seq),
        ..end.clone()
    });
}

fn renamed(sample: &mut CounterSample) {
    twice(sample, |end| EndRecord { session_id: format!("{}x", end.session_id), ..end.clone() });
}

/// A worker that is killed may have begun sessions of which it told nothing: as many as it is fast.
#[test]
fn a_killed_worker_excuses_no_more_sessions_than_it_can_have_begun() {
    let specs = |worker| {
        let one = |(i, spec): (usize, Spec)| Spec { worker: if i % 10 == 3 { worker } else { 0 }, ..spec };
        mix(210).into_iter().enumerate().map(one).collect::<Vec<_>>()
    };
    let world = World { kill_worker: Some((1, 700)), ..World::of(specs(1)) };
    assert_eq!(names(&world.run().verdict), []);
    let ran = World { disguise: Some(phantoms), ..world }.run();
    assert!(matches!(names(&ran.verdict)[..], [(DefectName::UnknownSessions, n)] if n > 140), "{:#?}", ran.verdict.findings);
    assert!(!ran.verdict.findings[0].session_ids.is_empty());
    // Of one that never told of a dial nobody knows.
    let ran = World { kill_worker: Some((1, 700)), disguise: Some(phantoms), ..World::of(specs(0)) }.run();
    assert_eq!((ran.verdict.judgement, names(&ran.verdict)), (Judgement::Unverified, vec![(DefectName::Unverified, 1)]));
    assert!(ran.verdict.findings[0].evidence.contains("never told of one"), "{:#?}", ran.verdict.findings);
}

#[test]
fn a_backend_behind_a_front_that_counts_each_session_twice_is_no_pass() {
    let world = World { front: true, fresh: false, ..World::of(mix(210)) };
    assert_eq!(names(&world.run().verdict), []);
    let verdict = World { disguise: Some(renamed), ..world }.run().verdict;
    assert_eq!((verdict.judgement, names(&verdict)), (Judgement::Unverified, vec![(DefectName::Unverified, 1)]), "{:#?}", verdict.findings);
    assert!(verdict.findings[0].evidence.contains("or the front dialled it again by itself"), "{:#?}", verdict.findings);
    assert!(verdict.notes.iter().any(|note| note.contains("were counted a second time by the backend")), "{:?}", verdict.notes);
}
