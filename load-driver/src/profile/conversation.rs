//! `conversations`: what is said, turn by turn.

use std::{borrow::Cow, fmt};

use proto::frame::{MAX_NAME_BYTES, MAX_TOOLS};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use crate::plan::Claim;

use super::{
    scenario::World,
    units::{Dist, Span},
    validate::Checker,
};

/// One of the conversations of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a conversation: {weight: 1, turns: [...]}")]
pub struct Conversation {
    /// How often it is drawn, relative to the others.
    #[serde(default = "one")]
    pub weight: f64,
    /// In order.
    #[schemars(length(min = 1))]
    pub turns: Vec<Turn>,
}

const fn one() -> f64 {
    1.0
}

/// One turn: a silence, then something said, then the agent's answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a turn: {wait: 1s, say: hello.wav}")]
pub struct Turn {
    /// Silence before the user speaks, counted from the end of the turn before (the first: from acceptance).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Dist>,
    /// Speak at this run time instead: everybody at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Span>,
    /// What is said; of several, one is drawn each time. Absent: the turn is silence.
    #[serde(skip_serializing_if = "Says::is_empty")]
    pub say: Says,
    /// Keys of the telephone that are pressed when the turn begins: `0` to `9`, `*`, `#`, `A` to `D`. Only dialects of telephony send them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtmf: Option<String>,
    /// Length of the answer that the mock agent is asked for; absent: it draws one itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Dist>,
    /// The user interrupts the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barge_in: Option<BargeIn>,
    /// The user cancels the answer and says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Cancel>,
    /// The agent calls a tool before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<Tool>,
}

/// An interruption.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "{after: 500ms, say: stop.wav}")]
pub struct BargeIn {
    /// So long after the first audio of the answer, or after what `from` says.
    pub after: Dist,
    /// What `after` counts from. `speech_end`: from the end of what the user said, so that an agent that still thinks is interrupted before it begins.
    /// Let `after` be longer than the agent takes to notice the end, else both are heard as one turn.
    #[serde(default, skip_serializing_if = "BargeInFrom::is_answer")]
    pub from: BargeInFrom,
    /// By a message; else by speaking over the agent, which its detector must notice.
    #[serde(default)]
    pub explicit: bool,
    /// What the caller claims to have heard of the answer, to see what a wrong claim does: `0ms`, or `beyond` for more than there was. Absent: the
    /// truth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<Claim>,
    /// What is said over the agent; it is the next thing answered.
    #[serde(default, skip_serializing_if = "Says::is_empty")]
    pub say: Says,
}

/// What the time of an interruption counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BargeInFrom {
    /// The first audio of the answer.
    #[default]
    Answer,
    /// The end of the user's speech, whether the agent has begun or not.
    SpeechEnd,
}

impl BargeInFrom {
    /// As where nothing is said about it.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    const fn is_answer(&self) -> bool {
        matches!(self, Self::Answer)
    }
}

/// The end of an answer that nobody wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "{after: 500ms}")]
pub struct Cancel {
    /// So long after the first audio of the answer.
    pub after: Dist,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "{name: lookup, takes: 300ms}")]
pub struct Tool {
    /// Its name, declared at the session's start.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// Time from the call to the caller's result.
    pub takes: Dist,
}

/// Things to say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Says(pub Vec<Say>);

impl Says {
    /// Silence.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn check(&self, c: &mut Checker<'_>, world: &World<'_>) {
        for (at, say) in self.0.iter().enumerate() {
            let Say::Wav(path) = say else { continue };
            if let Err(error) = world.audio.clip(path) {
                c.within(at, |c| c.here(error.to_string(), "paths are relative to the profile's folder; `{synth: 2s}` needs no file"));
            }
        }
    }
}

/// One thing to say.
#[derive(Debug, Clone, PartialEq)]
pub enum Say {
    /// A WAV file, relative to the profile's folder.
    Wav(String),
    /// The built-in synthesiser, so long.
    Synth(Dist),
}

impl Conversation {
    pub(super) fn check(&self, c: &mut Checker<'_>, world: &World<'_>) {
        c.within("turns", |c| {
            if self.turns.is_empty() {
                c.here("the conversation has no turns", "add one: turns: [{wait: 1s, say: {synth: 2s}}]");
            }
            let mut tools: Vec<&str> = self.turns.iter().filter_map(|turn| turn.tool.as_ref()).map(|tool| tool.name.as_str()).collect();
            tools.sort_unstable();
            tools.dedup();
            if tools.len() > MAX_TOOLS {
                c.here(format!("{} tools are more than a session may declare", tools.len()), format!("use at most {MAX_TOOLS} names"));
            }
            for (at, turn) in self.turns.iter().enumerate() {
                c.within(at, |c| turn.check(c, world));
            }
        });
    }
}

