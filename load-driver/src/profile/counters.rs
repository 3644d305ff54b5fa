//! `counters`: where the backends' counters are read, and how they are watched and held against the ledger.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use proto::frame::Outcome;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, SeqAccess, Visitor},
};

use super::{Profile, Reach, connection, error::nearest, shown_connection, units::Span, url::TargetUrl, validate::Checker};
use crate::{counters, plan::Connection};

/// What gives the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CounterKind {
    /// Snapshots, ends and names of an `agent-server`, from its admin port.
    #[default]
    AgentServer,
    /// An exposition for Prometheus, as text or `OpenMetrics`.
    Prometheus,
    /// A JSON document behind a URL.
    Json,
    /// The stream of ORCA load reports, `OpenRcaService/StreamCoreMetrics`.
    Orca,
    /// A program that prints a JSON object.
    Command,
}

impl CounterKind {
    /// As in profiles.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AgentServer => "agent-server",
            Self::Prometheus => "prometheus",
            Self::Json => "json",
            Self::Orca => "orca",
            Self::Command => "command",
        }
    }

    /// How a place in what it gives is written, by example.
    const fn example(self) -> &'static str {
        match self {
            Self::AgentServer | Self::Prometheus => "voice_sessions{state=\"live\"}",
            Self::Json | Self::Command => "/sessions/active",
            Self::Orca => "active_sessions",
        }
    }
}

/// How the backends' counters are read, watched, and held against the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a map of counter settings")]
pub struct Counters {
    /// Between two looks at a backend.
    pub interval: Span,
    /// After the last session, the counters get so long to agree with the ledger; longer is a discrepancy.
    pub settle: Span,
    /// An abrupt end must be counted within this time.
    pub window: Span,
    /// The same for a half-open peer, which only a keepalive finds.
    pub half_open_window: Span,
    /// What gives the counters: `docs/counters.md`.
    #[serde(skip_serializing_if = "is_default")]
    pub source: CounterKind,
    /// Where they are read: one URL for all, with `{host}`, `{port}`, `{address}`, `{admin}` or `{index}` of each backend, or a list of one each.
    #[serde(skip_serializing_if = "Urls::is_empty")]
    pub url: Urls,
    /// The program and its arguments, which may hold the same placeholders. No shell reads it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Headers, parameters and certificates for the URL. Values may hold `${NAME}`, an environment variable.
    #[serde(skip_serializing_if = "Connection::is_default", serialize_with = "shown_connection")]
    pub connection: Connection,
    /// Site of the number of live sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<String>,
    /// Site of the number of sessions that ever began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// Site of the number of sessions that ended, or places by outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// Site of the number of refusals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
    /// Site of something that names the process: another value is another process. Of `prometheus`, absent: `process_start_time_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// Site of the unix time at which the counters were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// What is read may be so old: behind a cache, for one.
    #[serde(skip_serializing_if = "is_default")]
    pub max_age: Span,
    /// All that is read is added up, and held against the sessions of all backends together.
    #[serde(skip_serializing_if = "is_default")]
    pub sum: bool,
    /// A place that is not there counts as 0, as that of a gauge which comes with its first session.
    #[serde(skip_serializing_if = "is_default")]
    pub absent_is_zero: bool,
    /// Others use these backends during the run.
    #[serde(skip_serializing_if = "is_default")]
    pub other_traffic: bool,
    /// With `other_traffic`: the counters are watched for so long before the first session, to see how much they vary by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Span>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            interval: Span::millis(100),
            settle: Span::seconds(10),
            window: Span::seconds(2),
            half_open_window: Span::seconds(45),
            source: CounterKind::default(),
            url: Urls::default(),
            command: Vec::new(),
            connection: Connection::default(),
            active: None,
            started: None,
            ended: None,
            rejected: None,
            boot: None,
            time: None,
            max_age: Span::default(),
            sum: false,
            absent_is_zero: false,
            other_traffic: false,
            baseline: None,
        }
    }
}

/// Where one backend is, for the placeholders of a URL or command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Of the fleet.
    pub index: usize,
    /// `host:port` of its sessions.
    pub address: String,
    /// `host:port` of its admin port, where there is one.
    pub admin: Option<String>,
}

impl Site {
    /// The text with the placeholders filled in; else the one that nobody knows.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            let (before, after) = rest.split_at(at);
            out.push_str(before);
            let name = after.get(1..).and_then(|inner| inner.split_once('}')).map(|(name, _)| name);
            let Some(name) = name.filter(|name| PLACEHOLDERS.contains(name)) else {
                // A brace of its own: `${NAME}`, or JSON in an argument.
                out.push('{');
                rest = after.get(1..).unwrap_or_default();
                continue;
            };
            let (host, port) = self.address.rsplit_once(':').unwrap_or((&self.address, ""));
            match name {
                "host" => out.push_str(host),
                "port" => out.push_str(port),
                "address" => out.push_str(&self.address),
                "index" => out.push_str(&self.index.to_string()),
                _ => out.push_str(self.admin.as_deref().ok_or_else(|| format!("backend {} has no `admin` for {{admin}}", self.index))?),
            }
            rest = after.get(name.len() + 2..).unwrap_or_default();
        }
        out.push_str(rest);
        Ok(out)
    }

    /// For checks before anything is known.
    fn example() -> Self {
        Self { index: 0, address: "127.0.0.1:7000".to_owned(), admin: Some("127.0.0.1:7001".to_owned()) }
    }
}

