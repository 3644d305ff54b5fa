//! `scenarios`: who speaks how, how many at once, and how it ends.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use proto::audio::AudioFormat;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    conversation::Conversation,
    custom::{Custom, Script},
    ends::Ends,
    error::nearest,
    units::{Dist, Span},
    validate::Checker,
};
use crate::{
    arrival::{self, Executor, Schedule, Stage},
    plan::{Agent, Connection, Dialect, EndKind, Expect, Protocol, Service},
};

/// One crowd of callers that behave alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map of scenario settings")]
pub struct Scenario {
    /// How sessions arrive.
    pub executor: ExecutorName,
    /// Run time at which the scenario begins.
    #[serde(rename = "startTime", default)]
    pub start_time: Span,
    /// How long sessions are begun. Ramping executors take it from their stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// constant-sessions: how many are open at once; one that ends is followed by the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// constant-arrival-rate, poisson-arrivals: sessions begun in a `timeUnit`, whatever becomes of the earlier ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// What `rate`, `startRate` and the targets of rate stages count in; absent: 1s.
    #[serde(rename = "timeUnit", skip_serializing_if = "Option::is_none")]
    pub time_unit: Option<Span>,
    /// Ramping executors: one after the other; the level moves in a straight line to each target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<Vec<Stage>>,
    /// ramping-sessions: how many are open at first; absent: 0.
    #[serde(rename = "startSessions", skip_serializing_if = "Option::is_none")]
    pub start_sessions: Option<u32>,
    /// ramping-arrival-rate: the rate at first; absent: 0.
    #[serde(rename = "startRate", skip_serializing_if = "Option::is_none")]
    pub start_rate: Option<f64>,
    /// After the scenario's end, running sessions get so long to finish; then they are ended in order.
    #[serde(rename = "gracefulStop", default = "thirty_seconds")]
    pub graceful_stop: Span,
    /// ramping-sessions: the same for sessions that a ramp takes away; absent: `gracefulStop`.
    #[serde(rename = "gracefulRampDown", skip_serializing_if = "Option::is_none")]
    pub graceful_ramp_down: Option<Span>,
    /// What sessions speak.
    #[serde(default)]
    pub dialect: Dialect,
    /// How sessions travel; absent: as the dialect does, the native one over gRPC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Audio of the caller, and of the agent unless the dialect has another for it; absent: the dialect's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Format>")]
    pub format: Option<AudioFormat>,
    /// What the backend is asked for, where the dialect leaves a choice.
    #[serde(default, skip_serializing_if = "is_default_agent")]
    pub agent: Agent,
    /// What is spoken, where `dialect` is `custom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<Custom>,
    /// A session ends at the first turn boundary after so long, and its conversation is repeated until then. Absent: the
    /// conversation is held once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_length: Option<Dist>,
    /// Share of a session in which the user speaks, above 0 and up to 1: the silence before each turn follows from it (and takes the place
    /// of `wait`). The agent's answer comes out of that silence; an answer that is longer lowers the share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaking_ratio: Option<f64>,
    /// What is said. A session draws one by weight.
    #[schemars(length(min = 1))]
    pub conversations: Vec<Conversation>,
    /// How sessions end: a kind, or a list of kinds with weights.
    #[serde(default)]
    pub end: Ends,
    /// Run time of the kill, for `kill_worker` and `kill_backend`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kill_at: Option<Span>,
    /// Only this backend, from 0. Absent: as `routing` says, or all, in turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<usize>,
    /// Each session on a connection of its own (WebSocket always is).
    #[serde(default)]
    pub own_connection: bool,
    /// Send frames of silence while nobody speaks, as a microphone does; else nothing is sent then.
    #[serde(default)]
    pub send_silence: bool,
    /// Tell the backend where speech begins and ends, instead of letting its detector find out.
    #[serde(default)]
    pub markers: bool,
    /// A frame in so many asks for an acknowledgement, for `frame_rtt`; 0: none does.
    #[serde(default = "ten")]
    pub ack_every: u32,
    /// An answer that takes longer is a missed turn.
    #[serde(default = "ten_seconds")]
    pub response_timeout: Span,
    /// Longest wait from dial to acceptance.
    #[serde(default = "ten_seconds")]
    pub start_timeout: Span,
    /// What this scenario is for, so that it is no error: `rejected` (a full backend refuses sessions) or `timed_out` (the backend's deadline
    /// ends them).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expect>,
    /// Free labels, kept with the results.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

fn is_default_agent(agent: &Agent) -> bool {
    *agent == Agent::default()
}

const fn ten() -> u32 {
    10
}

const fn ten_seconds() -> Span {
    Span::seconds(10)
}

const fn thirty_seconds() -> Span {
    Span::seconds(30)
}

impl Scenario {
    /// What the executor needs.
    pub fn schedule(&self) -> Schedule {
        Schedule {
            start: self.start_time.0,
            duration: self.duration.unwrap_or_default().0,
            sessions: self.sessions.unwrap_or(0),
            rate: self.rate.unwrap_or(0.0),
            time_unit: self.time_unit.unwrap_or(Span::seconds(1)).0,
            stages: self.stages.clone().unwrap_or_default(),
            start_sessions: self.start_sessions.unwrap_or(0),
            start_rate: self.start_rate.unwrap_or(0.0),
            graceful_stop: self.graceful_stop.0,
            graceful_ramp_down: self.graceful_ramp_down.unwrap_or(self.graceful_stop).0,
        }
    }

