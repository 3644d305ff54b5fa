//! A network that fails on purpose excuses what follows from it, and nothing else.

use std::{collections::BTreeMap, ops::Range};

use agent_server::admin::wire::{EndRecord, LoadJson, SnapshotJson};
use proto::{frame::Outcome, ids::PlanIndex};

use super::{
    names,
    sim::{MS, T0},
};
use crate::{
    counters::CounterSample,
    ledger::{
        BackendConfig, DefectName, FailureCause, Finish, Ledger, LedgerConfig, LedgerEntry, LedgerEvent, SourceId, Verdict, Weather,
        Windows,
    },
    plan::{Dialect, EndKind, Expect, Protocol},
};

const SOURCE: SourceId = SourceId { worker: 0, shard: 0 };

/// One session: when and how the driver saw it end, when and how the backend counted that, and the fault of the network, all in milliseconds.
struct Story {
    forced: Option<(EndKind, u64)>,
    over: (u64, Finish),
    counted: Option<(u64, Outcome)>,
    fault: Option<(u64, u64, Weather)>,
}

fn at(ms: u64) -> u64 {
    T0 + ms * MS
}

/// `begins_ms`: from then on the backend counts the session.
fn sample(now: u64, story: &Story, begins_ms: u64) -> CounterSample {
    let begun = now > at(begins_ms);
    let ended = story.counted.filter(|(ms, _)| at(*ms) <= now);
    let active = i64::from(ended.is_none());
    let record = ended.map(|(ms, outcome)| EndRecord {
        seq: 0,
        session_id: "s0".into(),
        client_ref: "run-0".into(),
        outcome: outcome.name().to_owned(),
        at_us: at(ms),
    });
    CounterSample {
        backend: 0,
        asked_at_us: now,
        answered_at_us: now + 2 * MS,
        snapshot: SnapshotJson {
            backend_id: "b0".into(),
            boot_id: "boot-1".into(),
            captured_at_us: now + MS,
            exact: true,
            started: u64::from(begun),
            active: if begun { active } else { 0 },
            active_interval: (active, active),
            ended: ended.map(|(_, outcome)| (outcome.name().to_owned(), 1)).into_iter().collect(),
            phases: BTreeMap::from([("listening".to_owned(), if begun { active } else { 0 })]),
            max_sessions: None,
            rejected: 0,
            late_ends: 0,
            live_tasks: 0,
            draining: false,
            next_end: record.iter().count() as u64,
            frames_in: 0,
            frames_out: 0,
            cpu_us: 0,
            rss_bytes: 0,
            virtual_cost_us: 0,
            load: LoadJson::default(),
            defects: BTreeMap::new(),
            faults: BTreeMap::new(),
        },
        ends: Some(record.into_iter().collect()),
        sessions: None,
    }
}

fn told(story: &Story) -> Verdict {
    told_in(Dialect::Native, story, 100)
}

fn told_in(dialect: Dialect, story: &Story, begins_ms: u64) -> Verdict {
    told_with(dialect, story, begins_ms, None, 0..0)
}

/// `beside`: one more step of the session, at this time. `unseen_ms`: nobody looked in this time.
fn told_with(dialect: Dialect, story: &Story, begins_ms: u64, beside: Option<(u64, LedgerEvent)>, unseen_ms: Range<u64>) -> Verdict {
    told_of((dialect, None), story, begins_ms, beside, (unseen_ms, 0..0))
}

