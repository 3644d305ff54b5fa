//! The proof of the proof: it names each defect with its size, and is silent without one.

mod drift;
mod ends;
mod flat;
mod fleet;
mod funnel;
mod gone;
mod lies;
mod network;
mod resume;
mod sim;
mod sums;

use proptest::prelude::*;

use self::sim::{Defect, Detour, Fate, Spec, World};
use super::*;
use crate::plan::{EndKind, Protocol};

/// A stop that no poll sees; a shorter one is the backend's own slowness, and may make it late.
const LONG_STOP: std::ops::Range<u64> = 600..3_000;

const ABRUPT: [EndKind; 4] = [EndKind::Cancel, EndKind::TcpFin, EndKind::TcpRst, EndKind::HalfOpen];

fn spec() -> impl Strategy<Value = Spec> {
    let fate = prop_oneof![
        4 => Just(Fate::Ends(EndKind::Graceful)),
        5 => proptest::sample::select(&ABRUPT[..]).prop_map(Fate::Ends),
        1 => Just(Fate::ServerTimeout),
        1 => Just(Fate::Breaks),
        2 => Just(Fate::Rejected),
        1 => any::<bool>().prop_map(|counted| Fate::StartTimeout { counted }),
        1 => any::<bool>().prop_map(|counted| Fate::Unavailable { counted }),
    ];
    let detour = prop_oneof![
        4 => Just(Detour::None),
        1 => Just(Detour::Refused),
        1 => any::<bool>().prop_map(|counted| Detour::Broken { counted }),
    ];
    (0..12_000_u64, 0..6_000_u64, fate, 0..2_u32, 0..2_u32, 0..200_u64, 0..1_900_u64, detour).prop_map(
        |(start_ms, life_ms, fate, worker, shard, delay_ms, notice_ms, detour)| Spec {
            start_ms,
            life_ms,
            fate,
            worker,
            shard,
            delay_ms,
            notice_ms,
            detour,
        },
    )
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    proptest::collection::vec(spec(), 0..120)
}

/// A steady mix in which every defect has something to strike.
fn mix(n: u64) -> Vec<Spec> {
    let fates = [
        Fate::Ends(EndKind::Cancel),
        Fate::Ends(EndKind::Graceful),
        Fate::Ends(EndKind::TcpFin),
        Fate::Rejected,
        Fate::Ends(EndKind::TcpRst),
        Fate::Ends(EndKind::HalfOpen),
        Fate::ServerTimeout,
    ];
    let one = |i: u64| Spec {
        start_ms: 100 + i * 40,
        life_ms: 500 + (i * 37) % 2_000,
        fate: fates[(i % 7) as usize],
        worker: 0,
        shard: (i % 2) as u32,
        delay_ms: i % 50,
        notice_ms: (i * 13) % 900,
        detour: Detour::None,
    };
    (0..n).map(one).collect()
}

fn names(verdict: &Verdict) -> Vec<(DefectName, u64)> {
    verdict.findings.iter().map(|finding| (finding.name, finding.size)).collect()
}

fn silent(world: &World) -> Result<(), TestCaseError> {
    let ran = world.run();
    let verdict = &ran.verdict;
    // A process that took every end along proves nothing.
    let unproven =
        world.kill_backend.is_some() && matches!(&verdict.findings[..], [one] if one.evidence.contains("not one could be checked"));
    prop_assert!(unproven || verdict.findings.is_empty(), "{:#?}\n{:#?}", verdict.findings, verdict.notes);
    prop_assert_eq!(verdict.judgement, if unproven { Judgement::Unverified } else { Judgement::Agree });
    prop_assert!(verdict.irregular.is_empty(), "{:?}", verdict.irregular);
    let total = verdict.funnels.total();
    prop_assert_eq!(total.contradictions(), Vec::<String>::new());
    prop_assert_eq!(total.completed, ran.goodbyes);
    prop_assert!(total.waiting + total.dialling + total.live == 0, "{:?}", total);
    prop_assert_eq!(verdict.funnels.errors(None).values().sum::<u64>(), total.sessions_failed());
    drift::none(verdict)?;
    for row in &verdict.convergence {
        prop_assert!(row.ghosts == 0 && row.false_capacity == 0, "{row:?}");
        prop_assert!(row.detected <= row.killed, "{row:?}");
        prop_assert!(row.p50_us <= row.p99_us && row.p99_us <= row.max_us, "{row:?}");
    }
    Ok(())
}

