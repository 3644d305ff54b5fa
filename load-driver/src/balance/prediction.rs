//! The simulator's prediction beside the measurement: how far a figure may be off, and whether it is.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, Visitor},
};

use super::{
    Balance,
    expect::instead_of,
    figure,
    quality::{find, share_of},
};

/// How far two figures may be apart, as a profile has it: `5`, `20%`, or `20% or 5`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Tolerance(pub String);

/// What the simulator is held to: a figure of every policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    metric: String,
    text: String,
    absolute: Option<f64>,
    /// A part of the larger of both.
    relative: Option<f64>,
}

/// What came of it for one policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionResult {
    /// Whose figure.
    pub policy: String,
    /// Which.
    pub metric: String,
    /// By the run; none when there was nothing to measure, or the run was cut short.
    pub measured: Option<f64>,
    /// By the simulator.
    pub predicted: Option<f64>,
    /// Measured less predicted.
    pub difference: Option<f64>,
    /// As written.
    pub tolerance: String,
    /// Within it. None when a figure is missing: then it is not.
    pub holds: Option<bool>,
}

impl PredictionResult {
    /// Within the tolerance; what is missing is not.
    pub fn met(&self) -> bool {
        self.holds == Some(true)
    }
}

/// What a tolerance looks like.
const DUE: &str = "write how far the figures may be apart: 5 (in the figure's unit), 20% (of the larger), or '20% or 5' (within either)";

impl Prediction {
    /// Reads one. The error says what is wrong, and what to do.
    pub fn parse(metric: &str, tolerance: &Tolerance) -> Result<Self, (String, String)> {
        if find(metric).is_none() && share_of(metric).is_none() {
            return Err((format!("there is no figure `{metric}`"), instead_of(metric)));
        }
        let text = tolerance.0.trim();
        let mut read = Self { metric: metric.to_owned(), text: text.to_owned(), absolute: None, relative: None };
        for part in text.split(" or ").map(str::trim) {
            let (number, of, scale) = match part.strip_suffix('%') {
                Some(percent) => (percent.trim_end(), &mut read.relative, 100.0),
                None => (part, &mut read.absolute, 1.0),
            };
            let value = number.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
            let value = value.ok_or_else(|| (format!("`{part}` is no tolerance"), DUE.to_owned()))?;
            if of.replace(value / scale).is_some() {
                return Err((format!("`{text}` says the same kind of tolerance twice"), DUE.to_owned()));
            }
        }
        read.can_fail()?;
        Ok(read)
    }

    /// A tolerance that lets everything through would prove nothing.
    fn can_fail(&self) -> Result<(), (String, String)> {
        if self.relative.is_some_and(|part| part >= 1.0) {
            let message = format!("a tolerance of `{}` lets everything through: two figures differ by no more than the larger", self.text);
            return Err((message, "write less than 100%".to_owned()));
        }
        if is_part(&self.metric) && self.absolute.is_some_and(|apart| apart >= 1.0) {
            let message = format!("a tolerance of `{}` lets everything through: `{}` is between 0 and 1", self.text, self.metric);
            return Err((message, "write less than 1: 0.05 is five in a hundred".to_owned()));
        }
        Ok(())
    }

    /// The backend whose share it is about.
    pub fn backend(&self) -> Option<usize> {
        share_of(&self.metric)
    }

    /// Held against a policy's figures; none of a run that was not, or not to its end.
    pub fn judge(&self, policy: &str, measured: Option<&Balance>, predicted: Option<&Balance>) -> PredictionResult {
        let read = |balance: Option<&Balance>| figure(balance?, &self.metric);
        let (measured, predicted) = (read(measured), read(predicted));
        let both = measured.zip(predicted);
        PredictionResult {
            policy: policy.to_owned(),
            metric: self.metric.clone(),
            measured,
            predicted,
            difference: both.map(|(measured, predicted)| measured - predicted).filter(|apart| apart.is_finite()),
            tolerance: self.text.clone(),
            holds: both.map(|(measured, predicted)| self.within(measured, predicted)),
        }
    }

