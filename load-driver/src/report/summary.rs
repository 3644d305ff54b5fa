//! What a run found: the contents of `summary.json`, and what the other sinks show. Latencies in milliseconds.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Exit, behaviour::Behaviour, build};
use crate::{
    balance::Balance,
    compare::{self, BaselineComparison},
    leak::LeakRow,
    ledger::{Confidence, DriftRow, Funnel, GhostAges},
    plan::{Dialect, EndKind, Fault, FaultName, Protocol, ScenarioPlan},
    record::Series,
    system::Saturation,
    threshold::ThresholdResult,
    voice::VoiceSection,
};

/// Of the layout of [`Summary`]: one more with every change that a reader could notice.
pub const SCHEMA_VERSION: u32 = 5;

/// Everything about one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Of this layout.
    pub schema_version: u32,
    /// What was run.
    pub run: RunInfo,
    /// The run is not over, or was cut off: this is what was known at the last checkpoint.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// The parts of a run whose driver was killed and that was resumed, in order; empty for a run in one piece.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<SegmentRow>,
    /// How long it was, seconds, from the start to the last session's end.
    pub duration_s: f64,
    /// Of that, measured: after the warm-up.
    pub measured_s: f64,
    /// Samples that the warm-up kept out of every figure.
    pub warmup_samples: u64,
    /// Why it ended early, if it did.
    pub stopped_early: Option<String>,
    /// The verdict.
    pub exit: ExitSection,
    /// In the order of the profile.
    pub thresholds: Vec<ThresholdResult>,
    /// The backends' counters against the ledger.
    pub counters: CountersSection,
    /// Faults of the backends as voice agents.
    pub voice: VoiceSection,
    /// What must hold in every run.
    pub invariants: Vec<Invariant>,
    /// Sessions, all scenarios, warm-up included.
    pub funnel: Funnel,
    /// Every metric, with or without samples.
    pub latencies: Vec<LatencyRow>,
    /// Every counter of the measured part, by name.
    pub counts: BTreeMap<String, u64>,
    /// How the agents behaved in conversation.
    pub behaviour: Behaviour,
    /// In the order of the plan.
    pub scenarios: Vec<ScenarioSummary>,
    /// Forced ends by kind and protocol.
    pub convergence: Vec<ConvergenceRow>,
    /// What went wrong on purpose, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultRow>,
    /// Failed sessions by cause.
    pub errors: BTreeMap<String, u64>,
    /// What the other side, or the network, said with the first failure of a cause: one line each, cut, without secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub error_messages: BTreeMap<String, String>,
    /// The driver on itself.
    pub generator: GeneratorHealth,
    /// What driver and backends cost.
    pub costs: Vec<ProcessCost>,
    /// Whether driver, workers and backends grow: memory, file descriptors, threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaks: Vec<LeakRow>,
    /// Workers that were lost other than by the plan.
    pub workers_lost: u64,
    /// How evenly sessions and load lay on the backends; none when not every backend has counters that can be read.
    pub balance: Option<Balance>,
    /// Against an earlier run, when one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<BaselineComparison>,
    /// The run second by second.
    pub series: Series,
    /// The profile with every default and override in it.
    pub resolved_profile: serde_json::Value,
}

/// What is run, known before it starts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RunInfo {
    /// Names the run on both sides.
    pub run_id: String,
    /// Reproduces the plan.
    pub seed: u64,
    /// Name or path of the profile.
    pub profile: String,
    /// Of load-driver.
    pub version: String,
    /// Addresses, or `embedded`.
    pub targets: Vec<String>,
    /// Unix microseconds.
    pub started_at_us: u64,
    /// As planned, seconds, without the graceful stop.
    pub planned_s: f64,
    /// Longest graceful stop after that, seconds.
    pub graceful_stop_s: f64,
    /// Excluded from figures, seconds from the start.
    pub warmup_s: f64,
    /// Names, in the order of the plan.
    pub scenarios: Vec<String>,
    /// What embedded backends were told to do wrong: `--fault`, `--defect`, and the same of the profile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injected: Vec<String>,
}

