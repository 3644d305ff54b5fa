//! What a session is set to, in both forms that clients write: nested, and the flat one of the first version.

use proto::{
    audio::AudioFormat,
    frame::{MAX_NAME_BYTES, SessionSettings, TurnTaking},
};
use serde_json::{Value, json};

use super::{
    super::WRITTEN_MAX,
    fault::{Fault, Object, array, flag, given, need_object, number, object, text, within},
    fields::{
        bounded, decimal, flat_name, format, format_json, max_tokens, modalities, small, tool_choice, tool_names, voice_name, voice_text,
    },
};

/// Longest session as it is given back, JSON with its escapes, bytes: an event that tells it must fit.
pub(super) const SESSION_MAX: usize = WRITTEN_MAX - 4 * 1024;
/// Longest instructions, bytes.
const INSTRUCTIONS_MAX: usize = 128 * 1024;
/// The API's own default of the silence that ends a turn, ms.
const SILENCE_MS: u32 = 500;
/// Settings that are kept and given back, nothing more; each may be null.
const KEPT: [&str; 6] = ["tracing", "truncation", "prompt", "include", "reasoning", "parallel_tool_calls"];

/// What kind of session it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Realtime,
    /// Turns are transcribed and not answered.
    Transcription,
}

/// How turns are found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Detection {
    semantic: bool,
    threshold: f64,
    pub(super) padding_ms: u32,
    pub(super) silence_ms: u32,
    eagerness: &'static str,
    respond: bool,
    interrupt: bool,
    idle_timeout_ms: Option<u32>,
}

impl Default for Detection {
    fn default() -> Self {
        Self {
            semantic: false,
            threshold: 0.5,
            padding_ms: 300,
            silence_ms: SILENCE_MS,
            eagerness: "auto",
            respond: true,
            interrupt: true,
            idle_timeout_ms: None,
        }
    }
}

/// Everything that `session.update` sets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    pub(super) kind: Kind,
    pub(super) model: String,
    pub(super) instructions: String,
    pub(super) voice: Value,
    /// Answers in writing only.
    pub(super) written: bool,
    pub(super) input: AudioFormat,
    pub(super) output: AudioFormat,
    pub(super) transcription: Value,
    noise_reduction: Value,
    pub(super) detection: Option<Detection>,
    pub(super) tools: Value,
    pub(super) tool_names: Vec<String>,
    pub(super) tool_choice: Value,
    pub(super) max_tokens: Value,
    temperature: Value,
    speed: Value,
    kept: Object,
}

impl Settings {
    /// As they are before the client says anything.
    pub(super) fn new(kind: Kind, model: String) -> Self {
        Self {
            kind,
            model,
            instructions: String::new(),
            voice: json!("alloy"),
            written: false,
            input: AudioFormat::Pcm24k,
            output: AudioFormat::Pcm24k,
            transcription: Value::Null,
            noise_reduction: Value::Null,
            detection: Some(Detection::default()),
            tools: json!([]),
            tool_names: Vec::new(),
            tool_choice: json!("auto"),
            max_tokens: json!("inf"),
            temperature: json!(0.8),
            speed: json!(1.0),
            kept: Object::new(),
        }
    }

    /// With the fields of `patch`, and the rest as it was.
    pub(super) fn with(&self, patch: &Object) -> Result<Self, Fault> {
        let mut new = self.clone();
        new.apply(patch)?;
        Ok(new)
    }