impl Turn {
    fn check(&self, c: &mut Checker<'_>, world: &World<'_>) {
        if self.wait.is_some() && self.at.is_some() {
            c.error("at", "`wait` and `at` contradict each other", "drop one of both");
        }
        if self.say.is_empty() && self.wait.is_none() && self.at.is_none() && self.dtmf.is_none() {
            c.here("the turn does nothing", "give it something to `say`, or a `wait`");
        }
        if let Some(keys) = &self.dtmf
            && (keys.is_empty() || keys.len() > MAX_NAME_BYTES || !keys.chars().all(|key| matches!(key, '0'..='9' | '*' | '#' | 'A'..='D')))
        {
            c.error("dtmf", format!("`{keys}` are no keys of a telephone"), format!("write 1 to {MAX_NAME_BYTES} of 0-9, *, #, A-D"));
        }
        let acts = [("barge_in", self.barge_in.is_some()), ("cancel", self.cancel.is_some()), ("tool", self.tool.is_some())];
        let acts: Vec<&str> = acts.into_iter().filter(|(_, given)| *given).map(|(key, _)| key).collect();
        if let [first, second, ..] = acts.as_slice() {
            c.error(second, format!("a turn has either `{first}` or `{second}`"), "make two turns of it");
        }
        if let Some(act) = acts.first().filter(|_| self.say.is_empty()) {
            c.error(act, format!("`{act}` needs an answer, and nothing is said that could be answered"), "add `say` to the turn");
        }
        if self.say.is_empty() && self.response.is_some() {
            c.error("response", "`response` needs something that is answered", "add `say` to the turn");
        }
        c.within("say", |c| self.say.check(c, world));
        if let Some(barge_in) = &self.barge_in {
            c.within("barge_in", |c| {
                let early = barge_in.from == BargeInFrom::SpeechEnd;
                if early && (barge_in.explicit || barge_in.heard.is_some()) {
                    let key = if barge_in.explicit { "explicit" } else { "heard" };
                    c.error(key, "who speaks again before the answer interrupts by speech alone", format!("drop `{key}`, or `from`"));
                } else if barge_in.say.is_empty() && !barge_in.explicit {
                    c.here("an interruption by speech needs something to `say`", "add `say: stop.wav`, or `explicit: true`");
                }
                c.within("say", |c| barge_in.say.check(c, world));
            });
        }
        if let Some(tool) = &self.tool
            && (tool.name.is_empty() || tool.name.len() > MAX_NAME_BYTES)
        {
            c.within("tool", |c| c.error("name", "the tool's name is empty or too long", format!("write 1 to {MAX_NAME_BYTES} bytes")));
        }
    }
}

/// The long form of something synthetic.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "{synth: 2s}")]
struct Synth {
    /// How long it lasts.
    synth: Dist,
}

impl Serialize for Say {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Wav(path) => path.serialize(serializer),
            Self::Synth(length) => Synth { synth: length.clone() }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Say {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SayVisitor)
    }
}

struct SayVisitor;

impl<'de> Visitor<'de> for SayVisitor {
    type Value = Say;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the path of a WAV file, or {synth: 2s}")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Say, E> {
        Ok(Say::Wav(value.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Say, A::Error> {
        Synth::deserialize(MapAccessDeserializer::new(map)).map(|Synth { synth }| Say::Synth(synth))
    }
}

impl Serialize for Says {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [only] => only.serialize(serializer),
            all => all.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Says {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SaysVisitor)
    }
}

struct SaysVisitor;

impl<'de> Visitor<'de> for SaysVisitor {
    type Value = Says;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the path of a WAV file, {synth: 2s}, or a list of them")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Says, E> {
        Ok(Says(vec![Say::Wav(value.to_owned())]))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Says, A::Error> {
        SayVisitor.visit_map(map).map(|say| Says(vec![say]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Says, A::Error> {
        let mut all = Vec::new();
        while let Some(say) = items.next_element()? {
            all.push(say);
        }
        Ok(Says(all))
    }
}

impl JsonSchema for Says {
    fn schema_name() -> Cow<'static, str> {
        "Says".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let synth = generator.subschema_for::<Synth>();
        let one = json_schema!({ "anyOf": [{ "type": "string", "description": "Path of a WAV file, relative to the profile's folder." }, synth] });
        json_schema!({ "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] })
    }
}