/// What the session speaks, and what it is for; when nobody looked, and when the driver stood still.
fn told_of(
    (dialect, expect): (Dialect, Option<Expect>),
    story: &Story,
    begins_ms: u64,
    beside: Option<(u64, LedgerEvent)>,
    (unseen_ms, stood_ms): (Range<u64>, Range<u64>),
) -> Verdict {
    let mut config = LedgerConfig::new("run", T0, vec![BackendConfig { watched: true, fresh: true }]);
    config.windows = Windows::default().with(EndKind::HalfOpen, 4_000 * MS);
    config.settle_us = 3_000 * MS;
    (config.dialects, config.scenarios) = (vec![dialect], vec![expect]);
    let mut ledger = Ledger::new(config);
    ledger.open(SOURCE, T0);
    let mut steps = vec![
        (10, LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Grpc, end: EndKind::TcpRst, client_ref: "run-0".into() }),
        (10, LedgerEvent::Attempted { backend: Some(0), report_age_us: None }),
        (150, LedgerEvent::Accepted { session_id: "s0".into(), backend_id: "b0".into(), boot_id: "boot-1".into() }),
    ];
    steps.extend(story.forced.map(|(kind, ms)| (ms, LedgerEvent::Forced { kind })));
    steps.extend(beside);
    steps.push((story.over.0, LedgerEvent::Ended { finish: story.over.1 }));
    steps.sort_by_key(|(ms, _)| *ms);
    for ms in (0..200_000).step_by(250) {
        if let Some((from, to, weather)) = story.fault {
            if (from..from + 250).contains(&ms) {
                ledger.network_fault(0, 3, at(from), weather);
            }
            if (to..to + 250).contains(&ms) {
                ledger.network_calm(0, 3, at(to), false);
            }
        }
        if (stood_ms.end..stood_ms.end + 250).contains(&ms) {
            ledger.stood_still(SOURCE, at(stood_ms.start), at(stood_ms.end));
        }
        let now: Vec<LedgerEntry> = steps
            .extract_if(.., |(step, _)| *step < ms)
            .map(|(ms, event)| LedgerEntry { index: PlanIndex(0), at_us: at(ms), event })
            .collect();
        ledger.entries(SOURCE, now, at(ms));
        if steps.is_empty() {
            ledger.source_done(SOURCE);
        }
        if !unseen_ms.contains(&ms) {
            ledger.sample(sample(at(ms), story, begins_ms));
        }
        if ledger.settled(at(ms)) {
            return ledger.verdict();
        }
    }
    panic!("never settled")
}

fn found(story: &Story) -> Vec<DefectName> {
    names(&told(story)).into_iter().map(|(name, _)| name).collect()
}

/// A driver that stands still answers no keepalive, and its cuts go out late: the backend may have given the session up before one came.
#[test]
fn a_timeout_while_the_driver_stood_still_is_no_wrong_outcome() {
    let story = Story {
        forced: Some((EndKind::TcpRst, 5_000)),
        over: (5_001, Finish::Forced(EndKind::TcpRst)),
        counted: Some((5_500, Outcome::TimedOut)),
        fault: None,
    };
    let of = |unseen| names(&told_with(Dialect::Native, &story, 150, None, unseen)).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(of(5_000..6_000), []);
    assert_eq!(of(0..0), [DefectName::WrongOutcome]);
    assert_eq!(of(8_000..9_000), [DefectName::WrongOutcome], "it was seen all the while");
}

/// As before, where the counters were looked at all the while: what excuses is the driver's own standstill, and no more than it explains.
#[test]
fn a_timeout_that_the_drivers_own_standstill_explains_is_no_wrong_outcome() {
    let cut = |kind, outcome| Story {
        forced: Some((kind, 5_000)),
        over: (5_001, Finish::Forced(kind)),
        counted: Some((5_500, outcome)),
        fault: None,
    };
    let told = |story: &Story, stood| told_of((Dialect::Native, None), story, 150, None, (0..0, stood));
    let found = |story: &Story, stood| names(&told(story, stood)).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let late = cut(EndKind::Cancel, Outcome::TimedOut);
    // The cut was due in it, and is among what waited; it had just been made, and was not out; none of both.
    assert_eq!(found(&late, 4_400..5_000), []);
    assert_eq!(found(&late, 4_990..5_450), []);
    assert_eq!(found(&late, 1..2), [DefectName::WrongOutcome], "a healthy driver");
    assert_eq!(found(&late, 4_700..5_000), [DefectName::WrongOutcome], "it had made good by then");
    assert_eq!(found(&late, 3_000..3_900), [DefectName::WrongOutcome], "long before");
    assert_eq!(found(&late, 5_300..5_390), [DefectName::WrongOutcome], "too short for a standstill");
    assert_eq!(found(&late, 8_000..9_000), [DefectName::WrongOutcome], "afterwards");
    assert_eq!(found(&cut(EndKind::Cancel, Outcome::Failed), 4_400..5_600), [DefectName::WrongOutcome], "no timeout");
    let note = told(&late, 4_400..5_000).notes.into_iter().find(|note| note.contains("it stood still itself"));
    assert!(note.is_some_and(|note| note.starts_with("1 sessions")));
}

/// Who stands still for longer than the backend waits for an answer loses its sessions, and hears of it late.
#[test]
fn a_timeout_in_the_drivers_own_standstill_is_not_too_early() {
    let story =
        Story { forced: None, over: (12_000, Finish::Lost(FailureCause::Reset)), counted: Some((3_000, Outcome::TimedOut)), fault: None };
    let found = |stood| names(&told_of((Dialect::Native, None), &story, 100, None, (0..0, stood)));
    assert_eq!(found(1_000..11_900), []);
    assert_eq!(found(9_000..11_900), [(DefectName::FalseCapacity, 1)], "it would have heard of it before");
}

