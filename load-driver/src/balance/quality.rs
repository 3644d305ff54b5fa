//! The figures.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How evenly something lies on the backends: means over time of figures over backends.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Coefficient of variation.
    pub cv: f64,
    /// Jain's index, 1 / (1 + CV²): 1 is even, 1/n is all on one.
    pub jain: f64,
    /// Highest over mean.
    pub peak_to_mean: f64,
    /// Lowest over highest.
    pub min_to_max: f64,
    /// Highest of any backend at any time.
    pub peak: f64,
}

/// Quality of balance of one run under one policy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Balance {
    /// Of `N_i / cap_i` (of `N_i` where there is no cap).
    pub sessions: Spread,
    /// Of `U_i`.
    pub utilization: Spread,
    /// Sessions that were given to a backend.
    pub assignments: u64,
    /// By backend.
    pub assigned: Vec<u64>,
    /// Share of assignments to a backend that was overloaded at that moment.
    pub overload_rate: f64,
    /// Share of assignments to an overloaded backend while another was not.
    pub avoidable_rate: f64,
    /// Most grants to one backend within one report interval.
    pub herd: u64,
    /// The same over what that backend had said it could take in it; none where nobody said.
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
    /// Reported minus actual sessions: the mean over time and backends.
    pub counter_error_mean: f64,
    /// The same: highest above the truth (ghosts), 0 or more.
    pub counter_error_max: f64,
    /// The same: furthest below the truth (false capacity), 0 or less.
    pub counter_error_min: f64,
    /// Sessions still counted after all had ended and time to find out was over.
    pub ghosts_left: u64,
    /// Ends that were counted too late.
    pub late_ends: u64,
    /// Longest time from a disturbance until Jain's index of sessions was above 0.95 again; none without a disturbance, or when it never was.
    pub recovery_s: Option<f64>,
    /// Disturbances after which it never was.
    pub unrecovered: u64,
}

/// A figure of [`Balance`] by name, for tables and expectations.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// As in expectations: `overload_rate`.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Read from the figures; none where there is nothing to measure.
    pub of: fn(&Balance) -> Option<f64>,
    /// Lower is better; none where neither is.
    pub lower_is_better: Option<bool>,
}

/// In the order of every table.
pub const METRICS: &[Measure] = &[];
