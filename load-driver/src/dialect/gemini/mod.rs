//! Gemini Live (`BidiGenerateContent`).
//!
//! It names neither turns nor responses: [`Dialogue`] does. Between `interrupted` and `turnComplete` all audio still belongs to what was
//! interrupted. A tool call ends the response that it is in, so that what the agent says after the result is one of its own.

mod server;

use std::{borrow::Cow, collections::VecDeque, sync::Arc};

use proto::{
    audio::AudioFormat,
    base64,
    frame::{
        ClientEvent, ErrorCode, MAX_TEXT_BYTES, ResponseStatus, ServerEvent, SessionAccepted, SessionError, SessionStart, SpeechMarker,
    },
};
use serde_json::{Value, json};

use super::{Dialect, Exchange, Wire, dialogue::Dialogue, parting::Parting};
use crate::plan::{Service, TurnDetection};

/// Where the profile names none.
const MODEL: &str = "models/gemini-2.0-flash-live-001";
/// Audio as loud as this is speech, where nobody marks it: the RMS that detectors of servers take by default.
const SPEECH_RMS: f32 = 300.0;
/// Tool calls whose names are remembered.
const CALLS_KEPT: usize = 32;

/// One session.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what was seen of the peer, each by itself")]
pub(super) struct GeminiLive {
    service: Arc<Service>,
    accepted: bool,
    parting: Parting,
    warned: bool,
    /// The user's speech is marked as begun.
    active: bool,
    dialogue: Dialogue,
    /// Of the turn under way.
    understood: String,
    /// What comes until the turn is complete belongs to a response that is over.
    interrupted: bool,
    /// Ids and names.
    calls: VecDeque<(String, String)>,
}

