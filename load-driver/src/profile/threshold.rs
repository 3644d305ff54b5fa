//! `thresholds`: what must hold for the run to pass. The expressions are parsed by `crate::threshold`.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{units::Span, validate::Checker};

/// One condition on a metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Threshold {
    /// The expression: `p(95)<300`.
    pub threshold: String,
    /// End the run as soon as it fails.
    #[serde(rename = "abortOnFail")]
    pub abort_on_fail: bool,
    /// Judge it during the run from so long after the warm-up on only.
    #[serde(rename = "delayAbortEval", skip_serializing_if = "Option::is_none")]
    pub delay_abort_eval: Option<Span>,
    /// Judge each stretch of this length on its own, not the run as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Span>,
    /// Fewer samples are no data.
    #[serde(rename = "minSamples", skip_serializing_if = "Option::is_none")]
    pub min_samples: Option<u64>,
    /// No data passes.
    #[serde(rename = "allowNoData")]
    pub allow_no_data: bool,
}

/// The long form.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Long {
    /// The expression: `p(95)<300`.
    threshold: String,
    /// End the run as soon as it fails.
    #[serde(default)]
    abort_on_fail: bool,
    /// Judge it during the run from so long after the warm-up on only.
    delay_abort_eval: Option<Span>,
    /// Judge each stretch of this length on its own, not the run as a whole.
    window: Option<Span>,
    /// Fewer samples are no data.
    min_samples: Option<u64>,
    /// No data passes; without it, a threshold without data fails.
    #[serde(default)]
    allow_no_data: bool,
}

impl Threshold {
    pub(super) fn check(&self, c: &mut Checker<'_>) {
        if self.threshold.trim().is_empty() {
            c.here("the threshold is empty", "write an expression such as 'p(95)<300'");
        }
        if let Some(window) = self.window {
            c.positive("window", window);
        }
    }
}

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ThresholdVisitor)
    }
}

struct ThresholdVisitor;

impl<'de> Visitor<'de> for ThresholdVisitor {
    type Value = Threshold;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an expression such as 'p(95)<300', or {threshold: ..., abortOnFail: ...}")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Threshold, E> {
        Ok(Threshold {
            threshold: value.to_owned(),
            abort_on_fail: false,
            delay_abort_eval: None,
            window: None,
            min_samples: None,
            allow_no_data: false,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Threshold, A::Error> {
        let long = Long::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Threshold {
            threshold: long.threshold,
            abort_on_fail: long.abort_on_fail,
            delay_abort_eval: long.delay_abort_eval,
            window: long.window,
            min_samples: long.min_samples,
            allow_no_data: long.allow_no_data,
        })
    }
}

impl JsonSchema for Threshold {
    fn schema_name() -> Cow<'static, str> {
        "Threshold".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let long = generator.subschema_for::<Long>();
        json_schema!({
            "description": "A condition: `p(95)<300` (milliseconds), `avg|min|med|max<..`, `count`, `rate`, `value`; or the long form.",
            "anyOf": [{ "type": "string" }, long]
        })
    }
}
