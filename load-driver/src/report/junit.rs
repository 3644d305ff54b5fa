//! JUnit XML for CI: a test case per threshold and per invariant.

use std::{io, path::PathBuf, time::Duration};

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::{Event, Sink, Summary, json::write_whole, terminal::figure};
use crate::{
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
    report.add_test_suites([thresholds, invariants, voice, verdict]);
    report.to_string().map_err(io::Error::other)
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
    status.set_type(kind).set_message(message);
    status
}

fn skipped(message: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(message);
    status
}
