//! `metric{tag:value,...}`: what is measured.

use std::fmt;

use super::ParseError;
use crate::{
    leak::Leak,
    plan::{Dialect, Protocol},
    record::{Counter, Metric, ScenarioLabel},
};

/// Which time a latency is measured from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Basis {
    /// From the intended time: free of coordinated omission.
    #[default]
    Response,
    /// From the actual time.
    Service,
}

/// Figures of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sessions {
    /// Dialled, of those requested.
    Attempted,
    /// Accepted, of those requested.
    Established,
    /// Broken or never established (but for those aborted or meant to be refused), of those requested.
    Failed,
    /// Ended in order, of those established.
    Completed,
    /// Cut by the plan or by the end of the run, of those established.
    Interrupted,
}

/// Figures that go up and down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gauge {
    /// Live sessions.
    Active,
    /// Users who speak.
    Speaking,
}

/// Figures of how far the backends' counts of live sessions are off, all sources together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drift {
    /// Session-seconds that were counted for sessions that were over.
    GhostSeconds,
    /// Session-seconds that were not counted for sessions that lived.
    FalseCapacitySeconds,
    /// The largest difference, without its sign.
    Most,
}

/// What a key names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// A latency.
    Latency(Metric, Basis),
    /// A counter.
    Counter(Counter),
    /// A figure of sessions.
    Sessions(Sessions),
    /// A gauge.
    Gauge(Gauge),
    /// Growth of a process of the run: the lower bound of its slope, the highest of all processes.
    Leak(Leak),
    /// How far the counts were off.
    Drift(Drift),
}

/// Which scenarios count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Only this one.
    pub scenario: Option<String>,
    /// Only those over this transport.
    pub protocol: Option<Protocol>,
    /// Only those that speak this.
    pub dialect: Option<Dialect>,
}

impl Filter {
    /// Everything counts.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a scenario counts.
    pub fn accepts(&self, scenario: &ScenarioLabel) -> bool {
        self.scenario.as_deref().is_none_or(|wanted| wanted == scenario.name)
            && self.protocol.is_none_or(|wanted| wanted == scenario.protocol)
            && self.dialect.is_none_or(|wanted| wanted == scenario.dialect)
    }
}

/// The key of a threshold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// What is measured.
    pub measure: Measure,
    /// Where.
    pub filter: Filter,
    text: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

const SESSIONS: [(&str, Sessions); 5] = [
    ("attempted", Sessions::Attempted),
    ("established", Sessions::Established),
    ("sessions_failed", Sessions::Failed),
    ("sessions_completed", Sessions::Completed),
    ("sessions_interrupted", Sessions::Interrupted),
];

const LEAKS: [(&str, Leak); 4] =
    [("leak_rss", Leak::Rss), ("leak_fds", Leak::Fds), ("leak_threads", Leak::Threads), ("leak_tasks", Leak::Tasks)];

const DRIFTS: [(&str, Drift); 3] =
    [("ghost_seconds", Drift::GhostSeconds), ("false_capacity_seconds", Drift::FalseCapacitySeconds), ("drift_max", Drift::Most)];

const GAUGES: [(&str, Gauge); 2] = [("active", Gauge::Active), ("speaking", Gauge::Speaking)];

fn measure(name: &str) -> Option<Measure> {
    let latency = || Metric::ALL.into_iter().find(|m| m.name() == name).map(|m| Measure::Latency(m, Basis::default()));
    let counter = || Counter::ALL.into_iter().find(|c| c.name() == name).map(Measure::Counter);
    let sessions = || SESSIONS.into_iter().find(|s| s.0 == name).map(|s| Measure::Sessions(s.1));
    let gauge = || GAUGES.into_iter().find(|g| g.0 == name).map(|g| Measure::Gauge(g.1));
    let leak = || LEAKS.into_iter().find(|l| l.0 == name).map(|l| Measure::Leak(l.1));
    let drift = || DRIFTS.into_iter().find(|d| d.0 == name).map(|d| Measure::Drift(d.1));
    latency().or_else(counter).or_else(sessions).or_else(gauge).or_else(leak).or_else(drift)
}

