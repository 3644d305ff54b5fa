//! The client side of the dialects: events to wire messages and back, whatever carries them.
//!
//! A dialect is one file here and one line in `of`. What only the wire knows (names of items, acknowledgements, pings) stays in the dialect:
//! it may answer a message itself, and it may say things in the backend's name that the wire only implies, such as an acceptance.
//!
//! Rules for all: `Accepted` comes once; what a dialect says before it, but errors, waits for it (`early`). Responses are numbered from 1 upwards. Turns are numbered as far
//! as the wire tells, else 0. `AgentAudio::sequence` counts the messages with audio. A dialect whose goodbye is the close itself sends
//! [`Wire::Close`] on `End`, and says `Ended` when the peer's close comes.

use std::{borrow::Cow, cell::RefCell, collections::VecDeque, rc::Rc, sync::Arc};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use proto::frame::{ClientEvent, MAX_NAME_BYTES, Outcome, ServerEvent, SessionEnded, SessionError};

use self::{early::Early, unheard::Unheard};
use crate::plan::{self, Protocol, Service};

mod ces;
mod course;
mod custom;
mod deepgram;
mod dialogue;
mod early;
mod elevenlabs;
mod gemini;
mod native;
mod openai;
mod parting;
mod pipecat;
mod said;
mod twilio;
mod unheard;

/// One message as a transport carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wire {
    /// A gRPC message or a binary WebSocket frame.
    Binary(Bytes),
    /// A text WebSocket frame.
    Text(String),
    /// The close frame of a WebSocket with this code, or the half-close of a gRPC stream.
    Close(u16),
}

/// Where a dialect puts what comes of an event or a message, in order.
#[derive(Debug, Default)]
pub struct Exchange {
    wires: VecDeque<Wire>,
    events: VecDeque<Result<ServerEvent, SessionError>>,
}

impl Exchange {
    /// To the peer.
    pub fn send(&mut self, wire: Wire) {
        self.wires.push_back(wire);
    }

    /// The peer said this, or implied it.
    pub fn event(&mut self, event: ServerEvent) {
        self.events.push_back(Ok(event));
    }

    /// The peer sent what is no message of this dialect: the session is lost. An error that the peer reports is an event.
    pub fn malformed(&mut self, error: SessionError) {
        self.events.push_back(Err(error));
    }

    /// The next thing to send.
    pub fn next_wire(&mut self) -> Option<Wire> {
        self.wires.pop_front()
    }

    /// The next thing that the peer said.
    pub fn next_event(&mut self) -> Option<Result<ServerEvent, SessionError>> {
        self.events.pop_front()
    }
}

/// Translates one session; it may keep state.
pub trait Dialect {
    /// The path of the request, and what of its query is the dialect's own, where the target names none.
    fn path(&self) -> Cow<'static, str>;

    /// Headers of the request that are the dialect's own.
    fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        Vec::new()
    }

    /// WebSocket subprotocols to offer.
    fn subprotocols(&self) -> Vec<String> {
        Vec::new()
    }

    /// The peer answered the request of a gRPC stream: the head of its response has come, and no refusal.
    fn answered(&mut self, _to: &mut Exchange) {}

    /// Says `event`, in no message, one or several. What the wire has no word for is dropped.
    fn encode(&mut self, event: ClientEvent, to: &mut Exchange);

    /// What the peer's message says.
    fn decode(&mut self, message: Wire, to: &mut Exchange);

    /// The peer closed in order with this code (1005: none given; 0: a gRPC stream with status OK). What is not said as `Ended` here is a
    /// session that the peer cut.
    fn closed(&mut self, _code: u16, _to: &mut Exchange) {}
}

/// One session's translator and what waits on both its sides; shared by both directions of its stream.
pub struct Channel {
    dialect: Box<dyn Dialect>,
    client_ref: String,
    /// How the backend named itself and its process when the stream was opened.
    backend: (String, String),
    exchange: Exchange,
    early: Early,
    unheard: Unheard,
}

/// As both directions of a stream hold it.
pub type SharedChannel = Rc<RefCell<Channel>>;

impl Channel {
    /// For one session.
    pub fn new(service: &Arc<Service>, protocol: Protocol, client_ref: String) -> Self {
        Self {
            dialect: of(service, protocol),
            client_ref,
            backend: Default::default(),
            exchange: Exchange::default(),
            early: Early::new(service.dialect),
            unheard: Unheard::default(),
        }
    }

