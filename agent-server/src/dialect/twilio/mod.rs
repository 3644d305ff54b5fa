//! Twilio Media Streams, and the same idea as Telnyx, Plivo and Exotel have it. The server is the bot: the telephone network connects to it.
//!
//! The network says which variant it is by the fields of its `start`, and is answered in that variant's own words ([`wire::Variant`]).
//!
//! | network says | session hears | session says | network hears |
//! |---|---|---|---|
//! | `connected` | nothing | `Audio` | `media` (`playAudio`), 20 ms each, in real time |
//! | `start` | `Start` | `ResponseEnd(Completed)` | `mark` (`checkpoint`) named `response-N` |
//! | `media` | `Audio` | `ResponseEnd`, any other | `clear` (`clearAudio`) |
//! | `dtmf` | `Digit` | the rest | nothing: there are no words for it |
//! | `mark` (`playedStream`) | `Played` | | |
//! | `stop` | `End` | `Ended` | the close, 1000 |
//!
//! There is no event for errors. What cannot be read or must not come closes the connection with a reason, as [`super::close`] has it; an event
//! of unknown name is ignored, since networks add some. `media` is taken in the order of its arrival: Telnyx does not promise that of `chunk`.

mod wire;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use proto::{
    base64,
    frame::{ClientEvent, ErrorCode, MAX_NAME_BYTES, ResponseStatus, ServerEvent, SessionError, SessionStart},
};

use self::wire::{Call, Message, Variant};
use super::{Dialect, Exchange, Frame, Socket, Upgrade, WebSocketDialect, intake::Intake};

pub(super) const WEBSOCKET: WebSocketDialect = WebSocketDialect {
    name: "Twilio Media Streams (and Telnyx, Plivo, Exotel): the server is the bot",
    paths: "/twilio, /ws (with an optional token after it), /media-stream, /telephony",
    // Pipecat's runner lets its telephone lines show a token in the path.
    serves: |path| {
        matches!(path, "/twilio" | "/ws" | "/media-stream" | "/telephony")
            // Gemini's clients come to /ws/google...
            || path.strip_prefix("/ws/").is_some_and(|token| !token.is_empty() && !token.contains('/') && !token.starts_with("google."))
    },
    starts_at_once: true,
    max_message: 0,
    open: |upgrade| Ok((Box::new(Bot::new(upgrade)) as Socket).into()),
};

/// One connection of the telephone network.
#[derive(Debug)]
struct Bot {
    /// What the upgrade named the session.
    client_ref: String,
    call: Option<Line>,
}

/// A call under way.
#[derive(Debug)]
struct Line {
    call: Call,
    intake: Intake,
}

impl Bot {
    fn new(upgrade: &Upgrade<'_>) -> Self {
        Self { client_ref: upgrade.client_ref(), call: None }
    }

