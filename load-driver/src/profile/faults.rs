//! `faults`: what goes wrong on purpose, and when.

use std::{collections::BTreeSet, time::Duration};

use proto::time::Micros;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DEAD_FOR, Profile, Span, validate::Checker};
use crate::plan::{EndKind, Fault, FaultKind, FaultName, FaultTarget, Maker};

/// One line of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a fault: {at: 30s, kind: stall, duration: 5s}")]
pub struct FaultEntry {
    /// Run time at which it begins.
    pub at: Span,
    /// What happens.
    pub kind: FaultName,
    /// To whom; absent: to all.
    #[serde(default, skip_serializing_if = "FaultScope::is_all")]
    pub target: FaultScope,
    /// Share of the target's sessions or connections; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub fraction: Option<f64>,
    /// How long it lasts, where it does not happen in a moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Again so long after each begin, until no session begins any more; absent: once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// `delay`, `netem`: so much later, one way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// `delay`, `reconnect_storm`: up to so much more, drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Span>,
    /// `bandwidth`, `tbf`: bytes a second, each way, for each connection (`tbf`: for the whole backend).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
    /// `gaps`: nothing passes for so long,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Span>,
    /// `gaps`: once in so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Span>,
    /// `netem`: share of packets that are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// `kill_backend`: it stays dead for so long; absent: 500 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_for: Option<Span>,
    /// `cpu`: cores that the backend has left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
    /// `reconnect_storm`: before the first try to come back; doubled with every try that fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Span>,
    /// `churn`: connections a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

/// To whom a fault happens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a map: {backend: 0} or {scenario: talk}")]
pub struct FaultScope {
    /// Number of a backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<usize>,
    /// Name of a scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
}

impl FaultScope {
    const fn is_all(&self) -> bool {
        self.backend.is_none() && self.scenario.is_none()
    }

    /// Somebody is in both, of processes: a scenario names its worker, and nothing else names a worker.
    fn meets(&self, other: &Self) -> bool {
        match (&self.scenario, &other.scenario) {
            (Some(one), Some(other)) => one == other,
            (None, None) => self.backend.zip(other.backend).is_none_or(|(one, other)| one == other),
            _ => false,
        }
    }
}

/// A kind that there can be once at a time of a process, or an interface, and the one that stands for what it holds. None where several at once add up.
const fn held(kind: FaultName) -> Option<FaultName> {
    match kind {
        FaultName::Stop | FaultName::Cpu | FaultName::Drain | FaultName::NftDrop => Some(kind),
        // One shaper an interface.
        FaultName::Tbf | FaultName::Netem => Some(FaultName::Tbf),
        _ => None,
    }
}

/// As a profile writes it.
fn span_of(at: Micros) -> Span {
    Span(Duration::from_micros(at.0))
}

/// Of whom, in words.
fn place(entry: &FaultEntry) -> String {
    match (&entry.target.scenario, entry.target.backend) {
        (Some(scenario), _) => format!("scenario {scenario}"),
        (None, Some(backend)) => format!("backend {backend}"),
        (None, None) => "all backends".to_owned(),
    }
}

/// Faults that one run can hold, repetitions and all.
const MAX_FAULTS: usize = 10_000;

/// A control group leaves a process this much of a processor, or more.
const LEAST_CORES: f64 = 0.05;
/// Before the first try to come back.
const LEAST_BACKOFF: Duration = Duration::from_millis(1);

/// Keys that only some kinds know.
const OWN_KEYS: [&str; 10] = ["delay", "jitter", "bytes_per_s", "gap", "period", "loss", "dead_for", "cores", "backoff", "rate"];

/// Those of a kind: required, optional.
const fn keys(kind: FaultName) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        FaultName::Delay => (&["delay"], &["jitter"]),
        FaultName::Bandwidth | FaultName::Tbf => (&["bytes_per_s"], &[]),
        FaultName::Gaps => (&["gap", "period"], &[]),
        FaultName::KillBackend => (&[], &["dead_for"]),
        FaultName::Cpu => (&["cores"], &[]),
        FaultName::ReconnectStorm => (&[], &["backoff", "jitter"]),
        FaultName::Churn => (&["rate"], &[]),
        FaultName::Netem => (&[], &["delay", "loss"]),
        _ => (&[], &[]),
    }
}

