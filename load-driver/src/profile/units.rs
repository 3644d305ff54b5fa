//! Times as a profile writes them: always text with a unit, so that no number is taken for the wrong one.

use std::{borrow::Cow, fmt, time::Duration};

use proto::{
    dist::Distribution,
    time::{format_duration, parse_duration},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Unexpected, Visitor},
};

/// A length of time: `250us`, `20ms`, `1.5s`, `2m`, `1m30s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span(pub Duration);

/// A length of time that is drawn: a [`Span`], or `uniform(1s, 3s)` and its kin.
#[derive(Debug, Clone, PartialEq)]
pub struct Dist(pub Distribution);

impl Span {
    /// Whole seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Whole milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Whole microseconds.
    pub fn micros(self) -> u64 {
        u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_duration(self.0))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeVisitor("a time with its unit, such as 10s, 250ms or 1m30s")).and_then(|text| match text {
            None => Ok(Self::default()),
            Some(text) => parse_duration(&text).map(Self).map_err(de::Error::custom),
        })
    }
}

impl Serialize for Dist {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Dist {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a time with its unit, such as 10s, or a distribution, such as uniform(1s, 3s)";
        deserializer.deserialize_any(TimeVisitor(expected)).and_then(|text| match text {
            None => Ok(Self(Distribution::Constant(Duration::ZERO))),
            Some(text) => text.parse().map(Self).map_err(de::Error::custom),
        })
    }
}

/// Text, or the number 0, which needs no unit.
struct TimeVisitor(&'static str);

impl Visitor<'_> for TimeVisitor {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        if value == 0 { Ok(None) } else { Err(E::invalid_type(Unexpected::Unsigned(value), &self)) }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        if value == 0 { Ok(None) } else { Err(E::invalid_type(Unexpected::Signed(value), &self)) }
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Some(value.to_owned()))
    }
}

const SPAN: &str = r"^(0|([0-9]+(\.[0-9]+)?(us|ms|s|m|h))+)$";

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A length of time with its unit: `250us`, `20ms`, `1.5s`, `2m`, `1m30s`. `0` needs none.",
            "type": ["string", "integer"],
            "pattern": SPAN,
            "maximum": 0,
            "minimum": 0
        })
    }
}

impl JsonSchema for Dist {
    fn schema_name() -> Cow<'static, str> {
        "Distribution".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A length of time that is drawn: a time, or `uniform(1s, 3s)`, `exponential(2s)` (mean), `lognormal(2s, 0.5)` (median, sigma), `pareto(1s, 1.5)` (minimum, shape), `empirical(1s, 2s, 5s)` (one of them).",
            "type": ["string", "integer"],
            "pattern": r"^(0|([0-9]+(\.[0-9]+)?(us|ms|s|m|h))+|(constant|uniform|exponential|lognormal|pareto|empirical)\(.+\))$",
            "maximum": 0,
            "minimum": 0
        })
    }
}
