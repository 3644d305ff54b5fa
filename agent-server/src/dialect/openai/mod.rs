//! OpenAI Realtime: JSON in text frames, in the names of the current API and of its first version ("beta").
//!
//! A connection is a session: it starts with the upgrade and ends with the client's close frame. What the API names and sessions do not know
//! lives here: items of the conversation ([`items`]), responses with their parts ([`answer`]), and everything that `session.update` sets
//! ([`settings`]). Whatever a client does wrong is answered with an `error` event, and its session lives on.

mod answer;
mod client;
mod fault;
mod fields;
mod given_items;
mod input;
mod items;
mod settings;
#[cfg(test)]
mod tests;
mod turns;
mod wire;

use std::collections::VecDeque;

use http::HeaderValue;
use proto::{
    audio::AudioFormat,
    frame::{ClientEvent, ErrorCode, ServerEvent, SessionAccepted, SessionError, SessionStart},
    time::Micros,
};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, frame::coding::CloseCode};

use self::{
    answer::{Answer, Stopped, Wish},
    fault::Fault,
    input::{APPEND_MAX, Input},
    items::Items,
    settings::{Kind, Settings},
    turns::Turns,
    wire::Wire,
};
use super::{Dialect, Exchange, Frame, Opened, Refused, Socket as AnySocket, Upgrade, WebSocketDialect};
use crate::{runtime::clock::Clock, shard::Close};

/// Longest life of a session, as the API has it; a shorter one that the server is set to holds.
const LIFE_MS: u32 = 60 * 60 * 1000;
/// The longest audio in base64, and what is around it.
const MESSAGE_MAX: usize = APPEND_MAX / 3 * 4 + 64 * 1024;
/// What the client asked of the session and was not answered yet: more at once is refused.
const ASKED_MAX: usize = 64;

pub(super) const WEBSOCKET: WebSocketDialect = WebSocketDialect {
    name: "OpenAI Realtime: JSON in text frames",
    paths: "/v1/realtime",
    serves: |path| path.ends_with("/realtime"),
    starts_at_once: true,
    max_message: MESSAGE_MAX,
    open,
};

/// The subprotocol of clients that cannot set headers.
const SUBPROTOCOL: &str = "realtime";

#[expect(clippy::unnecessary_wraps, reason = "as every dialect's")]
fn open(upgrade: &Upgrade<'_>) -> Result<Opened, Refused> {
    let beta = upgrade.header("openai-beta").is_some_and(|value| value.split(',').any(|word| word.trim() == "realtime=v1"))
        || upgrade.subprotocols().any(|name| name == "openai-beta.realtime-v1");
    let kind = if upgrade.parameter("intent").as_deref() == Some("transcription") { Kind::Transcription } else { Kind::Realtime };
    let mut model = upgrade.parameter("model").unwrap_or_default();
    model.truncate(model.floor_char_boundary(proto::frame::MAX_NAME_BYTES));
    let dialect: AnySocket = Box::new(Realtime::new(beta, kind, model, upgrade.client_ref()));
    let subprotocol = upgrade.subprotocols().any(|name| name == SUBPROTOCOL).then(|| HeaderValue::from_static(SUBPROTOCOL));
    Ok(Opened { subprotocol, ..dialect.into() })
}

/// One connection.
#[derive(Debug)]
struct Realtime {
    wire: Wire,
    /// Until the session starts.
    client_ref: String,
    /// Of the session, once it was accepted; empty until then.
    id: String,
    /// Unix time, seconds.
    expires_at: u64,
    life_ms: u32,
    settings: Box<Settings>,
    input: Input,
    items: Items,
    turns: Turns,
    asked: VecDeque<Asked>,
    answer: Option<Box<Answer>>,
    stopped: Option<Stopped>,
    /// The event before this one, as far as it tells who asked for what follows.
    last: Last,
    /// Tool calls so far.
    calls: u64,
    /// The tools are those of one response; the session's own come back after it.
    tools_lent: bool,
    /// The choice of tools that the session is set to must be told again for the coming turn.
    choose: bool,
}

/// What the session was asked for, in order, and by which event of the client.
#[derive(Debug)]
enum Asked {
    Commit(Option<String>),
    Respond(Option<String>, Box<Wish>),
}

/// Sessions say the end of speech, that the turn was taken, and that it is answered, in one breath; asked for by the client, the last two come
/// alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    SpeechEnded,
    Committed,
    Other,
}

impl Realtime {
    fn new(beta: bool, kind: Kind, model: String, client_ref: String) -> Self {
        Self {
            wire: Wire::new(beta),
            client_ref,
            id: String::new(),
            expires_at: 0,
            life_ms: LIFE_MS,
            settings: Box::new(Settings::new(kind, model)),
            input: Input::default(),
            items: Items::default(),
            turns: Turns::default(),
            asked: VecDeque::new(),
            answer: None,
            stopped: None,
            last: Last::Other,
            calls: 0,
            tools_lent: false,
            choose: false,
        }
    }

