//! Gemini Live (`BidiGenerateContent`): JSON in text or binary frames.
//!
//! It has no message for errors: whatever is wrong closes the connection, with 1007 and the reason. Late results of cancelled tool calls are let go.

mod client;
mod handle;
mod server;

use bytes::Bytes;
use proto::{
    audio::AudioFormat,
    base64,
    frame::{
        ClientEvent, ErrorCode, MAX_TEXT_BYTES, ResponseStatus, ServerEvent, SessionError, SessionSettings, SessionStart, SpeechMarker,
        TurnHint, TurnTaking,
    },
};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, frame::coding::CloseCode};

use super::{Dialect, Exchange, Frame, Socket, WebSocketDialect, calls::Calls, close, intake::Intake, words::Words, written::Written};
use crate::shard::Close;

pub(super) const WEBSOCKET: WebSocketDialect = WebSocketDialect {
    name: "Gemini Live: JSON",
    paths: "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent",
    serves: |path| {
        let method = path.rsplit('/').next().unwrap_or_default();
        method.ends_with("BidiGenerateContent") || method.ends_with("BidiGenerateContentConstrained")
    },
    starts_at_once: false,
    max_message: 8 * 1024 * 1024,
    open: |upgrade| Ok((Box::new(Gemini::new(upgrade.client_ref())) as Socket).into()),
};

/// How long before the end of its life a session is told, as the real service does.
const WARNING_MS: u32 = 50_000;
/// Where clients say nothing else.
const INPUT: AudioFormat = AudioFormat::Pcm16k;
const OUTPUT: AudioFormat = AudioFormat::Pcm24k;

/// What the client asked for in its `setup`.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "switches that clients set one by one")]
struct Wishes {
    /// The client marks its speech.
    manual: bool,
    /// Answers in text alone.
    text: bool,
    input_transcription: bool,
    output_transcription: bool,
    activity: bool,
    resumption: bool,
    /// Handles come with the number of messages that they cover.
    transparent: bool,
}

/// One session's translator.
#[derive(Debug)]
struct Gemini {
    client_ref: String,
    wishes: Option<Wishes>,
    intake: Intake,
    session_id: String,
    /// Messages of the client so far.
    messages: u64,
    turns: u64,
    /// Text that waits for the end of its turn.
    pending: Written,
    /// The client marked the beginning of its speech.
    active: bool,
    /// What was told of the transcript under way.
    heard: String,
    words: Words,
    /// Frames of the answer under way.
    frames: u32,
    /// Media time up to which usage was told, microseconds.
    counted_us: u64,
    calls: Calls,
}

fn bad(message: impl Into<String>) -> SessionError {
    SessionError::fatal(ErrorCode::InvalidArgument, message)
}

impl Gemini {
    fn new(client_ref: String) -> Self {
        Self {
            client_ref,
            wishes: None,
            intake: Intake::new(INPUT),
            session_id: String::new(),
            messages: 0,
            turns: 0,
            pending: Written::default(),
            active: false,
            heard: String::new(),
            words: Words::default(),
            frames: 0,
            counted_us: 0,
            calls: Calls::default(),
        }
    }

