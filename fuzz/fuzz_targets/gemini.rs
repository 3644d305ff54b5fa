//! Gemini Live, both sides: whatever a peer sends and our own side says, no panic.
#![no_main]

#[path = "support/driver.rs"]
mod driver;
#[path = "support/events.rs"]
mod events;

use agent_server::dialect::{Dialect as _, Exchange, Frame, Upgrade, WEBSOCKET};
use bytes::Bytes;
use events::{Client, Server, Step};
use http::HeaderMap;
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use load_driver::plan::Dialect;

#[derive(Debug, Arbitrary)]
enum Input<'a> {
    Server { set_up: bool, steps: Vec<Step<'a, Server<'a>>> },
    Driver { manual: bool, steps: Vec<Step<'a, Client<'a>>> },
}

const PATH: &str = "/BidiGenerateContent";
const SETUP: &str = r#"{"setup":{"model":"m","inputAudioTranscription":{},"outputAudioTranscription":{},"sessionResumption":{"transparent":true},
    "realtimeInputConfig":{"automaticActivityDetection":{"disabled":true}}}}"#;

fuzz_target!(|input: Input<'_>| {
    let (set_up, steps) = match input {
        Input::Driver { manual, steps } => return driver::run(Dialect::GeminiLive, manual, steps),
        Input::Server { set_up, steps } => (set_up, steps),
    };
    let gemini = WEBSOCKET.iter().find(|dialect| (dialect.serves)(PATH)).expect("served");
    let upgrade = Upgrade { path: PATH, query: "", headers: &HeaderMap::new() };
    let mut dialect = (gemini.open)(&upgrade).expect("opened").dialect;
    let first = set_up.then_some(Step::Text(SETUP));
    for step in first.into_iter().chain(steps) {
        let (mut event, mut message) = (|_| {}, |_| {});
        let mut to = Exchange::new(&mut event, &mut message);
        match step {
            Step::Text(text) => dialect.decode(Frame::Text(text.to_owned().into()), &mut to),
            Step::Binary(bytes) => dialect.decode(Frame::Binary(Bytes::copy_from_slice(bytes)), &mut to),
            Step::Closed(code) => dialect.closed(code, &mut to),
            Step::Event(event) => dialect.encode(event.into(), &mut to),
        }
    }
});