    /// The translator, for what the stream's opening needs.
    pub fn dialect(&self) -> &dyn Dialect {
        &*self.dialect
    }

    /// The header that names the session for a backend whose dialect has no field for it.
    pub fn client_ref_header(&self) -> Option<(HeaderName, HeaderValue)> {
        let value = HeaderValue::from_str(&self.client_ref).ok()?;
        Some((HeaderName::from_static(proto::frame::CLIENT_REF_HEADER), value))
    }

    /// The backend named itself, in the head of its answer.
    pub fn named(&mut self, headers: &http::HeaderMap) {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default().to_owned();
        self.backend = (text(proto::frame::BACKEND_ID_HEADER), text(proto::frame::BOOT_ID_HEADER));
    }

    /// The peer answered the request.
    pub fn answered(&mut self) {
        self.dialect.answered(&mut self.exchange);
    }

    /// Says `event`.
    pub fn encode(&mut self, event: ClientEvent) {
        self.dialect.encode(event, &mut self.exchange);
    }

    /// The peer sent this.
    pub fn decode(&mut self, message: Wire) {
        let shown = self.unheard.wants().then(|| unheard::shown(&message));
        let before = self.exchange.events.len();
        self.dialect.decode(message, &mut self.exchange);
        if let Some(shown) = shown {
            self.unheard.said(shown, self.exchange.events.range(before..));
        }
    }

    /// What the peer said before it accepted the session, where that explains why it did not.
    pub fn heard(&self) -> Option<String> {
        self.unheard.words()
    }

    /// The peer closed in order.
    pub fn closed(&mut self, code: u16) {
        self.dialect.closed(code, &mut self.exchange);
    }

    /// The next message to the peer.
    pub fn next_wire(&mut self) -> Option<Wire> {
        self.exchange.next_wire()
    }

    /// The next thing that the peer said; what its dialect has no field for is filled in from what is known otherwise.
    pub fn next_event(&mut self) -> Option<Result<ServerEvent, SessionError>> {
        let mut event = self.early.next(&mut self.exchange)?.and_then(said::bounded);
        if let Ok(ServerEvent::Accepted(accepted)) = &mut event {
            self.unheard.close();
            if accepted.session_id.is_empty() {
                accepted.session_id.clone_from(&self.client_ref);
            }
            if accepted.backend_id.is_empty() {
                accepted.backend_id.clone_from(&self.backend.0);
            }
            if accepted.boot_id.is_empty() {
                accepted.boot_id.clone_from(&self.backend.1);
            }
            for name in [&mut accepted.session_id, &mut accepted.backend_id, &mut accepted.boot_id] {
                said::cut(name, MAX_NAME_BYTES);
            }
        }
        Some(event)
    }

    /// Something that the peer said waits.
    pub fn has_events(&self) -> bool {
        !self.exchange.events.is_empty() || self.early.waits()
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("client_ref", &self.client_ref).finish_non_exhaustive()
    }
}

/// What a close says that answers our goodbye, where the dialect has no word for it.
const fn ended() -> ServerEvent {
    ServerEvent::Ended(SessionEnded { outcome: Outcome::Completed, duration_ms: 0, frames_in: 0, frames_out: 0 })
}

/// The dialect of a service, for one session.
fn of(service: &Arc<Service>, protocol: Protocol) -> Box<dyn Dialect> {
    match service.dialect {
        plan::Dialect::Native => Box::new(native::Native { protocol }),
        plan::Dialect::OpenaiRealtime => Box::new(openai::OpenaiRealtime::new(service)),
        plan::Dialect::Twilio => Box::new(twilio::Twilio::new(service)),
        plan::Dialect::Pipecat => Box::new(pipecat::Pipecat::new(service)),
        plan::Dialect::GeminiLive => Box::new(gemini::GeminiLive::new(service)),
        plan::Dialect::Ces => Box::new(ces::Ces::new(service)),
        plan::Dialect::Elevenlabs => Box::new(elevenlabs::Elevenlabs::new(service)),
        plan::Dialect::Deepgram => Box::new(deepgram::Deepgram::new(service)),
        plan::Dialect::Custom => Box::new(custom::Custom::new(service)),
    }
}
