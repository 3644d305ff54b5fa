//! Values of `counters` that are written in more than one way.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use proto::frame::Outcome;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, SeqAccess, Visitor},
};

/// One URL, or several.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Urls(pub Vec<String>);

impl Urls {
    /// None is given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Results hold them, and must hold no secret.
impl Serialize for Urls {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown: Vec<Cow<'_, str>> = self.0.iter().map(|url| crate::profile::shown(url)).collect();
        match shown.as_slice() {
            [one] => one.serialize(serializer),
            all => all.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Urls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UrlsVisitor)
    }
}

struct UrlsVisitor;

impl<'de> Visitor<'de> for UrlsVisitor {
    type Value = Urls;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a URL, or a list of one for each backend")
    }

    /// As `--set counters.url=null` drops it.
    fn visit_unit<E: de::Error>(self) -> Result<Urls, E> {
        Ok(Urls::default())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Urls, E> {
        Ok(Urls(vec![value.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Urls, A::Error> {
        let mut all = Vec::new();
        while let Some(url) = items.next_element()? {
            all.push(url);
        }
        Ok(Urls(all))
    }
}

impl JsonSchema for Urls {
    fn schema_name() -> Cow<'static, str> {
        "Urls".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "minItems": 1, "items": { "type": "string" } }] })
    }
}

/// Where the number of ended sessions is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Ended {
    /// Of all.
    Total(String),
    /// Of each outcome.
    ByOutcome(BTreeMap<String, String>),
}

impl<'de> Deserialize<'de> for Ended {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EndedVisitor)
    }
}

struct EndedVisitor;

impl<'de> Visitor<'de> for EndedVisitor {
    type Value = Ended;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the place of all ends, or {completed: PLACE, cancelled: PLACE, ...}")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Ended, E> {
        Ok(Ended::Total(value.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ended, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((outcome, place)) = map.next_entry()? {
            all.insert(outcome, place);
        }
        Ok(Ended::ByOutcome(all))
    }
}

impl JsonSchema for Ended {
    fn schema_name() -> Cow<'static, str> {
        "Ended".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let by_outcome: serde_json::Map<String, serde_json::Value> =
            Outcome::ALL.iter().map(|outcome| (outcome.name().to_owned(), serde_json::json!({ "type": "string" }))).collect();
        json_schema!({
            "description": "Site of the number of sessions that ended, or places by outcome.",
            "anyOf": [
                { "type": "string" },
                { "type": "object", "properties": by_outcome, "additionalProperties": false }
            ]
        })
    }
}