/// A part of a run, by one driver process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SegmentRow {
    /// In order, from 0.
    pub number: u32,
    /// Begins the driver's name of every session of it.
    pub run_id: String,
    /// Unix microseconds.
    pub started_at_us: u64,
    /// Run time at which it begins, seconds.
    pub from_s: f64,
    /// Run time up to which it counts, seconds: its last checkpoint, or the end.
    pub to_s: f64,
    /// Its driver was killed.
    pub killed: bool,
    /// Sessions that were under way at the last checkpoint: cut, and in no figure but the funnel's `interrupted` and `aborted`.
    pub lost_sessions: u64,
    /// Sessions that the backends counted between the last checkpoint and the kill, at most: they are in no figure. None where nobody can tell, and
    /// where no driver was killed.
    pub unseen_sessions: Option<u64>,
    /// What could not be proven of them, and what else is to be known.
    pub notes: Vec<String>,
}

/// How the process ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExitSection {
    /// Of the process.
    pub code: u8,
    /// The worst reason.
    pub reason: Exit,
    /// Every reason that holds, worst first; empty when all is well.
    pub reasons: Vec<Exit>,
}

/// What came of comparing counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CountersStatus {
    /// Not one discrepancy.
    Agree,
    /// See the findings.
    Disagree,
    /// Nothing wrong was seen, but some backend could not be checked: no proof is no pass.
    Unverified,
    /// The targets tell nothing of their counters.
    #[default]
    NotChecked,
}

/// The backends' counters against the ledger.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CountersSection {
    /// Verdict.
    pub status: CountersStatus,
    /// In words: on what it rests, or why there is none.
    pub basis: String,
    /// How much it is worth; none when nothing was checked.
    pub confidence: Option<Confidence>,
    /// What the sources of counters cannot show, whatever the verdict.
    pub cannot_see: Vec<String>,
    /// What is wrong, worst first.
    pub findings: Vec<FindingRow>,
    /// How far each count was off over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<DriftRow>,
    /// For how long sessions had been over that were still counted, where they are known by name.
    #[serde(default)]
    pub ghost_ages: GhostAges,
}

/// One thing that is wrong with the counters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FindingRow {
    /// The defect: `ghost`, `double_decrement` ...
    pub name: String,
    /// Its class: `ghost`, `false_capacity`, `lost`, `late`, `negative`, `torn` ...
    pub class: String,
    /// How many sessions (snapshots, for torn ones).
    pub size: u64,
    /// In words.
    pub evidence: String,
    /// What else follows from it.
    pub consequences: Vec<String>,
    /// The first few.
    pub session_ids: Vec<String>,
}

/// Something that must hold in every run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Invariant {
    /// Such as `funnel_adds_up`.
    pub name: String,
    /// None when it could not be checked.
    pub holds: Option<bool>,
    /// In words.
    pub detail: String,
}

/// One metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyRow {
    /// Name.
    pub metric: String,
    /// From the intended time; none without samples.
    pub response: Option<Quantiles>,
    /// From the actual time; none without samples.
    pub service: Option<Quantiles>,
    /// Samples beyond the range of the histogram, which holds them at its limit.
    pub clamped: u64,
}

/// Read from a histogram as `record::histogram` defines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it; milliseconds")]
pub struct Quantiles {
    pub count: u64,
    pub min_ms: f64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

/// One scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScenarioSummary {
    /// From the profile.
    pub name: String,
    /// Transport.
    pub protocol: Protocol,
    /// What is spoken over it.
    pub dialect: Dialect,
    /// Its sessions.
    pub funnel: Funnel,
    /// Metrics with samples.
    pub latencies: Vec<LatencyRow>,
    /// Counters that are not 0.
    pub counts: BTreeMap<String, u64>,
    /// How the agents behaved in conversation.
    pub behaviour: Behaviour,
    /// Failed sessions by cause.
    pub errors: BTreeMap<String, u64>,
}