const DEFECTS: [(Defect, DefectName); 9] = [
    (Defect::Ghost, DefectName::Ghost),
    (Defect::DoubleDecrement, DefectName::DoubleDecrement),
    (Defect::DecrementOnReject, DefectName::DecrementOnReject),
    (Defect::LateDecrement, DefectName::LateDecrement),
    (Defect::TornSnapshot, DefectName::TornSnapshot),
    (Defect::ForgetOnTimeout, DefectName::ForgetOnTimeout),
    (Defect::WrongOutcome, DefectName::WrongOutcome),
    (Defect::NeverAdded, DefectName::Lost),
    (Defect::Resurrect, DefectName::Resurrection),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_clean_backend_gives_no_finding(specs in specs(), log in any::<bool>(), registry in any::<bool>(), fresh in any::<bool>()) {
        silent(&World { log, registry, fresh, ..World::of(specs) })?;
    }

    #[test]
    fn missing_polls_and_stops_are_not_held_against_a_clean_backend(
        specs in specs(), log in any::<bool>(), blind in (0..9_000_u64, 0..6_000_u64), stop in (0..9_000_u64, LONG_STOP)
    ) {
        let blind = Some((blind.0, blind.0 + blind.1));
        silent(&World { log, blind, ..World::of(specs.clone()) })?;
        silent(&World { log, stopped: Some((stop.0, stop.0 + stop.1)), ..World::of(specs) })?;
    }

    #[test]
    fn a_killed_worker_leaves_a_clean_backend_clean(specs in specs(), log in any::<bool>(), at in 500..14_000_u64) {
        silent(&World { log, kill_worker: Some((1, at)), ..World::of(specs) })?;
    }

    #[test]
    fn a_killed_backend_is_written_off(specs in specs(), log in any::<bool>(), at in 500..14_000_u64, back in any::<bool>()) {
        // While it is down nobody dials it, and when it stays away nobody dials any more.
        let specs = specs.into_iter().filter(|s| s.start_ms + 200 < at || (back && s.start_ms > at + 500)).collect();
        silent(&World { log, kill_backend: Some((at, back)), ..World::of(specs) })?;
    }

    #[test]
    fn an_overflowing_log_is_no_finding(specs in specs(), ring in 0..4_usize) {
        silent(&World { ring, ..World::of(specs) })?;
    }

    #[test]
    fn each_defect_is_named_and_sized(specs in specs(), which in 0..DEFECTS.len(), rate in prop_oneof![Just(0.05), Just(0.3), Just(1.0)]) {
        let (defect, name) = DEFECTS[which];
        let ran = World { defect: Some((defect, rate)), ..World::of(specs.clone()) }.run();
        // Ghosts of timeouts only are told from ghosts of all abrupt ends by what else became a ghost.
        let got: Vec<_> = names(&ran.verdict)
            .into_iter()
            .map(|(got, n)| if defect == Defect::Ghost && got == DefectName::ForgetOnTimeout { (DefectName::Ghost, n) } else { (got, n) })
            .collect();
        let in_doubt = specs.iter().any(|s| matches!(s.fate, Fate::StartTimeout { .. } | Fate::Breaks));
        if ran.strikes == 0 {
            prop_assert!(got.is_empty(), "{:#?}", ran.verdict.findings);
        } else if !in_doubt {
            prop_assert_eq!(&got, &vec![(name, ran.strikes)], "{:#?}", ran.verdict.findings);
        } else {
            // What strikes a session that nobody knows of may be invisible; nothing else may be blamed.
            prop_assert!(got.iter().all(|(got, n)| *n <= ran.strikes && *got == name), "{:#?}", ran.verdict.findings);
        }
    }
}

