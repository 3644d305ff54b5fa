//! The same worlds, read as sums.

use proptest::prelude::*;
use proto::frame::Outcome;

use super::{LONG_STOP, mix, names, specs};
use crate::{
    counters::Shows,
    ledger::{
        DefectName, Judgement,
        tests::sim::{Defect, Lie, Ran, Spec, World},
    },
};

fn shows() -> impl Strategy<Value = Shows> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(started, ended, by_outcome, rejected, boot)| {
        Shows {
            started,
            ended,
            outcomes: if ended && by_outcome { Outcome::ALL.to_vec() } else { Vec::new() },
            rejected,
            boot,
            ..Shows::default()
        }
    })
}

fn everything() -> Shows {
    Shows { started: true, ended: true, outcomes: Outcome::ALL.to_vec(), rejected: true, boot: true, ..Shows::default() }
}

fn silent(world: &World) -> Result<(), TestCaseError> {
    let Ran { verdict, .. } = world.run();
    // Sessions that no look can have seen prove nothing, and are said to.
    let hidden = |evidence: &str| (world.blind.is_some() || world.stopped.is_some()) && evidence.contains("could not be read in");
    let unseen = |evidence: &str| {
        hidden(evidence) || evidence.contains("never moved") || evidence.contains("a killed worker that never told of one")
    };
    let blind = verdict.judgement == Judgement::Unverified && verdict.findings.iter().all(|finding| unseen(&finding.evidence));
    if blind {
        return Ok(());
    }
    prop_assert!(verdict.findings.is_empty(), "{:#?}\n{:#?}", verdict.findings, verdict.notes);
    prop_assert_eq!(verdict.judgement, Judgement::Agree);
    prop_assert!(verdict.irregular.is_empty(), "{:?}", verdict.irregular);
    super::drift::none(&verdict)?;
    for row in &verdict.convergence {
        prop_assert!(row.detected <= row.killed, "{row:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn sums_of_a_clean_backend_give_no_finding(specs in specs(), shows in shows(), others in 0..3_u64) {
        silent(&World { sums: Some(shows), others, fresh: false, ..World::of(specs) })?;
    }

    #[test]
    fn missing_looks_and_stops_are_not_held_against_sums(
        specs in specs(), shows in shows(), blind in (0..9_000_u64, 0..6_000_u64), stop in (0..9_000_u64, LONG_STOP)
    ) {
        let blind = Some((blind.0, blind.0 + blind.1));
        silent(&World { sums: Some(shows.clone()), blind, ..World::of(specs.clone()) })?;
        silent(&World { sums: Some(shows), stopped: Some((stop.0, stop.0 + stop.1)), ..World::of(specs) })?;
    }

    #[test]
    fn a_killed_worker_leaves_sums_clean(specs in specs(), shows in shows(), at in 500..14_000_u64) {
        silent(&World { sums: Some(shows), kill_worker: Some((1, at)), ..World::of(specs) })?;
    }

    #[test]
    fn a_killed_backend_is_written_off_in_sums(specs in specs(), shows in shows(), at in 500..14_000_u64, back in any::<bool>()) {
        let specs = specs.into_iter().filter(|s| s.start_ms + 200 < at || (back && s.start_ms > at + 500)).collect();
        silent(&World { sums: Some(shows), kill_backend: Some((at, back)), ..World::of(specs) })?;
    }

    #[test]
    fn sums_name_each_defect(rate in 0.05..1.0_f64, partial in any::<bool>()) {
        let sums = if partial { Shows { started: true, ..Shows::default() } } else { everything() };
        for (defect, full, part) in [
            (Defect::Ghost, Some(DefectName::Ghost), Some(DefectName::Ghost)),
            (Defect::ForgetOnTimeout, Some(DefectName::Ghost), Some(DefectName::Ghost)),
            (Defect::DoubleDecrement, Some(DefectName::DoubleDecrement), Some(DefectName::FalseCapacity)),
            (Defect::DecrementOnReject, Some(DefectName::FalseCapacity), Some(DefectName::FalseCapacity)),
            (Defect::NeverAdded, Some(DefectName::Lost), Some(DefectName::Lost)),
            // As sums these do not show the abrupt outcomes apart; a goodbye that was none they do.
            (Defect::WrongOutcome, Some(DefectName::WrongOutcome), None),
        ] {
            let ran = World { sums: Some(sums.clone()), defect: Some((defect, rate)), ..World::of(mix(210)) }.run();
            // With as many refusals it may have been those.
            let refused = ran.strikes <= 210 / 7;
            let name = match if partial { part } else { full } {
                Some(DefectName::DoubleDecrement) if refused => Some(DefectName::FalseCapacity),
                name => name,
            };
            let expected: Vec<_> = name.map(|name| (name, ran.strikes)).into_iter().collect();
            prop_assert_eq!(names(&ran.verdict), expected, "{:?} {:#?}", defect, ran.verdict);
        }
        // Sums show an end that comes late only where enough of them overlap for longer than looks may be apart: a few here and there do not.
        let late = World { sums: Some(sums), defect: Some((Defect::LateDecrement, rate.max(0.3))), ..World::of(mix(210)) }.run();
        let found = names(&late.verdict);
        prop_assert!(matches!(found.as_slice(), [(DefectName::LateDecrement, n)] if *n <= late.strikes), "{found:?} {} {:#?}", late.strikes, late.verdict);
    }
}

/// A run of every kind of end with 30 sessions each, and 30 refusals, whose sums tell a lie.
fn lying(lie: Lie, shows: Shows, kill_worker: bool) -> Ran {
    lying_of(mix(210), lie, shows, kill_worker)
}

fn lying_of(mut specs: Vec<Spec>, lie: Lie, shows: Shows, kill_worker: bool) -> Ran {
    // Of every kind, so that what a killed worker leaves open is open for all.
    specs.iter_mut().skip(70).step_by(10).filter(|_| kill_worker).for_each(|spec| spec.worker = 1);
    World { sums: Some(shows), lie: Some(lie), kill_worker: kill_worker.then_some((1, 7_000)), ..World::of(specs) }.run()
}

fn total() -> Shows {
    Shows { outcomes: Vec::new(), ..everything() }
}

/// Whatever the count of live sessions says: it is right in all of these.
#[test]
fn each_number_that_only_grows_is_held_against_the_ledger_from_both_sides() {
    let truth = lying(Lie::Below(0), everything(), false).truth;
    let (ended, goodbyes) = (truth.ended.unwrap(), truth.outcomes[&Outcome::Completed]);
    assert_eq!((truth.started, ended, goodbyes, truth.rejected), (Some(180), 180, 30, Some(30)));
    for (lie, shows, size) in [
        (Lie::NoEnds, total(), ended),
        (Lie::NoEnds, everything(), ended),
        (Lie::NoEnds, Shows { started: false, ..total() }, ended),
        (Lie::FewerEnds, total(), ended / 10),
        (Lie::NoEndsAs(Outcome::Completed), everything(), goodbyes),
        (Lie::NoEndsAs(Outcome::Cancelled), everything(), truth.outcomes[&Outcome::Cancelled]),
        (Lie::GoodbyesTwice, everything(), goodbyes),
        (Lie::RefusalsAsEnds, everything(), 30),
        (Lie::Rejected(7), total(), 180),
        (Lie::Rejected(0), total(), 30),
    ] {
        let ran = lying(lie, shows, false);
        assert_eq!(names(&ran.verdict), [(DefectName::Miscounted, size)], "{lie:?} {:#?}", ran.verdict.findings);
        super::drift::none(&ran.verdict).unwrap();
    }
    // What is right again at the end was wrong all the same.
    for lie in [Lie::EndsLate(9_000), Lie::EndsEarly] {
        let ran = lying(lie, total(), false);
        let found = names(&ran.verdict);
        assert!(matches!(found.as_slice(), [(DefectName::Miscounted, n)] if (5..=180).contains(n)), "{lie:?} {:#?}", ran.verdict.findings);
    }
    // Others may have had refusals and ends of their own, and cannot have taken ours away.
    let shared = |lie| {
        let mut found = names(&lying(lie, Shows { other_traffic: true, ..total() }, false).verdict);
        // How much others vary, one look before the run does not tell.
        found.retain(|(name, _)| *name != DefectName::Unverified);
        found
    };
    assert_eq!(shared(Lie::NoEnds), [(DefectName::Miscounted, ended)]);
    assert_eq!(shared(Lie::Rejected(0)), [(DefectName::Miscounted, 30)]);
    assert_eq!(shared(Lie::Rejected(7)), []);
}

#[test]
fn a_killed_worker_excuses_no_more_than_it_can_have_done() {
    let clean = lying(Lie::Below(0), everything(), true);
    assert_eq!(names(&clean.verdict), [], "{:#?}", clean.verdict.findings);
    // Of 14 sessions of the worker.
    for (lie, name, least) in [
        (Lie::GoodbyesAsCancelled, DefectName::WrongOutcome, clean.goodbyes),
        (Lie::GoodbyesTwice, DefectName::Miscounted, 15),
        (Lie::StartedTwice, DefectName::UnknownSessions, 150),
        (Lie::Rejected(7), DefectName::Miscounted, 150),
        (Lie::NoEnds, DefectName::Miscounted, 170),
    ] {
        let ran = lying(lie, everything(), true);
        let found = names(&ran.verdict);
        assert!(matches!(found.as_slice(), [(got, n)] if *got == name && (least..=180).contains(n)), "{lie:?} {:#?}", ran.verdict.findings);
    }
}

#[test]
fn too_few_live_sessions_show_whatever_the_other_numbers_do() {
    let frozen = lying(Lie::FrozenAtZero(3_000, 8_000), everything(), false);
    let found = names(&frozen.verdict);
    assert!(matches!(found.as_slice(), [(DefectName::FalseCapacity, live), (DefectName::Miscounted, _)] if *live > 5), "{found:?}");
    let below = lying(Lie::Below(5), everything(), false).verdict;
    assert_eq!(names(&below), [(DefectName::FalseCapacity, 5)], "{:#?}", below.findings);
    assert!(below.drift[0].lasts && below.drift[0].least == -5, "{:?}", below.drift);
    // For shorter than an end may take to be heard of, over and over.
    for (ms, longer_ms) in [(1_000, 2_000), (1_600, 1_000)] {
        let mut specs = mix(210);
        for spec in &mut specs {
            spec.life_ms += longer_ms;
        }
        let short = lying_of(specs, Lie::ZeroFor(ms), everything(), false).verdict;
        assert!(matches!(names(&short).as_slice(), [(DefectName::FalseCapacity, n)] if *n > 1), "{ms} {:#?}", short.findings);
        assert!(short.drift[0].episodes > 1 && short.drift[0].false_capacity_seconds > 0.0, "{:?}", short.drift);
    }
}
