//! What servers of Gemini Live send, in camelCase or `snake_case` at every level. What a caller has no use for is not looked at.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

/// One message.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Message<'a> {
    #[serde(alias = "setup_complete")]
    pub(super) setup_complete: Option<SetupComplete>,
    #[serde(borrow, alias = "server_content")]
    pub(super) server_content: Option<ServerContent<'a>>,
    #[serde(alias = "tool_call")]
    pub(super) tool_call: Option<ToolCall>,
    #[serde(alias = "tool_call_cancellation")]
    pub(super) tool_call_cancellation: Option<ToolCallCancellation>,
    #[serde(alias = "go_away")]
    pub(super) go_away: Option<GoAway>,
    #[serde(alias = "session_resumption_update")]
    pub(super) session_resumption_update: Option<SessionResumptionUpdate>,
    #[serde(alias = "voice_activity")]
    pub(super) voice_activity: Option<VoiceActivity>,
    pub(super) error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SetupComplete {
    #[serde(alias = "session_id")]
    pub(super) session_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SessionResumptionUpdate {
    #[serde(alias = "new_handle")]
    pub(super) new_handle: Option<String>,
    pub(super) resumable: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ServerContent<'a> {
    #[serde(alias = "input_transcription")]
    pub(super) input_transcription: Option<Transcription>,
    #[serde(borrow, alias = "model_turn")]
    pub(super) model_turn: Option<ModelTurn<'a>>,
    pub(super) interrupted: Option<bool>,
    #[serde(alias = "turn_complete")]
    pub(super) turn_complete: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Transcription {
    pub(super) text: Option<String>,
    pub(super) finished: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ModelTurn<'a> {
    #[serde(borrow)]
    pub(super) parts: Option<Vec<Part<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Part<'a> {
    #[serde(borrow, alias = "inline_data")]
    pub(super) inline_data: Option<Blob<'a>>,
}

/// Bytes of some kind; mostly borrowed from the message, as most messages are audio.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Blob<'a> {
    #[serde(borrow)]
    pub(super) data: Cow<'a, str>,
    #[serde(borrow, alias = "mime_type")]
    pub(super) mime_type: Cow<'a, str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ToolCall {
    #[serde(alias = "function_calls")]
    pub(super) function_calls: Option<Vec<FunctionCall>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionCall {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) args: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolCallCancellation {
    pub(super) ids: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GoAway {
    #[serde(alias = "time_left")]
    pub(super) time_left: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VoiceActivity {
    #[serde(alias = "voice_activity_type")]
    pub(super) voice_activity_type: Option<String>,
    #[serde(alias = "audio_offset")]
    pub(super) audio_offset: Option<String>,
}

/// A duration in the JSON form of protobuf, in microseconds; 0 for what is none.
pub(super) fn micros(duration: Option<&str>) -> u64 {
    let seconds: f64 = duration.and_then(|text| text.strip_suffix('s')?.parse().ok()).unwrap_or(0.0);
    // The cast saturates, and makes nothing of what is no number.
    (seconds * 1e6) as u64
}