#[test]
fn each_defect_at_five_percent_is_the_only_finding() {
    for (defect, name) in DEFECTS {
        let ran = World { defect: Some((defect, 0.05)), ..World::of(mix(400)) }.run();
        assert!(ran.strikes > 1, "{defect:?} struck {}", ran.strikes);
        assert_eq!(names(&ran.verdict), [(name, ran.strikes)], "{defect:?}: {:#?}", ran.verdict.findings);
        assert_eq!(ran.verdict.judgement, Judgement::Disagree);
        let finding = ran.verdict.finding(name).unwrap();
        if !matches!(defect, Defect::TornSnapshot | Defect::DecrementOnReject | Defect::NeverAdded) {
            assert_eq!(finding.session_ids.len() as u64, ran.strikes.min(20), "{finding:?}");
        }
    }
    assert!(World::of(mix(400)).run().verdict.findings.is_empty());
}

#[test]
fn totals_alone_still_show_that_something_is_wrong() {
    let cases = [
        (Defect::Ghost, DefectName::Ghost),
        (Defect::ForgetOnTimeout, DefectName::Ghost),
        (Defect::DoubleDecrement, DefectName::FalseCapacity),
        (Defect::DecrementOnReject, DefectName::FalseCapacity),
        (Defect::TornSnapshot, DefectName::TornSnapshot),
        (Defect::NeverAdded, DefectName::Lost),
    ];
    for (defect, name) in cases {
        let ran = World { defect: Some((defect, 0.05)), log: false, registry: false, ..World::of(mix(400)) }.run();
        let got = names(&ran.verdict);
        assert_eq!(got, [(name, ran.strikes)], "{defect:?}: {:#?}", ran.verdict.findings);
        assert!(ran.verdict.notes.iter().any(|note| note.contains("only totals")), "{:?}", ran.verdict.notes);
        assert_eq!(ran.verdict.backends[0].proof, verdict::Proof::Totals);
    }
    let late = World { defect: Some((Defect::LateDecrement, 1.0)), log: false, registry: false, ..World::of(mix(400)) }.run();
    assert_eq!(names(&late.verdict).iter().map(|f| f.0).collect::<Vec<_>>(), [DefectName::LateDecrement]);
    assert!(World { log: false, registry: false, ..World::of(mix(400)) }.run().verdict.findings.is_empty());
}

#[test]
fn the_registry_names_ghosts_that_the_log_lost() {
    let ran = World { defect: Some((Defect::Ghost, 0.05)), ring: 2, ..World::of(mix(400)) }.run();
    assert_eq!(names(&ran.verdict), [(DefectName::Ghost, ran.strikes)], "{:#?}", ran.verdict.findings);
    assert_eq!(ran.verdict.findings[0].session_ids.len() as u64, ran.strikes.min(20));
    assert_eq!(ran.verdict.backends[0].proof, verdict::Proof::PartOfSessions);
}

#[test]
fn defects_show_through_kills() {
    for (defect, name) in DEFECTS {
        let mut specs = mix(300);
        for spec in specs.iter_mut().step_by(3) {
            spec.worker = 1;
        }
        let ran = World { defect: Some((defect, 0.05)), kill_worker: Some((1, 9_000)), ..World::of(specs) }.run();
        assert_eq!(names(&ran.verdict), [(name, ran.strikes)], "{defect:?}: {:#?}", ran.verdict.findings);
    }
}

#[test]
fn others_sessions_on_a_shared_target_are_no_ghosts() {
    let world = World { fresh: false, others: 7, ..World::of(mix(200)) };
    assert!(world.run().verdict.findings.is_empty());
    let ran = World { defect: Some((Defect::Ghost, 0.05)), ..world.clone() }.run();
    assert_eq!(names(&ran.verdict), [(DefectName::Ghost, ran.strikes)]);
    // On a backend of our own they are sessions that nobody accounts for.
    let ran = World { fresh: true, ..world }.run();
    assert!(ran.verdict.finding(DefectName::UnknownSessions).is_some_and(|f| f.size == 7), "{:#?}", ran.verdict.findings);
}