    /// How its sessions travel.
    pub fn protocol(&self) -> Protocol {
        self.dialect.protocol().or(self.protocol).unwrap_or_default()
    }

    /// What its sessions speak, and with whom.
    pub fn service(&self, connection: Connection) -> Service {
        // Formats that do not go together were refused by the check.
        let (input, output) = self.dialect.formats_of(self.format).unwrap_or_default();
        let custom = self.custom.as_ref().map(|custom| Arc::new(Script::of(custom)));
        Service { dialect: self.dialect, input, output, agent: self.agent.clone(), custom, connection }
    }

    /// Some of its sessions are ended by a kill of a process.
    pub fn kills(&self) -> bool {
        self.end.0.iter().any(|end| matches!(end.kind, EndKind::KillWorker | EndKind::KillBackend))
    }

    fn given(&self, key: &str) -> bool {
        match key {
            "duration" => self.duration.is_some(),
            "sessions" => self.sessions.is_some(),
            "rate" => self.rate.is_some(),
            "timeUnit" => self.time_unit.is_some(),
            "stages" => self.stages.is_some(),
            "startSessions" => self.start_sessions.is_some(),
            "startRate" => self.start_rate.is_some(),
            "gracefulRampDown" => self.graceful_ramp_down.is_some(),
            _ => false,
        }
    }

    pub(super) fn check(&self, c: &mut Checker<'_>, world: &World<'_>) {
        self.check_keys(c);
        self.check_levels(c);
        self.check_stages(c);
        if c.is_clean() {
            // The exact number is known only to the executor; its stream of randomness does not change whether it fits by much.
            if let Err(error) = self.executor.executor().check(&self.schedule()) {
                c.here(error.to_string(), "lower the rate, the number of sessions or the duration");
            }
        }
        self.check_end(c, world);
        self.check_dialect(c);
        self.check_speech(c);
        for (key, span) in [("response_timeout", self.response_timeout), ("start_timeout", self.start_timeout)] {
            c.positive(key, span);
        }
        c.within("conversations", |c| {
            if self.conversations.is_empty() {
                c.here("there is no conversation", "add one: conversations: [{turns: [{wait: 2s}]}] is silence");
            }
            c.weights(&self.conversations.iter().map(|one| one.weight).collect::<Vec<_>>());
            for (at, conversation) in self.conversations.iter().enumerate() {
                c.within(at, |c| conversation.check(c, world));
            }
        });
    }

    fn check_dialect(&self, c: &mut Checker<'_>) {
        let name = self.dialect.name();
        if let (Some(protocol), Some(only)) = (self.protocol, self.dialect.protocol())
            && protocol != only
        {
            c.error("protocol", format!("the dialect `{name}` does not travel that way"), "drop `protocol`: the dialect has its own");
        }
        if let Some(format) = self.format
            && self.dialect.formats_of(Some(format)).is_none()
        {
            let known: Vec<String> = self.dialect.formats().iter().map(|(input, _)| input.to_string()).collect();
            c.error("format", format!("the dialect `{name}` does not carry {format}"), format!("it carries {}", known.join(", ")));
        }
        let help = "`dialect: custom` and `custom: {...}` go together";
        match (&self.custom, self.dialect) {
            (None, Dialect::Custom) => return c.here("`custom` is missing", help),
            // What it says of words is about another dialect.
            (Some(_), dialect) if dialect != Dialect::Custom => {
                return c.error("custom", format!("`custom` describes a dialect, and `{name}` needs none"), help);
            }
            _ => {}
        }
        if let Some(custom) = &self.custom {
            c.within("custom", |c| custom.check(c));
        }
        self.check_agent(c);
        self.check_words(c);
    }