    fn within(&self, measured: f64, predicted: f64) -> bool {
        let apart = (measured - predicted).abs();
        // Two numbers can be further apart than all numbers go.
        let within = |limit: f64| apart.is_finite() && apart <= limit;
        self.absolute.is_some_and(within) || self.relative.is_some_and(|part| within(part * measured.abs().max(predicted.abs())))
    }
}

/// Every policy's figures held against what was predicted of them: by policy, then in the order of the profile.
pub fn judge(
    predictions: &[Prediction],
    policies: &[String],
    measured: &BTreeMap<String, Balance>,
    predicted: &BTreeMap<String, Balance>,
) -> Vec<PredictionResult> {
    let of = |policy: &String| {
        let (measured, predicted) = (measured.get(policy), predicted.get(policy));
        predictions.iter().map(|one| one.judge(policy, measured, predicted)).collect::<Vec<_>>()
    };
    policies.iter().flat_map(of).collect()
}

/// The figure is a part of a whole.
fn is_part(metric: &str) -> bool {
    share_of(metric).is_some()
        || metric.ends_with("_rate")
        || metric.ends_with("_jain")
        || metric.ends_with("_min_to_max")
        || ["utilization_mean", "utilization_peak"].contains(&metric)
}

impl<'de> Deserialize<'de> for Tolerance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ToleranceVisitor)
    }
}

struct ToleranceVisitor;

