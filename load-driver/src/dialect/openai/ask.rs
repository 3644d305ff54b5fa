//! What a session is asked to be, in the nested form or in that of the beta.

use std::fmt::Write;

use proto::{audio::AudioFormat, frame::SessionStart};
use serde_json::{Value, json};

use crate::plan::{Agent, TurnDetection};

/// Named where the profile names none: the current model, and one that transcribes while it hears.
const MODEL: &str = "gpt-realtime";
pub(super) const TRANSCRIBER: &str = "gpt-4o-mini-transcribe";

/// The path of the request, with the model in its query.
pub(super) fn path(agent: &Agent) -> String {
    let mut path = "/v1/realtime?model=".to_owned();
    for byte in agent.model.as_deref().unwrap_or(MODEL).bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

/// `session.update` of the whole session.
pub(super) fn update(start: &SessionStart, agent: &Agent) -> String {
    let session = if agent.beta { flat(start, agent) } else { nested(start, agent) };
    json!({"type": "session.update", "session": session}).to_string()
}

fn nested(start: &SessionStart, agent: &Agent) -> Value {
    let format = |format: AudioFormat| match format {
        AudioFormat::Mulaw8k => json!({"type": "audio/pcmu"}),
        AudioFormat::Alaw8k => json!({"type": "audio/pcma"}),
        pcm => json!({"type": "audio/pcm", "rate": pcm.sample_rate()}),
    };
    let mut session = json!({
        "type": "realtime",
        "output_modalities": ["audio"],
        "audio": {
            "input": {"format": format(start.input), "transcription": {"model": TRANSCRIBER}, "turn_detection": turn_detection(start, agent)},
            "output": {"format": format(start.output)},
        },
    });
    if !start.voice.is_empty() {
        session["audio"]["output"]["voice"] = start.voice.as_str().into();
    }
    common(session, start, agent)
}

fn flat(start: &SessionStart, agent: &Agent) -> Value {
    let format = |format: AudioFormat| match format {
        AudioFormat::Mulaw8k => "g711_ulaw",
        AudioFormat::Alaw8k => "g711_alaw",
        _ => "pcm16",
    };
    let mut session = json!({
        "modalities": ["text", "audio"],
        "input_audio_format": format(start.input),
        "output_audio_format": format(start.output),
        "input_audio_transcription": {"model": TRANSCRIBER},
        "turn_detection": turn_detection(start, agent),
    });
    if !start.voice.is_empty() {
        session["voice"] = start.voice.as_str().into();
    }
    common(session, start, agent)
}

fn common(mut session: Value, start: &SessionStart, agent: &Agent) -> Value {
    if let Some(instructions) = &agent.instructions {
        session["instructions"] = instructions.as_str().into();
    }
    if !start.tools.is_empty() {
        let tool = |name: &String| json!({"type": "function", "name": name, "description": name, "parameters": {"type": "object", "properties": {}}});
        session["tools"] = start.tools.iter().map(tool).collect();
        session["tool_choice"] = "auto".into();
    }
    session
}

fn turn_detection(start: &SessionStart, agent: &Agent) -> Value {
    if !start.turns.detect {
        return Value::Null;
    }
    let kind = if agent.turn_detection == TurnDetection::SemanticVad { "semantic_vad" } else { "server_vad" };
    let mut detection = json!({"type": kind, "create_response": start.turns.respond, "interrupt_response": start.turns.interrupt});
    if start.turns.silence_ms > 0 && agent.turn_detection == TurnDetection::ServerVad {
        detection["silence_duration_ms"] = start.turns.silence_ms.into();
    }
    detection
}
