//! JUnit XML for CI: a test case per threshold, finding of the counters, kind of voice fault, invariant, fault that was made on purpose, and figure that
//! was compared.

use std::{io, path::PathBuf, time::Duration};

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::{
    Event, Exit, Sink, Summary, comparison,
    json::write_whole,
    summary::{CountersStatus, FaultRow},
    terminal::figure,
};
use crate::{
    compare::{BaselineComparison, Verdict},
    threshold::{Status, ThresholdResult},
    voice::VoiceStatus,
};

/// Writes the report when the run is over.
#[derive(Debug)]
pub struct Junit {
    path: PathBuf,
    name: String,
}

impl Junit {
    /// Into this file, whole or not at all.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { name: path.display().to_string(), path }
    }
}

impl Sink for Junit {
    fn name(&self) -> &str {
        &self.name
    }

    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        let Event::Finished(summary) = event else { return Ok(()) };
        write_whole(&self.path, render(summary)?.as_bytes())
    }
}

/// As it stands in the file.
pub fn render(summary: &Summary) -> io::Result<String> {
    let time = Duration::try_from_secs_f64(summary.duration_s).unwrap_or_default();
    let mut thresholds = TestSuite::new("thresholds");
    thresholds.add_test_cases(summary.thresholds.iter().map(threshold));
    let mut invariants = TestSuite::new("invariants");
    for invariant in &summary.invariants {
        let status = match invariant.holds {
            Some(true) => TestCaseStatus::success(),
            Some(false) => failure("invariant broken", &invariant.detail),
            None => skipped(&format!("not checked: {}", invariant.detail)),
        };
        invariants.add_test_case(case("invariants", &invariant.name, status));
    }
    let mut counters = TestSuite::new("counters");
    counters.add_test_cases(findings(summary));
    let mut voice = TestSuite::new("voice faults");
    for row in &summary.voice.kinds {
        let finding = summary.voice.findings.iter().find(|finding| finding.kind == row.kind);
        let status = match (row.status, finding) {
            (VoiceStatus::Clean, _) => TestCaseStatus::success(),
            (VoiceStatus::NotJudged, _) => skipped(&format!("not judged: {}", row.reason)),
            (VoiceStatus::Found, Some(finding)) if finding.allowed => skipped(&format!("allowed: {}", finding.detail)),
            (VoiceStatus::Found, finding) => failure("voice fault", finding.map_or("found", |finding| &finding.detail)),
        };
        voice.add_test_case(case("voice_faults", row.kind.name(), status));
    }
    // The verdict itself, so that a run that failed for a reason of its own kind (an interruption) cannot look green.
    let mut verdict = TestSuite::new("verdict");
    let status = match summary.exit.code {
        0 => TestCaseStatus::success(),
        code => failure("exit code", &format!("exit code {code}: {}", summary.exit.reason.text())),
    };
    verdict.add_test_case(case("verdict", "exit_code", status));
    let mut report = Report::new(format!("load-driver {}", summary.run.profile));
    report.set_time(time);
    report.add_test_suites([thresholds, counters, invariants, voice]);
    if !summary.faults.is_empty() {
        let mut faults = TestSuite::new("faults");
        faults.add_test_cases(summary.faults.iter().map(fault));
        report.add_test_suite(faults);
    }
    if let Some(comparison) = &summary.comparison {
        report.add_test_suite(baseline(comparison));
    }
    report.add_test_suite(verdict);
    report.to_string().map_err(io::Error::other)
}

/// Each finding, and whether the counters as a whole are proven: what was not looked at must not look green.
fn findings(summary: &Summary) -> Vec<TestCase> {
    let counters = &summary.counters;
    let whole = match counters.status {
        CountersStatus::Agree if counters.findings.is_empty() => TestCaseStatus::success(),
        CountersStatus::NotChecked if counters.findings.is_empty() => skipped(&format!("not checked: {}", counters.basis)),
        CountersStatus::Unverified => failure("counters not proven", &format!("not proven: {}", counters.basis)),
        _ => failure("counters disagree", &format!("the counters disagree with the ledger: {}", counters.basis)),
    };
    let mut cases = vec![case("counters", "agree_with_the_ledger", whole)];
    for finding in &counters.findings {
        let mut lines = vec![format!("{} sessions: {}", finding.size, finding.evidence)];
        if finding.class == "torn" {
            lines = vec![format!("{} snapshots: {}", finding.size, finding.evidence)];
        }
        lines.extend(finding.consequences.iter().cloned());
        if !finding.session_ids.is_empty() {
            lines.push(format!("sessions, the first: {}", finding.session_ids.join(", ")));
        }
        cases.push(case("counters", &finding.name, failure(&finding.class, &lines.join("\n"))));
    }
    cases
}

/// A case for each figure that was compared.
fn baseline(comparison: &BaselineComparison) -> TestSuite {
    let mut suite = TestSuite::new("baseline");
    for row in &comparison.rows {
        let status = match row.verdict {
            Verdict::Worse => failure("regression", &comparison::sentence(row)),
            Verdict::Better | Verdict::NoDifference => TestCaseStatus::success(),
            Verdict::Unclear | Verdict::NotComparable => skipped(&format!("{}: {}", row.verdict.name(), comparison::sentence(row))),
        };
        suite.add_test_case(case("baseline", &comparison::name(row), status));
    }
    let whole = match comparison.exit() {
        Exit::Ok => TestCaseStatus::success(),
        _ => failure(
            "baseline",
            &[comparison::verdict(comparison)].iter().chain(&comparison.refused).cloned().collect::<Vec<_>>().join("\n"),
        ),
    };
    suite.add_test_case(case("baseline", "no_regression", whole));
    suite
}

/// A fault that was made proves nothing by itself; one that was not must not look as if it had been.
fn fault(row: &FaultRow) -> TestCase {
    let status = row.not_made().map_or_else(TestCaseStatus::success, |why| skipped(&why));
    case("faults", &format!("{}: {} at {} s", row.number, row.kind.name(), row.planned_s), status)
}

fn threshold(result: &ThresholdResult) -> TestCase {
    let shown = figure(result);
    let status = match (result.ok, result.status) {
        (true, Status::NoData) => skipped("no data, which the profile allows"),
        (true, _) => TestCaseStatus::success(),
        (false, Status::NoData) => failure("no data", "nothing was measured, so nothing was proven"),
        (false, _) => failure("threshold failed", &format!("{} must be {}, but is {shown}", result.key, result.expression)),
    };
    let mut case = case("thresholds", &format!("{}: {}", result.key, result.expression), status);
    case.set_system_out(format!("{shown} of {} samples", result.samples));
    case
}

fn case(class: &str, name: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(name, status);
    case.set_classname(format!("load-driver.{class}"));
    case
}

fn failure(kind: &str, message: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    // Some readers show the attribute, others the text.
    status.set_type(kind).set_message(message.lines().next().unwrap_or_default()).set_description(message);
    status
}

fn skipped(message: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(message);
    status
}