    fn apply(&mut self, patch: &Object) -> Result<(), Fault> {
        const PATH: &str = "session";
        match text(patch, "type", PATH)? {
            None => {}
            Some("realtime") => self.kind = Kind::Realtime,
            Some("transcription") => self.kind = Kind::Transcription,
            Some(other) => return Err(Fault::wrong_value("session.type", other, "'realtime' and 'transcription'")),
        }
        if let Some(model) = text(patch, "model", PATH)? {
            model.clone_into(&mut self.model);
            bounded("session.model", model, MAX_NAME_BYTES)?;
        }
        if let Some(instructions) = text(patch, "instructions", PATH)? {
            bounded("session.instructions", instructions, INSTRUCTIONS_MAX)?;
            instructions.clone_into(&mut self.instructions);
        }
        for key in ["modalities", "output_modalities"] {
            self.written = modalities(patch, key, PATH)?.unwrap_or(self.written);
        }
        if let Some(tools) = array(patch, "tools", PATH)? {
            self.tool_names = tool_names(tools, "session.tools")?;
            self.tools = Value::Array(tools.clone());
        }
        if let Some(choice) = given(patch, "tool_choice") {
            tool_choice(choice, "session.tool_choice")?;
            small("session.tool_choice", choice)?;
            self.tool_choice = choice.clone();
        }
        for key in ["max_response_output_tokens", "max_output_tokens"] {
            if let Some(value) = given(patch, key) {
                self.max_tokens = max_tokens(value, &within(PATH, key))?;
            }
        }
        for (key, place) in [("temperature", &mut self.temperature), ("speed", &mut self.speed)] {
            decimal(patch, key, PATH, place)?;
        }
        for key in KEPT {
            if let Some(value) = patch.get(key) {
                small(&within(PATH, key), value)?;
                self.kept.insert(key.to_owned(), value.clone());
            }
        }
        self.voice(patch, PATH)?;
        format(patch, "input_audio_format", PATH, &mut self.input)?;
        format(patch, "output_audio_format", PATH, &mut self.output)?;
        self.heard(patch, PATH, ["input_audio_transcription", "input_audio_noise_reduction", "turn_detection"])?;
        let Some(audio) = object(patch, "audio", PATH)? else { return Ok(()) };
        if let Some(input) = object(audio, "input", "session.audio")? {
            const PATH: &str = "session.audio.input";
            format(input, "format", PATH, &mut self.input)?;
            self.heard(input, PATH, ["transcription", "noise_reduction", "turn_detection"])?;
        }
        if let Some(output) = object(audio, "output", "session.audio")? {
            const PATH: &str = "session.audio.output";
            format(output, "format", PATH, &mut self.output)?;
            decimal(output, "speed", PATH, &mut self.speed)?;
            self.voice(output, PATH)?;
        }
        Ok(())
    }

    fn voice(&mut self, from: &Object, path: &str) -> Result<(), Fault> {
        if let Some(voice) = given(from, "voice") {
            voice_name(voice, &within(path, "voice"))?;
            self.voice = voice.clone();
        }
        Ok(())
    }

    /// Where null says something: it switches off.
    fn heard(&mut self, from: &Object, path: &str, [transcription, noise, turns]: [&str; 3]) -> Result<(), Fault> {
        for (key, place) in [(transcription, &mut self.transcription), (noise, &mut self.noise_reduction)] {
            match from.get(key) {
                None => {}
                Some(value @ (Value::Null | Value::Object(_))) => {
                    small(&within(path, key), value)?;
                    *place = value.clone();
                }
                Some(other) => return Err(Fault::wrong_type(within(path, key), "an object", other)),
            }
        }
        match from.get(turns) {
            None => {}
            Some(Value::Null) => self.detection = None,
            Some(_) => {
                let detection = self.detection.take().unwrap_or_default();
                self.detection = Some(detection.with(need_object(from, turns, path)?, &within(path, turns))?);
            }
        }
        Ok(())
    }

    /// How the session shall take turns.
    pub(super) fn turns(&self) -> TurnTaking {
        // A tool's result is answered when the client asks for it, in this API.
        let by_hand = TurnTaking { detect: false, respond: false, interrupt: false, silence_ms: 0, resume: false };
        self.detection.as_ref().map_or(by_hand, |detection| TurnTaking {
            detect: true,
            respond: detection.respond && self.kind == Kind::Realtime,
            interrupt: detection.interrupt,
            // 0 would take the server's.
            silence_ms: detection.silence_ms.max(1),
            resume: false,
        })
    }

    /// What the session must be told, coming from `old`; none when nothing of it has changed.
    pub(super) fn changes(&self, old: &Self) -> Option<SessionSettings> {
        let changes = SessionSettings {
            input: (self.input != old.input).then_some(self.input),
            output: (self.output != old.output).then_some(self.output),
            voice: (self.voice != old.voice).then(|| voice_text(&self.voice).to_owned()),
            tools: (self.tool_names != old.tool_names).then(|| self.tool_names.clone()),
            turns: (self.turns() != old.turns()).then(|| self.turns()),
        };
        (changes != SessionSettings::default()).then_some(changes)
    }