    fn check_keys(&self, c: &mut Checker<'_>) {
        let executor = self.executor.executor();
        for key in executor.required() {
            if !self.given(key) {
                c.here(format!("`{}` needs the key `{key}`", executor.name()), format!("add `{key}: ...` to the scenario"));
            }
        }
        for key in arrival::KEYS {
            if self.given(key) && !executor.required().contains(key) && !executor.optional().contains(key) {
                let known = [executor.required(), executor.optional()].concat().join(", ");
                c.error(key, format!("`{key}` means nothing to `{}`", executor.name()), format!("its keys are {known}"));
            }
        }
    }

    fn check_levels(&self, c: &mut Checker<'_>) {
        if self.sessions == Some(0) {
            c.error("sessions", "0 sessions are no load", "write 1 or more");
        }
        for (key, rate, least) in [("rate", self.rate, "above 0"), ("startRate", self.start_rate, "0 or more")] {
            if let Some(rate) = rate
                && (!rate.is_finite() || rate < 0.0 || (rate == 0.0 && key == "rate"))
            {
                c.error(key, format!("the rate {rate} is not {least}"), "write how many sessions begin in a `timeUnit`");
            }
        }
        for (key, span) in [("duration", self.duration), ("timeUnit", self.time_unit)] {
            if let Some(span) = span {
                c.positive(key, span);
            }
        }
    }

    fn check_stages(&self, c: &mut Checker<'_>) {
        let Some(stages) = &self.stages else { return };
        c.within("stages", |c| {
            if stages.iter().all(|stage| stage.duration == Span::default()) {
                c.here("the stages last no time", "give a stage a duration: [{duration: 30s, target: 100}]");
            }
            for (at, stage) in stages.iter().enumerate() {
                c.within(at, |c| {
                    if !stage.target.is_finite() || stage.target < 0.0 {
                        c.error("target", format!("the target {} is not 0 or more", stage.target), "write the level at the stage's end");
                    } else if self.executor.executor().name() == "ramping-sessions" && stage.target.fract() != 0.0 {
                        c.error("target", format!("{} is not a whole number of sessions", stage.target), "write a whole number");
                    }
                });
            }
            let first =
                if self.executor.executor().open() { self.start_rate.unwrap_or(0.0) } else { f64::from(self.start_sessions.unwrap_or(0)) };
            if first == 0.0 && stages.iter().all(|stage| stage.target == 0.0) {
                c.here("every stage has the target 0: nothing would happen", "give at least one a target above 0");
            }
        });
    }

    fn check_end(&self, c: &mut Checker<'_>, world: &World<'_>) {
        c.within("end", |c| {
            if self.end.0.is_empty() {
                c.here("the list of ends is empty", "leave `end` out for `graceful`, or name a kind");
            }
            c.weights(&self.end.0.iter().map(|end| end.weight).collect::<Vec<_>>());
        });
        let kill_backend = self.end.0.iter().any(|end| end.kind == EndKind::KillBackend);
        if self.kills() && self.end.0.len() > 1 {
            c.error("end", "a kill takes every session of the scenario: it cannot be one end of several", "make two scenarios of it");
        }
        if self.kills() && self.kill_at.is_none() {
            c.error("end", "a kill needs the run time at which it happens", "add `kill_at: 20s` to the scenario");
        }
        if let Some(at) = self.kill_at {
            if !self.kills() {
                c.error(
                    "kill_at",
                    "no session of this scenario ends by a kill",
                    "set `end: kill_worker` or `end: kill_backend`, or drop `kill_at`",
                );
            } else if at <= self.start_time {
                c.error("kill_at", "the kill comes before the scenario begins", "choose a run time after `startTime`");
            } else if at.0 > arrival::end_of(&self.schedule(), self.executor.executor()) + self.graceful_stop.0 {
                c.error(
                    "kill_at",
                    "the kill comes after `gracefulStop`, when every session is over",
                    "kill earlier, or make `duration` or `gracefulStop` longer",
                );
            }
        }
        if kill_backend && !world.embedded {
            c.error("end", "`kill_backend` kills a process that the run started itself", "set `target: embedded`, or another kind of end");
        }
        if kill_backend && self.backend.is_none() {
            c.error(
                "end",
                "`kill_backend` must know which backend",
                "pin the scenario to one: `backend: 1`, and let no other scenario use it",
            );
        }
        match (self.backend, world.backends) {
            (Some(_), Err(why)) => c.error("backend", format!("a scenario cannot be pinned here: {why}"), "drop `backend`"),
            (Some(backend), Ok(backends)) if backend >= backends => {
                let help = format!("the target has {backends}: write 0 to {}", backends.saturating_sub(1));
                c.error("backend", format!("there is no backend {backend}"), help);
            }
            _ => {}
        }
    }

