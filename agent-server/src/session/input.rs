//! What the client says, checked and sorted.

use proto::{
    frame::{ClientAudio, ClientEvent, ErrorCode, FRAME_US, Outcome, ResponseStatus, ServerEvent, SessionError, SpeechMarker},
    ids::ResponseId,
    time::Micros,
};

use super::{
    Effect, Session,
    turn::State,
    validate::{invalid, shorten, validate_context, validate_hint, validate_result},
};
use crate::{
    pipeline::{tool::CallNumber, vad::Heard},
    tracker::Phase,
};

impl Session {
    /// An event of the client.
    ///
    /// Frames that are due are not sent here: when a shell is late, an interrupt must come before the audio that it stops.
    pub fn on_event(&mut self, event: ClientEvent, now: Micros, out: &mut Vec<Effect>) {
        if !self.receive(now, out) {
            return;
        }
        let checked = match event {
            ClientEvent::Start(_) => {
                let error =
                    SessionError::fatal(ErrorCode::AlreadyStarted, "this stream has its session: open a new stream for a second start");
                return self.finish(Outcome::Failed, Some(error), now, out);
            }
            ClientEvent::End { .. } => return self.finish(Outcome::Completed, None, now, out),
            ClientEvent::Audio(audio) => self.on_audio(&audio, now, out),
            ClientEvent::Speech(marker) => {
                self.on_marker(marker, now, out);
                Ok(())
            }
            ClientEvent::Hint(mut hint) => validate_hint(&mut hint, &self.tools).map(|()| self.hint = Some(Box::new(hint))),
            ClientEvent::Configure(settings) => self.configure(*settings),
            ClientEvent::Commit => self.commit(now, out),
            ClientEvent::Discard => {
                self.discard(now, out);
                Ok(())
            }
            ClientEvent::Respond(wish) => self.respond(wish, now, out),
            ClientEvent::Truncate { response, heard_ms } => {
                self.check_response(response).map(|()| self.truncated(response, heard_ms, now, out))
            }
            // A mock's bot waits for neither.
            ClientEvent::Played { .. } | ClientEvent::GiveUp { .. } | ClientEvent::Digit(_) => Ok(()),
            ClientEvent::BargeIn { response, heard_ms } => self.stop(response, ResponseStatus::Interrupted, Some(heard_ms), now, out),
            ClientEvent::Cancel { response } => self.stop(response, ResponseStatus::Cancelled, None, now, out),
            ClientEvent::ToolResult { call_id, output, .. } => {
                validate_result(&call_id, &output).and_then(|()| self.on_tool_result(&call_id, now, out))
            }
            // The mock's answers do not depend on the context: it is checked and let go.
            ClientEvent::Context { role, text } => validate_context(&role, &text),
        };
        if let Err(warning) = checked {
            out.push(Effect::Send(ServerEvent::Error(warning)));
        }
    }

    fn on_audio(&mut self, audio: &ClientAudio, now: Micros, out: &mut Vec<Effect>) -> Result<(), SessionError> {
        let expected = std::mem::replace(&mut self.next_sequence, audio.sequence.saturating_add(1));
        if audio.sequence != expected {
            let what = if audio.sequence > expected { "frames are missing" } else { "frames are repeated" };
            let message = format!("{what}: audio.sequence is {}, expected {expected}; counting goes on from it", audio.sequence);
            out.push(Effect::Send(ServerEvent::Error(SessionError::warning(ErrorCode::SequenceGap, message))));
        }
        let payload = &audio.payload;
        let second = self.input.sample_rate() as usize * self.input.sample_bytes();
        if payload.is_empty() || payload.len() > second || !payload.len().is_multiple_of(self.input.sample_bytes()) {
            let message = format!(
                "audio {} has {} bytes; {} takes whole samples of {} byte(s), at least one and at most {second} bytes (1 s)",
                audio.sequence,
                payload.len(),
                self.input,
                self.input.sample_bytes()
            );
            return Err(SessionError::warning(ErrorCode::BadAudio, message));
        }
        self.frames_in += 1;
        if audio.ack {
            out.push(Effect::Send(ServerEvent::Ack { sequence: audio.sequence }));
        }
        let mut timestamp_us = audio.timestamp_us;
        // By pieces of 20 ms, so that a turn's boundary inside a longer payload is heard.
        for piece in payload.chunks(self.input.frame_bytes()) {
            let length_us = (piece.len() * FRAME_US as usize / self.input.frame_bytes()) as u64;
            if self.detecting() {
                let heard = self.vad.on_audio(timestamp_us, length_us, self.input.rms(piece), now);
                self.on_heard(heard, now, out);
            } else if !self.markers && matches!(self.state, State::Listening) && self.input.rms(piece) >= self.config.vad_threshold {
                self.speech_started(timestamp_us, now, out);
            }
            self.heard_us = self.heard_us.saturating_add(length_us);
            timestamp_us = timestamp_us.saturating_add(length_us);
            if matches!(self.state, State::UserSpeaking(_)) {
                out.push(Effect::Cost(Phase::UserSpeaking));
            }
        }
        Ok(())
    }

    /// Acts on what the detector heard.
    pub(super) fn on_heard(&mut self, heard: Option<Heard>, now: Micros, out: &mut Vec<Effect>) {
        match heard {
            Some(Heard::Started(at)) => self.speech_started(at, now, out),
            Some(Heard::Stopped(at)) => self.speech_stopped(at, now, out),
            None => {}
        }
    }

    /// The first marker switches the detector off; speech that it heard goes on until the client marks its end.
    fn on_marker(&mut self, marker: SpeechMarker, now: Micros, out: &mut Vec<Effect>) {
        self.markers = true;
        if marker.started {
            self.speech_started(marker.timestamp_us, now, out);
        } else {
            self.speech_stopped(marker.timestamp_us, now, out);
        }
    }

    /// A barge-in or cancel.
    fn stop(
        &mut self,
        response: Option<ResponseId>,
        status: ResponseStatus,
        heard_ms: Option<u32>,
        now: Micros,
        out: &mut Vec<Effect>,
    ) -> Result<(), SessionError> {
        let named = response.filter(|r| r.0 != 0);
        if let Some(response) = named {
            self.check_response(response)?;
        }
        if named.map_or(self.state.is_answering(), |response| self.state.is_speaking(response)) {
            let next = self.idle();
            let old = self.enter(next, now, out);
            self.close_early(old, status, heard_ms, now, out);
        }
        Ok(())
    }

    fn check_response(&self, response: ResponseId) -> Result<(), SessionError> {
        if response.0 > self.responses {
            return Err(invalid(format!("response {} has not begun; the last one is {}", response.0, self.responses)));
        }
        Ok(())
    }

    fn on_tool_result(&mut self, call_id: &str, now: Micros, out: &mut Vec<Effect>) -> Result<(), SessionError> {
        let unknown = |message: String| Err(SessionError::warning(ErrorCode::UnknownToolCall, message));
        match CallNumber::parse(call_id) {
            Some(call) if call.0 >= 1 && call.0 <= self.calls => {
                if self.state.is_waiting_for(call) {
                    if self.turn_taking.resume {
                        self.think_again(now, out);
                    } else {
                        self.state.take_result();
                    }
                    Ok(())
                } else {
                    unknown(format!("tool call `{call_id}` was answered or cancelled before: the result is ignored"))
                }
            }
            _ => unknown(format!("tool call `{}` was never made: the result is ignored", shorten(call_id))),
        }
    }
}
