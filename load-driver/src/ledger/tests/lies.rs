//! Backends whose numbers contradict each other, their lists or their logs, and strangers about whom nothing is to be said.

use proptest::prelude::*;

use super::{
    LONG_STOP, idle_sample, mix, names, silent,
    sim::{Defect, Fate, Ran, Spec, World},
    specs,
};
use crate::{
    counters::CounterSample,
    ledger::{BackendConfig, Confidence, DefectName, Judgement, Ledger, LedgerConfig},
    plan::EndKind,
};

fn shared(lie: fn(&mut CounterSample)) -> World {
    World { fresh: false, disguise: Some(lie), ..World::of(mix(200)) }
}

/// Every session adds two and subtracts one.
fn added_twice(sample: &mut CounterSample) {
    let at = &mut sample.snapshot;
    at.active += at.started as i64;
    at.active_interval = (at.active, at.active);
    *at.phases.entry("listening".to_owned()).or_default() += at.started as i64;
    at.started *= 2;
}

/// The cut is honest, and is not said to be exact.
fn open(sample: &mut CounterSample) {
    sample.snapshot.exact = false;
}

fn started(ran: &Ran) -> u64 {
    ran.verdict.funnels.total().established
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn strangers_who_come_and_go_are_not_held_against_a_clean_backend(
        specs in specs(), log in any::<bool>(), registry in any::<bool>(), guests in 0..120_usize, others in 0..3_u64, exact in any::<bool>(),
        stop in proptest::option::of((0..9_000_u64, LONG_STOP))
    ) {
        let disguise = (!exact).then_some(open as fn(&mut CounterSample));
        let stopped = stop.map(|(from, long)| (from, from + long));
        silent(&World { log, registry, guests, others, disguise, stopped, fresh: false, ..World::of(specs) })?;
    }
}

#[test]
fn a_session_that_was_added_twice_is_no_strangers() {
    let ran = shared(added_twice).run();
    assert_eq!(names(&ran.verdict), [(DefectName::Ghost, started(&ran))], "{:#?}", ran.verdict.findings);
    // Without a list nobody can say whose they are.
    let unlisted = World { registry: false, ..shared(added_twice) };
    let twice = World { defect: Some((Defect::Resurrect, 0.5)), disguise: None, ..unlisted.clone() };
    for world in [unlisted, twice] {
        let ran = world.run();
        assert_eq!((ran.verdict.judgement, names(&ran.verdict)), (Judgement::Unverified, vec![(DefectName::Unverified, 1)]));
        assert!(ran.verdict.findings[0].evidence.contains("may be anyone's"), "{:#?}", ran.verdict.findings);
        assert_eq!(ran.verdict.confidence, Some(Confidence::Totals));
        assert!(ran.verdict.cannot_see[0].contains("came back"), "{:?}", ran.verdict.cannot_see);
    }
}

#[test]
fn refusals_that_are_not_counted_or_made_up_are_miscounted() {
    let forgotten = |sample: &mut CounterSample| sample.snapshot.rejected = 0;
    let twice = |sample: &mut CounterSample| sample.snapshot.rejected *= 2;
    let drains = |sample: &mut CounterSample| (sample.snapshot.rejected, sample.snapshot.draining) = (0, true);
    let found = |world: World| names(&world.run().verdict);
    // One in seven is refused.
    let miscounted = [(DefectName::Miscounted, 30)];
    // Where others may have been refused too, there can be more of them and not fewer.
    for (lie, beside_others) in [(forgotten as fn(&mut CounterSample), &miscounted[..]), (drains, &miscounted), (twice, &[])] {
        for log in [true, false] {
            let alone = World { log, disguise: Some(lie), ..World::of(mix(210)) };
            assert_eq!(found(alone.clone()), miscounted, "{log}");
            assert_eq!(found(World { fresh: false, ..alone }), beside_others, "{log}");
        }
    }
    // What a process made up goes with it and was wrong all the same; what it forgot, the next one need not know.
    let killed = World { kill_backend: Some((4_000, true)), ..World::of(mix(210).into_iter().filter(|s| s.start_ms < 3_800).collect()) };
    let refused = killed.specs.iter().filter(|spec| spec.fate == Fate::Rejected).count() as u64;
    let made_up = found(World { disguise: Some(twice), ..killed.clone() });
    assert!(matches!(made_up[..], [(DefectName::Miscounted, n)] if (refused / 2..=refused).contains(&n)), "{made_up:?} of {refused}");
    assert_eq!(found(World { disguise: Some(forgotten), ..killed }), []);
}