    fn message(&mut self, json: &[u8], to: &mut Exchange<'_, Frame>) -> Result<(), SessionError> {
        self.messages += 1;
        let message: client::Message<'_> = serde_json::from_slice(json).map_err(|error| {
            SessionError::fatal(ErrorCode::MalformedMessage, format!("not a BidiGenerateContentClientMessage in JSON: {error}"))
        })?;
        let client::Message { setup, realtime_input, client_content, tool_response } = message;
        let nothing = setup.is_none() && realtime_input.is_none() && client_content.is_none() && tool_response.is_none();
        if let Some(setup) = setup {
            self.setup(*setup, to)?;
        }
        if self.wishes.is_none() {
            return Err(SessionError::fatal(ErrorCode::NotStarted, "the first message must be `setup`"));
        }
        if nothing {
            return Err(unknown(json));
        }
        if let Some(input) = realtime_input {
            self.realtime_input(input, to)?;
        }
        if let Some(content) = client_content {
            self.client_content(content, to);
        }
        if let Some(response) = tool_response {
            self.tool_response(response, to)?;
        }
        Ok(())
    }

    fn setup(&mut self, setup: client::Setup, to: &mut Exchange<'_, Frame>) -> Result<(), SessionError> {
        if self.wishes.is_some() {
            return Err(SessionError::fatal(ErrorCode::AlreadyStarted, "setup came twice: open a new connection for a new session"));
        }
        if setup.model.is_none_or(|model| model.is_empty()) {
            return Err(bad("setup.model is missing"));
        }
        let generation = setup.generation_config.unwrap_or_default();
        let mut text = false;
        for modality in generation.response_modalities.unwrap_or_default() {
            match modality.to_ascii_uppercase().as_str() {
                "AUDIO" => {}
                "TEXT" => text = true,
                _ => return Err(bad("setup.generationConfig.responseModalities must be [AUDIO] or [TEXT]")),
            }
        }
        let resumption = setup.session_resumption;
        let transparent = resumption.as_ref().is_some_and(|resumption| resumption.transparent == Some(true));
        let old = resumption.as_ref().and_then(|resumption| resumption.handle.as_deref()).filter(|handle| !handle.is_empty());
        if let Some(handle) = old {
            let turns = handle::turns(handle);
            self.turns = turns.ok_or_else(|| bad("setup.sessionResumption.handle was not issued here: leave it out to begin anew"))?;
        }
        let input = setup.realtime_input_config.unwrap_or_default();
        let detection = input.automatic_activity_detection.unwrap_or_default();
        let manual = detection.disabled == Some(true);
        let voice = generation.speech_config.and_then(|speech| speech.voice_config).and_then(|voice| voice.prebuilt_voice_config);
        let tools = setup.tools.unwrap_or_default().into_iter().filter_map(|tool| tool.function_declarations).flatten();
        self.wishes = Some(Wishes {
            manual,
            text,
            input_transcription: setup.input_audio_transcription.is_some(),
            output_transcription: setup.output_audio_transcription.is_some(),
            activity: setup.explicit_vad_signal == Some(true),
            resumption: resumption.is_some(),
            transparent,
        });
        to.event(ClientEvent::Start(SessionStart {
            client_ref: std::mem::take(&mut self.client_ref),
            voice: voice.and_then(|voice| voice.voice_name).unwrap_or_default(),
            input: INPUT,
            output: OUTPUT,
            tools: tools.map(|function| function.name).collect(),
            turns: TurnTaking {
                detect: !manual,
                interrupt: input.activity_handling.as_deref() != Some("NO_INTERRUPTION"),
                silence_ms: detection.silence_duration_ms.unwrap_or(0),
                ..TurnTaking::default()
            },
            warning_ms: WARNING_MS,
            ..SessionStart::default()
        }));
        Ok(())
    }

    fn realtime_input(&mut self, input: client::RealtimeInput<'_>, to: &mut Exchange<'_, Frame>) -> Result<(), SessionError> {
        let nothing = input.video.is_none() && input.audio_stream_end.is_none();
        let said_something = input.audio.is_some()
            || input.media_chunks.is_some()
            || input.text.is_some()
            || input.activity_start.is_some()
            || input.activity_end.is_some();
        if nothing && !said_something {
            return Err(bad("realtimeInput is empty: it takes audio, video, text, activityStart, activityEnd or audioStreamEnd"));
        }
        if input.activity_start.is_some() {
            self.mark(true, to)?;
        }
        // The silence that follows an `audioStreamEnd` is heard as such: the detector runs by the clock.
        for blob in input.audio.into_iter().chain(input.media_chunks.unwrap_or_default()) {
            self.blob(&blob, to)?;
        }
        if let Some(text) = input.text {
            self.pending.add(&text);
            if !self.active {
                self.pending.answer(to);
            }
        }
        if input.activity_end.is_some() {
            self.mark(false, to)?;
        }
        Ok(())
    }

    fn mark(&mut self, started: bool, to: &mut Exchange<'_, Frame>) -> Result<(), SessionError> {
        if !self.wishes.as_ref().is_some_and(|wishes| wishes.manual) {
            return Err(bad(
                "activityStart and activityEnd need setup.realtimeInputConfig.automaticActivityDetection.disabled: the server finds the turns",
            ));
        }
        self.active = started;
        if !started && let Some(text) = self.pending.take() {
            to.event(ClientEvent::Hint(TurnHint { text: Some(text), ..TurnHint::default() }));
        }
        to.event(ClientEvent::Speech(SpeechMarker { started, timestamp_us: self.intake.media_us() }));
        Ok(())
    }

    fn blob(&mut self, blob: &client::Blob<'_>, to: &mut Exchange<'_, Frame>) -> Result<(), SessionError> {
        let Some(format) = format_of(&blob.mime_type)? else { return Ok(()) };
        let Some(payload) = base64::decode(&blob.data) else {
            return Err(bad("realtimeInput.audio.data is no base64"));
        };
        if format != self.intake.format() {
            self.intake.set_format(format);
            to.event(ClientEvent::Configure(Box::new(SessionSettings { input: Some(format), ..SessionSettings::default() })));
        }
        self.intake.take(&Bytes::from(payload), to).map_err(|error| SessionError { fatal: true, ..error })
    }

    fn client_content(&mut self, content: client::ClientContent, to: &mut Exchange<'_, Frame>) {
        for turn in content.turns.unwrap_or_default() {
            if turn.role.as_deref() == Some("model") {
                // What was answered before is history, and so is what it answered.
                self.pending.clear();
                continue;
            }
            for text in turn.parts.unwrap_or_default().into_iter().filter_map(|part| part.text) {
                self.pending.add(&text);
            }
        }
        if content.turn_complete == Some(true) {
            self.pending.answer(to);
        }
    }

    fn tool_response(&self, response: client::ToolResponse, to: &mut Exchange<'_, Frame>) -> Result<(), SessionError> {
        for client::FunctionResponse { id, response } in response.function_responses.unwrap_or_default() {
            let Some(call_id) = id else { return Err(bad("toolResponse.functionResponses holds one without its id")) };
            if !self.calls.knows(&call_id) {
                let shown: String = call_id.chars().take(40).collect();
                return Err(SessionError::fatal(ErrorCode::UnknownToolCall, format!("no tool call has the id `{shown}`")));
            }
            let response = response.unwrap_or_default();
            let failed = response.get("error").is_some();
            let mut output = response.to_string();
            if output.len() > MAX_TEXT_BYTES {
                // The mock only looks whether there is one.
                output.clear();
            }
            to.event(ClientEvent::ToolResult { call_id, output, failed });
        }
        Ok(())
    }
}