impl FaultEntry {
    fn has(&self, key: &str) -> bool {
        match key {
            "delay" => self.delay.is_some(),
            "jitter" => self.jitter.is_some(),
            "bytes_per_s" => self.bytes_per_s.is_some(),
            "gap" => self.gap.is_some(),
            "period" => self.period.is_some(),
            "loss" => self.loss.is_some(),
            "dead_for" => self.dead_for.is_some(),
            "cores" => self.cores.is_some(),
            "backoff" => self.backoff.is_some(),
            "rate" => self.rate.is_some(),
            _ => false,
        }
    }

    fn kind(&self) -> FaultKind {
        let or_zero = |span: Option<Span>| span.map_or(Duration::ZERO, |span| span.0);
        match self.kind {
            FaultName::Delay => FaultKind::Delay { delay: or_zero(self.delay), jitter: or_zero(self.jitter) },
            FaultName::Stall => FaultKind::Stall,
            FaultName::Bandwidth => FaultKind::Bandwidth { bytes_per_s: self.bytes_per_s.unwrap_or(u64::MAX) },
            FaultName::Gaps => FaultKind::Gaps { gap: or_zero(self.gap), period: or_zero(self.period) },
            FaultName::Blackhole => FaultKind::Blackhole,
            FaultName::Reset => FaultKind::Reset,
            FaultName::Stop => FaultKind::Stop,
            FaultName::KillBackend => FaultKind::KillBackend { dead_for: self.dead_for.map_or(DEAD_FOR, |span| span.0) },
            FaultName::Drain => FaultKind::Drain,
            FaultName::Cpu => FaultKind::Cpu { cores: self.cores.unwrap_or(f64::INFINITY) },
            FaultName::Cancel => FaultKind::End(EndKind::Cancel),
            FaultName::TcpFin => FaultKind::End(EndKind::TcpFin),
            FaultName::TcpRst => FaultKind::End(EndKind::TcpRst),
            FaultName::HalfOpen => FaultKind::End(EndKind::HalfOpen),
            FaultName::Race => FaultKind::Race,
            FaultName::SlowReader => FaultKind::SlowReader,
            FaultName::ReconnectStorm => FaultKind::ReconnectStorm {
                backoff: self.backoff.map_or(Duration::from_secs(1), |span| span.0),
                jitter: self.jitter.map_or(Duration::from_secs(1), |span| span.0),
            },
            FaultName::Churn => FaultKind::Churn { rate: self.rate.unwrap_or_default() },
            FaultName::Netem => FaultKind::Netem { delay: or_zero(self.delay), loss: self.loss.unwrap_or_default() },
            FaultName::Tbf => FaultKind::Tbf { bytes_per_s: self.bytes_per_s.unwrap_or(u64::MAX) },
            FaultName::NftDrop => FaultKind::NftDrop,
            FaultName::SocketKill => FaultKind::SocketKill,
        }
    }

    /// Run times at which it begins: always once, and again before `end`.
    fn times(&self, end: Micros) -> impl Iterator<Item = Micros> + use<> {
        let every = self.every.filter(|every| every.micros() > 0);
        std::iter::successors(Some(Micros(self.at.micros())), move |at| every.map(|every| *at + every.0).filter(|at| *at < end))
    }

    /// Both hold the same state of the same processes or interfaces.
    fn holds_what(&self, other: &Self) -> bool {
        held(self.kind).is_some() && held(self.kind) == held(other.kind) && self.target.meets(&other.target)
    }

