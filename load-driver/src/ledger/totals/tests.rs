//! What sums prove: silent on a clean backend whatever they hold, each defect named, and no pass where nothing was seen.

mod growing;
mod restarts;
mod stands;

use proto::{frame::Outcome, ids::PlanIndex};

use super::*;
use crate::{
    ledger::{
        BackendConfig, Confidence, DefectName, FailureCause, Finish, Judgement, Ledger, LedgerConfig, LedgerEntry, LedgerEvent, SourceId,
        Verdict, Windows,
    },
    plan::{Dialect, Expect, Protocol},
};

const T0: u64 = 1_700_000_000_000_000;
const MS: u64 = 1_000;
const SOURCE: SourceId = SourceId { worker: 0, shard: 0 };

fn everything() -> Shows {
    Shows { started: true, ended: true, outcomes: Outcome::ALL.to_vec(), rejected: true, boot: true, ..Shows::default() }
}

/// A run of one backend, told in milliseconds.
struct Story {
    ledger: Ledger,
    now: u64,
    boot: &'static str,
    /// The readings do not name the process.
    nameless: bool,
    counts: Counts,
    told: u64,
}

impl Story {
    fn of(shows: Shows) -> Self {
        Self::over(Dialect::Native, None, shows)
    }

    fn over(dialect: Dialect, expect: Option<Expect>, shows: Shows) -> Self {
        let mut config = LedgerConfig::new("run", T0, vec![BackendConfig { watched: false, fresh: false }]);
        (config.dialects, config.scenarios) = (vec![dialect], vec![expect]);
        config.windows = Windows::default();
        config.totals = vec![TotalsConfig { name: "backend 0".to_owned(), backend: Some(0), age_us: 0, shows }];
        let mut ledger = Ledger::new(config);
        ledger.open(SOURCE, T0);
        Self { ledger, now: 0, boot: "1", nameless: false, counts: Counts::default(), told: 0 }
    }

    /// Of a process that has counted nothing yet, and tells of everything.
    fn from_zero() -> Self {
        let mut story = Self::of(everything());
        (story.counts.started, story.counts.ended) = (Some(0), Some(0));
        story.counts.outcomes = Outcome::ALL.map(|outcome| (outcome, 0)).into();
        story
    }

    /// It has counted so many ends, all of them so.
    fn has_ended(&mut self, outcome: Outcome, ends: u64) {
        self.counts.ended = Some(ends);
        self.counts.outcomes.insert(outcome, ends);
    }

    fn say(&mut self, index: u64, event: LedgerEvent) {
        let at_us = T0 + self.now * MS;
        self.ledger.entries(SOURCE, vec![LedgerEntry { index: PlanIndex(index), at_us, event }], at_us);
    }

    /// Sessions of these numbers begin, as the driver sees it.
    fn begin(&mut self, numbers: std::ops::Range<u64>) {
        for index in numbers {
            let client_ref = format!("run-{index}");
            self.say(index, LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Websocket, end: EndKind::Cancel, client_ref });
            self.say(index, LedgerEvent::Attempted { backend: Some(0), report_age_us: None });
            let boot_id = self.boot.to_owned();
            self.say(index, LedgerEvent::Accepted { session_id: format!("s{index}"), backend_id: String::new(), boot_id });
        }
    }

    /// Dials of these numbers come to nothing.
    fn fail(&mut self, numbers: std::ops::Range<u64>, cause: FailureCause) {
        for index in numbers {
            let client_ref = format!("run-{index}");
            self.say(index, LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Websocket, end: EndKind::Cancel, client_ref });
            self.say(index, LedgerEvent::Attempted { backend: Some(0), report_age_us: None });
            self.say(index, LedgerEvent::Failed { cause });
        }
    }

    fn end(&mut self, numbers: std::ops::Range<u64>) {
        self.end_as(numbers, Finish::Forced(EndKind::Cancel));
    }

    fn end_as(&mut self, numbers: std::ops::Range<u64>, finish: Finish) {
        for index in numbers {
            self.say(index, LedgerEvent::Ended { finish });
        }
    }

    /// Time goes on, with a look every 100 ms that shows these live sessions; others come and go by `vary` from look to look.
    fn pass(&mut self, ms: u64, active: i64, vary: i64) {
        let until = self.now + ms;
        while self.now < until {
            self.now += 100;
            self.told += 1;
            let at_us = T0 + self.now * MS;
            let active = active + if self.told.is_multiple_of(2) { vary } else { 0 };
            let boot = (!self.nameless).then(|| self.boot.to_owned());
            let counts = Counts { active, boot, ..self.counts.clone() };
            self.ledger.entries(SOURCE, Vec::new(), at_us);
            self.ledger.totals(TotalsSample { source: 0, asked_at_us: at_us, answered_at_us: at_us + 5 * MS, counts });
        }
    }

    fn close(mut self) -> Verdict {
        self.ledger.source_done(SOURCE);
        self.ledger.verdict()
    }
}

