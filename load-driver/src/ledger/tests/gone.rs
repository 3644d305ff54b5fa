//! Processes that went in the run: what they had counted wrongly by then is told, and what they had yet to count is not held against them.

use super::{
    mix, names,
    sim::{Defect, Ran, Spec, World},
};
use crate::ledger::DefectName;

/// Sessions that begin before a kill with time to be looked at, and, where one comes, with its successor.
fn around(kill_ms: u64, back: bool) -> Vec<Spec> {
    mix(400).into_iter().filter(|s| s.start_ms + 700 < kill_ms || (back && s.start_ms > kill_ms + 500)).collect()
}

fn killed(defect: Option<(Defect, f64)>, kill_ms: u64, back: bool) -> Ran {
    World { defect, kill_backend: Some((kill_ms, back)), ..World::of(around(kill_ms, back)) }.run()
}

#[test]
fn a_ghost_that_goes_with_its_process_was_one() {
    // Not yet settled: late, at least.
    let ran = killed(Some((Defect::Ghost, 1.0)), 6_000, false);
    let gone = ran.verdict.ghost_ages.gone_with_process.count;
    assert!(gone > 20, "{:#?}", ran.verdict.ghost_ages);
    assert_eq!(names(&ran.verdict), [(DefectName::LateDecrement, gone)], "{:#?}", ran.verdict.findings);
    assert!(ran.verdict.findings[0].evidence.contains("when their process went"), "{:#?}", ran.verdict.findings);
    let table: (u64, u64) = ran.verdict.convergence.iter().fold((0, 0), |sum, row| (sum.0 + row.ghosts, sum.1 + row.written_off));
    assert!(table.0 > 0 && table.0 <= gone && table.1 > 0, "{table:?} of {gone}");
    for row in &ran.verdict.convergence {
        assert_eq!(row.killed, row.detected + row.written_off + row.ghosts, "{row:?}");
    }
    // Where some stayed for longer than the settling time, or stay with the successor, they are what the others are.
    for (kill_ms, back) in [(14_000, false), (6_000, true)] {
        let ran = killed(Some((Defect::Ghost, 1.0)), kill_ms, back);
        let seen = ran.verdict.ghost_ages.seen.count;
        assert_eq!(names(&ran.verdict), [(DefectName::Ghost, seen)], "{:#?}", ran.verdict.findings);
        assert_eq!(ran.verdict.findings[0].session_ids.len(), 20);
    }
}

#[test]
fn an_end_that_was_late_when_its_process_went_is_late() {
    let ran = killed(Some((Defect::LateDecrement, 1.0)), 6_000, true);
    let seen = ran.verdict.ghost_ages.seen.count;
    assert!(ran.verdict.ghost_ages.gone_with_process.count > 0, "{:#?}", ran.verdict.ghost_ages);
    assert_eq!(names(&ran.verdict), [(DefectName::LateDecrement, seen)], "{:#?}", ran.verdict.findings);
}

#[test]
fn what_a_process_that_is_gone_never_added_is_lost() {
    let ran = killed(Some((Defect::NeverAdded, 0.05)), 6_000, false);
    assert!(ran.strikes > 1);
    assert_eq!(names(&ran.verdict), [(DefectName::Lost, ran.strikes)], "{:#?}", ran.verdict.findings);
}