#[test]
fn no_look_after_the_last_end_is_no_pass() {
    let ran = World { blind: Some((6_000, 900_000)), ..World::of(mix(200)) }.run();
    assert_eq!(ran.verdict.judgement, Judgement::Unverified);
    let ran = World { blind: Some((0, 900_000)), ..World::of(mix(20)) }.run();
    assert_eq!(ran.verdict.judgement, Judgement::Unverified);
}

#[test]
fn a_clean_run_settles_at_once_and_tells_how_fast_each_kind_was() {
    let ran = World::of(mix(400)).run();
    assert!(ran.settled_after_ms < 1_500, "{}", ran.settled_after_ms);
    for kind in [EndKind::Graceful, EndKind::Cancel, EndKind::TcpFin, EndKind::TcpRst, EndKind::HalfOpen] {
        for protocol in [Protocol::Grpc, Protocol::Websocket] {
            let row = ran.verdict.convergence.iter().find(|row| row.kind == kind && row.protocol == protocol).unwrap();
            assert!(row.killed > 0 && row.killed == row.detected, "{row:?}");
            assert!(row.max_us.unwrap() <= 900_001, "{row:?}");
        }
    }
    assert_eq!(ran.verdict.convergence.len(), 14);
    let forced = ran.verdict.convergence.iter().filter(|row| row.kind != EndKind::Graceful);
    let detected: u64 = forced.map(|row| row.detected).sum();
    assert_eq!(ran.samples.len() as u64, detected, "the metric is of forced ends");
}

#[test]
fn a_killed_backend_converges_with_its_successor_or_its_absence() {
    for back in [true, false] {
        let specs = mix(200).into_iter().filter(|s| s.start_ms + 200 < 4_000 || (back && s.start_ms > 4_500)).collect();
        let ran = World { kill_backend: Some((4_000, back)), ..World::of(specs) }.run();
        assert!(ran.verdict.findings.is_empty(), "{:#?}", ran.verdict.findings);
        let rows = ran.verdict.convergence.iter().filter(|row| row.kind == EndKind::KillBackend);
        for row in rows {
            assert!(row.killed > 0 && row.killed == row.detected, "{row:?}");
            let most = if back { 1_000_000 } else { 300_000 };
            assert!(row.max_us.is_some_and(|us| us <= most && (!back || us >= 500_000)), "{row:?}");
        }
        assert!(ran.verdict.backends[0].killed);
    }
}

#[test]
fn a_restart_that_nobody_planned_is_not_a_pass() {
    let mut ledger = Ledger::new(LedgerConfig::new("run", 0, vec![BackendConfig { watched: true, fresh: true }]));
    for (n, boot) in ["boot-1", "boot-1", "boot-2", "boot-2"].into_iter().enumerate() {
        ledger.sample(idle_sample(n as u64 * 250_000, boot));
    }
    let verdict = ledger.verdict();
    assert_eq!(names(&verdict), [(DefectName::Unverified, 1)]);
    assert!(verdict.findings[0].evidence.contains("replaced"), "{}", verdict.findings[0].evidence);
}

/// Accepted under a name that no backend of the run has: nobody's counters say anything of it.
#[test]
fn a_session_of_an_unknown_backend_is_no_pass() {
    let mut config = LedgerConfig::new("run", 0, vec![BackendConfig { watched: true, fresh: false }]);
    config.front = true;
    let mut ledger = Ledger::new(config);
    let source = SourceId { worker: 0, shard: 0 };
    ledger.open(source, 0);
    ledger.sample(idle_sample(0, "boot-1"));
    let scheduled = LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Grpc, end: EndKind::Graceful, client_ref: "run-1".into() };
    let events = [
        scheduled,
        LedgerEvent::Attempted { backend: None, report_age_us: None },
        LedgerEvent::Accepted { session_id: "s".into(), backend_id: "stranger".into(), boot_id: "x".into() },
        LedgerEvent::Ended { finish: Finish::Goodbye(proto::frame::Outcome::Completed) },
    ];
    let entry = |(n, event)| LedgerEntry { index: proto::ids::PlanIndex(1), at_us: 10 + n as u64, event };
    ledger.entries(source, events.into_iter().enumerate().map(entry).collect(), 1_000);
    ledger.source_done(source);
    for n in 1..5 {
        ledger.sample(idle_sample(n * 250_000, "boot-1"));
    }
    assert_eq!((ledger.backend_of("b"), ledger.backend_of("stranger")), (Some(0), None));
    let verdict = ledger.verdict();
    assert_eq!((verdict.judgement, names(&verdict)), (Judgement::Unverified, vec![(DefectName::Unverified, 1)]));
    assert!(verdict.notes.iter().any(|note| note.contains("`stranger`, which no backend of this run has")), "{:?}", verdict.notes);
}