/// The format of audio of this type; none for what is not audio, which is let go.
fn format_of(mime_type: &str) -> Result<Option<AudioFormat>, SessionError> {
    let mut parts = mime_type.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
    if kind.starts_with("image/") || kind.starts_with("video/") {
        return Ok(None);
    }
    let rate = parts.find_map(|part| part.strip_prefix("rate=")).map_or(Ok(INPUT.sample_rate()), str::parse);
    let format = rate.ok().and_then(AudioFormat::pcm).filter(|_| matches!(kind.as_str(), "audio/pcm" | "audio/l16" | ""));
    format.map(Some).ok_or_else(|| {
        let shown: String = mime_type.chars().take(40).collect();
        SessionError::fatal(
            ErrorCode::UnsupportedFormat,
            format!("`{shown}` is not taken: send audio/pcm;rate=16000, or 8000, 24000 or 48000"),
        )
    })
}

/// What is wrong with a message that says nothing.
fn unknown(json: &[u8]) -> SessionError {
    let message: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(json).unwrap_or_default();
    let first: String = message.keys().next().map(String::as_str).unwrap_or_default().chars().take(40).collect();
    SessionError::fatal(
        ErrorCode::MalformedMessage,
        format!("unknown name `{first}`: send setup, realtimeInput, clientContent or toolResponse"),
    )
}

impl Dialect for Gemini {
    type In = Frame;
    type Out = Frame;

    fn decode(&mut self, message: Frame, to: &mut Exchange<'_, Frame>) {
        let result = match &message {
            Frame::Text(text) => self.message(text.as_bytes(), to),
            Frame::Binary(bytes) => self.message(bytes, to),
        };
        if let Err(error) = result {
            to.error(error);
        }
    }