    /// Each entry by itself.
    fn check(&self, c: &mut Checker<'_>, world: &World<'_>) {
        let word = self.kind.name();
        let (required, optional) = keys(self.kind);
        for key in OWN_KEYS {
            if self.has(key) && !required.contains(&key) && !optional.contains(&key) {
                c.error(key, format!("`{key}` means nothing to `{word}`"), "drop it");
            }
            if !self.has(key) && required.contains(&key) {
                c.here(format!("`{word}` needs `{key}`"), format!("add `{key}`"));
            }
        }
        match (self.duration, self.kind.is_momentary()) {
            (Some(_), true) => c.error("duration", format!("`{word}` happens in a moment"), "drop `duration`"),
            (None, false) => c.here(format!("`{word}` needs `duration`"), "add how long it lasts: duration: 5s"),
            (Some(span), false) => c.positive("duration", span),
            (None, true) => {}
        }
        if let Some(every) = self.every {
            c.positive("every", every);
            let (takes, key) = match self.kind {
                FaultName::KillBackend => (Some(self.dead_for.unwrap_or(Span(DEAD_FOR))), "dead_for"),
                _ => (self.duration, "duration"),
            };
            if let Some(takes) = takes.filter(|takes| *takes >= every) {
                let silent =
                    if self.has(key) || key == "duration" { String::new() } else { format!(", which is {takes} unless it is said") };
                c.error("every", "it begins anew before it is over", format!("make `every` longer than `{key}`{silent}"));
            }
        }
        let share = |c: &mut Checker<'_>, key: &str, value: Option<f64>| {
            if value.is_some_and(|value| !(value > 0.0 && value <= 1.0)) {
                c.error(key, format!("`{key}` is no share"), "write a number above 0, up to 1");
            }
        };
        share(c, "fraction", self.fraction);
        share(c, "loss", self.loss);
        for (key, value) in [("cores", self.cores), ("rate", self.rate)] {
            if value.is_some_and(|value| !(value > 0.0 && value.is_finite())) {
                c.error(key, format!("`{key}` is not above 0"), "write a number above 0");
            }
        }
        if self.cores.is_some_and(|cores| cores > 0.0 && cores < LEAST_CORES) {
            let message = format!("`cores` is below {LEAST_CORES}, the least that a control group can leave a process");
            c.error("cores", message, format!("write {LEAST_CORES} or more, or use `stop`"));
        }
        if self.backoff.is_some_and(|backoff| backoff.0 < LEAST_BACKOFF) {
            let message = "`backoff` is below 1ms: everybody would make all of the 16 tries to come back at once";
            c.error("backoff", message, "write 1ms or more");
        }
        if self.rate.is_some_and(|rate| rate > 10_000.0) {
            c.error("rate", "more than 10000 connections a second", "write 10000 or less");
        }
        let zero = |span: Option<Span>| span.is_some_and(|span| span.0.is_zero());
        if self.kind == FaultName::Netem && self.delay.is_none() && self.loss.is_none() {
            c.here("`netem` needs `delay` or `loss`", "add one of them, or both");
        }
        // Jitter alone delays as well.
        if zero(self.delay) && self.jitter.is_none_or(|jitter| jitter.0.is_zero()) && self.loss.is_none() {
            c.error("delay", "`delay` is zero: nothing would be delayed", "write a time above 0, such as 50ms");
        }
        if self.bytes_per_s == Some(0) {
            c.error("bytes_per_s", "nothing would pass", "write 1 or more, or use `stall`");
        }
        if let (Some(gap), Some(period)) = (self.gap, self.period) {
            c.positive("gap", gap);
            if gap >= period {
                c.error("gap", "the gap is as long as its period: nothing would pass", "make it shorter, or use `stall`");
            }
        }
        self.check_target(c, world);
    }

    fn check_target(&self, c: &mut Checker<'_>, world: &World<'_>) {
        let word = self.kind.name();
        let maker = self.kind.maker();
        let whole = matches!(maker, Maker::Controller | Maker::Namespace);
        if whole && self.fraction.is_some() {
            c.error("fraction", format!("`{word}` strikes the whole target"), "drop `fraction`");
        }
        let own = matches!(maker, Maker::Namespace) || matches!(self.kind, FaultName::KillBackend | FaultName::Cpu | FaultName::Drain);
        if own && !world.embedded {
            c.error("kind", format!("`{word}` is for backends that the run starts itself"), "drop the fault, or drop `target`");
        }
        c.within("target", |c| {
            if let Some(backend) = self.target.backend {
                match world.backends {
                    Ok(count) if backend >= count => {
                        c.error("backend", format!("there is no backend {backend}"), format!("there are {count}, from 0 on"));
                    }
                    Ok(_) => {}
                    Err(why) => c.error("backend", format!("a fault cannot name a backend: {why}"), "drop it"),
                }
            }
            if let Some(scenario) = &self.target.scenario {
                if !world.scenarios.iter().any(|name| name == scenario) {
                    c.error("scenario", format!("there is no scenario `{scenario}`"), format!("there are: {}", world.scenarios.join(", ")));
                }
                if maker != Maker::Shards && self.kind != FaultName::Stop {
                    c.error("scenario", format!("`{word}` strikes backends, not scenarios"), "name a backend, or nobody");
                }
            }
            if self.kind == FaultName::Stop && self.target.scenario.is_none() && !world.embedded {
                c.here("`stop` is for backends that the run starts itself, and for workers", "name a scenario, or drop the fault");
            }
        });
    }
}