/// A run that is called saturated late only knows standstills that are longer.
#[test]
fn a_standstill_is_long_beside_the_lag_that_a_run_may_have() {
    let config = |limit_ms| LedgerConfig::new("run", T0, Vec::new()).with_lag_limit(limit_ms * MS);
    assert_eq!([20, 50, 300].map(|limit| config(limit).standstill_us), [100 * MS, 100 * MS, 600 * MS]);
}

#[test]
fn a_cut_that_is_swallowed_may_be_found_late_and_as_a_timeout() {
    let story = |fault| Story {
        forced: Some((EndKind::TcpRst, 5_000)),
        over: (5_001, Finish::Forced(EndKind::TcpRst)),
        counted: Some((9_000, Outcome::TimedOut)),
        fault,
    };
    assert_eq!(found(&story(Some((1_000, 12_000, Weather::Lost)))), []);
    assert_eq!(found(&story(None)), [DefectName::LateDecrement, DefectName::WrongOutcome]);
    assert_eq!(
        found(&story(Some((1_000, 1_900, Weather::Late(50 * MS))))),
        [DefectName::LateDecrement, DefectName::WrongOutcome],
        "it was over"
    );
}

#[test]
fn an_end_that_the_backend_counts_long_before_the_driver_can_know_takes_no_capacity() {
    let story =
        |fault| Story { forced: None, over: (12_000, Finish::Lost(FailureCause::Reset)), counted: Some((3_000, Outcome::TimedOut)), fault };
    assert_eq!(found(&story(Some((1_000, 12_000, Weather::Lost)))), []);
    assert_eq!(found(&story(None)), [DefectName::FalseCapacity]);
}

