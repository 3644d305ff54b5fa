//! The same worlds, read as sums.

use proptest::prelude::*;
use proto::frame::Outcome;

use super::{LONG_STOP, mix, names, specs};
use crate::{
    counters::Shows,
    ledger::{
        DefectName, Judgement,
        tests::sim::{Defect, Ran, World},
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
    let unseen = |evidence: &str| evidence.contains("never moved");
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
