//! What counters prove of places and of hang-ups, and what they do not.

use std::collections::BTreeMap;

use agent_server::{
    admin::wire::{EndRecord, LoadJson, SessionJson, SnapshotJson},
    fault::FaultKind,
};

use super::*;
use crate::{
    counters::CounterSample,
    ledger::{FailureCause, Finish, LedgerEntry, LedgerEvent, Weather},
    plan::{EndKind, Protocol},
};

const SECOND: u64 = 1_000_000;

fn snapshot(started: u64, active: i64) -> SnapshotJson {
    SnapshotJson {
        backend_id: "b".to_owned(),
        boot_id: "boot".to_owned(),
        captured_at_us: 0,
        exact: true,
        started,
        active,
        active_interval: (active, active),
        ended: BTreeMap::new(),
        phases: BTreeMap::new(),
        max_sessions: Some(2),
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

fn look(at_us: u64, snapshot: SnapshotJson) -> CounterSample {
    CounterSample { backend: 0, asked_at_us: at_us, answered_at_us: at_us + 10, snapshot, ends: Some(Vec::new()), sessions: None }
}

fn step(index: u64, at_us: u64, event: LedgerEvent) -> LedgerEntry {
    LedgerEntry { index: PlanIndex(index), at_us, event }
}

fn scheduled(index: u64, at_us: u64) -> [LedgerEntry; 2] {
    let client_ref = format!("run-{index}");
    let event = LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Grpc, end: EndKind::Cancel, client_ref };
    [step(index, at_us, event), step(index, at_us, LedgerEvent::Attempted { backend: Some(0), report_age_us: None })]
}

fn book() -> VoiceBook {
    VoiceBook::new(VoiceConfig { window_us: 2 * SECOND, allowed: Vec::new(), watched: vec![true], start_us: 0 })
}

fn row(section: &VoiceSection, kind: VoiceFault) -> (VoiceStatus, u64) {
    let row = section.kinds.iter().find(|row| row.kind == kind).unwrap();
    let size = section.findings.iter().find(|finding| finding.kind == kind).map_or(0, |finding| finding.size);
    (row.status, size)
}

#[test]
fn the_names_are_those_of_the_server() {
    let names: Vec<&str> = VoiceFault::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names, FaultKind::ALL.map(FaultKind::name));
    for kind in VoiceFault::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        assert_eq!(VoiceFault::ALL[kind as usize], kind);
    }
}

/// A refusal at 2 s, between looks at 1 s and at `after`.
fn refused(before: (u64, i64), after: (u64, i64), looks: u64) -> (VoiceStatus, u64) {
    let mut book = book();
    book.sample(&look(SECOND, snapshot(before.0, before.1)));
    book.entries(&scheduled(1, 2 * SECOND));
    book.entries(&[step(1, 2 * SECOND + 100, LedgerEvent::Failed { cause: FailureCause::Rejected })]);
    for n in 0..looks {
        book.sample(&look((3 + n) * SECOND, snapshot(after.0, after.1)));
    }
    row(&book.close(9 * SECOND), VoiceFault::PoolLeak)
}

#[test]
fn a_refusal_is_wrong_when_there_was_room_all_the_time() {
    assert_eq!(refused((5, 1), (5, 1), 1), (VoiceStatus::Found, 1));
    assert_eq!(refused((5, 0), (6, 0), 1), (VoiceStatus::Found, 1));
    assert_eq!(refused((5, 2), (5, 1), 1), (VoiceStatus::Clean, 0), "it was full at first");
    assert_eq!(refused((5, 1), (6, 1), 1), (VoiceStatus::Clean, 0), "it may have been full meanwhile");
    assert_eq!(refused((5, 1), (5, 1), 0), (VoiceStatus::NotJudged, 0), "nobody looked after it");
}

#[test]
fn more_sessions_than_the_cap_are_found_in_exact_looks_alone() {
    let over = |exact: bool| {
        let mut book = book();
        book.sample(&look(SECOND, snapshot(2, 2)));
        book.sample(&look(2 * SECOND, SnapshotJson { exact, ..snapshot(3, 3) }));
        row(&book.close(9 * SECOND), VoiceFault::AdmissionRace)
    };
    assert_eq!(over(true), (VoiceStatus::Found, 1));
    assert_eq!(over(false), (VoiceStatus::Clean, 0));
    let mut book = book();
    book.sample(&look(SECOND, snapshot(2, 1)));
    assert_eq!(row(&book.close(9 * SECOND), VoiceFault::AdmissionRace), (VoiceStatus::NotJudged, 0), "there was room");
    let mut book = self::book();
    book.sample(&look(SECOND, SnapshotJson { max_sessions: None, ..snapshot(9, 9) }));
    assert_eq!(row(&book.close(9 * SECOND), VoiceFault::AdmissionRace), (VoiceStatus::NotJudged, 0));
}

