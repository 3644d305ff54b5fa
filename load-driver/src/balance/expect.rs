//! What an experiment is expected to show: `hybrid.overload_rate < round_robin.overload_rate`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Balance;

/// `POLICY.METRIC OP TERM`, where TERM is a number, `POLICY.METRIC`, or `FACTOR * POLICY.METRIC`; OP is `<`, `<=`, `>`, `>=`, `==`.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExpectationResult {
    /// As written.
    pub text: String,
    /// None when a figure is missing.
    pub holds: Option<bool>,
    /// Left side.
    pub left: Option<f64>,
    /// Right side.
    pub right: Option<f64>,
}

impl Expectation {
    /// Reads one. The error says what is wrong and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let _ = text;
        todo!("balance helper")
    }

    /// The policies that it names.
    pub fn policies(&self) -> Vec<&str> {
        todo!("balance helper")
    }

    /// Held against the figures by policy.
    pub fn judge(&self, figures: &BTreeMap<String, Balance>) -> ExpectationResult {
        let _ = figures;
        todo!("balance helper")
    }
}
