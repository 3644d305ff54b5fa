//! `end`: how sessions end.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor},
};

use crate::plan::EndKind;

/// How sessions end; each draws one by weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Ends(pub Vec<WeightedEnd>);

/// One way to end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "{kind: ..., weight: ...}")]
pub struct WeightedEnd {
    /// The way.
    pub kind: EndKind,
    /// How often, relative to the others.
    #[serde(default = "one")]
    pub weight: f64,
}

const fn one() -> f64 {
    1.0
}

impl Default for Ends {
    fn default() -> Self {
        Self(vec![WeightedEnd { kind: EndKind::Graceful, weight: 1.0 }])
    }
}

impl Serialize for Ends {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [only] => only.kind.serialize(serializer),
            all => all.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Ends {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EndsVisitor)
    }
}

struct EndsVisitor;

impl<'de> Visitor<'de> for EndsVisitor {
    type Value = Ends;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a kind of end such as `graceful`, or a list of {kind, weight}")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Ends, E> {
        let kind = EndKind::deserialize(de::value::StrDeserializer::new(value))?;
        Ok(Ends(vec![WeightedEnd { kind, weight: 1.0 }]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Ends, A::Error> {
        let mut all = Vec::new();
        while let Some(end) = items.next_element()? {
            all.push(end);
        }
        Ok(Ends(all))
    }
}

impl JsonSchema for Ends {
    fn schema_name() -> Cow<'static, str> {
        "Ends".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (kind, weighted) = (generator.subschema_for::<EndKind>(), generator.subschema_for::<WeightedEnd>());
        json_schema!({ "anyOf": [kind, { "type": "array", "minItems": 1, "items": weighted }] })
    }
}