#[test]
fn refusals_of_a_process_that_nobody_saw_are_not_asked_of_the_next_one() {
    let early = |spec: &Spec| spec.start_ms < 300;
    let specs: Vec<_> = mix(100)
        .into_iter()
        .map(|spec| Spec { start_ms: if spec.start_ms < 700 { 100 } else { 1_000 + spec.start_ms }, ..spec })
        .map(|spec| if early(&spec) { Spec { fate: Fate::Rejected, delay_ms: 0, ..spec } } else { spec })
        .collect();
    assert!(specs.iter().any(early));
    let ran = World { blind: Some((0, 400)), kill_backend: Some((400, true)), ..World::of(specs) }.run();
    assert_eq!(names(&ran.verdict), []);
}

#[test]
fn a_list_without_those_that_are_counted_hides_nothing() {
    let hidden = |sample: &mut CounterSample| sample.sessions = sample.sessions.take().map(|_| Vec::new());
    let ran = World { defect: Some((Defect::Resurrect, 0.5)), ..shared(hidden) }.run();
    assert_eq!(names(&ran.verdict), [(DefectName::Ghost, ran.strikes)], "{:#?}", ran.verdict.findings);
}

#[test]
fn ends_under_other_outcomes_than_the_log_tells_are_misattributed() {
    let drained = |sample: &mut CounterSample| {
        let all = sample.snapshot.ended.values().sum();
        sample.snapshot.ended = [("drained".to_owned(), all)].into();
    };
    for fresh in [true, false] {
        let ran = World { fresh, ..shared(drained) }.run();
        assert_eq!(names(&ran.verdict), [(DefectName::WrongOutcome, started(&ran))], "{:#?}", ran.verdict.findings);
        // By what the backend itself told the driver: goodbyes, and deadlines of its own.
        let ran = World { fresh, log: false, ..shared(drained) }.run();
        let timeouts = ran.verdict.funnels.total().established - ran.goodbyes;
        assert!(
            matches!(names(&ran.verdict)[..], [(DefectName::WrongOutcome, n)] if (ran.goodbyes..=ran.goodbyes + timeouts).contains(&n))
        );
    }
    // A process that is killed does not take that along.
    let killed =
        World { log: false, kill_backend: Some((4_000, true)), ..World::of(mix(210).into_iter().filter(|s| s.start_ms < 3_800).collect()) };
    assert_eq!(names(&killed.run().verdict), []);
    let ran = World { disguise: Some(drained), ..killed }.run();
    assert!(matches!(names(&ran.verdict)[..], [(DefectName::WrongOutcome, n)] if n > 0), "{:#?}", ran.verdict.findings);
    let fewer = |sample: &mut CounterSample| {
        let at = &mut sample.snapshot;
        let hidden = at.ended.get("cancelled").copied().unwrap_or(0).min(3);
        *at.ended.entry("cancelled".to_owned()).or_default() -= hidden;
        at.started -= hidden;
    };
    let ran = shared(fewer).run();
    assert!(ran.verdict.finding(DefectName::EndLogMismatch).is_some_and(|f| f.size == 3), "{:#?}", ran.verdict.findings);
}

#[test]
fn a_snapshot_that_is_not_exact_is_held_to_all_that_does_not_depend_on_it() {
    let stuck = |sample: &mut CounterSample| {
        open(sample);
        sample.snapshot.ended.clear();
    };
    let phases = |sample: &mut CounterSample| {
        open(sample);
        sample.snapshot.phases.insert("thinking".to_owned(), 999);
    };
    for lie in [stuck as fn(&mut CounterSample), phases] {
        let ran = shared(lie).run();
        assert!(ran.verdict.finding(DefectName::TornSnapshot).is_some_and(|f| f.size > 10), "{:#?}", ran.verdict.findings);
    }
    let back = |sample: &mut CounterSample| {
        open(sample);
        if (sample.snapshot.captured_at_us / 1_000_000).is_multiple_of(2) {
            sample.snapshot.ended.values_mut().for_each(|n| *n = 0);
        }
    };
    let ran = shared(back).run();
    assert!(ran.verdict.finding(DefectName::CounterReset).is_some(), "{:#?}", ran.verdict.findings);
}