    fn check_speech(&self, c: &mut Checker<'_>) {
        let Some(ratio) = self.speaking_ratio else { return };
        if !ratio.is_finite() || ratio <= 0.0 || ratio > 1.0 {
            c.error("speaking_ratio", format!("the ratio {ratio} is not above 0 and at most 1"), "write a share, such as 0.3");
        }
        c.within("conversations", |c| {
            for (at, conversation) in self.conversations.iter().enumerate() {
                for (number, turn) in conversation.turns.iter().enumerate() {
                    let key = if turn.wait.is_some() { "wait" } else { "at" };
                    c.within(at, |c| {
                        c.within("turns", |c| {
                            c.within(number, |c| {
                                if turn.wait.is_some() || turn.at.is_some() {
                                    c.error(
                                        key,
                                        format!("`{key}` contradicts `speaking_ratio`, which sets the silence itself"),
                                        "drop one of both",
                                    );
                                } else if turn.say.0.is_empty() {
                                    c.here("a turn of silence contradicts `speaking_ratio`", "give the turn something to `say`");
                                }
                            });
                        });
                    });
                }
            }
        });
    }
}

/// What scenarios are checked against.
pub(super) struct World<'a> {
    /// The run starts its backends itself.
    pub embedded: bool,
    /// How many a scenario can choose from by number, or why it cannot.
    pub backends: Result<usize, &'static str>,
    /// Finds WAV files.
    pub audio: &'a crate::audio::Library,
}

/// An executor by its name.
#[derive(Clone, Copy)]
pub struct ExecutorName(&'static dyn Executor);

impl ExecutorName {
    /// What it names.
    pub fn executor(self) -> &'static dyn Executor {
        self.0
    }
}

impl fmt::Debug for ExecutorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl PartialEq for ExecutorName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Serialize for ExecutorName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for ExecutorName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        arrival::find(&name).map(Self).ok_or_else(|| {
            let names: Vec<&str> = arrival::ALL.iter().map(|executor| executor.name()).collect();
            let meant = nearest(&name, names.iter().copied()).map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
            de::Error::custom(format!("there is no executor `{name}`{meant} There are {}", names.join(", ")))
        })
    }
}

impl JsonSchema for ExecutorName {
    fn schema_name() -> Cow<'static, str> {
        "Executor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let each = arrival::ALL.iter().flat_map(|executor| {
            let about = executor.about();
            std::iter::once(executor.name())
                .chain(executor.aliases().iter().copied())
                .map(move |name| serde_json::json!({ "const": name, "description": about }))
        });
        json_schema!({ "description": "How sessions arrive.", "oneOf": each.collect::<Vec<_>>() })
    }
}

/// Encoding and sample rate.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "stands for the wire crate's type in the schema")]
enum Format {
    /// Signed 16-bit PCM at 16 kHz.
    #[schemars(rename = "pcm16_16k")]
    Pcm16k,
    /// Signed 16-bit PCM at 24 kHz.
    #[schemars(rename = "pcm16_24k")]
    Pcm24k,
    /// G.711 mu-law at 8 kHz.
    #[schemars(rename = "mulaw_8k")]
    Mulaw8k,
    /// G.711 A-law at 8 kHz.
    #[schemars(rename = "alaw_8k")]
    Alaw8k,
    /// Signed 16-bit PCM at 8 kHz.
    #[schemars(rename = "pcm16_8k")]
    Pcm8k,
    /// Signed 16-bit PCM at 48 kHz.
    #[schemars(rename = "pcm16_48k")]
    Pcm48k,
}
