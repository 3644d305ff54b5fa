//! Google CES, both sides: whatever a peer sends and our own side says, no panic.
#![no_main]

#[path = "support/driver.rs"]
mod driver;
#[path = "support/events.rs"]
mod events;

use agent_server::dialect::{Ces, Dialect as _, Exchange};
use events::{Client, Server, Step};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use load_driver::plan::Dialect;
use prost::Message;
use proto::google::cloud::ces::v1::{self, bidi_session_client_message::MessageType};

#[derive(Debug, Arbitrary)]
enum Input<'a> {
    Server { configured: bool, steps: Vec<Step<'a, Server<'a>>> },
    Driver { steps: Vec<Step<'a, Client<'a>>> },
}

fuzz_target!(|input: Input<'_>| {
    let (configured, steps) = match input {
        Input::Driver { steps } => return driver::run(Dialect::Ces, false, steps),
        Input::Server { configured, steps } => (configured, steps),
    };
    let mut dialect = Ces::new("ref".to_owned());
    let config = v1::SessionConfig { session: "projects/p/locations/l/apps/a/sessions/s".to_owned(), ..v1::SessionConfig::default() };
    let first = v1::BidiSessionClientMessage { message_type: Some(MessageType::Config(config)) }.encode_to_vec();
    let first = configured.then_some(Step::Binary(&first));
    for step in first.into_iter().chain(steps) {
        let (mut event, mut message) = (|_| {}, |_| {});
        let mut to = Exchange::new(&mut event, &mut message);
        match step {
            Step::Text(text) => {
                if let Ok(message) = v1::BidiSessionClientMessage::decode(text.as_bytes()) {
                    dialect.decode(message, &mut to);
                }
            }
            Step::Binary(bytes) => {
                if let Ok(message) = v1::BidiSessionClientMessage::decode(bytes) {
                    dialect.decode(message, &mut to);
                }
            }
            Step::Closed(code) => dialect.closed(code, &mut to),
            Step::Event(event) => dialect.encode(event.into(), &mut to),
        }
    }
});