fn idle_sample(at_us: u64, boot: &str) -> crate::counters::CounterSample {
    let snapshot = serde_json::json!({
        "backend_id": "b", "boot_id": boot, "captured_at_us": at_us, "exact": true, "started": 0, "active": 0, "active_interval": [0, 0],
        "ended": {}, "phases": {}, "max_sessions": null, "rejected": 0, "late_ends": 0, "live_tasks": 0, "draining": false, "next_end": 0,
        "frames_in": 0, "frames_out": 0, "cpu_us": 0, "rss_bytes": 0, "virtual_cost_us": 0
    });
    let snapshot = serde_json::from_value(snapshot).unwrap();
    crate::counters::CounterSample {
        backend: 0,
        asked_at_us: at_us,
        answered_at_us: at_us + 1,
        snapshot,
        ends: Some(vec![]),
        sessions: None,
    }
}

/// The backend made the cut, showed one live session, and stalled before it dated the cut and answered; meanwhile the session ended.
#[test]
fn a_cut_that_was_dated_late_is_no_torn_one() {
    let mut ledger = Ledger::new(LedgerConfig::new("run", 0, vec![BackendConfig { watched: true, fresh: true }]));
    let source = SourceId { worker: 0, shard: 0 };
    ledger.open(source, 0);
    ledger.sample(idle_sample(0, "boot-1"));
    let scheduled = LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Grpc, end: EndKind::Graceful, client_ref: "run-1".into() };
    let events = [
        (10, scheduled),
        (20, LedgerEvent::Attempted { backend: Some(0), report_age_us: None }),
        (30, LedgerEvent::Accepted { session_id: "s".into(), backend_id: "b".into(), boot_id: "boot-1".into() }),
        (10_000_000, LedgerEvent::Ended { finish: Finish::Goodbye(proto::frame::Outcome::Completed) }),
    ];
    let entry = |(at_us, event)| LedgerEntry { index: proto::ids::PlanIndex(1), at_us, event };
    ledger.entries(source, events.into_iter().map(entry).collect(), 60_000_000);
    ledger.source_done(source);
    let look = |asked_us: u64, answered_us: u64, live: bool| {
        let mut sample = idle_sample(answered_us, "boot-1");
        (sample.asked_at_us, sample.answered_at_us) = (asked_us, answered_us);
        let snapshot = &mut sample.snapshot;
        (snapshot.started, snapshot.active) = (1, i64::from(live));
        snapshot.phases.insert("listening".to_owned(), i64::from(live));
        if !live {
            snapshot.ended.insert("completed".to_owned(), 1);
            snapshot.next_end = 1;
            sample.ends = Some(vec![agent_server::admin::wire::EndRecord {
                seq: 0,
                session_id: "s".to_owned(),
                client_ref: "run-1".to_owned(),
                outcome: "completed".to_owned(),
                at_us: 9_999_000,
            }]);
        }
        sample
    };
    ledger.sample(look(9_750_000, 9_751_000, true));
    ledger.sample(look(9_990_000, 13_000_000, true));
    for n in 1..5 {
        ledger.sample(look(13_000_000 + n * 250_000, 13_001_000 + n * 250_000, false));
    }
    assert_eq!(names(&ledger.verdict()), []);
}

/// One shard's steps: times and batches.
fn told() -> impl Strategy<Value = Vec<Vec<u64>>> {
    proptest::collection::vec(proptest::collection::vec(0..60_u64, 0..12), 1..5)
}