fn found(verdict: &Verdict) -> Vec<(DefectName, u64)> {
    verdict.findings.iter().map(|finding| (finding.name, finding.size)).collect()
}

#[track_caller]
fn unverified(verdict: &Verdict, because: &str) {
    assert_eq!(verdict.judgement, Judgement::Unverified, "{verdict:#?}");
    assert!(verdict.findings[0].evidence.contains(because), "{:?}", verdict.findings);
}

/// Ten sessions of five seconds, whose count is told rightly but for `wrong` at the end.
fn ten(shows: Shows, others: (i64, i64), wrong: i64) -> Verdict {
    let (base, vary) = others;
    let mut story = Story::of(shows);
    story.pass(1_000, base, vary);
    story.begin(0..10);
    story.pass(5_000, base + 10, vary);
    story.end(0..10);
    story.pass(15_000, base + wrong, vary);
    story.close()
}

/// Where nobody but the driver says that a session was accepted, one that is cut at once may never have come.
#[test]
fn an_acceptance_that_is_only_implied_is_no_proof_that_a_session_was_counted() {
    // Ten are counted, and of three more the backend never heard, which live for so long.
    let lost = |dialect, ready, life_ms| {
        let mut story = Story::over(dialect, None, everything());
        story.ledger.config.says_ready = vec![ready];
        story.pass(1_000, 0, 0);
        story.begin(0..13);
        story.counts.started = Some(10);
        story.pass(life_ms, 10, 0);
        story.end(10..13);
        story.pass(6_000 - life_ms, 10, 0);
        story.end(0..10);
        (story.counts.ended, story.counts.outcomes) = (Some(10), [(Outcome::Cancelled, 10)].into());
        story.pass(15_000, 0, 0);
        found(&story.close())
    };
    assert_eq!(lost(Dialect::Twilio, false, 200), []);
    assert_eq!(lost(Dialect::Native, false, 200), [(DefectName::Lost, 3)]);
    assert_eq!(lost(Dialect::Twilio, false, 4_000), [(DefectName::Lost, 3)]);
    assert_eq!(lost(Dialect::Custom, false, 200), []);
    assert_eq!(lost(Dialect::Custom, true, 200), [(DefectName::Lost, 3)], "its description has the backend say so");
}

/// A goodbye that is a close, at the backend's deadline: which came first its answer does not tell.
#[test]
fn a_goodbye_at_the_deadline_may_be_counted_as_either() {
    let counted = |dialect, expect, timed_out: u64| {
        let mut story = Story::over(dialect, expect, everything());
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.counts.started = Some(10);
        story.pass(5_000, 10, 0);
        story.end_as(0..10, Finish::Goodbye(Outcome::Completed));
        story.counts.ended = Some(10);
        story.counts.outcomes = [(Outcome::Completed, 10 - timed_out), (Outcome::TimedOut, timed_out)].into();
        story.pass(15_000, 0, 0);
        found(&story.close())
    };
    let deadline = Some(Expect::TimedOut);
    assert_eq!(counted(Dialect::OpenaiRealtime, deadline, 3), []);
    assert_eq!(counted(Dialect::OpenaiRealtime, deadline, 0), []);
    assert_eq!(counted(Dialect::OpenaiRealtime, None, 3), [(DefectName::WrongOutcome, 3)]);
    assert_eq!(counted(Dialect::Native, deadline, 3), [(DefectName::WrongOutcome, 3)], "its answer tells");
}

