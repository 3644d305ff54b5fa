//! The server's side of a dialect over WebSocket, whatever the client sends.

use agent_server::dialect::{Exchange, Frame, Upgrade, WEBSOCKET};
use bytes::Bytes;
use http::HeaderMap;

use super::events::{Server, Step};

/// Takes `first`, if any, and then every step.
pub fn run<'a>(path: &str, first: Option<&'a str>, steps: Vec<Step<'a, Server<'a>>>) {
    let found = WEBSOCKET.iter().find(|dialect| (dialect.serves)(path)).expect("served");
    let upgrade = Upgrade { path, query: "", headers: &HeaderMap::new() };
    let mut dialect = (found.open)(&upgrade).expect("opened").dialect;
    let (mut event, mut message) = (|_| {}, |_| {});
    let mut to = Exchange::new(&mut event, &mut message);
    dialect.open(&mut to);
    for step in first.map(Step::Text).into_iter().chain(steps) {
        match step {
            Step::Text(text) => dialect.decode(Frame::Text(text.to_owned().into()), &mut to),
            Step::Binary(bytes) => dialect.decode(Frame::Binary(Bytes::copy_from_slice(bytes)), &mut to),
            Step::Closed(code) => dialect.closed(code, &mut to),
            Step::Event(event) => dialect.encode(event.into(), &mut to),
        }
    }
}
