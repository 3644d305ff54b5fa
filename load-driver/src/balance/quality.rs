//! The figures.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::book::quantile_ms;

/// How evenly something lies on the backends: means over time of figures over backends.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Coefficient of variation.
    pub cv: f64,
    /// Jain's index, 1 / (1 + CV²): 1 is even, 1/n is all on one.
    pub jain: f64,
    /// Highest over mean, while there is anything.
    pub peak_to_mean: f64,
    /// Lowest over highest, while there is anything.
    pub min_to_max: f64,
    /// Highest of any backend at any time.
    pub peak: f64,
}

/// Quality of balance of one run under one policy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Balance {
    /// Of `N_i / cap_i` (of `N_i` where not every backend has a cap); none when there never was a session.
    pub sessions: Option<Spread>,
    /// Every backend had a cap, and `sessions` is over it.
    #[serde(default)]
    pub capped: bool,
    /// Of `U_i`; none when no backend says it, or it always was 0.
    pub utilization: Option<Spread>,
    /// Utilization from which a backend counts as overloaded; none where backends have no target, or not one and the same.
    pub target_utilization: Option<f64>,
    /// Sessions that were given to a backend.
    pub assignments: u64,
    /// By backend.
    pub assigned: Vec<u64>,
    /// Share of assignments to a backend that was overloaded at that moment, of those to a backend of which that is known; none without.
    pub overload_rate: Option<f64>,
    /// The same, to an overloaded backend while another was not.
    pub avoidable_rate: Option<f64>,
    /// Most grants to one backend within one report interval.
    pub herd: u64,
    /// The same over what that backend had said it could take in it (at least 1); none where it had not said.
    pub herd_ratio: Option<f64>,
    /// Age of the reports that decisions rest on, milliseconds.
    pub report_age_p50_ms: Option<f64>,
    /// The same.
    pub report_age_p99_ms: Option<f64>,
    /// Never accepted, by cause.
    pub rejected: BTreeMap<String, u64>,
    /// Lost after acceptance, by cause.
    pub dropped: BTreeMap<String, u64>,
    /// Sent elsewhere after a refusal, by cause.
    pub retried: BTreeMap<String, u64>,
    /// Scheduled arrival to acceptance, milliseconds.
    pub startup_p50_ms: Option<f64>,
    /// The same.
    pub startup_p95_ms: Option<f64>,
    /// The same.
    pub startup_p99_ms: Option<f64>,
    /// Scheduled arrival to the agent's first stream, milliseconds.
    pub first_stream_p50_ms: Option<f64>,
    /// The same.
    pub first_stream_p95_ms: Option<f64>,
    /// The same.
    pub first_stream_p99_ms: Option<f64>,
    /// Reported minus actual sessions: the mean over time and backends; none when nobody looked.
    pub counter_error_mean: Option<f64>,
    /// The same: highest above the truth (ghosts), 0 or more.
    pub counter_error_max: Option<f64>,
    /// The same: furthest below the truth (false capacity), 0 or less.
    pub counter_error_min: Option<f64>,
    /// Sessions still counted after all had ended and time to find out was over.
    pub ghosts_left: u64,
    /// Ends that were counted too late.
    pub late_ends: u64,
    /// Longest time from a disturbance until Jain's index of sessions was above 0.95 again; none without a disturbance, or when it once never was.
    pub recovery_s: Option<f64>,
    /// Disturbances after which it never was.
    pub unrecovered: u64,
}

impl Balance {
    /// From all startups, microseconds from the scheduled arrival.
    pub fn set_startup(&mut self, us: &Histogram<u64>) {
        [self.startup_p50_ms, self.startup_p95_ms, self.startup_p99_ms] = [0.5, 0.95, 0.99].map(|q| quantile_ms(us, q));
    }

    /// From all first streams, microseconds from the scheduled arrival.
    pub fn set_first_stream(&mut self, us: &Histogram<u64>) {
        [self.first_stream_p50_ms, self.first_stream_p95_ms, self.first_stream_p99_ms] = [0.5, 0.95, 0.99].map(|q| quantile_ms(us, q));
    }
}

/// A figure of [`Balance`] by name, for tables and expectations.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// As in expectations: `overload_rate`.
    pub name: &'static str,
    /// Heading of a narrow column.
    pub head: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Read from the figures; none where there is nothing to measure.
    pub of: fn(&Balance) -> Option<f64>,
    /// Lower is better; none where neither is.
    pub lower_is_better: Option<bool>,
}

const fn measure(
    name: &'static str,
    head: &'static str,
    about: &'static str,
    lower_is_better: Option<bool>,
    of: fn(&Balance) -> Option<f64>,
) -> Measure {
    Measure { name, head, about, of, lower_is_better }
}

const LOW: Option<bool> = Some(true);
const HIGH: Option<bool> = Some(false);

fn sum(causes: &BTreeMap<String, u64>) -> f64 {
    causes.values().sum::<u64>() as f64
}