fn listed(at_us: u64, rows: &[(&str, u64)]) -> CounterSample {
    let session = |&(phase, frames_out): &(&str, u64)| SessionJson {
        session_id: "s-1".to_owned(),
        client_ref: "run-1".to_owned(),
        phase: phase.to_owned(),
        age_ms: 0,
        frames_in: 4,
        frames_out,
    };
    CounterSample { sessions: Some(rows.iter().map(session).collect()), ..look(at_us, snapshot(1, 1)) }
}

fn ended(at_us: u64) -> CounterSample {
    let end = EndRecord { seq: 0, session_id: "s-1".to_owned(), client_ref: "run-1".to_owned(), outcome: "cancelled".to_owned(), at_us };
    CounterSample { ends: Some(vec![end]), ..look(at_us, snapshot(1, 0)) }
}

fn hung_up(kind: EndKind) -> VoiceBook {
    let mut book = book();
    book.entries(&scheduled(1, 0));
    let accepted = LedgerEvent::Accepted { session_id: "s-1".to_owned(), backend_id: "b".to_owned(), boot_id: "boot".to_owned() };
    book.entries(&[step(1, 100, accepted), step(1, SECOND, LedgerEvent::Ended { finish: Finish::Forced(kind) })]);
    book
}

/// Looks between two times, as a poller makes them.
fn watch(book: &mut VoiceBook, from_us: u64, to_us: u64) {
    for at_us in (from_us..to_us).step_by(100_000) {
        book.sample(&look(at_us, snapshot(1, 1)));
    }
}

#[test]
fn a_session_that_moves_after_the_window_is_a_ghost() {
    let mut book = hung_up(EndKind::Cancel);
    assert!(!book.wants_names(SECOND) && book.wants_names(2 * SECOND));
    watch(&mut book, SECOND, 4 * SECOND);
    assert_eq!(book.sample(&listed(4 * SECOND, &[("listening", 7)])), []);
    assert_eq!(book.sample(&listed(5 * SECOND, &[("thinking", 7)])), [PlanIndex(1)]);
    assert_eq!(book.sample(&listed(6 * SECOND, &[("agent_speaking", 9)])), [], "told once");
    book.sample(&ended(20 * SECOND));
    assert!(!book.wants_names(30 * SECOND));
    let section = book.close(30 * SECOND);
    assert_eq!(row(&section, VoiceFault::GhostAfterHangup), (VoiceStatus::Found, 1));
    assert!(section.findings[0].detail.contains("for 19000 ms"), "{}", section.findings[0].detail);
}

#[test]
fn a_session_that_is_only_counted_is_no_ghost() {
    let outcome_of = |looks: &[CounterSample], kind: EndKind, watched: bool| {
        let mut book = hung_up(kind);
        let mut from_us = SECOND;
        for look in looks {
            if watched {
                watch(&mut book, from_us, look.asked_at_us);
            }
            from_us = look.asked_at_us;
            book.sample(look);
        }
        row(&book.close(60 * SECOND), VoiceFault::GhostAfterHangup)
    };
    let outcome = |looks: &[CounterSample], kind: EndKind| outcome_of(looks, kind, true);
    let still = [listed(4 * SECOND, &[("listening", 7)]), listed(9 * SECOND, &[("listening", 7)])];
    assert_eq!(outcome(&still, EndKind::Cancel), (VoiceStatus::Clean, 0), "the ledger's matter");
    let slow = [listed(2 * SECOND, &[("listening", 7)]), listed(3 * SECOND - 1, &[("thinking", 8)]), ended(3 * SECOND)];
    assert_eq!(outcome(&slow, EndKind::Cancel), (VoiceStatus::Clean, 0), "within the window");
    let moving = [listed(4 * SECOND, &[("listening", 7)]), listed(9 * SECOND, &[("thinking", 8)])];
    assert_eq!(outcome(&moving, EndKind::TcpRst), (VoiceStatus::Found, 1));
    assert_eq!(outcome_of(&moving, EndKind::TcpRst, false), (VoiceStatus::NotJudged, 0), "nobody watched it all the time");
    assert_eq!(outcome(&moving, EndKind::HalfOpen), (VoiceStatus::NotJudged, 0), "the backend cannot know yet");
    assert_eq!(outcome(&[], EndKind::Cancel), (VoiceStatus::NotJudged, 0));
}

