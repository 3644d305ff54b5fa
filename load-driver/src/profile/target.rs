//! `target`: whom the sessions are opened against.

use std::{borrow::Cow, collections::BTreeSet, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, SeqAccess, Unexpected, Visitor, value::MapAccessDeserializer},
    ser::SerializeMap,
};

use super::{
    url::{TargetUrl, is_admin, shown},
    validate::Checker,
};

/// Whom the sessions are opened against.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// So many agent-server processes, started for the run on free loopback ports and stopped at its end.
    Embedded {
        /// How many.
        backends: u32,
    },
    /// What runs already.
    Addresses(Vec<Address>),
}

impl Default for Target {
    fn default() -> Self {
        Self::Embedded { backends: 1 }
    }
}

/// A backend that runs already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Address {
    /// `host:port` of its sessions, or a URL.
    #[serde(serialize_with = "shown_address")]
    pub address: String,
    /// `host:port` of its counters, `https://host:port` over TLS; absent: the sessions' port + 1, and none for a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
}

/// Results hold it, and must hold no secret.
fn shown_address<S: Serializer>(address: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&shown(address))
}

impl Address {
    /// `host:port` of the counters. Next door to a URL there may be anything.
    pub fn admin(&self) -> Option<String> {
        self.admin.clone().or_else(|| {
            if self.is_url() {
                return None;
            }
            let (host, port) = self.address.rsplit_once(':')?;
            let port = port.parse::<u16>().ok()?.checked_add(1)?;
            Some(format!("{host}:{port}"))
        })
    }
}

impl Address {
    /// It says more than `host:port`.
    pub fn is_url(&self) -> bool {
        self.address.contains("://")
    }

    /// For people: without secrets.
    pub fn shown(&self) -> Cow<'_, str> {
        shown(&self.address)
    }
}

impl Target {
    /// As when nothing is said: it is not written then, so that what is read back does not contradict `backends`.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check(&self, c: &mut Checker<'_>) {
        match self {
            Self::Embedded { backends } => Self::check_embedded(c, *backends),
            Self::Addresses(all) => {
                if all.is_empty() {
                    c.here("the list of addresses is empty", "write `target: embedded`, or give host:port or a URL");
                }
                let mut seen = BTreeSet::new();
                for (at, address) in all.iter().enumerate() {
                    let at = at.to_string();
                    if !seen.insert(&address.address) {
                        let message = format!("`{}` is there twice: its sessions would be counted twice", address.shown());
                        c.error(&at, message, "drop one of both");
                    }
                    if let Err(message) = TargetUrl::parse(&address.address) {
                        c.error(&at, message, "write for example 127.0.0.1:7000 or wss://agents.example/v1/realtime");
                    }
                    if let Some(text) = address.admin.iter().find(|text| !is_admin(text)) {
                        c.error(
                            &at,
                            format!("`{text}` is not host:port"),
                            "write for example 127.0.0.1:7001, or https:// before it for TLS",
                        );
                    }
                }
            }
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Embedded { backends } => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("embedded", &Embedded { backends: *backends })?;
                map.end()
            }
            Self::Addresses(all) => all.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TargetVisitor)
    }
}

/// Backends that the run starts and stops itself.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Embedded {
    /// How many processes.
    #[serde(default = "one")]
    backends: u32,
}

const fn one() -> u32 {
    1
}

struct TargetVisitor;

impl<'de> Visitor<'de> for TargetVisitor {
    type Value = Target;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`embedded`, a URL, {embedded: {backends: N}} or a list of host:port and URLs")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Target, E> {
        match value {
            "embedded" => Ok(Target::default()),
            url if url.contains("://") => Ok(Target::Addresses(vec![Address { address: url.to_owned(), admin: None }])),
            other => Err(E::invalid_value(Unexpected::Str(other), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Target, A::Error> {
        let mut all = Vec::new();
        while let Some(address) = items.next_element()? {
            all.push(address);
        }
        Ok(Target::Addresses(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Target, A::Error> {
        let mut backends = None;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key != "embedded" {
                return Err(de::Error::unknown_field(&key, &["embedded"]));
            }
            backends = Some(map.next_value::<Embedded>()?.backends);
        }
        backends.map(|backends| Target::Embedded { backends }).ok_or_else(|| de::Error::missing_field("embedded"))
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AddressVisitor)
    }
}

/// The long form of an address.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LongAddress {
    /// `host:port` of the sessions, or a URL: ws, wss (WebSocket), http, https (gRPC).
    address: String,
    /// `host:port` of the counters, `https://host:port` over TLS; absent: the sessions' port + 1, and none for a URL.
    admin: Option<String>,
}

struct AddressVisitor;

impl<'de> Visitor<'de> for AddressVisitor {
    type Value = Address;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("host:port, a URL, or {address: host:port or a URL, admin: host:port}")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Address, E> {
        Ok(Address { address: value.to_owned(), admin: None })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Address, A::Error> {
        let LongAddress { address, admin } = LongAddress::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Address { address, admin })
    }
}

impl JsonSchema for Target {
    fn schema_name() -> Cow<'static, str> {
        "Target".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (embedded, address) = (generator.subschema_for::<Embedded>(), generator.subschema_for::<LongAddress>());
        json_schema!({
            "description": "Whom the sessions are opened against: `embedded` starts agent-server processes for the run; a URL or a list of addresses uses what runs.",
            "anyOf": [
                { "const": "embedded" },
                { "type": "string", "pattern": "^[A-Za-z]+://" },
                { "type": "object", "properties": { "embedded": embedded }, "required": ["embedded"], "additionalProperties": false },
                { "type": "array", "minItems": 1, "items": { "anyOf": [{ "type": "string" }, address] } }
            ]
        })
    }
}