/// In the order of every table. `share_N`, the share of assignments that went to backend N, comes on top: see [`figure`].
pub const METRICS: &[Measure] = &[
    measure("sessions_mean", "N mean", "sessions over cap: mean", None, |b| Some(b.sessions?.mean)),
    measure("sessions_cv", "N cv", "sessions over cap: coefficient of variation", LOW, |b| Some(b.sessions?.cv)),
    measure("sessions_jain", "N jain", "sessions over cap: Jain's index", HIGH, |b| Some(b.sessions?.jain)),
    measure("sessions_peak_to_mean", "N pk/mean", "sessions over cap: highest over mean", LOW, |b| Some(b.sessions?.peak_to_mean)),
    measure("sessions_min_to_max", "N min/max", "sessions over cap: lowest over highest", HIGH, |b| Some(b.sessions?.min_to_max)),
    measure("sessions_peak", "N peak", "sessions over cap: highest ever", LOW, |b| Some(b.sessions?.peak)),
    measure("utilization_mean", "U mean", "utilization: mean", None, |b| Some(b.utilization?.mean)),
    measure("utilization_cv", "U cv", "utilization: coefficient of variation", LOW, |b| Some(b.utilization?.cv)),
    measure("utilization_jain", "U jain", "utilization: Jain's index", HIGH, |b| Some(b.utilization?.jain)),
    measure("utilization_peak_to_mean", "U pk/mean", "utilization: highest over mean", LOW, |b| Some(b.utilization?.peak_to_mean)),
    measure("utilization_min_to_max", "U min/max", "utilization: lowest over highest", HIGH, |b| Some(b.utilization?.min_to_max)),
    measure("utilization_peak", "U peak", "utilization: highest ever", LOW, |b| Some(b.utilization?.peak)),
    measure("assignments", "assigned", "sessions given to a backend", None, |b| Some(b.assignments as f64)),
    measure("overload_rate", "overload", "share of assignments to an overloaded backend", LOW, |b| b.overload_rate),
    measure("avoidable_rate", "avoid.", "the same while another backend was not overloaded", LOW, |b| b.avoidable_rate),
    measure("herd", "herd", "most grants to one backend within a report interval", LOW, |b| (b.assignments > 0).then_some(b.herd as f64)),
    measure("herd_ratio", "/said", "the same over what it had said it could take", LOW, |b| b.herd_ratio),
    measure("report_age_p50_ms", "age p50", "age of reports at the decision, ms", LOW, |b| b.report_age_p50_ms),
    measure("report_age_p99_ms", "age p99", "age of reports at the decision, ms", LOW, |b| b.report_age_p99_ms),
    measure("rejected", "reject", "sessions never accepted", LOW, |b| Some(sum(&b.rejected))),
    measure("dropped", "dropped", "sessions lost after acceptance", LOW, |b| Some(sum(&b.dropped))),
    measure("retried", "retried", "refusals after which another backend was tried", LOW, |b| Some(sum(&b.retried))),
    measure("startup_p50_ms", "start p50", "scheduled arrival to acceptance, ms", LOW, |b| b.startup_p50_ms),
    measure("startup_p95_ms", "start p95", "scheduled arrival to acceptance, ms", LOW, |b| b.startup_p95_ms),
    measure("startup_p99_ms", "start p99", "scheduled arrival to acceptance, ms", LOW, |b| b.startup_p99_ms),
    measure("first_stream_p50_ms", "first p50", "scheduled arrival to the agent's first stream, ms", LOW, |b| b.first_stream_p50_ms),
    measure("first_stream_p95_ms", "first p95", "scheduled arrival to the agent's first stream, ms", LOW, |b| b.first_stream_p95_ms),
    measure("first_stream_p99_ms", "first p99", "scheduled arrival to the agent's first stream, ms", LOW, |b| b.first_stream_p99_ms),
    measure("counter_error_mean", "err mean", "reported minus actual sessions: mean", None, |b| b.counter_error_mean),
    measure("counter_error_max", "err max", "reported minus actual sessions: highest", LOW, |b| b.counter_error_max),
    measure("counter_error_min", "err min", "reported minus actual sessions: lowest", HIGH, |b| b.counter_error_min),
    measure("ghosts_left", "ghosts", "sessions still counted at the end", LOW, |b| Some(b.ghosts_left as f64)),
    measure("late_ends", "late", "ends counted too late", LOW, |b| Some(b.late_ends as f64)),
    measure("recovery_s", "recov s", "longest time until sessions lay evenly after a disturbance, s", LOW, |b| b.recovery_s),
    measure("unrecovered", "unrecov.", "disturbances after which they never did", LOW, |b| Some(b.unrecovered as f64)),
];

/// The measure of this name; `share_N` has none.
pub(super) fn find(name: &str) -> Option<&'static Measure> {
    METRICS.iter().find(|measure| measure.name == name)
}

/// The backend of `share_N`.
pub(super) fn share_of(name: &str) -> Option<usize> {
    let number = name.strip_prefix("share_")?;
    number.bytes().all(|b| b.is_ascii_digit()).then(|| number.parse().ok())?
}

/// A figure by name: one of [`METRICS`], or `share_N`. None when there is no such figure, or there was nothing to measure.
pub fn figure(balance: &Balance, name: &str) -> Option<f64> {
    let value = match (find(name), share_of(name)) {
        (Some(measure), _) => (measure.of)(balance),
        (None, Some(backend)) if balance.assignments > 0 => {
            balance.assigned.get(backend).map(|assigned| *assigned as f64 / balance.assignments as f64)
        }
        _ => None,
    };
    value.filter(|value| value.is_finite())
}