/// Every name that a key may begin with.
pub fn names() -> impl Iterator<Item = &'static str> {
    let metrics = Metric::ALL.into_iter().map(Metric::name);
    metrics
        .chain(Counter::ALL.into_iter().map(Counter::name))
        .chain(SESSIONS.map(|s| s.0))
        .chain(GAUGES.map(|g| g.0))
        .chain(LEAKS.map(|l| l.0))
        .chain(DRIFTS.map(|d| d.0))
}

impl Key {
    /// Parses a key. `scenarios` are the names that a filter may use.
    pub fn parse(text: &str, scenarios: &[impl AsRef<str>]) -> Result<Self, ParseError> {
        let (name, tags_at) = match text.find('{') {
            None => (text, None),
            Some(at) => (&text[..at], Some(at + 1)),
        };
        let measure = measure(name.trim())
            .ok_or_else(|| ParseError::new(text, 0, format!("no metric is named {:?}; there are {}", name.trim(), list(names()))))?;
        let mut key = Self { measure, filter: Filter::default(), text: text.to_owned() };
        let Some(tags_at) = tags_at else { return Ok(key) };
        let trimmed = text.trim_end();
        let Some(tags) = trimmed.get(tags_at..).and_then(|rest| rest.strip_suffix('}')) else {
            return Err(ParseError::new(text, trimmed.len(), "expected `}` at the end of the tags"));
        };
        let mut seen: Vec<String> = Vec::new();
        let mut at = tags_at;
        for tag in tags.split(',') {
            let start = at + (tag.len() - tag.trim_start().len());
            let Some((tag_name, value)) = tag.split_once(':') else {
                return Err(ParseError::new(text, start, "expected `tag:value`"));
            };
            let tag_name = tag_name.trim();
            if seen.iter().any(|s| s == tag_name) {
                return Err(ParseError::new(text, start, format!("tag {tag_name:?} appears twice")));
            }
            seen.push(tag_name.to_owned());
            key.tag(tag_name, value.trim(), scenarios).map_err(|message| ParseError::new(text, start, message))?;
            at += tag.len() + 1;
        }
        Ok(key)
    }

