//! Bounds of what a server says, the same in every dialect.
//!
//! What is only shown or stored is cut. What must go back as it came, the id of a tool call for one, cannot be: longer than our own protocol has
//! room for, it is no message.

use proto::frame::{ErrorCode, MAX_NAME_BYTES, MAX_TEXT_BYTES, ServerEvent, SessionError};

/// Longest arguments of a tool call, bytes: those that a whole message may hold.
const MAX_ARGUMENTS: usize = proto::frame::MAX_MESSAGE_BYTES;

/// The event within bounds, or why it cannot be taken.
pub(super) fn bounded(mut event: ServerEvent) -> Result<ServerEvent, SessionError> {
    match &mut event {
        ServerEvent::ToolCall { call_id, name, arguments } => {
            fits("the id of a tool call", call_id, MAX_NAME_BYTES)?;
            fits("the name of a tool", name, MAX_NAME_BYTES)?;
            cut(arguments, MAX_ARGUMENTS);
        }
        ServerEvent::ToolCancel { call_id } => fits("the id of a tool call", call_id, MAX_NAME_BYTES)?,
        ServerEvent::Mark { name } => fits("the name of a mark", name, MAX_NAME_BYTES)?,
        ServerEvent::Resumable { handle } => fits("the handle of a session", handle, MAX_TEXT_BYTES)?,
        ServerEvent::Transcript { text, .. } | ServerEvent::ResponseStart { text, .. } => cut(text, MAX_TEXT_BYTES),
        ServerEvent::Context { role, text, .. } => {
            cut(role, MAX_NAME_BYTES);
            cut(text, MAX_TEXT_BYTES);
        }
        ServerEvent::Error(error) => cut(&mut error.message, MAX_TEXT_BYTES),
        _ => {}
    }
    Ok(event)
}

fn fits(what: &str, name: &str, most: usize) -> Result<(), SessionError> {
    if name.len() <= most {
        return Ok(());
    }
    Err(SessionError::fatal(ErrorCode::MalformedMessage, format!("{what} of more than {most} bytes")))
}

/// At the end of a character.
pub(super) fn cut(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proto::{frame::ResponseStatus, ids::TurnId};

    use super::*;
    use crate::{
        dialect::{Channel, Wire},
        plan::{self, Protocol, Service},
    };

    #[test]
    fn texts_are_cut_at_a_character() {
        let long = "\u{e9}".repeat(MAX_TEXT_BYTES);
        let Ok(ServerEvent::Transcript { text, .. }) =
            bounded(ServerEvent::Transcript { turn: TurnId(1), text: format!("a{long}"), last: true })
        else {
            panic!("a transcript is due");
        };
        assert_eq!(text.len(), MAX_TEXT_BYTES - 1);
        let dropped = ServerEvent::AnswerDropped { turn: TurnId(1), status: ResponseStatus::Failed };
        assert_eq!(bounded(dropped.clone()), Ok(dropped));
    }

    #[test]
    fn names_that_go_back_must_fit() {
        let handle = |length: usize| bounded(ServerEvent::Resumable { handle: "h".repeat(length) });
        assert!(handle(MAX_TEXT_BYTES).is_ok() && handle(MAX_TEXT_BYTES + 1).is_err());
        let call = |call_id: usize, name: usize| ServerEvent::ToolCall {
            call_id: "c".repeat(call_id),
            name: "n".repeat(name),
            arguments: String::new(),
        };
        assert!(bounded(call(128, 128)).is_ok());
        for event in
            [call(129, 1), call(1, 129), ServerEvent::ToolCancel { call_id: "c".repeat(129) }, ServerEvent::Mark { name: "m".repeat(129) }]
        {
            assert_eq!(bounded(event).map_err(|error| error.code), Err(ErrorCode::MalformedMessage));
        }
    }

    /// Over a dialect that has no bounds of its own.
    #[test]
    fn what_a_backend_calls_itself_is_cut() {
        let service = Service { dialect: plan::Dialect::GeminiLive, ..Service::default() };
        let mut channel = Channel::new(&Arc::new(service), Protocol::Websocket, "ref".to_owned());
        let headers = [(proto::frame::BACKEND_ID_HEADER, "b".repeat(999)), (proto::frame::BOOT_ID_HEADER, "o".repeat(999))];
        channel.named(&headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect());
        channel.decode(Wire::Text(format!(r#"{{"setupComplete":{{"sessionId":"{}"}}}}"#, "s".repeat(999))));
        let Some(Ok(ServerEvent::Accepted(accepted))) = channel.next_event() else { panic!("an acceptance is due") };
        for name in [accepted.session_id, accepted.backend_id, accepted.boot_id] {
            assert_eq!(name.len(), MAX_NAME_BYTES);
        }
    }
}