impl Visitor<'_> for ToleranceVisitor {
    type Value = Tolerance;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tolerance such as 5, 20% or '20% or 5'")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Tolerance, E> {
        Ok(Tolerance(value.to_owned()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Tolerance, E> {
        Ok(Tolerance(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Tolerance, E> {
        Ok(Tolerance(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Tolerance, E> {
        Ok(Tolerance(value.to_string()))
    }
}

impl JsonSchema for Tolerance {
    fn schema_name() -> Cow<'static, str> {
        "Tolerance".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "How far measured and predicted may be apart: a number in the figure's unit, `20%` of the larger, or `20% or 5`: within either.",
            "anyOf": [{ "type": "number", "minimum": 0 }, { "type": "string" }]
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(metric: &str, tolerance: &str) -> Result<Prediction, (String, String)> {
        Prediction::parse(metric, &Tolerance(tolerance.to_owned()))
    }

    fn startup(ms: f64) -> Balance {
        Balance { startup_p99_ms: Some(ms), assignments: 4, assigned: vec![1, 3], ..Balance::default() }
    }

    #[test]
    fn within_either_tolerance_is_within() {
        for (tolerance, measured, predicted, holds) in [
            ("5", 10.0, 15.0, true),
            ("5", 15.0, 10.0, true),
            ("5", 10.0, 15.5, false),
            ("5", 15.5, 10.0, false),
            // Of the larger, whichever that is.
            ("20%", 80.0, 100.0, true),
            ("20%", 100.0, 80.0, true),
            ("20%", 79.0, 100.0, false),
            ("20%", 100.0, 79.0, false),
            ("20%", 0.0, 0.001, false),
            ("20% or 5", 1.0, 5.0, true),
            ("5 or 20%", 1000.0, 900.0, true),
            ("20% or 5", 100.0, 70.0, false),
            ("20 % or 5", 70.0, 100.0, false),
            ("0", 3.0, 3.0, true),
            ("0", 3.0, 3.000_1, false),
            ("0%", 0.0, 0.0, true),
            ("1e300", -1.5e308, 1.5e308, false),
        ] {
            let result = read("startup_p99_ms", tolerance).unwrap().judge("hybrid", Some(&startup(measured)), Some(&startup(predicted)));
            assert_eq!((result.holds, result.met()), (Some(holds), holds), "{result:?}");
            let apart = measured - predicted;
            assert_eq!(result.difference, apart.is_finite().then_some(apart));
        }
    }

    #[test]
    fn what_is_missing_on_either_side_is_not_within() {
        let there = startup(1.0);
        let none = Balance::default();
        let wide = read("startup_p99_ms", "1000000").unwrap();
        assert!(wide.judge("p", Some(&there), Some(&there)).met());
        let not_a_number = startup(f64::NAN);
        for (measured, predicted) in [
            (None, None),
            (Some(&there), None),
            (None, Some(&there)),
            (Some(&none), Some(&there)),
            (Some(&there), Some(&none)),
            (Some(&none), Some(&none)),
            (Some(&not_a_number), Some(&there)),
            (Some(&there), Some(&not_a_number)),
        ] {
            let result = wide.judge("p", measured, predicted);
            assert!(result.holds.is_none() && result.difference.is_none() && !result.met(), "{result:?}");
        }
        assert!(!read("share_7", "0.5").unwrap().judge("p", Some(&there), Some(&there)).met(), "there is no such backend");
    }

    #[test]
    fn every_policy_is_judged_also_one_that_did_not_run() {
        let predictions = [read("startup_p99_ms", "1").unwrap(), read("share_1", "0.1").unwrap()];
        let policies = ["a".to_owned(), "b".to_owned()];
        let measured = BTreeMap::from([("a".to_owned(), startup(1.0))]);
        let both = BTreeMap::from([("a".to_owned(), startup(1.5)), ("b".to_owned(), startup(1.0))]);
        let told = |measured, predicted| -> Vec<(String, String, Option<bool>)> {
            let all = judge(&predictions, &policies, measured, predicted);
            all.into_iter().map(|one| (one.policy, one.metric, one.holds)).collect()
        };
        let expected = |b: Option<bool>| {
            [("a", "startup_p99_ms", Some(true)), ("a", "share_1", Some(true)), ("b", "startup_p99_ms", b), ("b", "share_1", b)]
                .map(|(policy, metric, holds)| (policy.to_owned(), metric.to_owned(), holds))
        };
        assert_eq!(told(&measured, &both), expected(None));
        assert_eq!(told(&both, &both), expected(Some(true)));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_due() {
        for (metric, tolerance, message, help) in [
            ("overload_rat", "0.1", "there is no figure `overload_rat`", "did you mean `overload_rate`?"),
            ("share_", "0.1", "there is no figure `share_`", "share_N"),
            ("herd", "", "`` is no tolerance", "20% or 5"),
            ("herd", "-1", "`-1` is no tolerance", "20% or 5"),
            ("herd", "inf", "`inf` is no tolerance", "20% or 5"),
            ("herd", "nan%", "`nan%` is no tolerance", "20% or 5"),
            ("herd", "5 ms", "`5 ms` is no tolerance", "20% or 5"),
            ("herd", "20% or", "`20% or` is no tolerance", "20% or 5"),
            ("herd", "5 or 6", "says the same kind of tolerance twice", "20% or 5"),
            ("herd", "5% or 6%", "says the same kind of tolerance twice", "20% or 5"),
            ("herd", "100%", "lets everything through", "less than 100%"),
            ("herd", "1 or 250%", "lets everything through", "less than 100%"),
            ("share_0", "1", "lets everything through", "less than 1"),
            ("overload_rate", "5", "lets everything through", "less than 1"),
        ] {
            let (said, due) = read(metric, tolerance).expect_err(tolerance);
            assert!(said.contains(message) && due.contains(help), "{metric}: {tolerance}: {said}; {due}");
        }
        assert_eq!(read("share_3", "0.1").unwrap().backend(), Some(3));
        assert_eq!(read("herd", "3").unwrap().backend(), None);
    }

    proptest! {
        /// Whatever a profile says, it is read or refused; a figure is always within a tolerance of itself, on both sides alike.
        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9e.%or -]{0,20}", a in 0.0..1e6_f64, b in 0.0..1e6_f64) {
            if let Ok(read) = read("startup_p99_ms", &text) {
                prop_assert!(read.within(a, a));
                prop_assert_eq!(read.within(a, b), read.within(b, a));
            }
        }
    }
}