/// What a fault may name.
struct World<'a> {
    embedded: bool,
    backends: Result<usize, &'static str>,
    scenarios: Vec<&'a str>,
}

impl Profile {
    /// `faults`, each by itself.
    pub(super) fn check_faults(&self, c: &mut Checker<'_>) {
        let world = World {
            embedded: self.is_embedded(),
            backends: self.choices(),
            scenarios: self.scenarios.iter().map(|(name, _)| name).collect(),
        };
        c.within("faults", |c| {
            for (at, fault) in self.faults.iter().enumerate() {
                c.within(at, |c| fault.check(c, &world));
            }
        });
    }

    /// Faults begin while sessions do, and there are not too many. `end`: from then on no session begins, microseconds.
    pub(super) fn check_fault_times(&self, c: &mut Checker<'_>, end: Duration) {
        c.within("faults", |c| {
            for (at, fault) in self.faults.iter().enumerate().filter(|(_, fault)| fault.at.0 >= end) {
                c.within(at, |c| {
                    c.error("at", format!("no session begins any more at {}", fault.at), "let it begin earlier, or the run be longer");
                });
            }
            let count = |fault: &FaultEntry| match fault.every {
                Some(every) if !every.0.is_zero() => end.saturating_sub(fault.at.0).as_micros() / every.0.as_micros().max(1) + 1,
                _ => 1,
            };
            let all: u128 = self.faults.iter().map(count).sum();
            if all > MAX_FAULTS as u128 {
                c.here(format!("the timeline has {all} faults"), format!("repeat them less often: {MAX_FAULTS} are the most"));
            } else {
                self.check_overlaps(c, end);
            }
        });
    }

    /// What only one can hold at a time: the end of the first would be the end of the second, whose row would say that it lasted.
    fn check_overlaps(&self, c: &mut Checker<'_>, end: Duration) {
        let end = Micros(end.as_micros().try_into().unwrap_or(u64::MAX));
        let mut all: Vec<(Micros, Micros, usize, &FaultEntry)> = Vec::new();
        for (at, entry) in self.faults.iter().enumerate().filter(|(_, entry)| held(entry.kind).is_some()) {
            let lasts = entry.duration.map_or(Duration::ZERO, |span| span.0);
            all.extend(entry.times(end).map(|from| (from, from + lasts, at, entry)));
        }
        all.sort_by_key(|(from, _, at, _)| (*from, *at));
        let mut open: Vec<(Micros, Micros, usize, &FaultEntry)> = Vec::new();
        let mut told = BTreeSet::new();
        for (from, to, at, entry) in all {
            open.retain(|(_, until, ..)| *until > from);
            let Some((since, until, other, before)) = open.iter().find(|(.., before)| entry.holds_what(before)) else {
                open.push((from, to, at, entry));
                continue;
            };
            if told.insert((*other, at)) {
                let message = format!(
                    "`{}` begins at {} while `{}` of {} lasts ({} to {}, entry {other}): the end of one would undo both",
                    entry.kind.name(),
                    span_of(from),
                    before.kind.name(),
                    place(before),
                    span_of(*since),
                    span_of(*until),
                );
                c.within(at, |c| c.error("at", message, "let it begin when the other is over, or give them different targets"));
            }
        }
    }