/// Feeds the shards' steps in the order that `turns` chooses, each shard telling `step` at a time, and gives what comes out.
fn merged(shards: &[Vec<u64>], turns: &[usize], step: usize, lost: Option<u32>) -> Vec<merge::Merged> {
    let mut merger = merge::Merger::default();
    let mut left: Vec<std::collections::VecDeque<LedgerEntry>> = Vec::new();
    for (n, times) in shards.iter().enumerate() {
        merger.open(SourceId { worker: n as u32, shard: 0 }, 0);
        let mut times = times.clone();
        times.sort_unstable();
        let entry = |(i, at_us)| LedgerEntry {
            index: proto::ids::PlanIndex((n * 100 + i) as u64),
            at_us,
            event: LedgerEvent::Attempted { backend: Some(n), report_age_us: None },
        };
        left.push(times.into_iter().enumerate().map(entry).collect());
    }
    let mut out = Vec::new();
    let rounds = turns.iter().copied().chain((0..shards.len()).cycle().take(shards.len() * 20));
    for n in rounds.map(|turn| turn % shards.len()) {
        let source = SourceId { worker: n as u32, shard: 0 };
        let batch: Vec<LedgerEntry> = (0..step).filter_map(|_| left[n].pop_front()).collect();
        let complete_to = left[n].front().map_or(100, |next| next.at_us);
        merger.push(source, batch, complete_to);
        out.extend(merger.ready());
    }
    for n in 0..shards.len() as u32 {
        if lost == Some(n) {
            merger.lose(n, 30, true);
        } else {
            merger.close(SourceId { worker: n, shard: 0 });
        }
        out.extend(merger.ready());
    }
    assert!(merger.drained());
    assert_eq!(merger.irregular(), 0);
    out
}

proptest! {
    #[test]
    fn any_interleaving_gives_the_same_order(shards in told(), turns in proptest::collection::vec(0..8_usize, 0..60), step in 1..4_usize, lost in proptest::option::of(0..4_u32)) {
        let plain = merged(&shards, &[], 100, lost);
        let other = merged(&shards, &turns, step, lost);
        prop_assert_eq!(&plain, &other);
        let time = |m: &merge::Merged| match m { merge::Merged::Entry(_, e) => e.at_us, merge::Merged::WorkerLost(l) => l.at_us,
            merge::Merged::BackendKilled(kill) => kill.at_us };
        prop_assert!(plain.windows(2).all(|w| time(&w[0]) <= time(&w[1])), "{plain:?}");
        let told: usize = shards.iter().map(Vec::len).sum();
        prop_assert_eq!(plain.len(), told + usize::from(lost.is_some_and(|n| (n as usize) < shards.len())));
    }
}

#[test]
fn a_book_fed_nonsense_says_so_and_stays_whole() {
    let mut book = book::Book::default();
    let source = SourceId { worker: 0, shard: 0 };
    let entry = |index, event| LedgerEntry { index: proto::ids::PlanIndex(index), at_us: 1, event };
    let scheduled = || LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Grpc, end: EndKind::Graceful, client_ref: "run-1".into() };
    let accepted = || LedgerEvent::Accepted { session_id: "s".into(), backend_id: "b".into(), boot_id: "x".into() };
    let ended = || LedgerEvent::Ended { finish: Finish::Lost(FailureCause::Eof) };
    let steps = [
        (1, ended()),
        (1, scheduled()),
        (1, accepted()),
        (1, ended()),
        (1, scheduled()),
        (1, LedgerEvent::Attempted { backend: Some(0), report_age_us: None }),
        (1, accepted()),
        (1, accepted()),
        (1, LedgerEvent::Failed { cause: FailureCause::Eof }),
        (1, ended()),
        (1, ended()),
        (2, LedgerEvent::Attempted { backend: Some(9), report_age_us: None }),
    ];
    for (index, event) in steps {
        book.apply(source, entry(index, event));
        assert_eq!(book.funnels().total().contradictions(), Vec::<String>::new());
    }
    assert_eq!(book.irregular().len(), 8, "{:?}", book.irregular());
    let total = book.funnels().total();
    assert_eq!((total.established, total.failed, total.live), (1, 1, 0));
}