impl GeminiLive {
    /// As the service wants it.
    pub(super) fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            accepted: false,
            parting: Parting::default(),
            warned: false,
            active: false,
            dialogue: Dialogue::new(service.output),
            understood: String::new(),
            interrupted: false,
            calls: VecDeque::new(),
        }
    }

    /// The caller says where its turns begin and end.
    fn manual(&self) -> bool {
        self.service.agent.turn_detection == TurnDetection::None
    }

    fn setup(&self, start: &SessionStart) -> Value {
        let agent = &self.service.agent;
        let model = match agent.model.as_deref() {
            None => MODEL.to_owned(),
            Some(model) if model.contains('/') => model.to_owned(),
            Some(model) => format!("models/{model}"),
        };
        let mut generation = json!({ "responseModalities": ["AUDIO"] });
        if !start.voice.is_empty() {
            generation["speechConfig"] = json!({ "voiceConfig": { "prebuiltVoiceConfig": { "voiceName": start.voice } } });
        }
        let mut setup = json!({
            "model": model,
            "generationConfig": generation,
            "inputAudioTranscription": {},
            "outputAudioTranscription": {},
            "realtimeInputConfig": { "automaticActivityDetection": { "disabled": self.manual() } },
        });
        if let Some(instructions) = &agent.instructions {
            setup["systemInstruction"] = json!({ "parts": [{ "text": instructions }] });
        }
        if !start.tools.is_empty() {
            let parameters = json!({ "type": "OBJECT", "properties": { "query": { "type": "STRING" } } });
            let declared: Vec<Value> =
                start.tools.iter().map(|name| json!({ "name": name, "description": name, "parameters": parameters })).collect();
            setup["tools"] = json!([{ "functionDeclarations": declared }]);
        }
        if agent.resume {
            setup["sessionResumption"] = if start.resume.is_empty() { json!({}) } else { json!({ "handle": start.resume }) };
        }
        json!({ "setup": setup })
    }

    fn audio(&mut self, payload: &[u8], to: &mut Exchange) {
        let format = self.service.input;
        if self.manual() && !self.active && format.rms(payload) >= SPEECH_RMS {
            self.mark(true, to);
        }
        let mut text = String::with_capacity(payload.len() / 3 * 4 + 96);
        text.push_str(r#"{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate="#);
        text.push_str(&format.sample_rate().to_string());
        text.push_str(r#"","data":""#);
        base64::encode_into(payload, &mut text);
        text.push_str(r#""}}}"#);
        to.send(Wire::Text(text));
    }

    /// Where the server finds the turns it takes no markers.
    fn mark(&mut self, started: bool, to: &mut Exchange) {
        if self.manual() && self.active != started {
            self.active = started;
            let key = if started { "activityStart" } else { "activityEnd" };
            send(&json!({ "realtimeInput": { key: {} } }), to);
        }
    }

    fn tool_result(&mut self, call_id: &str, output: &str, failed: bool, to: &mut Exchange) {
        let at = self.calls.iter().position(|(id, _)| id == call_id);
        let name = at.and_then(|at| self.calls.remove(at)).map(|(_, name)| name).unwrap_or_default();
        let response = match serde_json::from_str(output) {
            Ok(Value::Object(object)) if !failed => Value::Object(object),
            _ => json!({ if failed { "error" } else { "output" }: output }),
        };
        send(&json!({ "toolResponse": { "functionResponses": [{ "id": call_id, "name": name, "response": response }] } }), to);
    }

    fn message(&mut self, json: &[u8], to: &mut Exchange) -> Result<(), SessionError> {
        let message: server::Message<'_> = serde_json::from_slice(json)
            .map_err(|e| SessionError::fatal(ErrorCode::MalformedMessage, format!("no message of Gemini Live in JSON: {e}")))?;
        if let Some(complete) = message.setup_complete {
            to.event(ServerEvent::Accepted(SessionAccepted {
                session_id: complete.session_id.unwrap_or_default(),
                backend_id: String::new(),
                boot_id: String::new(),
                input: self.service.input,
                output: self.service.output,
                max_duration_ms: 0,
                idle_timeout_ms: 0,
            }));
            self.accepted = true;
        }
        if let Some(activity) = message.voice_activity {
            let started = match activity.voice_activity_type.as_deref() {
                Some("ACTIVITY_START") => Some(true),
                Some("ACTIVITY_END") => Some(false),
                _ => None,
            };
            let timestamp_us = server::micros(activity.audio_offset.as_deref());
            if let Some(started) = started {
                to.event(ServerEvent::Speech(SpeechMarker { started, timestamp_us }));
            }
        }
        if let Some(content) = message.server_content {
            self.content(content, to)?;
        }
        let calls = message.tool_call.and_then(|call| call.function_calls).unwrap_or_default();
        let calling = !calls.is_empty();
        for call in calls {
            let (call_id, name) = (call.id.unwrap_or_default(), call.name.unwrap_or_default());
            if self.calls.len() == CALLS_KEPT {
                self.calls.pop_front();
            }
            self.calls.push_back((call_id.clone(), name.clone()));
            let arguments = call.args.map_or_else(|| "{}".to_owned(), |args| args.to_string());
            to.event(ServerEvent::ToolCall { call_id, name, arguments });
        }
        // After the calls: an end that comes first would be the end of the answer.
        if calling {
            self.dialogue.end(ResponseStatus::Completed, to);
        }
        for call_id in message.tool_call_cancellation.and_then(|cancelled| cancelled.ids).unwrap_or_default() {
            self.calls.retain(|(id, _)| *id != call_id);
            to.event(ServerEvent::ToolCancel { call_id });
        }
        // One that is not resumable now takes nothing from the last one that was.
        let update = message.session_resumption_update.filter(|update| update.resumable == Some(true));
        if let Some(handle) = update.and_then(|update| update.new_handle).filter(|handle| !handle.is_empty()) {
            to.event(ServerEvent::Resumable { handle });
        }
        if let Some(going) = message.go_away {
            self.warned = true;
            let left_ms = u32::try_from(server::micros(going.time_left.as_deref()) / 1_000).unwrap_or(u32::MAX);
            to.event(ServerEvent::GoingAway { left_ms });
        }
        if let Some(error) = message.error {
            let text: String = error.to_string().chars().take(500).collect();
            to.event(ServerEvent::Error(SessionError::warning(ErrorCode::Internal, text)));
        }
        Ok(())
    }

    fn content(&mut self, content: server::ServerContent<'_>, to: &mut Exchange) -> Result<(), SessionError> {
        if let Some(transcription) = content.input_transcription {
            self.transcript(transcription.text.as_deref().unwrap_or_default(), transcription.finished == Some(true), to);
        }
        for part in content.model_turn.and_then(|turn| turn.parts).unwrap_or_default() {
            let Some(blob) = part.inline_data.filter(|blob| blob.mime_type.starts_with("audio/")) else { continue };
            let rate = blob.mime_type.split(';').find_map(|part| part.trim().strip_prefix("rate=")).unwrap_or("24000");
            if rate.parse().ok().and_then(AudioFormat::pcm) != Some(self.service.output) {
                let message = format!("audio of the agent is `{}`; {} is due", blob.mime_type, self.service.output);
                return Err(SessionError::fatal(ErrorCode::UnsupportedFormat, message));
            }
            let payload =
                base64::decode(&blob.data).ok_or_else(|| SessionError::fatal(ErrorCode::BadAudio, "the agent's audio is no base64"))?;
            self.dialogue.audio(payload.into(), self.interrupted, to);
        }
        if content.interrupted == Some(true) {
            self.interrupted |= self.dialogue.speaking();
            self.dialogue.interrupt(to);
        }
        if content.turn_complete == Some(true) {
            self.interrupted = false;
            self.dialogue.close_turn();
            self.dialogue.end(ResponseStatus::Completed, to);
        }
        Ok(())
    }

    fn transcript(&mut self, text: &str, last: bool, to: &mut Exchange) {
        let (turn, first) = self.dialogue.understood();
        if first {
            self.understood.clear();
        }
        if self.understood.len() + text.len() <= MAX_TEXT_BYTES {
            self.understood.push_str(text);
        }
        if last {
            self.dialogue.close_turn();
        }
        to.event(ServerEvent::Transcript { turn, text: self.understood.clone(), last });
    }
}

fn send(message: &Value, to: &mut Exchange) {
    to.send(Wire::Text(message.to_string()));
}

impl Dialect for GeminiLive {
    fn path(&self) -> Cow<'static, str> {
        "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent".into()
    }

    fn encode(&mut self, event: ClientEvent, to: &mut Exchange) {
        match event {
            ClientEvent::Start(start) => send(&self.setup(&start), to),
            ClientEvent::Audio(audio) => self.audio(&audio.payload, to),
            ClientEvent::Speech(marker) => self.mark(marker.started, to),
            // The end of the marked speech is what asks for the answer.
            ClientEvent::Commit => self.mark(false, to),
            ClientEvent::Respond(wish) => {
                if let Some(text) = wish.text {
                    let turn = json!({ "role": "user", "parts": [{ "text": text }] });
                    send(&json!({ "clientContent": { "turns": [turn], "turnComplete": true } }), to);
                }
            }
            // Speech is what interrupts; marked as such it need not be heard first.
            ClientEvent::BargeIn { .. } => self.mark(true, to),
            ClientEvent::ToolResult { call_id, output, failed } => self.tool_result(&call_id, &output, failed, to),
            ClientEvent::Context { role, text } => {
                let role = if role == "agent" { "model" } else { "user" };
                let turn = json!({ "role": role, "parts": [{ "text": text }] });
                send(&json!({ "clientContent": { "turns": [turn], "turnComplete": false } }), to);
            }
            ClientEvent::GiveUp { response } => self.dialogue.give_up(response),
            ClientEvent::End { .. } if self.accepted => self.parting.leave(to),
            ClientEvent::End { .. } => to.send(Wire::Close(1000)),
            ClientEvent::Configure(_)
            | ClientEvent::Hint(_)
            | ClientEvent::Discard
            | ClientEvent::Cancel { .. }
            | ClientEvent::Truncate { .. }
            | ClientEvent::Played { .. }
            | ClientEvent::Digit(_) => {}
        }
    }

    fn decode(&mut self, message: Wire, to: &mut Exchange) {
        let result = match &message {
            Wire::Text(text) => self.message(text.as_bytes(), to),
            Wire::Binary(bytes) => self.message(bytes, to),
            Wire::Close(_) => Ok(()),
        };
        if let Err(error) = result {
            to.malformed(error);
        }
    }

    fn closed(&mut self, code: u16, to: &mut Exchange) {
        let error = |code, message: &str| ServerEvent::Error(SessionError::fatal(code, message));
        match code {
            // The reason is not known here: after a warning it is the deadline.
            1011 if self.warned => to.event(error(ErrorCode::Deadline, "the backend's deadline passed")),
            1007 => to.event(error(ErrorCode::InvalidArgument, "the backend closed with 1007: it takes something for wrong")),
            _ => self.parting.closed(code, to),
        }
    }
}

#[cfg(test)]
mod tests;