#[test]
fn a_hangup_that_the_run_itself_holds_up_is_waited_for() {
    // Struck up to second 2, and felt for three more.
    let moves = |first_us: u64| {
        let mut book = hung_up(EndKind::Cancel);
        book.disturb(0, 7, SECOND / 2, Weather::Lost);
        book.calm(7, 2 * SECOND);
        watch(&mut book, SECOND, first_us);
        book.sample(&listed(first_us, &[("listening", 7)]));
        let moved = book.sample(&listed(first_us + SECOND, &[("thinking", 7)])).len();
        book.sample(&ended(first_us + 2 * SECOND));
        (moved, row(&book.close(60 * SECOND), VoiceFault::GhostAfterHangup))
    };
    assert_eq!(moves(4 * SECOND), (0, (VoiceStatus::Clean, 0)));
    assert_eq!(moves(9 * SECOND), (1, (VoiceStatus::Found, 1)), "later it is a ghost all the same");
}

#[test]
fn an_end_that_is_told_before_the_hangup_is_remembered() {
    let mut book = book();
    book.sample(&ended(SECOND));
    book.entries(&scheduled(1, 0));
    let accepted = LedgerEvent::Accepted { session_id: "s-1".to_owned(), backend_id: "b".to_owned(), boot_id: "boot".to_owned() };
    book.entries(&[step(1, 100, accepted), step(1, SECOND, LedgerEvent::Ended { finish: Finish::Forced(EndKind::Cancel) })]);
    assert!(!book.wants_names(9 * SECOND));
    assert_eq!(row(&book.close(9 * SECOND), VoiceFault::GhostAfterHangup), (VoiceStatus::Clean, 0));
}

#[test]
fn what_is_allowed_is_shown_and_does_not_fail() {
    let mut book = VoiceBook::new(VoiceConfig { allowed: vec![VoiceFault::OutputGaps], ..VoiceConfig::default() });
    let found = |kind| Found { kind, occurrences: vec![Occurrence { from_us: 0, to_us: 1, size: 4, worst_us: 120_000 }] };
    let mut news = VoiceNews::default();
    let mut tested = Kinds::default();
    tested.insert(VoiceFault::OutputGaps);
    news.add(
        (PlanIndex(1), "run-1", Some(0)),
        Verdict { tested, found: vec![found(VoiceFault::OutputGaps)], ..Verdict::default() },
        |at| at.0,
    );
    book.news(news.clone());
    let section = book.close(0);
    assert_eq!(row(&section, VoiceFault::OutputGaps), (VoiceStatus::Found, 4));
    assert_eq!(row(&section, VoiceFault::CrossTalk), (VoiceStatus::NotJudged, 0));
    assert_eq!(section.failing().count(), 0);
    news.add((PlanIndex(2), "run-2", Some(0)), Verdict { tested, found: vec![found(VoiceFault::VadDrop)], ..Verdict::default() }, |at| {
        at.0
    });
    book.news(news);
    assert_eq!(book.close(0).failing().map(|finding| finding.kind).collect::<Vec<_>>(), [VoiceFault::VadDrop]);
}

/// A session on a backend that showed these, each (from, to, size) in seconds; what became of it while backend 0 was struck from second 10 to 20.
fn while_struck(kind: VoiceFault, backend: Option<usize>, spans: &[(u64, u64, u32)]) -> (VoiceStatus, u64, u64, u64) {
    let mut book = book();
    book.disturb(0, 7, 10 * SECOND, Weather::Lost);
    book.calm(7, 20 * SECOND);
    let mut found = Found::new(kind);
    for (from, to, size) in spans {
        found.add(Occurrence { from_us: from * SECOND, to_us: to * SECOND, size: *size, worst_us: 150_000 });
    }
    let mut tested = Kinds::default();
    tested.insert(kind);
    let mut news = VoiceNews::default();
    news.add((PlanIndex(1), "run-1", backend), Verdict { tested, found: vec![found], ..Verdict::default() }, |at| at.0);
    book.news(news);
    let section = book.close(60 * SECOND);
    for finding in &section.findings {
        let (from, to) = (spans.iter().map(|span| span.0).min().unwrap(), spans.iter().map(|span| span.1).max().unwrap());
        assert!(finding.detail.ends_with(&format!(", from {from} s to {to} s of the run")), "{}", finding.detail);
    }
    let at = section.kinds.iter().find(|row| row.kind == kind).unwrap();
    let (status, size) = row(&section, kind);
    (status, size, at.tested, at.excused)
}