#[test]
fn live_sessions_alone_prove_ghosts_and_false_capacity() {
    for (wrong, expected) in [(0, vec![]), (3, vec![(DefectName::Ghost, 3)]), (-2, vec![(DefectName::FalseCapacity, 2)])] {
        let verdict = ten(Shows::default(), (0, 0), wrong);
        assert_eq!(found(&verdict), expected);
        assert_eq!(verdict.confidence, Some(Confidence::Totals));
        assert!(verdict.cannot_see.iter().any(|line| line.contains("no `started`")), "{:?}", verdict.cannot_see);
    }
}

#[test]
fn a_gauge_that_stops_at_zero_shows_false_capacity_while_it_lasts() {
    let mut story = Story::of(Shows::default());
    story.pass(500, 0, 0);
    story.begin(0..10);
    story.pass(2_000, 10, 0);
    story.end(0..3);
    // Each of the three took another with it.
    story.pass(6_000, 4, 0);
    story.end(3..10);
    story.pass(15_000, 0, 0);
    let verdict = story.close();
    assert_eq!(found(&verdict), [(DefectName::FalseCapacity, 3)], "{verdict:#?}");
}

/// Sessions come and go all the time, a few of them within the time that news takes: single looks do not tell, many together do.
#[test]
fn a_gauge_that_is_a_little_too_low_all_the_time_is_false_capacity() {
    let story = |off: i64, forced: bool| {
        let mut story = Story::of(Shows::default());
        story.pass(1_000, 0, 0);
        let live = 15;
        for index in 0..120 {
            story.begin(index..index + 1);
            if let Some(over) = index.checked_sub(live) {
                if forced {
                    story.say(over, LedgerEvent::Forced { kind: EndKind::Cancel });
                }
                story.end(over..over + 1);
            }
            let there = (index + 1).min(live) as i64;
            // Those that are there from the first are missed by themselves.
            story.pass(300, if index < 20 { there } else { there + off }, 0);
        }
        story.end(120 - live..120);
        story.pass(15_000, 0, 0);
        found(&story.close())
    };
    assert_eq!(story(0, true), []);
    assert_eq!(story(-1, true), [], "within what news takes");
    let [(DefectName::FalseCapacity, size @ 1..=3)] = story(-4, true)[..] else { panic!("{:?}", story(-4, true)) };
    assert!(size >= 2, "{size}");
    assert_eq!(story(-4, false), [], "ends of its own the backend may know of earlier");
}

#[test]
fn what_others_had_before_is_subtracted_and_what_of_it_ends_is_ambiguous() {
    assert_eq!(found(&ten(Shows::default(), (40, 0), 0)), []);
    assert_eq!(ten(Shows::default(), (40, 0), 0).confidence, Some(Confidence::WithOtherTraffic));
    assert_eq!(found(&ten(Shows::default(), (40, 0), 4)), [(DefectName::Ghost, 4)]);
    unverified(&ten(Shows::default(), (40, 0), -4), "4 sessions fewer than ours");
    // A count that is below zero from the first is no others' session, and as wrong as if it fell there later.
    let below = ten(Shows::default(), (-5, 0), 0);
    assert_eq!(found(&below), [(DefectName::FalseCapacity, 5)]);
    assert!(below.findings[0].consequences.iter().any(|line| line.contains("the lowest -5")), "{:?}", below.findings);
    assert_eq!((below.drift[0].least, below.drift[0].lasts), (-5, true), "{:?}", below.drift);
    assert_eq!(found(&ten(Shows::default(), (-5, 0), -2)), [(DefectName::FalseCapacity, 7)]);
}

#[test]
fn others_that_come_and_go_must_be_told_of() {
    unverified(&ten(Shows::default(), (40, 2), 0), "other_traffic: true");
    let shared = Shows { other_traffic: true, ..Shows::default() };
    let clean = ten(shared.clone(), (40, 2), 0);
    assert_eq!((found(&clean), clean.confidence), (vec![], Some(Confidence::WithOtherTraffic)));
    // As much as they vary may be theirs; what lasts beyond it is not.
    let verdict = ten(shared.clone(), (40, 2), 9);
    assert_eq!(found(&verdict), [(DefectName::Ghost, 5)], "40 to 42, and 2 of variation: {verdict:#?}");
    assert!(verdict.findings[0].evidence.contains("40 to 42"), "{:?}", verdict.findings);
    assert_eq!(found(&ten(shared, (40, 2), 2)), []);
}

