//! What a killed driver left, joined with what the one that goes on finds: counts summed, nothing twice.

use proto::time::Micros;

use crate::{
    leak::LeakRow,
    ledger::DriftRow,
    report::{
        build::Known,
        summary::{CountersSection, CountersStatus, FaultRow, FindingRow, SegmentRow, Summary},
    },
    threshold::{Status, ThresholdResult},
    voice::{VoiceSection, VoiceStatus},
};

use super::{checkpoint::State, leftover::Leftover};

/// A run up to its last checkpoint.
#[derive(Debug)]
pub(super) struct Former {
    pub(super) state: State,
    pub(super) summary: Summary,
    /// Sessions that were under way.
    pub(super) lost: u64,
}

impl Former {
    /// Puts what was before to what is known now. Totals of latencies, counters, sessions and convergence are in the registry and the ledger
    /// already.
    pub(super) fn join(&self, known: &mut Known, leftover: &Leftover) {
        let (state, before) = (&self.state, &self.summary);
        let from_s = state.at.0 as f64 / 1e6;
        known.duration_s += from_s;
        known.segments = self.segments(leftover).into_iter().chain(std::mem::take(&mut known.segments)).collect();
        known.irregular.splice(0..0, state.irregular.iter().cloned());
        known.workers_lost += before.workers_lost;
        for (cause, text) in &before.error_messages {
            known.said.insert(cause.clone(), text.clone());
        }
        known.faults = faults(&before.faults, std::mem::take(&mut known.faults), state.at);
        known.thresholds = std::mem::take(&mut known.thresholds)
            .into_iter()
            .enumerate()
            .map(|(n, now)| threshold(before.thresholds.get(n), now))
            .collect();
        known.voice = voice(&before.voice, std::mem::take(&mut known.voice));
        let saturation = &before.generator.saturation;
        known.generator.saturation.saturated |= saturation.saturated;
        known
            .generator
            .saturation
            .reasons
            .extend(saturation.reasons.iter().map(|reason| format!("before the driver was killed: {reason}")));
        known.generator.cpu_busiest_cores = known.generator.cpu_busiest_cores.max(before.generator.cpu_busiest_cores);
        let segment = before.segments.last().map_or(0, |segment| segment.number);
        let named = |cost: &crate::report::summary::ProcessCost| {
            let mut cost = cost.clone();
            if !cost.name.contains("(segment") {
                cost.name = format!("{} (segment {segment})", cost.name);
            }
            cost
        };
        known.costs = before.costs.iter().map(named).chain(std::mem::take(&mut known.costs)).collect();
        known.counters = counters(&before.counters, std::mem::take(&mut known.counters), leftover, from_s);
        let named = |row: &LeakRow| LeakRow { process: format!("{} (segment {segment})", row.process), ..row.clone() };
        let earlier = before.leaks.iter().filter(|row| row.slope_per_h.is_some() && !row.process.contains("(segment")).map(named);
        let kept = before.leaks.iter().filter(|row| row.process.contains("(segment")).cloned();
        known.leaks = kept.chain(earlier).chain(std::mem::take(&mut known.leaks)).collect();
        // Figures of balance are of one process's view from start to end.
        known.balance = None;
    }

    fn segments(&self, leftover: &Leftover) -> Vec<SegmentRow> {
        let mut segments = self.summary.segments.clone();
        if let Some(last) = segments.last_mut() {
            last.killed = true;
            last.lost_sessions = self.lost;
            last.unseen_sessions = leftover.unseen();
            last.notes.clone_from(&leftover.notes);
            let cut = self.summary.faults.iter().filter(|row| row.is_under_way()).map(|row| row.kind.name()).collect::<Vec<_>>();
            if !cut.is_empty() {
                last.notes.push(format!(
                    "faults under way at the last checkpoint ended with their driver, and are not made again: {}",
                    cut.join(", ")
                ));
            }
        }
        segments
    }
}

/// Those of the plan before the checkpoint, as it told them, and those of the new segment.
fn faults(before: &[FaultRow], now: Vec<FaultRow>, from: Micros) -> Vec<FaultRow> {
    let from_s = from.0 as f64 / 1e6;
    // On the whole microsecond, as the plan was cut.
    let is_past = |row: &&FaultRow| ((row.planned_s * 1e6).round() as u64) < from.0;
    let mut all: Vec<FaultRow> = before.iter().filter(is_past).cloned().collect();
    for row in &mut all {
        if row.is_under_way() {
            row.ended_s = Some(from_s);
        }
        if row.began_s.is_none() && row.skipped.is_none() {
            row.skipped = Some("the driver was killed, and no checkpoint tells of it".to_owned());
        }
    }
    let first = all.len() as u16;
    all.extend(now.into_iter().map(|mut row| {
        row.number += first;
        row.planned_s += from_s;
        row.began_s = row.began_s.map(|at| at + from_s);
        row.ended_s = row.ended_s.map(|at| at + from_s);
        row
    }));
    all
}