#[test]
fn what_the_runs_own_faults_did_is_not_held_against_the_agent() {
    let drop = |backend, span| while_struck(VoiceFault::VadDrop, backend, &[span]);
    let found = (VoiceStatus::Found, 1, 1, 0);
    let excused = (VoiceStatus::NotJudged, 0, 0, 1);
    // Before it, within it, over its end, while it is still felt, later.
    assert_eq!(drop(Some(0), (5, 9, 1)), found);
    assert_eq!(drop(Some(0), (12, 13, 1)), excused);
    assert_eq!(drop(Some(0), (5, 11, 1)), excused);
    assert_eq!(drop(Some(0), (19, 40, 1)), excused);
    assert_eq!(drop(Some(0), (22, 40, 1)), excused);
    assert_eq!(drop(Some(0), (23, 40, 1)), found);
    // Of another backend it says nothing; behind a front it may have been this one.
    assert_eq!(drop(Some(1), (12, 13, 1)), found);
    assert_eq!(drop(None, (12, 13, 1)), excused);
}

#[test]
fn holes_outside_of_the_faults_count_if_they_are_enough() {
    let holes = |spans: &[_]| while_struck(VoiceFault::OutputGaps, Some(0), spans);
    assert_eq!(holes(&[(5, 5, 1), (6, 6, 1), (12, 12, 1), (30, 30, 1)]), (VoiceStatus::Found, 3, 1, 0));
    assert_eq!(holes(&[(5, 5, 1), (12, 12, 1), (13, 13, 1), (30, 30, 1)]), (VoiceStatus::NotJudged, 0, 0, 1));
    // The fault was long over, and a span without a size goes on with the one before.
    assert_eq!(holes(&[(5, 6, 3), (6, 7, 0)]), (VoiceStatus::Found, 3, 1, 0));
    assert_eq!(holes(&[(5, 6, 3), (6, 12, 0)]), (VoiceStatus::NotJudged, 0, 0, 1));
    // Those that are too many to be told apart are taken for one.
    let many: Vec<_> = (0..100).map(|n| if n < 40 { (30 + n, 30 + n, 1) } else { (100 + n, 100 + n, 1) }).collect();
    assert_eq!(holes(&many), (VoiceStatus::Found, 100, 1, 0));
}

/// Left, after backend 0 was struck so from second 10 to 20 and one session there showed this kind at second 12.
fn left(kind: VoiceFault, strike: impl FnOnce(&mut VoiceBook), by_time: bool, index: PlanIndex) -> bool {
    let mut book = book();
    strike(&mut book);
    book.calm(7, 20 * SECOND);
    let one = Occurrence { from_us: 12 * SECOND, to_us: 13 * SECOND, size: 3, worst_us: 150_000 };
    let mut verdict = Verdict { found: vec![Found { kind, occurrences: vec![one] }], ..Verdict::default() };
    verdict.tested.insert(kind);
    if by_time {
        verdict.by_time.insert(kind);
    }
    let mut news = VoiceNews::default();
    news.add((index, "run-1", Some(0)), verdict, |at| at.0);
    book.news(news);
    book.close(60 * SECOND).failing().any(|finding| finding.kind == kind)
}

#[test]
fn only_what_the_fault_can_have_done_is_excused() {
    use VoiceFault::{CrossTalk, DoubleResponse, NoTurnEnd, OutputGaps, SilentSession, StaleAudioAfterBargeIn, TruncateEdge, VadDrop};
    let (lost, late) = (Weather::Lost, |ms: u64| Weather::Late(ms * 1_000));
    for (kind, weather, by_time, found) in [
        // However long nothing passes, an agent that says what it heard answers once, and only what was asked in the session.
        (CrossTalk, lost, false, true),
        (CrossTalk, lost, true, true),
        (DoubleResponse, lost, false, true),
        (StaleAudioAfterBargeIn, lost, false, true),
        // Where nothing but the time tells, a starved agent looks so.
        (DoubleResponse, lost, true, false),
        (StaleAudioAfterBargeIn, lost, true, false),
        (StaleAudioAfterBargeIn, late(2), true, true),
        (SilentSession, lost, false, false),
        (TruncateEdge, lost, false, false),
        (NoTurnEnd, lost, false, false),
        (VadDrop, lost, false, false),
        (OutputGaps, lost, false, false),
        // What is hardly felt makes none of them.
        (OutputGaps, late(100), false, false),
        (OutputGaps, late(2), false, true),
        (VadDrop, late(100), false, true),
        (SilentSession, late(100), false, true),
        (SilentSession, late(1_000), false, false),
    ] {
        let strike = |book: &mut VoiceBook| book.disturb(0, 7, 10 * SECOND, weather);
        assert_eq!(left(kind, strike, by_time, PlanIndex(1)), found, "{kind:?} {weather:?} {by_time}");
    }
}

#[test]
fn a_stopped_worker_excuses_the_sessions_of_its_scenario_alone() {
    let of =
        |scenario| left(VoiceFault::OutputGaps, |book| book.disturb_worker(3, 7, 10 * SECOND), false, crate::plan::index(scenario, 5, 9));
    assert!(!of(3) && of(2));
}
