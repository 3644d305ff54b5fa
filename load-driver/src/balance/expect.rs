//! What an experiment is expected to show: `hybrid.overload_rate < round_robin.overload_rate`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Balance, METRICS, figure,
    quality::{find, share_of},
};
use crate::threshold::Operator;

/// `POLICY.METRIC OP TERM`, where TERM is a number, `POLICY.METRIC`, or `FACTOR * POLICY.METRIC`; OP is `<`, `<=`, `>`, `>=`, `==`.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    text: String,
    left: Reference,
    operator: Operator,
    right: Term,
}

/// A figure of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reference {
    policy: String,
    metric: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Term {
    Number(f64),
    Times(f64, Reference),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExpectationResult {
    /// As written.
    pub text: String,
    /// None when a figure is missing: then it is not met.
    pub holds: Option<bool>,
    /// Left side.
    pub left: Option<f64>,
    /// Right side.
    pub right: Option<f64>,
}

impl ExpectationResult {
    /// It holds; what could not be measured does not.
    pub fn met(&self) -> bool {
        self.holds == Some(true)
    }
}

// Longer ones first: `<=` must not be read as `<`.
const OPERATORS: [(&str, Operator); 5] =
    [("<=", Operator::LessEqual), (">=", Operator::GreaterEqual), ("==", Operator::Equal), ("<", Operator::Less), (">", Operator::Greater)];

impl Expectation {
    /// Reads one. The error says what is wrong and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let at = text.find(['<', '>', '=', '!']).ok_or("one of < <= > >= == is due between two figures")?;
        let (left, rest) = text.split_at(at);
        let found = OPERATORS.iter().find(|(token, _)| rest.starts_with(token));
        let Some((token, operator)) = found else {
            let wrong: String = rest.chars().take_while(|c| "<>=!".contains(*c)).collect();
            return Err(format!("`{wrong}` compares nothing here: one of < <= > >= == is due"));
        };
        let left = Reference::parse(left)?;
        let right = Term::parse(&rest[token.len()..])?;
        Ok(Self { text: text.trim().to_owned(), left, operator: *operator, right })
    }

    /// The policies that it names.
    pub fn policies(&self) -> Vec<&str> {
        let mut all = vec![self.left.policy.as_str()];
        if let Term::Times(_, other) = &self.right
            && other.policy != self.left.policy
        {
            all.push(&other.policy);
        }
        all
    }

    /// Held against the figures by policy.
    pub fn judge(&self, figures: &BTreeMap<String, Balance>) -> ExpectationResult {
        let read = |of: &Reference| figure(figures.get(&of.policy)?, &of.metric);
        let left = read(&self.left);
        let right = match &self.right {
            Term::Number(number) => Some(*number),
            Term::Times(factor, of) => read(of).map(|value| factor * value),
        };
        // A product can be beyond all numbers, and then everything would be below it.
        let right = right.filter(|right| right.is_finite());
        let holds = left.zip(right).map(|(left, right)| self.operator.holds(left, right));
        ExpectationResult { text: self.text.clone(), holds, left, right }
    }
}

impl Reference {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let Some((policy, metric)) = text.split_once('.') else {
            return Err(format!("`{text}` is no figure of a policy: POLICY.METRIC is due, such as hybrid.overload_rate"));
        };
        let word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        if !word(policy) || !word(metric) {
            return Err(format!("`{text}` is no figure of a policy: POLICY.METRIC is due, such as hybrid.overload_rate"));
        }
        if find(metric).is_none() && share_of(metric).is_none() {
            return Err(format!("there is no figure `{metric}`: {}", instead_of(metric)));
        }
        Ok(Self { policy: policy.to_owned(), metric: metric.to_owned() })
    }
}

/// What to write where a figure of this name is not.
pub(super) fn instead_of(metric: &str) -> String {
    let likeness = |measure: &super::Measure| strsim::jaro_winkler(metric, measure.name);
    let nearest = METRICS.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))).filter(|measure| likeness(measure) > 0.83);
    match nearest {
        Some(measure) => format!("did you mean `{}`?", measure.name),
        None => format!("there are {} and share_N", METRICS.iter().map(|measure| measure.name).collect::<Vec<_>>().join(", ")),
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("the right side is missing: a number, POLICY.METRIC, or FACTOR * POLICY.METRIC is due".to_owned());
        }
        if let Some((factor, of)) = text.split_once('*') {
            let factor = number(factor.trim()).ok_or_else(|| format!("`{}` is no number: FACTOR * POLICY.METRIC is due", factor.trim()))?;
            return Ok(Self::Times(factor, Reference::parse(of)?));
        }
        match number(text) {
            Some(number) => Ok(Self::Number(number)),
            None => Reference::parse(text).map(|of| Self::Times(1.0, of)),
        }
    }
}

fn number(text: &str) -> Option<f64> {
    // `inf` and `nan` are numbers to the parser, and policies' names to nobody.
    text.parse().ok().filter(|number: &f64| number.is_finite())
}
