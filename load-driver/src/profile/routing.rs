//! `routing`: which backend gets a session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;

/// Which backend gets a session, and from what it is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a map of routing settings")]
pub struct Routing {
    /// What picks; of several, each has a run of its own, one after the other.
    pub policy: Policies,
    /// Where reports come from.
    pub reports: ReportSource,
    /// Between two reports of a backend, out of band.
    pub report_interval: Span,
    /// Reports are heard so much later than they came.
    pub report_lag: Span,
    /// A report older than this says nothing any more.
    pub staleness: Span,
    /// Balancers that know nothing of each other's grants; sessions are dealt over them.
    pub balancers: u32,
    /// They divide what a backend can take by their number.
    pub share: bool,
    /// Other backends that a refused session tries.
    pub retries: u32,
    /// Weighted round robin: what errors cost, as a multiple of their share of requests.
    pub error_penalty: f64,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            policy: Policies::default(),
            reports: ReportSource::OutOfBand,
            report_interval: Span::seconds(1),
            report_lag: Span::default(),
            staleness: Span::seconds(30),
            balancers: 1,
            share: false,
            retries: 0,
            error_penalty: 1.0,
        }
    }
}

/// Where a balancer hears of a backend's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportSource {
    /// A stream of ORCA reports from each backend.
    #[default]
    OutOfBand,
    /// The headers and trailers of the sessions themselves.
    InBand,
}

/// Names of policies: one, or several in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Policies {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Default for Policies {
    fn default() -> Self {
        Self::One("round_robin".to_owned())
    }
}

impl Policies {
    /// All of them, in order.
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}
