//! Counts over time: how far they are off and with which sign, how old ghosts get, who comes back, and what a restart is.

use proptest::prelude::*;
use proto::frame::Outcome;

use super::{
    idle_sample, mix, names,
    sim::{Defect, World},
};
use crate::{
    counters::Shows,
    ledger::{BackendConfig, DefectName, DriftRow, GhostAges, Judgement, Ledger, LedgerConfig, Verdict},
};

/// A clean backend is never off.
pub(super) fn none(verdict: &Verdict) -> Result<(), TestCaseError> {
    for row in &verdict.drift {
        prop_assert!(row.episodes == 0 && row.points.is_empty() && (row.most, row.least) == (0, 0), "{row:?}");
        prop_assert!(row.ghost_seconds == 0.0 && row.false_capacity_seconds == 0.0, "{row:?}");
    }
    prop_assert_eq!(&verdict.ghost_ages, &GhostAges::default());
    Ok(())
}

fn only(verdict: &Verdict) -> &DriftRow {
    assert_eq!(verdict.drift.len(), 1);
    &verdict.drift[0]
}

fn everything() -> Shows {
    Shows { started: true, ended: true, outcomes: Outcome::ALL.to_vec(), rejected: true, boot: true, ..Shows::default() }
}

#[test]
fn a_ghost_is_drift_above_and_a_second_decrement_below_by_name_and_by_sums() {
    for sums in [None, Some(everything()), Some(Shows::default())] {
        for (defect, sign) in [(Defect::Ghost, 1), (Defect::DoubleDecrement, -1)] {
            let ran = World { sums: sums.clone(), defect: Some((defect, 0.05)), ..World::of(mix(400)) }.run();
            let (row, size) = (only(&ran.verdict), ran.strikes as i64);
            let peaks = if sign > 0 { (row.most, row.least) } else { (-row.least, -row.most) };
            assert_eq!(peaks, (size, 0), "{defect:?} {row:?}");
            let (right, wrong) = (row.ghost_seconds, row.false_capacity_seconds);
            let (right, wrong) = if sign > 0 { (right, wrong) } else { (wrong, right) };
            assert!(right > size as f64 && wrong == 0.0, "{defect:?} {row:?}");
            assert!(row.lasts && row.ended_s.is_none() && row.began_s.is_some_and(|at| at > 0.0), "{row:?}");
            assert!(row.points.iter().all(|point| point.most * sign > 0 && point.least * sign > 0), "{row:?}");
        }
    }
}

#[test]
fn every_ghost_has_its_age() {
    let ran = World { defect: Some((Defect::Ghost, 0.05)), ..World::of(mix(400)) }.run();
    let ages = &ran.verdict.ghost_ages;
    assert_eq!((ages.seen.count, ages.still.count, ages.gone.count), (ran.strikes, ran.strikes, 0), "{ages:#?}");
    // Seen at the first look beyond the window, 2 s; the half-open ones have 4 s.
    assert!(ages.seen.p50_s.is_some_and(|s| (2.0..2.5).contains(&s)) && ages.seen.max_s.is_some_and(|s| s < 4.5), "{ages:#?}");
    assert!(ages.still.max_s > ages.seen.max_s && ages.still.p50_s <= ages.still.p95_s, "{ages:#?}");
    assert_eq!(ages.still.bins.iter().map(|(_, n)| n).sum::<u64>(), ran.strikes);
    // Counted five seconds late: it was a ghost for a while.
    let ran = World { defect: Some((Defect::LateDecrement, 0.05)), ..World::of(mix(400)) }.run();
    let (ages, row) = (&ran.verdict.ghost_ages, only(&ran.verdict));
    assert_eq!((ages.seen.count, ages.gone.count, ages.still.count), (ran.strikes, ran.strikes, 0), "{ages:#?}");
    assert!(ages.gone.p50_s.is_some_and(|s| (4.9..6.5).contains(&s)), "{ages:#?}");
    assert!(row.most > 0 && !row.lasts && row.ended_s.is_some(), "{row:?}");
}

#[test]
fn a_restart_takes_ghosts_and_drift_with_it() {
    let specs = mix(200).into_iter().filter(|s| s.start_ms + 200 < 6_000 || s.start_ms > 6_500).collect();
    let ran = World { defect: Some((Defect::Ghost, 0.3)), kill_backend: Some((6_000, true)), ..World::of(specs) }.run();
    let ages = &ran.verdict.ghost_ages;
    assert!(ages.gone_with_process.count > 0 && ages.still.count > 0, "{ages:#?}");
    assert_eq!(ages.gone_with_process.count + ages.still.count, ages.seen.count, "{ages:#?}");
    let row = only(&ran.verdict);
    assert!(row.episodes >= 2, "{row:?}");
    // In the second after the kill nothing is there to be off.
    assert!(!row.points.iter().any(|point| point.at_s == 7), "{row:?}");
}

#[test]
fn who_comes_back_is_named_wherever_the_backend_lists_its_sessions() {
    for fresh in [true, false] {
        let ran = World { defect: Some((Defect::Resurrect, 0.05)), fresh, others: if fresh { 0 } else { 5 }, ..World::of(mix(400)) }.run();
        assert_eq!(names(&ran.verdict), [(DefectName::Resurrection, ran.strikes)], "{:#?}", ran.verdict.findings);
        assert_eq!(ran.verdict.findings[0].session_ids.len() as u64, ran.strikes.min(20));
        let row = only(&ran.verdict);
        assert_eq!((row.most, row.least, row.lasts), (ran.strikes as i64, 0, true), "{row:?}");
    }
    // Sums name nobody: sessions beyond those that began, and drift.
    let ran = World { defect: Some((Defect::Resurrect, 0.05)), sums: Some(Shows::default()), ..World::of(mix(400)) }.run();
    assert_eq!(names(&ran.verdict), [(DefectName::Ghost, ran.strikes)], "{:#?}", ran.verdict.findings);
    assert_eq!(only(&ran.verdict).most, ran.strikes as i64);
    assert!(ran.verdict.cannot_see.iter().any(|line| line.contains("came back")), "{:?}", ran.verdict.cannot_see);
}

/// Numbers that fall once and come back were no cut at one moment; that stay low, in one process, were forgotten.
#[test]
fn a_reset_without_a_restart_is_a_finding_and_no_torn_snapshot() {
    let story = |started: [u64; 4]| {
        let mut ledger = Ledger::new(LedgerConfig::new("run", 0, vec![BackendConfig { watched: true, fresh: false }]));
        for (n, started) in started.into_iter().enumerate() {
            let mut sample = idle_sample(n as u64 * 250_000, "boot-1");
            sample.snapshot.started = started;
            sample.snapshot.ended.insert("completed".to_owned(), started);
            ledger.sample(sample);
        }
        ledger.verdict()
    };
    assert_eq!(story([70, 70, 70, 70]).judgement, Judgement::Agree);
    assert_eq!(names(&story([70, 2, 70, 70])), [(DefectName::TornSnapshot, 1)]);
    let reset = story([70, 70, 2, 2]);
    assert_eq!(names(&reset), [(DefectName::CounterReset, 1)], "{reset:#?}");
    assert!(reset.findings[0].evidence.contains("`started` went from 70 down to 2 under one boot id"), "{:?}", reset.findings);
}