/// Without a window the figure is of all segments already; a window that was broken before stays broken.
fn threshold(before: Option<&ThresholdResult>, now: ThresholdResult) -> ThresholdResult {
    match before.filter(|before| before.key == now.key && before.expression == now.expression) {
        Some(before) if before.broken_at_s.is_some() => before.clone(),
        // Each process is judged by itself.
        Some(before) if before.key.starts_with("leak_") && (before.status == Status::Failed || now.status == Status::NoData) => {
            before.clone()
        }
        Some(before) if now.window_s.is_some() && now.status == Status::NoData && before.status != Status::NoData => before.clone(),
        _ => now,
    }
}

fn voice(before: &VoiceSection, mut now: VoiceSection) -> VoiceSection {
    for then in &before.kinds {
        if let Some(row) = now.kinds.iter_mut().find(|row| row.kind == then.kind) {
            row.tested += then.tested;
            row.excused += then.excused;
            row.status = match (row.status, then.status) {
                (VoiceStatus::Found, _) | (_, VoiceStatus::Found) => VoiceStatus::Found,
                (VoiceStatus::Clean, _) | (_, VoiceStatus::Clean) => VoiceStatus::Clean,
                _ => VoiceStatus::NotJudged,
            };
            if row.status != VoiceStatus::NotJudged {
                row.reason.clear();
            }
        }
    }
    for then in &before.findings {
        if let Some(finding) = now.findings.iter_mut().find(|finding| finding.kind == then.kind) {
            finding.sessions += then.sessions;
            finding.size += then.size;
            finding.detail = format!("{}; before the driver was killed: {}", finding.detail, then.detail);
            finding.session_refs.splice(0..0, then.session_refs.iter().cloned());
        } else {
            now.findings.push(then.clone());
        }
    }
    now
}

fn counters(before: &CountersSection, mut now: CountersSection, leftover: &Leftover, from_s: f64) -> CountersSection {
    let earlier = before
        .findings
        .iter()
        .cloned()
        .map(|finding| FindingRow { evidence: format!("before the driver was killed: {}", finding.evidence), ..finding });
    let found: Vec<FindingRow> = earlier.chain(leftover.findings.iter().cloned()).collect();
    // What is unverified is no disagreement, and no pass.
    let proven = found.iter().any(|finding| finding.class != "unverified");
    now.status = match now.status {
        _ if proven => CountersStatus::Disagree,
        CountersStatus::Agree if !found.is_empty() => CountersStatus::Unverified,
        status => status,
    };
    now.findings.splice(0..0, found);
    let earlier = before.drift.iter().map(|row| {
        let told = if row.source.contains("(before") { row.source.clone() } else { format!("{} (before {from_s:.0} s)", row.source) };
        DriftRow { source: told, ..row.clone() }
    });
    let later = std::mem::take(&mut now.drift).into_iter().map(|row| row.later_by(from_s));
    now.drift = earlier.chain(later).collect();
    let notes = if leftover.notes.is_empty() { String::new() } else { format!("; {}", leftover.notes.join("; ")) };
    now.basis = format!("from {from_s:.0} s on: {}; before that, up to the last checkpoint of the killed driver{notes}", now.basis);
    now
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::{Fault, FaultKind, FaultTarget};

    fn row(at_s: u64, lasts_s: u64, began: bool, ended: bool) -> FaultRow {
        let duration = Duration::from_secs(lasts_s);
        let fault = Fault {
            number: 0,
            at: Micros(at_s * 1_000_000),
            duration,
            kind: FaultKind::Stall,
            target: FaultTarget::default(),
            fraction: 1.0,
        };
        FaultRow {
            began_s: began.then_some(at_s as f64),
            ended_s: ended.then_some((at_s + lasts_s) as f64),
            ..FaultRow::planned(&fault, &[])
        }
    }

    #[test]
    fn faults_of_both_segments_are_there_once_and_in_order() {
        // Past, cut by the kill, begun by nobody, due after the checkpoint (and not begun then).
        let before =
            [row(1, 2, true, true), row(8, 5, true, false), row(9, 0, false, false), row(10, 2, false, false), row(30, 2, false, false)];
        let now = vec![row(0, 2, true, true), row(20, 2, false, false)];
        let all = faults(&before, now, Micros(10_000_000));
        let times: Vec<_> = all.iter().map(|row| (row.planned_s, row.began_s, row.ended_s)).collect();
        assert_eq!(
            times,
            [
                (1.0, Some(1.0), Some(3.0)),
                (8.0, Some(8.0), Some(10.0)),
                (9.0, None, None),
                (10.0, Some(10.0), Some(12.0)),
                (30.0, None, None),
            ]
        );
        assert_eq!(all.iter().map(|row| row.skipped.is_some()).collect::<Vec<_>>(), [false, false, true, false, false]);
        assert_eq!(all[3].number, 3);
    }
}
