//! `backends`: what stands behind the target, one by one or by a name.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use super::{
    Span,
    url::{is_admin, is_host_port},
    validate::Checker,
};

/// Backends that `run` and `simulate` know one by one, or a name that gives them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Backends {
    /// One by one.
    Listed(Vec<BackendEntry>),
    /// By a name.
    Discovered(Discovery),
}

/// Backends that a name's addresses give.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Discovery {
    /// `host:port`; every address of the host is a backend.
    pub dns: String,
    /// Port of their counters; absent: the sessions' port + 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub admin_port: Option<u16>,
}

/// One backend, or several that are alike.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BackendEntry {
    /// `host:port` of its sessions, of one that runs already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// `host:port` of its counters, `https://host:port` over TLS; absent: the sessions' port + 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
    /// So many alike, of those that the run starts; absent: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub count: Option<u32>,
    /// Settings of these, over `server`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub server: BTreeMap<String, serde_json::Value>,
    /// Run time from which balancers know of it: a scale-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joins: Option<Span>,
    /// Run time at which it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub killed: Option<Span>,
    /// How long it stays dead then; absent: it is started again at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_for: Option<Span>,
}

/// Only the simulator has room for so many; more would make plans and tables that no memory holds.
pub(super) const MAX_BACKENDS: u64 = 20_000;

impl BackendEntry {
    /// How many it stands for.
    pub(super) fn count(&self) -> u32 {
        self.count.unwrap_or(1)
    }

    /// Keys that only backends have which the run starts.
    fn of_its_own(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("count", self.count.is_some()),
            ("server", !self.server.is_empty()),
            ("joins", self.joins.is_some()),
            ("killed", self.killed.is_some()),
            ("dead_for", self.dead_for.is_some()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(key, _)| key)
    }

    fn check(&self, c: &mut Checker<'_>) {
        if self.count == Some(0) {
            c.error("count", "0 backends are none", "write 1 or more, or drop the entry");
        }
        let admin = self.admin.as_ref().map(|text| ("admin", text, is_admin(text)));
        for (key, text, right) in self.address.as_ref().map(|text| ("address", text, is_host_port(text))).into_iter().chain(admin) {
            if !right {
                c.error(key, format!("`{text}` is not host:port"), "write for example 127.0.0.1:7000");
            }
        }
        if self.address.is_some() {
            for key in self.of_its_own() {
                let message = format!("`{key}` is for backends that the run starts, and this one runs already");
                c.error(key, message, "drop it, or drop `address`");
            }
        } else if self.admin.is_some() {
            c.error("admin", "`admin` goes with an `address`", "add `address: host:port`, or drop it");
        }
        match (self.killed, self.dead_for) {
            (None, Some(_)) => {
                c.error("dead_for", "`dead_for` says how long a kill lasts, and there is none", "add `killed: 20s`, or drop it");
            }
            (Some(at), _) if at <= self.joins.unwrap_or_default() => {
                c.error("killed", "the backend is killed before it is there", "choose a run time above 0 and after `joins`");
            }
            _ => {}
        }
    }
}

impl Discovery {
    fn check(&self, c: &mut Checker<'_>) {
        if !is_host_port(&self.dns) {
            c.error("dns", format!("`{}` is not host:port", self.dns), "write for example agents.example.org:7000");
        }
        if self.admin_port == Some(0) {
            c.error("admin_port", "0 is no port", "write 1 to 65535, or leave it out for the sessions' port + 1");
        }
    }
}

impl Backends {
    /// How many there are; none when that is yet to be found out.
    pub(super) fn count(&self) -> Option<u64> {
        match self {
            Self::Listed(entries) => Some(entries.iter().map(|entry| u64::from(entry.count())).sum()),
            Self::Discovered(_) => None,
        }
    }

    /// Each entry by itself, and the list as a whole.
    pub(super) fn check(&self, c: &mut Checker<'_>) {
        let entries = match self {
            Self::Discovered(discovery) => return discovery.check(c),
            Self::Listed(entries) => entries,
        };
        if entries.is_empty() {
            c.here("the list of backends is empty", "drop it, or write entries: [{count: 4}] starts four");
        }
        if self.count().is_some_and(|count| count > MAX_BACKENDS) {
            c.here(format!("these are {} backends", self.count().unwrap_or(0)), format!("write at most {MAX_BACKENDS}"));
        }
        let first = entries.first().is_some_and(|entry| entry.address.is_some());
        let mut seen = BTreeSet::new();
        for (at, entry) in entries.iter().enumerate() {
            c.within(at, |c| {
                entry.check(c);
                if entry.address.is_some() != first {
                    let message = "some of the backends run already, and others are for the run to start";
                    c.here(message, "give every entry an `address`, or none");
                }
                if let Some(address) = &entry.address
                    && !seen.insert(address)
                {
                    c.error("address", format!("`{address}` is there twice: its sessions would be counted twice"), "drop one of both");
                }
            });
        }
    }
}

impl<'de> Deserialize<'de> for Backends {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BackendsVisitor)
    }
}

struct BackendsVisitor;

impl<'de> Visitor<'de> for BackendsVisitor {
    type Value = Backends;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of backends, or {dns: host:port}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Backends, A::Error> {
        let mut all = Vec::new();
        while let Some(WrittenEntry(entry)) = items.next_element()? {
            all.push(entry);
        }
        Ok(Backends::Listed(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Backends, A::Error> {
        Discovery::deserialize(MapAccessDeserializer::new(map)).map(Backends::Discovered)
    }
}

/// An entry as it may be written: an address alone is enough.
struct WrittenEntry(BackendEntry);

impl<'de> Deserialize<'de> for WrittenEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor).map(Self)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = BackendEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("host:port, or a map such as {count: 2, server: {max_sessions: 50}}")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<BackendEntry, E> {
        Ok(BackendEntry { address: Some(value.to_owned()), ..BackendEntry::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BackendEntry, A::Error> {
        BackendEntry::deserialize(MapAccessDeserializer::new(map))
    }
}

impl JsonSchema for Backends {
    fn schema_name() -> Cow<'static, str> {
        "Backends".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (entry, discovery) = (generator.subschema_for::<BackendEntry>(), generator.subschema_for::<Discovery>());
        json_schema!({
            "description": "The backends one by one (an address, or a map), or a name whose addresses they are.",
            "anyOf": [{ "type": "array", "minItems": 1, "items": { "anyOf": [{ "type": "string" }, entry] } }, discovery]
        })
    }
}