const PLACEHOLDERS: [&str; 5] = ["host", "port", "address", "admin", "index"];

/// It says something else for each backend.
fn differs(text: &str) -> bool {
    PLACEHOLDERS.iter().any(|name| text.contains(&format!("{{{name}}}")))
}

impl Counters {
    /// The places of what is read, with their keys; those that are given.
    pub fn places(&self) -> Vec<(String, &str)> {
        let plain = [
            ("active", &self.active),
            ("started", &self.started),
            ("rejected", &self.rejected),
            ("boot", &self.boot),
            ("time", &self.time),
        ];
        let mut all: Vec<_> = plain.into_iter().filter_map(|(key, place)| Some((key.to_owned(), place.as_deref()?))).collect();
        match &self.ended {
            None => {}
            Some(Ended::Total(place)) => all.push(("ended".to_owned(), place)),
            Some(Ended::ByOutcome(map)) => all.extend(map.iter().map(|(outcome, place)| (format!("ended.{outcome}"), place.as_str()))),
        }
        all
    }

    /// Before the first session the counters are watched for so long.
    pub fn baseline(&self) -> Span {
        let default = if self.other_traffic { Span::seconds(5) } else { Span::default() };
        self.baseline.unwrap_or(default)
    }

    /// One reading stands for every backend.
    pub fn is_one_for_all(&self) -> bool {
        match self.source {
            CounterKind::AgentServer | CounterKind::Orca => false,
            CounterKind::Prometheus | CounterKind::Json => self.url.0.len() == 1 && !self.url.0.iter().any(|url| differs(url)),
            CounterKind::Command => !self.command.iter().any(|word| differs(word)),
        }
    }

    pub(super) fn check(&self, c: &mut Checker<'_>, profile: &Profile) {
        for (key, span) in
            [("interval", self.interval), ("settle", self.settle), ("window", self.window), ("half_open_window", self.half_open_window)]
        {
            c.positive(key, span);
        }
        if self.interval > Span::seconds(10) {
            c.error("interval", "snapshots this far apart miss what happens between them", "write 10s or less; 100ms is the default");
        }
        if self.max_age > Span::seconds(300) {
            c.error("max_age", "readings this old prove nothing of a run", "write 5m or less");
        }
        if self.baseline.is_some_and(|span| span > Span::seconds(3_600)) {
            c.error("baseline", "a baseline this long never ends", "write 1h or less");
        }
        if self.source == CounterKind::AgentServer {
            return self.check_unused(c);
        }
        self.check_reached(c);
        self.check_places(c);
        self.check_fleet(c, profile);
    }

    /// An agent-server's counters are where they are.
    fn check_unused(&self, c: &mut Checker<'_>) {
        let help = "write `source: prometheus`, json, orca or command beside it, or drop it";
        let mut unused: Vec<String> = self.places().into_iter().map(|(key, _)| key).collect();
        let given = [
            ("url", !self.url.is_empty()),
            ("command", !self.command.is_empty()),
            ("connection", !self.connection.is_default()),
            ("max_age", self.max_age != Span::default()),
            ("sum", self.sum),
            ("absent_is_zero", self.absent_is_zero),
            ("other_traffic", self.other_traffic),
            ("baseline", self.baseline.is_some()),
        ];
        unused.extend(given.into_iter().filter(|(_, given)| *given).map(|(key, _)| key.to_owned()));
        for key in unused {
            let key = key.split('.').next().unwrap_or_default();
            c.error(key, format!("the source `agent-server` has no `{key}`: it knows where its counters are"), help);
        }
    }

    fn check_reached(&self, c: &mut Checker<'_>) {
        let kind = self.source.name();
        if self.source == CounterKind::Command {
            if self.command.first().is_none_or(String::is_empty) {
                c.error("command", "no program is named", "write for example `command: [./counters.sh, '{address}']`");
            }
            if !self.url.is_empty() {
                c.error("url", "the source `command` reads no URL", "drop it, or write `source: json`");
            }
            if !self.connection.is_default() {
                c.error("connection", "the source `command` reads no URL", "drop it");
            }
            return;
        }
        if !self.command.is_empty() {
            c.error("command", format!("the source `{kind}` runs no program"), "drop it, or write `source: command`");
        }
        if self.url.is_empty() && self.source != CounterKind::Orca {
            c.error("url", format!("the source `{kind}` needs a URL"), "write for example `url: http://{host}:9100/metrics`");
        }
        for (at, url) in self.url.0.iter().enumerate() {
            c.within("url", |c| {
                c.within(at, |c| {
                    if let Err(message) = read_at(&Site::example(), url) {
                        c.here(message, "write for example http://{host}:9100/metrics");
                    } else if self.source == CounterKind::Orca && url.starts_with("https") {
                        c.here("load reports are not asked for over TLS", "write http, or use the source prometheus or json");
                    }
                });
            });
        }
        c.within("connection", |c| {
            connection::check(&self.connection, c);
            if !self.connection.subprotocols.is_empty() {
                c.error("subprotocols", "a URL that is read has no subprotocols", "drop it");
            }
        });
    }

