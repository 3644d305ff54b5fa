//! `counters`: where the backends' counters are read, and how they are watched and held against the ledger.

mod site;
mod values;

use proto::frame::Outcome;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::site::differs;
pub use self::{
    site::{Site, read_at},
    values::{Ended, Urls},
};
use super::{Profile, Reach, connection, error::nearest, shown_connection, units::Span, validate::Checker};
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
        self.check_apart(c);
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

    /// What is read at one place for two things is wrong for one of them, and would be proven with itself.
    fn check_apart(&self, c: &mut Checker<'_>) {
        let places = self.places();
        for (at, (key, place)) in places.iter().enumerate() {
            let same = |(_, other): &&(String, &str)| counters::is_same_place(self.source, place, other);
            let Some((other, _)) = places.iter().take(at).find(same) else { continue };
            let message = format!("`{key}` is read at the place of `{other}`: one number cannot be both");
            let help = "name the place of each, or drop the one that the backend does not count";
            match key.split_once('.') {
                Some((key, outcome)) => c.within(key, |c| c.error(outcome, message, help)),
                None => c.error(key, message, help),
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Override, Source, open_text};

    #[test]
    fn a_url_can_be_dropped() {
        let text = "counters: {source: json, url: 'http://127.0.0.1:1/', active: /active}\nscenarios: {talk: {executor: constant-sessions, sessions: 1, duration: 1s, conversations: [{turns: [{wait: 1s}]}]}}";
        let sets = ["counters.url=null", "counters.active=null", "counters.source=agent-server"];
        let overrides = sets.map(|set| Override::parse(set).unwrap_or_else(|e| panic!("{e}")));
        let loaded = open_text(&Source::Shipped("test".into()), "test", text, &overrides).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(loaded.profile.counters, Counters::default());
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
