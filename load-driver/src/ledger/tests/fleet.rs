//! Several backends: dialled again elsewhere, or behind a front that picks.

use proptest::prelude::*;

use super::{
    DEFECTS, LONG_STOP, mix, names, silent,
    sim::{Detour, Fate, Spec, World},
    specs,
};
use crate::{
    ledger::{DefectName, FailureCause, Judgement, RetriedRow},
    plan::EndKind,
};

/// Every fourth session is refused elsewhere first.
fn detours(mut specs: Vec<Spec>, detour: Detour) -> Vec<Spec> {
    for spec in specs.iter_mut().step_by(4) {
        spec.detour = detour;
    }
    specs
}

/// As [`mix`], with sessions of which nobody can say whether they were counted.
fn doubtful_mix(n: u64) -> Vec<Spec> {
    let mut specs = mix(n);
    for (i, spec) in specs.iter_mut().enumerate().filter(|(i, _)| i % 8 == 5) {
        let counted = i % 16 == 5;
        spec.fate = if i % 3 == 0 { Fate::Unavailable { counted } } else { Fate::StartTimeout { counted } };
    }
    specs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn clean_backends_give_no_finding_with_and_without_a_front(
        specs in specs(), front in any::<bool>(), log in any::<bool>(), registry in any::<bool>(), others in 0..3_u64
    ) {
        let fresh = !front && others == 0;
        silent(&World { log, registry, fresh, others, ..World::of_three(specs, front) })?;
    }

    #[test]
    fn missing_polls_stops_and_killed_workers_are_not_held_against_clean_backends(
        specs in specs(), front in any::<bool>(), blind in (0..9_000_u64, 0..6_000_u64), stop in (0..9_000_u64, LONG_STOP), at in 500..14_000_u64
    ) {
        let world = World::of_three(specs, front);
        silent(&World { blind: Some((blind.0, blind.0 + blind.1)), ..world.clone() })?;
        silent(&World { stopped: Some((stop.0, stop.0 + stop.1)), ..world.clone() })?;
        silent(&World { kill_worker: Some((1, at)), ..world })?;
    }

    #[test]
    fn retries_are_counted_exactly(specs in specs()) {
        let ran = World::of_three(specs, false).run();
        let told: u64 = ran.verdict.retried.iter().map(|row| row.count).sum();
        prop_assert_eq!(told, ran.retries);
    }

    #[test]
    fn each_defect_of_one_backend_is_named_and_sized(
        specs in specs(), front in any::<bool>(), which in 0..DEFECTS.len(), rate in prop_oneof![Just(0.05), Just(0.3), Just(1.0)]
    ) {
        let specs: Vec<Spec> = specs.into_iter().filter(|s| !matches!(s.fate, Fate::StartTimeout { .. } | Fate::Unavailable { .. } | Fate::Breaks)).map(|spec| {
            let detour = if matches!(spec.detour, Detour::Broken { .. }) { Detour::None } else { spec.detour };
            Spec { detour, ..spec }
        }).collect();
        let (defect, name) = DEFECTS[which];
        let ran = World { defect: Some((defect, rate)), ..World::of_three(specs, front) }.run();
        let only_timeouts = |(got, n)| if name == DefectName::Ghost && got == DefectName::ForgetOnTimeout { (name, n) } else { (got, n) };
        let got: Vec<_> = names(&ran.verdict).into_iter().map(only_timeouts).collect();
        let expected: Vec<_> = (ran.strikes > 0).then_some((name, ran.strikes)).into_iter().collect();
        prop_assert_eq!(got, expected, "{:#?}", ran.verdict.findings);
    }

    #[test]
    fn in_doubt_or_not_nothing_else_is_blamed(specs in specs(), front in any::<bool>(), which in 0..DEFECTS.len()) {
        let (defect, name) = DEFECTS[which];
        let ran = World { defect: Some((defect, 0.3)), ..World::of_three(specs, front) }.run();
        let fits = |got: DefectName| got == name || (name == DefectName::Ghost && got == DefectName::ForgetOnTimeout)
            || (name == DefectName::ForgetOnTimeout && got == DefectName::Ghost);
        prop_assert!(names(&ran.verdict).iter().all(|(got, n)| fits(*got) && *n <= ran.strikes), "{:#?}", ran.verdict.findings);
    }
}

#[test]
fn each_defect_of_one_backend_is_the_only_finding_whatever_is_in_doubt() {
    for front in [false, true] {
        for detour in [Detour::None, Detour::Refused, Detour::Broken { counted: false }] {
            for (defect, name) in DEFECTS {
                let world = World::of_three(detours(doubtful_mix(600), detour), front);
                let ran = World { defect: Some((defect, 0.2)), ..world }.run();
                assert!(ran.strikes > 1, "{defect:?} struck {}", ran.strikes);
                let found =
                    ran.verdict.finding(name).unwrap_or_else(|| panic!("{defect:?} {front} {detour:?}: {:#?}", ran.verdict.findings));
                assert_eq!(ran.verdict.findings.len(), 1, "{defect:?} {front} {detour:?}: {:#?}", ran.verdict.findings);
                assert!(found.size > 1 && found.size <= ran.strikes, "{defect:?} {front} {detour:?}: {} of {}", found.size, ran.strikes);
            }
            let clean = World::of_three(detours(doubtful_mix(600), detour), front).run();
            assert_eq!(names(&clean.verdict), [], "{front} {detour:?}: {:#?}", clean.verdict.notes);
            assert!(clean.verdict.in_doubt.total > 0, "nothing was in doubt");
        }
    }
}