    fn check_places(&self, c: &mut Checker<'_>) {
        let kind = self.source;
        if self.active.is_none() {
            let help = format!("write for example `active: '{}'`", kind.example());
            c.error("active", "where is the number of live sessions? Without it nothing can be proven", help);
        }
        if let Some(Ended::ByOutcome(map)) = &self.ended {
            c.within("ended", |c| {
                for outcome in map.keys().filter(|name| !Outcome::ALL.iter().any(|outcome| outcome.name() == name.as_str())) {
                    let names = Outcome::ALL.map(Outcome::name);
                    let meant = nearest(outcome, names).map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
                    c.error(outcome, format!("there is no outcome `{outcome}`"), format!("{meant}they are {}", names.join(", ")));
                }
                if map.is_empty() {
                    c.here("no outcome is named", "write {completed: ..., cancelled: ...}, or one place for all ends");
                }
            });
        }
        for (key, place) in self.places() {
            if let Err(message) = counters::check_place(kind, place) {
                let message = format!("`{place}` is no place in what the source `{}` reads: {message}", kind.name());
                let help = format!("write for example '{}'", kind.example());
                let mut steps = key.split('.');
                match (steps.next(), steps.next()) {
                    (Some(key), Some(outcome)) => c.within(key, |c| c.error(outcome, message, help)),
                    _ => c.error(&key, message, help),
                }
            }
        }
        if kind == CounterKind::Orca {
            for (key, given) in [("boot", self.boot.is_some()), ("time", self.time.is_some())] {
                if given {
                    c.error(key, format!("a load report holds no `{key}`"), "drop it");
                }
            }
        }
        if self.other_traffic && self.baseline == Some(Span::default()) {
            c.error("baseline", "how much the counters vary by themselves must be seen first", "write for example 10s");
        }
    }

    fn check_fleet(&self, c: &mut Checker<'_>, profile: &Profile) {
        let backends = match profile.reach() {
            Reach::Front(_) => {
                if !self.sum {
                    let message = "which backend has a session behind a balancer, only the source `agent-server` can tell";
                    c.error("sum", message, "write `sum: true`: the counters are added up then");
                }
                profile.fleet().members.len()
            }
            Reach::Discovered(_) if self.url.0.len() < 2 => return,
            _ => profile.choices().unwrap_or(1),
        };
        if self.url.0.len() > 1 && self.url.0.len() != backends {
            let message = format!("{} URLs are listed, and there are {backends} backends", self.url.0.len());
            c.error("url", message, "list one for each, in their order, or write one with {host}");
        }
        if self.is_one_for_all() && backends > 1 && !self.sum {
            let key = if self.source == CounterKind::Command { "command" } else { "url" };
            let message = format!("one reading for {backends} backends");
            c.error(key, message, "put {host}, {address} or {index} into it, or write `sum: true` if it counts for all of them");
        }
    }
}

/// The URL for one backend, taken apart; else what is wrong with it. Its secrets are in no message.
pub fn read_at(site: &Site, url: &str) -> Result<TargetUrl, String> {
    let filled = site.fill(url)?;
    if !(filled.starts_with("http://") || filled.starts_with("https://")) {
        return Err(format!("`{}` is no URL with http or https", super::shown(&filled)));
    }
    TargetUrl::parse(&filled)
}

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
        let shown: Vec<Cow<'_, str>> = self.0.iter().map(|url| super::shown(url)).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_and_other_braces_stay() {
        let place = Site { index: 2, address: "[::1]:7000".to_owned(), admin: None };
        assert_eq!(place.fill("http://{host}:9/{index}?a={address}&p={port}").as_deref(), Ok("http://[::1]:9/2?a=[::1]:7000&p=7000"));
        assert_eq!(place.fill("{\"a\": {x}} ${host} {").as_deref(), Ok("{\"a\": {x}} $[::1] {"));
        assert!(place.fill("http://{admin}/").is_err_and(|error| error.contains("admin")));
    }

    #[test]
    fn what_is_read_for_each_backend_is_told_from_what_is_read_for_all() {
        let of = |urls: &[&str]| Counters {
            source: CounterKind::Json,
            url: Urls(urls.iter().map(|url| (*url).to_owned()).collect()),
            ..Counters::default()
        };
        assert!(of(&["http://a/"]).is_one_for_all());
        assert!(!of(&["http://{host}/"]).is_one_for_all() && !of(&["http://a/", "http://b/"]).is_one_for_all());
    }
}
