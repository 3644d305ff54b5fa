//! `voiceagent.v1`, over gRPC and over WebSocket.

use prost::Message;
use proto::{
    frame::{ClientEvent, ErrorCode, ServerEvent, SessionError},
    native,
    voiceagent::v1,
};

use super::{Dialect, Exchange, Frame, Socket as AnySocket, WebSocketDialect};

/// Over WebSocket: see [`Socket`].
pub(super) const WEBSOCKET: WebSocketDialect = WebSocketDialect {
    name: "voiceagent.v1: protobuf in binary frames, its JSON form in text frames",
    paths: native::WEBSOCKET_PATH,
    serves: |path| path == native::WEBSOCKET_PATH,
    starts_at_once: false,
    max_message: 0,
    open: |_| Ok((Box::new(Socket::default()) as AnySocket).into()),
};

/// Over gRPC: a message is an event.
#[derive(Debug, Default)]
pub(super) struct Messages;

impl Dialect for Messages {
    type In = v1::ClientMessage;
    type Out = v1::ServerMessage;

    fn decode(&mut self, message: Self::In, to: &mut Exchange<'_, Self::Out>) {
        tell(native::client_event(message), to);
    }

    fn encode(&mut self, event: ServerEvent, to: &mut Exchange<'_, Self::Out>) {
        if let Some(message) = native::server_message(event) {
            to.message(message);
        }
    }
}

fn tell<M>(event: Result<ClientEvent, SessionError>, to: &mut Exchange<'_, M>) {
    match event {
        Ok(event) => to.event(event),
        Err(error) => to.error(error),
    }
}

/// Over WebSocket: a binary frame is the protobuf message, a text frame its JSON form. Each frame is read in its own form; all answers come
/// in the form of the client's first frame.
#[derive(Debug, Default)]
struct Socket {
    json: Option<bool>,
}

impl Dialect for Socket {
    type In = Frame;
    type Out = Frame;

    fn decode(&mut self, message: Frame, to: &mut Exchange<'_, Frame>) {
        let event = match message {
            Frame::Binary(bytes) => {
                self.json.get_or_insert(false);
                native::decode_client(bytes)
            }
            Frame::Text(text) => {
                let json = *self.json.get_or_insert(true);
                native::client_from_json(&text).and_then(native::client_event).map_err(|e| {
                    if json {
                        return e;
                    }
                    let hint = "; this client's first frame was binary, and text frames are read as protobuf-JSON";
                    SessionError { message: format!("{e}{hint}"), code: ErrorCode::MalformedMessage, ..e }
                })
            }
        };
        tell(event, to);
    }

    fn encode(&mut self, event: ServerEvent, to: &mut Exchange<'_, Frame>) {
        let Some(message) = native::server_message(event) else { return };
        to.message(if self.json == Some(true) {
            Frame::Text(native::server_to_json(&message).into())
        } else {
            Frame::Binary(message.encode_to_vec().into())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(dialect: &mut Socket, frame: Frame) -> Result<ClientEvent, SessionError> {
        let mut all = Vec::new();
        dialect.decode(frame, &mut Exchange::new(&mut |event| all.push(event), &mut |_| panic!("no answer is due")));
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    fn answers_in_text(dialect: &mut Socket) -> bool {
        let mut all = Vec::new();
        dialect
            .encode(ServerEvent::Ack { sequence: 1 }, &mut Exchange::new(&mut |_| panic!("no event is due"), &mut |frame| all.push(frame)));
        matches!(all[..], [Frame::Text(_)])
    }

    fn end() -> v1::ClientMessage {
        native::client_message(ClientEvent::End { reason: "done".into() }).expect("a native event")
    }

    #[test]
    fn the_first_frame_fixes_the_form_of_the_answers_and_each_frame_is_read_in_its_own() {
        let text = || Frame::Text(native::client_to_json(&end()).into());
        let binary = || Frame::Binary(end().encode_to_vec().into());
        for (first, second, in_text) in [(text(), binary(), true), (binary(), text(), false)] {
            let mut dialect = Socket::default();
            for frame in [first, second] {
                assert_eq!(decode(&mut dialect, frame), Ok(ClientEvent::End { reason: "done".into() }));
                assert_eq!(answers_in_text(&mut dialect), in_text);
            }
        }
    }

    #[test]
    fn garbage_is_an_error_that_says_what_was_due() {
        let mut dialect = Socket::default();
        let error = decode(&mut dialect, Frame::Binary(vec![0xff; 9].into())).unwrap_err();
        assert_eq!(error.code, ErrorCode::MalformedMessage);
        let error = decode(&mut dialect, Frame::Text("hello".into())).unwrap_err();
        assert_eq!(error.code, ErrorCode::MalformedMessage);
        assert!(error.message.contains("first frame was binary"), "{error}");
    }
}