/// Who does not read hears of the backend's end when it reads again. That excuses nothing that the backend does before or after.
#[test]
fn an_end_that_came_while_the_driver_did_not_read_is_none_too_early() {
    let story = |counted, over| Story {
        forced: None,
        over: (over, Finish::Lost(FailureCause::Reset)),
        counted: Some((counted, Outcome::TimedOut)),
        fault: None,
    };
    let found = |counted, over| {
        let deaf = (2_000, LedgerEvent::Deaf { until_us: at(20_000) });
        let verdict = told_with(Dialect::Native, &story(counted, over), 100, Some(deaf), 0..0);
        names(&verdict).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(found(5_000, 20_300), []);
    assert_eq!(found(30_000, 40_000), [DefectName::FalseCapacity], "it read again");
    assert_eq!(found(5_000, 40_000), [DefectName::FalseCapacity], "it read again for long, and heard nothing");
    assert_eq!(found(26_000, 20_300), [DefectName::LateDecrement]);
}

/// A deadline that was asked for may win over the cut that it races with, however late a stalled backend sees both.
#[test]
fn a_race_may_end_either_way() {
    let story = |outcome| Story {
        forced: Some((EndKind::Cancel, 5_000)),
        over: (5_000, Finish::Forced(EndKind::Cancel)),
        counted: Some((6_000, outcome)),
        fault: None,
    };
    let found = |outcome, beside| {
        let verdict = told_with(Dialect::Native, &story(outcome), 100, beside, 0..0);
        names(&verdict).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let raced = || Some((4_999, LedgerEvent::Raced));
    assert_eq!(found(Outcome::TimedOut, raced()), []);
    assert_eq!(found(Outcome::Cancelled, raced()), []);
    assert_eq!(found(Outcome::Completed, raced()), [DefectName::WrongOutcome]);
    assert_eq!(found(Outcome::TimedOut, None), [DefectName::WrongOutcome]);
}

/// A goodbye that is a close, at the backend's deadline: which came first its answer does not tell.
#[test]
fn a_goodbye_at_the_deadline_may_be_counted_as_either() {
    let found = |dialect, expect, outcome| {
        let story = Story {
            forced: Some((EndKind::Graceful, 5_000)),
            over: (5_003, Finish::Goodbye(Outcome::Completed)),
            counted: Some((5_001, outcome)),
            fault: None,
        };
        let verdict = told_of((dialect, expect), &story, 100, None, (0..0, 0..0));
        names(&verdict).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let deadline = Some(Expect::TimedOut);
    assert_eq!(found(Dialect::OpenaiRealtime, deadline, Outcome::TimedOut), []);
    assert_eq!(found(Dialect::OpenaiRealtime, deadline, Outcome::Completed), []);
    assert_eq!(found(Dialect::OpenaiRealtime, deadline, Outcome::Cancelled), [DefectName::WrongOutcome]);
    assert_eq!(found(Dialect::OpenaiRealtime, None, Outcome::TimedOut), [DefectName::WrongOutcome]);
    assert_eq!(found(Dialect::Native, deadline, Outcome::TimedOut), [DefectName::WrongOutcome], "its answer tells");
}

#[test]
fn what_only_comes_late_excuses_so_much_and_no_more() {
    let story = |counted, late| Story {
        forced: Some((EndKind::TcpRst, 2_000)),
        over: (2_001, Finish::Forced(EndKind::TcpRst)),
        counted: Some((counted, Outcome::Cancelled)),
        fault: Some((1_000, 60_000, Weather::Late(late * MS))),
    };
    assert_eq!(found(&story(4_500, 600)), []);
    assert_eq!(found(&story(4_500, 400)), [DefectName::LateDecrement]);
}

#[test]
fn a_ghost_is_a_ghost_only_later() {
    for weather in [Weather::Lost, Weather::Late(500 * MS)] {
        let story = Story {
            forced: Some((EndKind::TcpRst, 2_000)),
            over: (2_001, Finish::Forced(EndKind::TcpRst)),
            counted: None,
            fault: Some((1_000, 9_000, weather)),
        };
        assert_eq!(found(&story), [DefectName::Ghost]);
    }
}

/// A look falls between the acceptance that the driver says in the backend's name and the backend's count of the session.
#[test]
fn what_only_the_wire_implies_need_not_be_counted_at_once() {
    let story = Story {
        forced: Some((EndKind::Graceful, 6_000)),
        over: (6_010, Finish::Goodbye(Outcome::Completed)),
        counted: Some((6_005, Outcome::Completed)),
        fault: None,
    };
    let found = |dialect| names(&told_in(dialect, &story, 300)).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    for dialect in [Dialect::Twilio, Dialect::Ces, Dialect::Custom] {
        assert_eq!(found(dialect), [], "{dialect:?}");
    }
    // Where the backend itself said that it took the session, the look before it counted it is no cut at one moment.
    assert_eq!(found(Dialect::Native), [DefectName::TornSnapshot]);
}

/// What a start that nobody heard of came to, with a life of so long, a fault, and an end.
#[test]
fn a_start_that_may_have_been_lost_is_in_doubt_and_no_lost_session() {
    const NEVER: u64 = 1_000_000;
    let cut =
        |ms, fault| Story { forced: Some((EndKind::TcpRst, ms)), over: (ms + 1, Finish::Forced(EndKind::TcpRst)), counted: None, fault };
    let goodbye =
        Story { forced: Some((EndKind::Graceful, 900)), over: (910, Finish::Goodbye(Outcome::Completed)), counted: None, fault: None };
    let of = |dialect, story: &Story| {
        let verdict = told_in(dialect, story, NEVER);
        (names(&verdict).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), verdict.in_doubt.total)
    };
    for dialect in [Dialect::Twilio, Dialect::Ces, Dialect::Custom] {
        assert_eq!(of(dialect, &cut(1_000, None)), (vec![DefectName::Unverified], 1), "{dialect:?}: cut at once");
        let lost = Some((100, 5_500, Weather::Lost));
        assert_eq!(of(dialect, &cut(5_000, lost)), (vec![DefectName::Unverified], 1), "{dialect:?}: the network lost it");
        assert_eq!(of(dialect, &cut(5_000, None)), (vec![DefectName::Lost], 0), "{dialect:?}: it lived on");
        assert_eq!(of(dialect, &goodbye), (vec![DefectName::Lost], 0), "{dialect:?}: the backend answered");
    }
    assert_eq!(of(Dialect::Native, &cut(1_000, None)), (vec![DefectName::Lost], 0), "it said itself that it has it");
}

/// A session in doubt whose end the backend tells was counted, and is judged like any other.
#[test]
fn a_record_settles_the_doubt() {
    let story = |counted_ms| Story {
        forced: Some((EndKind::TcpRst, 1_000)),
        over: (1_001, Finish::Forced(EndKind::TcpRst)),
        counted: Some((counted_ms, Outcome::Cancelled)),
        fault: None,
    };
    let of = |story: &Story| names(&told_in(Dialect::Twilio, story, 300)).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(of(&story(1_100)), []);
    assert_eq!(of(&story(4_500)), [DefectName::LateDecrement]);
}