#[test]
fn with_others_what_began_beyond_ours_is_theirs() {
    let story = |shared: bool, started: u64| {
        let mut story = Story::of(Shows { started: true, other_traffic: shared, ..Shows::default() });
        story.counts.started = Some(7);
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.counts.started = Some(7 + started);
        story.pass(5_000, 10, 0);
        story.end(0..10);
        story.pass(15_000, 0, 0);
        story.close()
    };
    assert_eq!(found(&story(true, 15)), []);
    assert_eq!(found(&story(false, 15)), [(DefectName::UnknownSessions, 5)]);
    assert_eq!(found(&story(true, 8)), [(DefectName::Lost, 2)]);
    assert_eq!(found(&story(false, 8)), [(DefectName::Lost, 2)]);
    assert_eq!(found(&story(false, 10)), []);
}

/// Guests come and go beside the ten, and nobody said so; `base` of them were there before. At the end so many are live, began and ended.
fn with_guests(base: i64, active: i64, started: u64, ended: u64) -> Verdict {
    let mut story = Story::of(Shows { started: true, ended: true, ..Shows::default() });
    (story.counts.started, story.counts.ended) = (Some(70), Some(30));
    story.pass(1_000, base, 0);
    story.begin(0..10);
    story.counts.started = Some(80);
    story.pass(3_000, base + 10, 0);
    story.pass(3_000, base + 10 + (started as i64 - 10).min(5), 0);
    story.end(0..10);
    (story.counts.started, story.counts.ended) = (Some(70 + started), Some(30 + ended));
    story.pass(15_000, active, 0);
    story.close()
}

/// A backend whose ends never exceed its starts has subtracted nothing twice.
#[test]
fn guests_that_nobody_told_of_are_unknown_sessions_and_no_double_decrement() {
    let verdict = with_guests(0, 2, 37, 35);
    assert_eq!(found(&verdict), [(DefectName::UnknownSessions, 27)], "{verdict:#?}");
    assert!(verdict.findings[0].evidence.contains("counters.other_traffic: true"), "{:?}", verdict.findings);
    // More ends than whoever began, or was there before and is gone, can have had.
    assert_eq!(found(&with_guests(0, 0, 10, 13)), [(DefectName::DoubleDecrement, 3)]);
    assert_eq!(found(&with_guests(0, 0, 12, 15)), [(DefectName::DoubleDecrement, 3), (DefectName::UnknownSessions, 2)]);
    assert_eq!(found(&with_guests(40, 40, 10, 13)), [(DefectName::DoubleDecrement, 3)]);
    unverified(&with_guests(40, 37, 10, 13), "3 sessions fewer than ours and the 40 from before the run");
}

/// As long as others stay counted, no look shows an end by itself; the one at which all are gone shows it of all, but not when.
#[test]
fn what_sums_do_not_tell_by_kind_is_not_claimed() {
    let row = |left: i64| {
        let mut story = Story::of(Shows::default());
        story.pass(1_000, 0, 0);
        story.begin(0..6);
        story.pass(3_000, 6, 0);
        story.end_as(0..1, Finish::Forced(EndKind::HalfOpen));
        story.pass(500, 6, 0);
        story.end(1..6);
        story.pass(12_000, 1, 0);
        story.pass(40_000, left, 0);
        let verdict = story.close();
        assert_eq!(found(&verdict).len() as i64, left, "{verdict:#?}");
        let mut rows = verdict.convergence.into_iter();
        rows.find(|row| row.kind == EndKind::Cancel && row.protocol == Protocol::Websocket).expect("a row")
    };
    let clean = row(0);
    assert_eq!((clean.killed, clean.detected, clean.p50_us, clean.sums), (5, 5, None, true));
    let ghost = row(1);
    assert_eq!((ghost.killed, ghost.detected, ghost.sums), (5, 0, true), "any of them may be the ghost");
}

#[test]
fn what_never_moves_proves_nothing() {
    // The gauge of another program, or a page from a cache.
    let mut story = Story::of(everything());
    story.pass(1_000, 5, 0);
    story.begin(0..10);
    story.pass(1_000, 5, 0);
    story.end(0..10);
    story.pass(15_000, 5, 0);
    unverified(&story.close(), "never moved");
    // Without sessions there is nothing to move.
    let mut story = Story::of(everything());
    story.pass(1_000, 5, 0);
    assert_eq!(story.close().judgement, Judgement::Agree);
}