    /// `session` of the events that tell the client.
    pub(super) fn to_json(&self, beta: bool, id: &str, expires_at: u64) -> Value {
        let kept = |key: &str, default: Value| self.kept.get(key).cloned().unwrap_or(default);
        let detection = self.detection.as_ref().map(Detection::to_json);
        let include = kept("include", Value::Null);
        match (beta, self.kind) {
            (true, kind) => {
                let mut all = json!({
                    "id": id,
                    "object": if kind == Kind::Realtime { "realtime.session" } else { "realtime.transcription_session" },
                    "model": self.model, "expires_at": expires_at,
                    "modalities": if self.written { json!(["text"]) } else { json!(["audio", "text"]) },
                    "instructions": self.instructions, "voice": self.voice,
                    "input_audio_format": flat_name(self.input), "output_audio_format": flat_name(self.output),
                    "input_audio_transcription": self.transcription, "input_audio_noise_reduction": self.noise_reduction,
                    "turn_detection": detection, "tools": self.tools, "tool_choice": self.tool_choice,
                    "temperature": self.temperature, "max_response_output_tokens": self.max_tokens, "speed": self.speed,
                    "tracing": kept("tracing", Value::Null), "client_secret": null, "include": include,
                });
                if let (Kind::Transcription, Value::Object(all)) = (kind, &mut all) {
                    for key in
                        ["voice", "output_audio_format", "tools", "tool_choice", "temperature", "max_response_output_tokens", "speed"]
                    {
                        all.shift_remove(key);
                    }
                }
                all
            }
            (false, Kind::Transcription) => json!({
                "type": "transcription", "object": "realtime.transcription_session", "id": id, "expires_at": expires_at,
                "include": include, "audio": { "input": self.input_json(detection.as_ref()) },
            }),
            (false, Kind::Realtime) => {
                let mut all = json!({
                    "type": "realtime", "object": "realtime.session", "id": id, "model": self.model, "expires_at": expires_at,
                    "output_modalities": if self.written { json!(["text"]) } else { json!(["audio"]) },
                    "instructions": self.instructions, "tools": self.tools, "tool_choice": self.tool_choice,
                    "max_output_tokens": self.max_tokens, "tracing": kept("tracing", Value::Null),
                    "truncation": kept("truncation", json!("auto")), "prompt": kept("prompt", Value::Null), "include": include,
                    "audio": {
                        "input": self.input_json(detection.as_ref()),
                        "output": { "format": format_json(self.output), "voice": self.voice, "speed": self.speed },
                    },
                });
                if let Value::Object(all) = &mut all {
                    let others = self.kept.iter().filter(|(key, _)| !all.contains_key(*key)).map(|(k, v)| (k.clone(), v.clone()));
                    let others: Vec<_> = others.collect();
                    all.extend(others);
                }
                all
            }
        }
    }

    fn input_json(&self, detection: Option<&Value>) -> Value {
        json!({
            "format": format_json(self.input), "transcription": self.transcription, "noise_reduction": self.noise_reduction,
            "turn_detection": detection,
        })
    }
}

impl Detection {
    fn with(mut self, from: &Object, path: &str) -> Result<Self, Fault> {
        match text(from, "type", path)? {
            None => {}
            Some("server_vad") => self.semantic = false,
            Some("semantic_vad") => self.semantic = true,
            Some(other) => return Err(Fault::wrong_value(within(path, "type"), other, "'server_vad' and 'semantic_vad'")),
        }
        let mut threshold = Value::Null;
        decimal(from, "threshold", path, &mut threshold)?;
        if let Some(value) = threshold.as_f64() {
            if !(0.0..=1.0).contains(&value) {
                return Err(Fault::wrong_value(within(path, "threshold"), &value.to_string(), "numbers from 0.0 to 1.0"));
            }
            self.threshold = value;
        }
        self.padding_ms = number(from, "prefix_padding_ms", path)?.unwrap_or(self.padding_ms);
        self.silence_ms = number(from, "silence_duration_ms", path)?.unwrap_or(self.silence_ms);
        if let Some(word) = text(from, "eagerness", path)? {
            let known = ["low", "medium", "high", "auto"].into_iter().find(|known| *known == word);
            let complaint = || Fault::wrong_value(within(path, "eagerness"), word, "'low', 'medium', 'high' and 'auto'");
            self.eagerness = known.ok_or_else(complaint)?;
        }
        self.respond = flag(from, "create_response", path)?.unwrap_or(self.respond);
        self.interrupt = flag(from, "interrupt_response", path)?.unwrap_or(self.interrupt);
        if from.contains_key("idle_timeout_ms") {
            self.idle_timeout_ms = number(from, "idle_timeout_ms", path)?;
        }
        Ok(self)
    }

    fn to_json(&self) -> Value {
        if self.semantic {
            return json!({
                "type": "semantic_vad", "eagerness": self.eagerness, "create_response": self.respond, "interrupt_response": self.interrupt,
            });
        }
        json!({
            "type": "server_vad", "threshold": self.threshold, "prefix_padding_ms": self.padding_ms,
            "silence_duration_ms": self.silence_ms, "create_response": self.respond, "interrupt_response": self.interrupt,
            "idle_timeout_ms": self.idle_timeout_ms,
        })
    }
}
