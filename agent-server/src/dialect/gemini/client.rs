//! What clients of Gemini Live send, in camelCase or `snake_case` at every level. What a mock has no use for is not looked at.

use std::borrow::Cow;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

/// One message.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Message<'a> {
    pub(super) setup: Option<Box<Setup>>,
    #[serde(borrow, alias = "realtime_input")]
    pub(super) realtime_input: Option<RealtimeInput<'a>>,
    #[serde(alias = "client_content")]
    pub(super) client_content: Option<ClientContent>,
    #[serde(alias = "tool_response")]
    pub(super) tool_response: Option<ToolResponse>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Setup {
    pub(super) model: Option<String>,
    #[serde(alias = "generation_config")]
    pub(super) generation_config: Option<GenerationConfig>,
    pub(super) tools: Option<Vec<Tool>>,
    #[serde(alias = "input_audio_transcription")]
    pub(super) input_audio_transcription: Option<IgnoredAny>,
    #[serde(alias = "output_audio_transcription")]
    pub(super) output_audio_transcription: Option<IgnoredAny>,
    #[serde(alias = "realtime_input_config")]
    pub(super) realtime_input_config: Option<RealtimeInputConfig>,
    #[serde(alias = "session_resumption")]
    pub(super) session_resumption: Option<SessionResumption>,
    #[serde(alias = "explicit_vad_signal")]
    pub(super) explicit_vad_signal: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GenerationConfig {
    #[serde(alias = "response_modalities")]
    pub(super) response_modalities: Option<Vec<String>>,
    #[serde(alias = "speech_config")]
    pub(super) speech_config: Option<SpeechConfig>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SpeechConfig {
    #[serde(alias = "voice_config")]
    pub(super) voice_config: Option<VoiceConfig>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VoiceConfig {
    #[serde(alias = "prebuilt_voice_config")]
    pub(super) prebuilt_voice_config: Option<PrebuiltVoice>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PrebuiltVoice {
    #[serde(alias = "voice_name")]
    pub(super) voice_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Tool {
    #[serde(alias = "function_declarations")]
    pub(super) function_declarations: Option<Vec<FunctionDeclaration>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionDeclaration {
    pub(super) name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RealtimeInputConfig {
    #[serde(alias = "automatic_activity_detection")]
    pub(super) automatic_activity_detection: Option<ActivityDetection>,
    #[serde(alias = "activity_handling")]
    pub(super) activity_handling: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ActivityDetection {
    pub(super) disabled: Option<bool>,
    #[serde(alias = "silence_duration_ms")]
    pub(super) silence_duration_ms: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SessionResumption {
    pub(super) handle: Option<String>,
    pub(super) transparent: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RealtimeInput<'a> {
    #[serde(borrow)]
    pub(super) audio: Option<Blob<'a>>,
    /// The older form of `audio` and `video`.
    #[serde(borrow, alias = "media_chunks")]
    pub(super) media_chunks: Option<Vec<Blob<'a>>>,
    pub(super) video: Option<IgnoredAny>,
    pub(super) text: Option<String>,
    #[serde(alias = "activity_start")]
    pub(super) activity_start: Option<IgnoredAny>,
    #[serde(alias = "activity_end")]
    pub(super) activity_end: Option<IgnoredAny>,
    #[serde(alias = "audio_stream_end")]
    pub(super) audio_stream_end: Option<bool>,
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
pub(super) struct ClientContent {
    pub(super) turns: Option<Vec<Content>>,
    #[serde(alias = "turn_complete")]
    pub(super) turn_complete: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Content {
    pub(super) role: Option<String>,
    pub(super) parts: Option<Vec<Part>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Part {
    pub(super) text: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ToolResponse {
    #[serde(alias = "function_responses")]
    pub(super) function_responses: Option<Vec<FunctionResponse>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionResponse {
    pub(super) id: Option<String>,
    pub(super) response: Option<Value>,
}