    /// All faults of a run whose last session begins before `end`, in order of time.
    pub fn timeline(&self, end: Micros) -> Vec<Fault> {
        let number = |name: &str| self.scenarios.iter().position(|(known, _)| known == name).and_then(|at| u16::try_from(at).ok());
        let mut all = Vec::new();
        for entry in &self.faults {
            all.extend(entry.times(end).take(MAX_FAULTS.saturating_sub(all.len()).max(1)).map(|at| Fault {
                number: 0,
                at,
                duration: entry.duration.map_or(Duration::ZERO, |span| span.0),
                kind: entry.kind(),
                target: FaultTarget { backend: entry.target.backend, scenario: entry.target.scenario.as_deref().and_then(number) },
                fraction: entry.fraction.unwrap_or(1.0),
            }));
        }
        all.sort_by_key(|fault| fault.at);
        for (number, fault) in all.iter_mut().enumerate() {
            fault.number = number as u16;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use crate::profile::{Source, open_text};

    /// What is said of these entries of a run of one minute on three backends.
    fn said(faults: &[&str]) -> Option<String> {
        let text = format!(
            "target: {{embedded: {{backends: 3}}}}\nscenarios:\n  {{a: &s {{executor: constant-sessions, sessions: 1, duration: 60s, conversations: [{{turns: \
             [{{wait: 1s}}]}}]}}, b: *s}}\nfaults: [{}]",
            faults.join(", ")
        );
        open_text(&Source::Shipped("test".into()), "test", &text, &[]).err().map(|error| error.to_string())
    }

    #[test]
    fn what_only_one_can_hold_is_held_once() {
        let stop = |at: &str, lasts: &str, target: &str| format!("{{at: {at}, kind: stop, duration: {lasts}{target}}}");
        let backend = |n: usize| format!(", target: {{backend: {n}}}");
        for (one, other) in [
            (stop("1s", "5s", ""), stop("6s", "5s", "")),
            (stop("6s", "5s", ""), stop("1s", "5s", "")),
            (stop("1s", "5s", &backend(0)), stop("2s", "5s", &backend(1))),
            (stop("1s", "5s", ", target: {scenario: a}"), stop("2s", "5s", ", target: {scenario: b}")),
            (stop("1s", "5s", ", target: {scenario: a}"), stop("2s", "5s", "")),
            (stop("1s", "5s", ""), "{at: 2s, kind: cpu, cores: 0.05, duration: 5s}".to_owned()),
            ("{at: 1s, kind: stall, duration: 5s}".to_owned(), "{at: 2s, kind: stall, duration: 5s}".to_owned()),
            ("{at: 1s, kind: churn, rate: 5, duration: 5s}".to_owned(), "{at: 2s, kind: churn, rate: 5, duration: 5s}".to_owned()),
            (stop("1s", "2s, every: 10s", ""), stop("6s", "2s, every: 20s", &backend(2))),
        ] {
            assert_eq!(said(&[&one, &other]), None, "{one} {other}");
        }
        for (one, other, says) in [
            (
                stop("1s", "5s", ""),
                stop("5999ms", "5s", &backend(0)),
                "`stop` begins at 5.999s while `stop` of all backends lasts (1s to 6s, entry 0)",
            ),
            (
                stop("9s", "5s", ""),
                stop("5s", "5s", &backend(2)),
                "`stop` begins at 9s while `stop` of backend 2 lasts (5s to 10s, entry 1)",
            ),
            (
                stop("1s", "5s", ", target: {scenario: a}"),
                stop("2s", "1s", ", target: {scenario: a}"),
                "of scenario a lasts (1s to 6s, entry 0)",
            ),
            // 1, 11, 21 ... and 6, 14, 22 ...
            (
                stop("1s", "2s, every: 10s", ""),
                stop("6s", "2s, every: 8s", ""),
                "begins at 22s while `stop` of all backends lasts (21s to 23s, entry 0)",
            ),
        ] {
            let told = said(&[&one, &other]).unwrap_or_default();
            assert!(told.contains(says), "{one} {other}: {told}");
        }
        for kind in ["cpu, cores: 1", "drain", "tbf, bytes_per_s: 9", "netem, delay: 1ms", "nft_drop"] {
            let of = |at: &str| format!("{{at: {at}, kind: {kind}, duration: 5s}}");
            assert!(said(&[&of("1s"), &of("2s")]).is_some_and(|told| told.contains("would undo both")), "{kind}");
            assert_eq!(said(&[&of("1s"), &of("6s")]), None, "{kind}");
        }
    }
}