#[test]
fn a_gauge_that_is_another_programs_proves_nothing_whatever_it_does() {
    // It moves, but not with us; what began is told rightly.
    let story = |shows: Shows, base: i64, vary: i64, live: i64| {
        let mut story = Story::of(shows);
        story.counts.started = Some(0);
        story.pass(1_000, base, vary);
        story.begin(0..10);
        story.counts.started = Some(10);
        story.pass(5_000, live, vary);
        story.end(0..10);
        story.pass(15_000, base, vary);
        story.close()
    };
    let started = || Shows { started: true, ..Shows::default() };
    unverified(&story(Shows { other_traffic: true, ..started() }, 40, 2, 41), "never stood out");
    unverified(&story(started(), 40, 0, 41), "fewer than ours and the 40 from before");
    assert_eq!(found(&story(started(), 0, 0, 0)), [(DefectName::FalseCapacity, 10)], "it is another number that moves");
    assert_eq!(found(&story(started(), 40, 0, 50)), []);
}

#[test]
fn sessions_that_no_look_can_have_seen_prove_nothing_of_the_live_ones() {
    let mut story = Story::of(Shows { started: true, ..Shows::default() });
    story.counts.started = Some(0);
    story.pass(1_000, 0, 0);
    story.now += 20;
    story.begin(0..10);
    story.now += 20;
    story.end(0..10);
    story.now += 60;
    story.counts.started = Some(10);
    story.pass(15_000, 0, 0);
    unverified(&story.close(), "live for too short a time to be seen");
}

#[test]
fn a_source_that_falls_silent_proves_nothing() {
    let mut story = Story::of(Shows::default());
    story.pass(1_000, 0, 0);
    story.begin(0..10);
    story.pass(5_000, 10, 0);
    story.end(0..10);
    story.now += 15_000;
    story.ledger.totals_gap(0, T0 + story.now * MS, "HTTP 503");
    unverified(&story.close(), "HTTP 503");
    unverified(&Story::of(Shows::default()).close(), "never answered");
}

#[test]
fn an_old_reading_is_no_reading_of_now() {
    // True five seconds ago: whoever is asked then knows nothing of the end.
    let mut config = LedgerConfig::new("run", T0, vec![BackendConfig { watched: false, fresh: false }]);
    config.totals = vec![TotalsConfig { name: "backend 0".to_owned(), backend: Some(0), age_us: 5_000 * MS, shows: Shows::default() }];
    let mut story = Story::of(Shows::default());
    story.ledger = Ledger::new(config);
    story.ledger.open(SOURCE, T0);
    story.pass(1_000, 0, 0);
    story.begin(0..10);
    // Late by as much as it may be: no finding.
    story.pass(4_000, 0, 0);
    story.pass(4_000, 10, 0);
    story.end(0..10);
    story.pass(4_500, 10, 0);
    assert!(!story.ledger.settled(T0 + story.now * MS));
    story.pass(10_000, 0, 0);
    assert_eq!(found(&story.close()), []);
}

/// What the network keeps from the driver is not held against the backend; what it hides of a ghost comes out.
#[test]
fn sums_are_not_held_against_a_backend_that_the_network_hides() {
    let story = |fault: bool, ghosts: i64| {
        let mut story = Story::of(Shows::default());
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.pass(3_000, 10, 0);
        if fault {
            story.ledger.network_fault(0, 1, T0 + story.now * MS, crate::ledger::Weather::Lost);
        }
        // Its keepalive ends them; the driver hears of that when the fault is over.
        story.pass(6_000, ghosts, 0);
        if fault {
            story.ledger.network_calm(0, 1, T0 + story.now * MS, false);
        }
        story.end(0..10);
        story.pass(20_000, ghosts, 0);
        story.close()
    };
    let clean = story(true, 0);
    assert_eq!(found(&clean), [], "{clean:#?}");
    assert_eq!(clean.drift[0].episodes, 0, "{:?}", clean.drift);
    assert_eq!(found(&story(true, 3)), [(DefectName::Ghost, 3)]);
    assert_eq!(found(&story(false, 0)), [(DefectName::FalseCapacity, 10)]);
}