/// Forced ends of one kind over one protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConvergenceRow {
    /// Kind of end.
    pub kind: EndKind,
    /// Transport.
    pub protocol: Protocol,
    /// What was spoken over it.
    #[serde(default)]
    pub dialect: Dialect,
    /// Sessions that ended so.
    pub killed: u64,
    /// Of those: the counters followed. Of counters that are sums: all, or not known.
    pub detected: Option<u64>,
    /// Of those: the backend itself was gone. This and the next two are not known of counters that are sums.
    pub written_off: Option<u64>,
    /// Of those: still counted at the end.
    pub ghosts: Option<u64>,
    /// Decrements too many for them.
    pub false_capacity: Option<u64>,
    /// Forced end to agreement, of those for which a look told when.
    pub p50_ms: Option<f64>,
    /// As above.
    #[serde(default)]
    pub p95_ms: Option<f64>,
    /// As above.
    pub p99_ms: Option<f64>,
    /// As above.
    pub max_ms: Option<f64>,
}

/// One fault of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FaultRow {
    /// In order of time.
    pub number: u16,
    /// What happened.
    pub kind: FaultName,
    /// How strongly, in words: `delay 200ms, jitter 50ms`; empty where the kind says it all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub with: String,
    /// To whom, in words.
    pub target: String,
    /// Share of the target.
    pub fraction: f64,
    /// When it was to begin, seconds from the start.
    pub planned_s: f64,
    /// How long it was to last, seconds; 0 for what happens in a moment.
    pub duration_s: f64,
    /// When it began; none when it did not.
    pub began_s: Option<f64>,
    /// When it was over; none for what happens in a moment.
    pub ended_s: Option<f64>,
    /// Sessions, connections or processes that it struck, where that is known.
    pub struck: Option<u64>,
    /// Why it could not be made here.
    pub skipped: Option<String>,
    /// What of it could not be made here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<String>,
    /// What else was measured of it: `peak_dials_per_s`, `all_back_after_s` ...
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

impl FaultRow {
    /// Before anything came of it.
    pub fn planned(fault: &Fault, scenarios: &[Arc<ScenarioPlan>]) -> Self {
        // As the profile calls it.
        let name = |number: u16| {
            let named = scenarios.iter().find(|scenario| scenario.number == number);
            named.map_or_else(|| number.to_string(), |scenario| scenario.name.clone())
        };
        let target = match (fault.target.backend, fault.target.scenario) {
            (None, None) => "all".to_owned(),
            (Some(backend), None) => format!("backend {backend}"),
            (None, Some(scenario)) => format!("scenario {}", name(scenario)),
            (Some(backend), Some(scenario)) => format!("backend {backend}, scenario {}", name(scenario)),
        };
        Self {
            number: fault.number,
            kind: fault.kind.name(),
            with: fault.kind.with(),
            target,
            fraction: fault.fraction,
            planned_s: fault.at.0 as f64 / 1e6,
            duration_s: fault.duration.as_secs_f64(),
            began_s: None,
            ended_s: None,
            struck: None,
            skipped: None,
            without: None,
            figures: BTreeMap::new(),
        }
    }

    /// How long it lasted, seconds: as planned while it is not over; none for what happens in a moment, and for what was not made.
    pub fn lasted_s(&self) -> Option<f64> {
        let from = self.began_s.filter(|_| self.duration_s > 0.0 && self.skipped.is_none())?;
        Some(self.ended_s.map_or(self.duration_s, |to| to - from))
    }

    /// It began, and nothing says that it is over.
    pub fn is_under_way(&self) -> bool {
        self.began_s.is_some() && self.ended_s.is_none() && self.duration_s > 0.0
    }

    /// Why the run says nothing of this fault, or of a part of it.
    pub fn not_made(&self) -> Option<String> {
        match (&self.skipped, self.began_s, &self.without, self.struck) {
            (Some(why), ..) => Some(format!("skipped: {why}")),
            (None, None, ..) => Some("not reached: the run was over before it".to_owned()),
            (None, Some(_), Some(what), Some(0)) => Some(format!("struck nobody: made without {what}")),
            (None, Some(_), Some(what), _) => Some(format!("made without {what}")),
            (None, Some(_), None, Some(0)) => Some("struck nobody".to_owned()),
            (None, Some(_), None, _) => None,
        }
    }
}

