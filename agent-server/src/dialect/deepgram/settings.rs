//! The `Settings` message, and the parts of it that may change.

use proto::{
    audio::AudioFormat,
    frame::{ErrorCode, SessionError, SessionStart},
};
use serde_json::Value;

use super::super::json::{quoted, text_of, voice_name};

/// What a conversation begins with.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) start: SessionStart,
    /// The agent speaks first.
    pub(super) greets: bool,
}

impl Settings {
    /// Reads the message; says which field is wrong.
    pub(super) fn read(message: &Value, client_ref: &str) -> Result<Self, SessionError> {
        let audio = &message["audio"];
        let container = &audio["output"]["container"];
        if !container.is_null() && container != "none" {
            let message = format!("audio.output.container is {}: this server sends bare samples, `none`", quoted(&text_of(container)));
            return Err(SessionError::fatal(ErrorCode::UnsupportedFormat, message));
        }
        let agent = &message["agent"];
        if !(agent.is_object() || agent.is_string()) {
            return Err(SessionError::fatal(
                ErrorCode::InvalidArgument,
                "`agent` is missing: {\"listen\": ..., \"think\": ..., \"speak\": ...}",
            ));
        }
        let start = SessionStart {
            client_ref: client_ref.to_owned(),
            voice: voice(&agent["speak"]),
            input: format("audio.input", &audio["input"])?,
            output: format("audio.output", &audio["output"])?,
            tools: functions(&agent["think"]),
            ..SessionStart::default()
        };
        let greets = agent["greeting"].as_str().is_some_and(|text| !text.trim().is_empty());
        Ok(Self { start, greets })
    }
}

/// What `encoding` and `sample_rate` say; without them the service's own default.
fn format(field: &str, value: &Value) -> Result<AudioFormat, SessionError> {
    let encoding = match &value["encoding"] {
        Value::Null => "linear16".to_owned(),
        other => text_of(other),
    };
    // Clients write 16000.0 as well; what is no whole number is no rate that is served.
    let rate = match &value["sample_rate"] {
        Value::Null => None,
        other => Some(other.as_f64().filter(|rate| rate.fract() == 0.0).map_or(0, |rate| rate as u32)),
    };
    let found = match (encoding.as_str(), rate) {
        ("linear16", None) => Some(AudioFormat::Pcm24k),
        ("linear16", Some(rate)) => AudioFormat::pcm(rate),
        ("mulaw", None | Some(8_000)) => Some(AudioFormat::Mulaw8k),
        ("alaw", None | Some(8_000)) => Some(AudioFormat::Alaw8k),
        _ => None,
    };
    found.ok_or_else(|| {
        let rate = if rate.is_some() { format!(" at {} Hz", quoted(&text_of(&value["sample_rate"]))) } else { String::new() };
        let message = format!(
            "{field} is {}{rate}: this server takes linear16 at 8000, 16000, 24000 and 48000 Hz, mulaw and alaw at 8000 Hz",
            quoted(&encoding)
        );
        SessionError::fatal(ErrorCode::UnsupportedFormat, message)
    })
}

/// The first of several providers, or the only one.
fn first(value: &Value) -> &Value {
    value.as_array().map_or(value, |all| all.first().unwrap_or(&Value::Null))
}

/// Name of the voice: a model of Deepgram, or what others call it.
pub(super) fn voice(speak: &Value) -> String {
    let provider = &first(speak)["provider"];
    let name = ["model", "voice", "model_id"].into_iter().find_map(|field| provider[field].as_str());
    voice_name(name.unwrap_or_default())
}

/// Names of the functions that the client itself is to run: those without an endpoint.
pub(super) fn functions(think: &Value) -> Vec<String> {
    let all = first(think)["functions"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter()
        .filter(|function| function["endpoint"].is_null())
        .filter_map(|function| Some(function["name"].as_str()?.to_owned()))
        .collect()
}