    fn tag(&mut self, name: &str, value: &str, scenarios: &[impl AsRef<str>]) -> Result<(), String> {
        if matches!(self.measure, Measure::Leak(_)) {
            return Err("a leak has no tags: every process of the run is looked at, and the worst one counts".to_owned());
        }
        if matches!(self.measure, Measure::Drift(_)) {
            return Err("a drift has no tags: it is of the counts of all backends".to_owned());
        }
        if matches!(self.measure, Measure::Gauge(_)) {
            return Err("a gauge has no tags: it is counted over all scenarios".to_owned());
        }
        match name {
            "scenario" => {
                if !scenarios.iter().any(|s| s.as_ref() == value) {
                    let known = list(scenarios.iter().map(AsRef::as_ref));
                    return Err(format!("no scenario is named {value:?}; there are {known}"));
                }
                self.filter.scenario = Some(value.to_owned());
            }
            "protocol" => {
                self.filter.protocol = Some(match value {
                    "grpc" => Protocol::Grpc,
                    "websocket" => Protocol::Websocket,
                    _ => return Err(format!("no protocol is named {value:?}; there are grpc, websocket")),
                });
            }
            "dialect" => {
                let known = Dialect::ALL.into_iter().find(|dialect| dialect.name() == value);
                self.filter.dialect = Some(known.ok_or_else(|| {
                    format!("no dialect is named {value:?}; there are {}", list(Dialect::ALL.into_iter().map(Dialect::name)))
                })?);
            }
            "basis" => {
                let Measure::Latency(metric, _) = self.measure else {
                    return Err("only latencies have a basis".to_owned());
                };
                let basis = match value {
                    "response" => Basis::Response,
                    "service" => Basis::Service,
                    _ => return Err(format!("no basis is named {value:?}; there are response (from the intended time), service")),
                };
                self.measure = Measure::Latency(metric, basis);
            }
            _ => return Err(format!("no tag is named {name:?}; there are scenario, protocol, dialect, basis")),
        }
        Ok(())
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIOS: [&str; 2] = ["talk", "listen"];

    fn parse(text: &str) -> Result<Key, ParseError> {
        Key::parse(text, &SCENARIOS)
    }

    #[test]
    fn names_and_tags() {
        assert_eq!(parse("connect").unwrap().measure, Measure::Latency(Metric::Connect, Basis::Response));
        let key = parse("turn_response{ scenario:talk, basis:service ,protocol:websocket}").unwrap();
        assert_eq!(key.measure, Measure::Latency(Metric::TurnResponse, Basis::Service));
        assert_eq!(key.filter, Filter { scenario: Some("talk".into()), protocol: Some(Protocol::Websocket), dialect: None });
        let label = |name: &str, protocol, dialect| ScenarioLabel { name: name.to_owned(), protocol, dialect, expect: None };
        assert!(key.filter.accepts(&label("talk", Protocol::Websocket, Dialect::Twilio)));
        assert!(!key.filter.accepts(&label("talk", Protocol::Grpc, Dialect::Native)));
        assert!(!key.filter.accepts(&label("listen", Protocol::Websocket, Dialect::Twilio)));
        let key = parse("turn_response{dialect:twilio}").unwrap();
        assert!(key.filter.accepts(&label("talk", Protocol::Websocket, Dialect::Twilio)));
        assert!(!key.filter.accepts(&label("talk", Protocol::Websocket, Dialect::Native)));
        assert_eq!(parse("stale_frames").unwrap().measure, Measure::Counter(Counter::StaleFrames));
        assert_eq!(parse("sessions_failed{scenario:listen}").unwrap().measure, Measure::Sessions(Sessions::Failed));
    }

    #[test]
    fn every_name_parses_and_none_is_used_twice() {
        let mut all: Vec<_> = names().collect();
        assert!(all.iter().all(|name| parse(name).is_ok()));
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn errors_say_where() {
        for (text, position, part) in [
            ("turn_respons", 0, "no metric is named \"turn_respons\"; there are connect, "),
            ("", 0, "no metric is named \"\""),
            ("connect{scenario:talk", 21, "expected `}`"),
            ("connect{scenario:nobody}", 8, "no scenario is named \"nobody\"; there are talk, listen"),
            ("connect{protocol:grpc,colour:red}", 22, "no tag is named \"colour\""),
            ("connect{protocol:smtp}", 8, "no protocol is named"),
            ("connect{dialect:morse}", 8, "no dialect is named \"morse\"; there are native, openai_realtime, "),
            ("connect{basis:median}", 8, "no basis is named"),
            ("connect{basis:service, basis:service}", 23, "appears twice"),
            ("connect{}", 8, "expected `tag:value`"),
            ("turns{basis:service}", 6, "only latencies have a basis"),
            ("active{scenario:talk}", 7, "a gauge has no tags"),
            ("leak_rss{scenario:talk}", 9, "a leak has no tags"),
            ("drift_max{scenario:talk}", 10, "a drift has no tags"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!((error.position, error.message.contains(part)), (position, true), "{text}: {error}");
        }
    }

    #[test]
    fn the_caret_points_at_the_error() {
        let shown = parse("connect{protocol:grpc,colour:red}").unwrap_err().to_string();
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[1], "  connect{protocol:grpc,colour:red}");
        assert_eq!(lines[2].find('^'), Some(24));
    }
}