    fn encode(&mut self, event: ServerEvent, to: &mut Exchange<'_, Frame>) {
        let default = Wishes::default();
        let wishes = self.wishes.as_ref().unwrap_or(&default);
        match event {
            ServerEvent::Accepted(accepted) => {
                self.session_id = accepted.session_id;
                to.message(server::setup_complete(&self.session_id));
                self.resumable(to);
            }
            ServerEvent::Speech(marker) if wishes.activity => to.message(server::voice_activity(marker)),
            ServerEvent::Transcript { text, last, .. } if wishes.input_transcription => {
                let delta = match text.strip_prefix(self.heard.as_str()) {
                    Some(delta) => delta,
                    // Understood otherwise meanwhile: there is no word for taking back.
                    None => &text,
                };
                if last || !delta.is_empty() {
                    to.message(server::transcription("inputTranscription", delta, last));
                }
                self.heard = if last { String::new() } else { text };
            }
            ServerEvent::ResponseStart { text, .. } => (self.words, self.frames) = (Words::new(text), 0),
            ServerEvent::Audio(audio) => {
                self.frames = self.frames.saturating_add(1);
                let word = self.words.frame();
                if wishes.text {
                    if let Some(word) = word {
                        to.message(server::text(word));
                    }
                    return;
                }
                to.message(server::audio(OUTPUT, &audio.payload));
                if let Some(word) = word.filter(|_| wishes.output_transcription) {
                    to.message(server::transcription("outputTranscription", word, false));
                }
            }
            ServerEvent::ResponseEnd { status, .. } => match status {
                ResponseStatus::Completed => {
                    if wishes.output_transcription && !wishes.text {
                        to.message(server::transcription("outputTranscription", "", true));
                    }
                    to.message(server::content("generationComplete"));
                    // Audio goes in real time: with its last frame the answer was played.
                    self.turn_complete(to);
                }
                ResponseStatus::Interrupted => {
                    to.message(server::content("interrupted"));
                    self.turn_complete(to);
                }
                // The session ends.
                ResponseStatus::Cancelled | ResponseStatus::Failed => {}
            },
            ServerEvent::ToolCall { call_id, name, arguments } => {
                to.message(server::tool_call(&call_id, &name, &arguments));
                self.calls.made(call_id);
            }
            ServerEvent::ToolCancel { call_id } => to.message(server::tool_cancel(&call_id)),
            ServerEvent::GoingAway { left_ms } => to.message(server::go_away(left_ms)),
            ServerEvent::Speech(_)
            | ServerEvent::Transcript { .. }
            | ServerEvent::Committed { .. }
            | ServerEvent::Answering { .. }
            | ServerEvent::AnswerDropped { .. }
            | ServerEvent::Ack { .. }
            | ServerEvent::Context { .. }
            | ServerEvent::Mark { .. }
            | ServerEvent::Resumable { .. }
            | ServerEvent::Error(_)
            | ServerEvent::Ended(_) => {}
        }
    }

    fn closed(&mut self, code: u16, to: &mut Exchange<'_, Frame>) {
        if matches!(code, 1000 | 1005) && self.wishes.is_some() {
            to.event(ClientEvent::End { reason: String::new() });
        }
    }

    fn close(&self, close: &Close) -> Option<CloseFrame> {
        let error = close.error.as_ref()?;
        match error.code {
            ErrorCode::Deadline => Some(close::frame(CloseCode::Error, "Deadline expired")),
            ErrorCode::MalformedMessage
            | ErrorCode::InvalidArgument
            | ErrorCode::UnsupportedFormat
            | ErrorCode::BadAudio
            | ErrorCode::UnknownToolCall => Some(close::frame(CloseCode::Invalid, &error.message)),
            _ => None,
        }
    }
}

impl Gemini {
    fn turn_complete(&mut self, to: &mut Exchange<'_, Frame>) {
        let heard_us = self.intake.media_us();
        let text = self.wishes.as_ref().is_some_and(|wishes| wishes.text);
        to.message(server::turn_complete(heard_us - self.counted_us, self.frames, text));
        self.counted_us = heard_us;
        self.turns = self.turns.saturating_add(1);
        self.resumable(to);
    }

    fn resumable(&self, to: &mut Exchange<'_, Frame>) {
        if let Some(wishes) = self.wishes.as_ref().filter(|wishes| wishes.resumption) {
            let consumed = wishes.transparent.then_some(self.messages);
            to.message(server::resumption(&handle::issue(&self.session_id, self.turns), consumed));
        }
    }
}

#[cfg(test)]
mod tests;