    fn accepted(&mut self, accepted: SessionAccepted, to: &mut Exchange<'_, Frame>) {
        let clock = Clock::start();
        self.life_ms = accepted.max_duration_ms;
        self.expires_at = (clock.unix_us(Micros::ZERO) / 1_000 + u64::from(accepted.max_duration_ms)) / 1_000;
        self.id = accepted.session_id;
        self.tell_session("session.created", to);
    }

    /// All that the session is set to.
    fn tell_session(&mut self, name: &'static str, to: &mut Exchange<'_, Frame>) {
        let session = self.session(&self.settings);
        self.wire.send(to, name, &json!({ "session": session }));
    }

    /// What is told of these settings.
    fn session(&self, settings: &Settings) -> Value {
        settings.to_json(self.wire.beta, &self.id, self.expires_at)
    }

    fn error(&mut self, fault: &Fault, cause: Option<&str>, to: &mut Exchange<'_, Frame>) {
        self.wire.send(to, "error", &fault.to_json(cause));
    }

    /// What the session found wrong with something that the client asked for.
    fn refused(&mut self, error: &SessionError, to: &mut Exchange<'_, Frame>) {
        let (fault, cause) = match error.code {
            // A result that comes late, or again, is for the record alone.
            ErrorCode::UnknownToolCall => return,
            ErrorCode::InvalidArgument => match self.asked.pop_front() {
                Some(Asked::Commit(cause)) => (client::nothing_buffered(0.0), cause),
                Some(Asked::Respond(cause, _)) => (self.already_answering(), cause),
                None => (Fault::of(error), None),
            },
            ErrorCode::Deadline => (Fault::of(error).saying(self.expired()), None),
            _ => (Fault::of(error), None),
        };
        self.error(&fault, cause.as_deref(), to);
    }

    fn expired(&self) -> String {
        let seconds = self.life_ms.div_ceil(1_000);
        let (count, unit) = if seconds.is_multiple_of(60) { (seconds / 60, "minute") } else { (seconds, "second") };
        let plural = if count == 1 { "" } else { "s" };
        format!("Your session hit the maximum duration of {count} {unit}{plural}.")
    }
}

impl Dialect for Realtime {
    type In = Frame;
    type Out = Frame;

    fn open(&mut self, to: &mut Exchange<'_, Frame>) {
        to.event(ClientEvent::Start(SessionStart {
            client_ref: std::mem::take(&mut self.client_ref),
            input: AudioFormat::Pcm24k,
            output: AudioFormat::Pcm24k,
            turns: self.settings.turns(),
            max_duration_ms: LIFE_MS,
            default_duration_ms: LIFE_MS,
            ..SessionStart::default()
        }));
    }

    fn decode(&mut self, frame: Frame, to: &mut Exchange<'_, Frame>) {
        self.read(&frame, to);
    }

    /// `session.created` is the first event of every session, whatever its client says before.
    fn must_wait(&self) -> bool {
        self.id.is_empty()
    }

    fn encode(&mut self, event: ServerEvent, to: &mut Exchange<'_, Frame>) {
        let last = std::mem::replace(&mut self.last, Last::Other);
        match event {
            ServerEvent::Audio(audio) => self.audio(&audio, to),
            ServerEvent::Accepted(accepted) => self.accepted(accepted, to),
            ServerEvent::Speech(marker) => {
                if !marker.started {
                    self.last = Last::SpeechEnded;
                }
                self.speech(marker, to);
            }
            ServerEvent::Committed { turn } => {
                self.last = Last::Committed;
                self.committed(turn, last == Last::SpeechEnded, to);
            }
            ServerEvent::Transcript { turn, text, last: true } => self.transcribed(turn, text, to),
            ServerEvent::Answering { turn } => self.answering(turn, last == Last::Committed, to),
            ServerEvent::ResponseStart { response, turn, text } => self.begun(response, turn, text, to),
            ServerEvent::AnswerDropped { turn, status } => self.dropped(turn, status, to),
            ServerEvent::ResponseEnd { status, .. } => self.ended(status, to),
            ServerEvent::ToolCall { call_id, name, arguments } => self.tool_called(&call_id, &name, &arguments, to),
            ServerEvent::Error(error) => self.refused(&error, to),
            // A call that is given up is not taken back in this API; what was heard of an answer is the client's to say.
            ServerEvent::ToolCancel { .. }
            | ServerEvent::Context { .. }
            | ServerEvent::Transcript { last: false, .. }
            | ServerEvent::Ack { .. }
            | ServerEvent::Mark { .. }
            | ServerEvent::Resumable { .. }
            | ServerEvent::GoingAway { .. }
            | ServerEvent::Ended(_) => {}
        }
    }

    fn closed(&mut self, code: u16, to: &mut Exchange<'_, Frame>) {
        if matches!(code, 1000 | 1005) {
            to.event(ClientEvent::End { reason: "the client closed the connection".to_owned() });
        }
    }

    fn close(&self, close: &Close) -> Option<CloseFrame> {
        let expired = close.error.as_ref().is_some_and(|error| error.code == ErrorCode::Deadline);
        expired.then(|| CloseFrame { code: CloseCode::Away, reason: self.expired().into() })
    }
}