#[test]
fn an_interval_that_tells_nothing_proves_nothing() {
    let wide = |sample: &mut CounterSample| {
        open(sample);
        sample.snapshot.active_interval = (-100_000, 100_000);
    };
    for log in [true, false] {
        let ran = World { log, ..shared(wide) }.run();
        assert_eq!((ran.verdict.judgement, names(&ran.verdict)), (Judgement::Unverified, vec![(DefectName::Unverified, 1)]), "{log}");
        assert!(ran.verdict.findings[0].evidence.contains("leaves its count open by 200000"), "{:#?}", ran.verdict.findings);
        assert!(ran.verdict.notes.iter().any(|note| note.contains("were not exact")), "{:?}", ran.verdict.notes);
    }
    // What the log names is named all the same.
    let ran = World { defect: Some((Defect::Ghost, 0.3)), ..shared(wide) }.run();
    assert_eq!(names(&ran.verdict)[0], (DefectName::Ghost, ran.strikes), "{:#?}", ran.verdict.findings);
}

#[test]
fn counters_of_another_backend_prove_nothing() {
    let swapped = |sample: &mut CounterSample| sample.backend = 1 - sample.backend;
    let ran = World { backends: 2, disguise: Some(swapped), ..World::of(mix(200)) }.run();
    assert_eq!(
        (ran.verdict.judgement, names(&ran.verdict)),
        (Judgement::Unverified, vec![(DefectName::Unverified, 1)]),
        "{:#?}",
        ran.verdict
    );
    let words = format!("{} sessions were dialled at one backend", started(&ran));
    assert!(ran.verdict.findings[0].evidence.starts_with(&words), "{:#?}", ran.verdict.findings);
}

#[test]
fn a_backend_that_takes_a_new_name_at_every_look_is_no_pass_and_takes_no_memory() {
    let mut ledger = Ledger::new(LedgerConfig::new("run", 0, vec![BackendConfig { watched: true, fresh: false }]));
    for n in 0..3_000 {
        ledger.sample(idle_sample(n * 250_000, &format!("boot-{n}")));
    }
    assert!(ledger.boots.len() <= 101, "{}", ledger.boots.len());
    let verdict = ledger.verdict();
    assert_eq!(verdict.judgement, Judgement::Unverified);
    assert!(verdict.findings[0].evidence.len() < 4_000 && verdict.backends.len() <= 101, "{:#?}", verdict.findings);
    assert!(verdict.notes.iter().any(|note| note.contains("too many processes")), "{:?}", verdict.notes);
    let mut ledger = Ledger::new(LedgerConfig::new("run", 0, vec![BackendConfig { watched: true, fresh: false }]));
    for n in 0..4 {
        let mut sample = idle_sample(n * 250_000, "boot-1");
        sample.snapshot.backend_id = format!("b{n}");
        ledger.sample(sample);
    }
    let verdict = ledger.verdict();
    assert_eq!(names(&verdict), [(DefectName::Unverified, 1)]);
    assert!(verdict.findings[0].evidence.contains("3 of its snapshots bore another backend id"), "{:#?}", verdict.findings);
}

#[test]
fn sessions_that_are_added_late_were_missing_meanwhile() {
    // The first half of what began is always there; the rest comes with the next sessions.
    let late = |sample: &mut CounterSample| {
        let at = &mut sample.snapshot;
        let missing = at.active.min(4);
        at.started -= missing.max(0) as u64;
        at.active -= missing;
        at.active_interval = (at.active, at.active);
        at.phases = [("listening".to_owned(), at.active)].into();
    };
    let ran = World { disguise: Some(late), ..World::of(mix(200)) }.run();
    assert!(matches!(names(&ran.verdict)[..], [(DefectName::FalseCapacity, 1..=4)]), "{:#?}", ran.verdict.findings);
}

#[test]
fn ends_that_no_look_could_check_prove_nothing() {
    // Killed two seconds after the last of its sessions was cut, and the window is longer.
    let specs: Vec<_> = mix(60)
        .into_iter()
        .map(|spec| Spec { start_ms: 100 + spec.start_ms / 40, life_ms: 500, fate: Fate::Ends(EndKind::HalfOpen), ..spec })
        .collect();
    let ran = World { kill_backend: Some((1_500, true)), defect: Some((Defect::Ghost, 1.0)), ..World::of(specs) }.run();
    assert_eq!((ran.verdict.judgement, names(&ran.verdict)), (Judgement::Unverified, vec![(DefectName::Unverified, 1)]));
    assert!(ran.verdict.findings[0].evidence.contains("not one could be checked"), "{:#?}", ran.verdict.findings);
}