    fn hear(&mut self, text: &str, to: &mut Exchange<'_, Frame>) -> Result<(), SessionError> {
        let message = Message::parse(text)?;
        match (message.event.as_ref(), &mut self.call) {
            ("connected", _) => {}
            ("start", None) => {
                let call = Call::of(&message)?;
                let mut start = SessionStart { input: call.format, output: call.format, ..SessionStart::default() };
                start.client_ref = call.client_ref.clone().unwrap_or_else(|| self.client_ref.clone());
                start.voice = call.voice.clone().unwrap_or_default();
                self.call = Some(Line { intake: Intake::new(call.format), call });
                to.event(ClientEvent::Start(start));
            }
            ("start", Some(_)) => {
                return Err(fatal(ErrorCode::AlreadyStarted, "a second `start`: one connection carries one call"));
            }
            (event @ ("media" | "dtmf" | "mark" | "playedStream" | "stop"), None) => {
                return Err(fatal(ErrorCode::NotStarted, format!("`{event}` came before `start`")));
            }
            ("media", Some(line)) => {
                line.call.check_stream(&message)?;
                let media = message.media.ok_or_else(|| missing("media", "media"))?;
                if let Some(track) = media.track.as_deref().filter(|track| !matches!(*track, "inbound" | "inbound_track")) {
                    let track = shorten(track);
                    return Err(fatal(ErrorCode::InvalidArgument, format!("media.track is `{track}`: a bot is sent `inbound` only")));
                }
                let payload = media.payload.ok_or_else(|| missing("media", "media.payload"))?;
                let audio = base64::decode(&payload).ok_or_else(|| fatal(ErrorCode::BadAudio, "media.payload is not base64"))?;
                line.intake.take(&Bytes::from(audio), to).map_err(|error| SessionError { fatal: true, ..error })?;
            }
            ("dtmf", Some(line)) => {
                line.call.check_stream(&message)?;
                let digit = message.dtmf.and_then(|dtmf| dtmf.digit).ok_or_else(|| missing("dtmf", "dtmf.digit"))?;
                to.event(ClientEvent::Digit(key(&digit)?));
            }
            ("mark", Some(line)) => {
                line.call.check_stream(&message)?;
                let name = message.mark.and_then(|mark| mark.name).ok_or_else(|| missing("mark", "mark.name"))?;
                to.event(played(&name)?);
            }
            ("playedStream", Some(line)) => {
                line.call.check_stream(&message)?;
                to.event(played(&message.name.ok_or_else(|| missing("playedStream", "name"))?)?);
            }
            ("stop", Some(_)) => to.event(ClientEvent::End { reason: "stop".to_owned() }),
            (unknown, _) => tracing::debug!("an event `{}` is ignored", shorten(unknown)),
        }
        Ok(())
    }
}

impl Dialect for Bot {
    type In = Frame;
    type Out = Frame;

    fn decode(&mut self, message: Frame, to: &mut Exchange<'_, Frame>) {
        let heard = match message {
            Frame::Text(text) => self.hear(&text, to),
            Frame::Binary(_) => Err(fatal(ErrorCode::MalformedMessage, "a binary frame: media streams are JSON in text frames")),
        };
        if let Err(error) = heard {
            to.error(error);
        }
    }

    fn encode(&mut self, event: ServerEvent, to: &mut Exchange<'_, Frame>) {
        let Some(Line { call, .. }) = &self.call else { return };
        let text = match event {
            ServerEvent::Audio(audio) => call.media(&audio.payload),
            ServerEvent::ResponseEnd { response, status: ResponseStatus::Completed, .. } => call.mark(&format!("response-{}", response.0)),
            ServerEvent::ResponseEnd { .. } => call.clear(),
            ServerEvent::Mark { name } => call.mark(&name),
            _ => return,
        };
        to.message(Frame::Text(text.into()));
    }

    /// Plivo documents no `stop`: there an orderly close is the goodbye.
    fn closed(&mut self, code: u16, to: &mut Exchange<'_, Frame>) {
        if matches!(code, 1000 | 1005) && self.call.as_ref().is_some_and(|line| line.call.variant == Variant::Plivo) {
            to.event(ClientEvent::End { reason: "closed".to_owned() });
        }
    }
}

fn key(digit: &str) -> Result<char, SessionError> {
    let mut keys = digit.chars();
    keys.next().filter(|key| matches!(key, '0'..='9' | '*' | '#' | 'A'..='D') && keys.next().is_none()).ok_or_else(|| {
        let message = format!("dtmf.digit is `{}`: it must be one of 0-9, *, #, A-D", shorten(digit));
        fatal(ErrorCode::InvalidArgument, message)
    })
}

fn played(name: &str) -> Result<ClientEvent, SessionError> {
    if name.len() > MAX_NAME_BYTES {
        let message = format!("the mark's name has {} bytes; the limit is {MAX_NAME_BYTES}", name.len());
        return Err(fatal(ErrorCode::InvalidArgument, message));
    }
    Ok(ClientEvent::Played { name: name.to_owned() })
}

fn missing(event: &str, field: &str) -> SessionError {
    fatal(ErrorCode::MalformedMessage, format!("`{event}` without `{field}`"))
}

fn fatal(code: ErrorCode, message: impl Into<String>) -> SessionError {
    SessionError::fatal(code, message)
}

/// What a message may quote of a peer's text: a close frame has little room.
fn shorten(text: &str) -> String {
    text.chars().take(24).collect()
}