/// A front's first dial that its backend had counted: said, and no fault.
#[test]
fn a_front_that_dials_again_is_told_of() {
    let world = World::of_three(detours(mix(200), Detour::Broken { counted: true }), true);
    let verdict = world.run().verdict;
    assert_eq!(verdict.judgement, Judgement::Agree, "{:#?}", verdict.findings);
    assert!(verdict.notes.iter().any(|note| note.starts_with("50 sessions were counted by a second backend")), "{:?}", verdict.notes);
    assert_eq!((verdict.in_doubt.untold, verdict.retried.len()), (0, 0));
}

#[test]
fn sessions_behind_a_front_belong_to_those_that_accepted_them() {
    let specs: Vec<Spec> = mix(300).into_iter().map(|spec| Spec { fate: Fate::Ends(EndKind::Graceful), ..spec }).collect();
    let verdict = World::of_three(specs, true).run().verdict;
    assert_eq!(verdict.judgement, Judgement::Agree, "{:#?}", verdict.findings);
    let split: Vec<_> = verdict.backends.iter().map(|b| (b.backend, b.backend_id.as_str(), b.accepted)).collect();
    assert_eq!(split, [(0, "b0", 100), (1, "b1", 100), (2, "b2", 100)]);
}

/// What the backend counted and still lists, although the front told the driver that it came to nothing.
#[test]
fn a_ghost_of_a_session_in_doubt_is_found_by_its_row() {
    let mut specs = mix(30);
    specs[4] = Spec { fate: Fate::Unavailable { counted: true }, ..specs[4] };
    for spec in &mut specs {
        if matches!(spec.fate, Fate::Ends(_) | Fate::ServerTimeout) {
            spec.fate = Fate::Ends(EndKind::Graceful);
        }
    }
    let ran = World { defect: Some((super::Defect::Ghost, 1.0)), ..World::of_three(specs, true) }.run();
    assert_eq!(ran.strikes, 1);
    assert_eq!(names(&ran.verdict), [(DefectName::Ghost, 1)], "{:#?}", ran.verdict);
}

#[test]
fn a_session_that_nobody_answers_for_is_no_pass() {
    let alike = World { ids: |_| "agent".to_owned(), ..World::of_three(mix(60), true) }.run().verdict;
    assert_eq!(alike.judgement, Judgement::Unverified, "{:#?}", alike.findings);
    assert!(alike.notes.iter().any(|note| note.contains("which 3 backends have")), "{:?}", alike.notes);
    // Without a front the dial tells whose it is.
    let alike = World { ids: |_| "agent".to_owned(), ..World::of_three(mix(60), false) }.run().verdict;
    assert_eq!(alike.judgement, Judgement::Agree, "{:#?}", alike.findings);
}

#[test]
fn retries_are_told_by_cause_and_backend() {
    let specs = |detour| mix(120).into_iter().map(|spec| Spec { fate: Fate::Ends(EndKind::Graceful), detour, ..spec }).collect();
    let ran = World::of_three(specs(Detour::Refused), false).run();
    let row = |cause, backend| RetriedRow { cause, backend: Some(backend), count: 40 };
    assert_eq!(ran.verdict.retried, [0, 1, 2].map(|backend| row(FailureCause::Rejected, backend)));
    assert_eq!((ran.verdict.in_doubt.total, ran.verdict.judgement), (0, Judgement::Agree), "{:#?}", ran.verdict.findings);
    let total = ran.verdict.funnels.total();
    assert_eq!((total.requested, total.attempted, total.established, total.completed), (120, 120, 120, 120));
    // A dial that broke may have been counted, and was for each.
    let ran = World::of_three(specs(Detour::Broken { counted: true }), false).run();
    assert_eq!(ran.verdict.retried, [0, 1, 2].map(|backend| row(FailureCause::Reset, backend)));
    assert_eq!((ran.verdict.in_doubt.total, ran.verdict.in_doubt.counted), (120, 120));
    assert_eq!(ran.verdict.judgement, Judgement::Agree, "{:#?}", ran.verdict.findings);
}

#[test]
fn sessions_that_a_kill_drops_are_neither_failed_nor_completed() {
    // Only those that go to the first backend while it is dead would fail.
    let specs: Vec<Spec> = mix(300).into_iter().map(|spec| Spec { fate: Fate::Ends(EndKind::Graceful), ..spec }).collect();
    let specs: Vec<Spec> = specs.into_iter().filter(|s| s.start_ms + 200 < 6_000 || s.start_ms > 6_600).collect();
    let ran = World { kill_backend: Some((6_000, true)), ..World::of_three(specs, false) }.run();
    assert_eq!(ran.verdict.judgement, Judgement::Agree, "{:#?}", ran.verdict.findings);
    let total = ran.verdict.funnels.total();
    assert!(total.dropped > 0 && total.dropped == total.interrupted, "{total:?}");
    assert_eq!((total.completed + total.dropped + total.aborted, total.sessions_failed()), (total.requested, 0), "{total:?}");
}