/// The driver on itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GeneratorHealth {
    /// Verdict.
    pub saturation: Saturation,
    /// None when nothing was sent.
    pub schedule_lag_p99_ms: Option<f64>,
    /// Its limit.
    pub schedule_lag_limit_ms: f64,
    /// Cores that the driver has.
    pub cores: f64,
    /// Mean use of them.
    pub cpu_mean_cores: Option<f64>,
    /// Highest use in a second.
    pub cpu_busiest_cores: f64,
    /// Frames that were dropped because a stream's queue was full.
    pub send_drops: u64,
}

/// What one process cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessCost {
    /// `driver`, `worker 0`, the backend's id.
    pub name: String,
    /// What all scenarios of the run speak, or `mixed`: what a frame costs depends on it.
    pub dialect: String,
    /// User and system CPU time, seconds.
    pub cpu_s: f64,
    /// Frames sent and received in that time.
    pub frames: u64,
    /// CPU per frame one way, microseconds; none without frames.
    pub cpu_us_per_frame: Option<f64>,
    /// Most resident memory, bytes.
    pub rss_peak_bytes: u64,
    /// Most live sessions.
    pub sessions_peak: u64,
    /// Growth of resident memory per session, bytes; none without sessions.
    pub rss_per_session_bytes: Option<f64>,
}

impl ProcessCost {
    /// From what was read of the process; the dialect is for [`build::summary`] to say. `rss_first_bytes` is its memory before the first session.
    pub fn new(name: impl Into<String>, cpu_us: u64, frames: u64, rss_first_bytes: u64, rss_peak_bytes: u64, sessions_peak: u64) -> Self {
        let per = |what: u64, of: u64| (of > 0).then(|| (what as f64 * 1_000.0 / of as f64).round() / 1_000.0);
        Self {
            name: name.into(),
            dialect: String::new(),
            cpu_s: cpu_us as f64 / 1e6,
            frames,
            cpu_us_per_frame: per(cpu_us, frames),
            rss_peak_bytes,
            sessions_peak,
            rss_per_session_bytes: per(rss_peak_bytes.saturating_sub(rss_first_bytes), sessions_peak),
        }
    }
}

impl Summary {
    /// Sets the verdict from what the summary holds and from what the caller knows beside it.
    pub fn conclude(&mut self, known: &[Exit]) {
        let mut reasons = known.to_vec();
        let mut when = |holds: bool, exit: Exit| {
            if holds {
                reasons.push(exit);
            }
        };
        let broken = |name: &str| self.invariants.iter().any(|i| i.name == name && i.holds == Some(false));
        when(broken(build::FUNNEL) || broken(build::STEPS) || broken(build::OVER), Exit::InternalFault);
        let proven =
            matches!(self.counters.status, CountersStatus::Agree | CountersStatus::NotChecked) && self.counters.findings.is_empty();
        when(!proven, Exit::CountersDisagree);
        when(self.generator.saturation.saturated, Exit::GeneratorSaturated);
        when(self.workers_lost > 0, Exit::Degraded);
        when(self.thresholds.iter().any(|t| !t.ok), Exit::ThresholdFailed);
        when(self.voice.failing().next().is_some(), Exit::ThresholdFailed);
        when(broken(build::WORKS), Exit::TargetUnusable);
        let compared = self.comparison.as_ref().map(|comparison| comparison.status);
        when(matches!(compared, Some(compare::Status::Regression | compare::Status::Undecided)), Exit::ThresholdFailed);
        reasons.retain(|r| *r != Exit::Ok);
        // What was cut short has its own reason; should there be none, what was asked for and not done is no pass all the same.
        if reasons.is_empty() && matches!(compared, Some(compare::Status::NotComparable | compare::Status::Saturated)) {
            reasons.push(Exit::ThresholdFailed);
        }
        reasons.sort_unstable();
        reasons.dedup();
        let reason = Exit::worst(reasons.iter().copied());
        self.exit = ExitSection { code: reason.code(), reason, reasons };
    }
}
