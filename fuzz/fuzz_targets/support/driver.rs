//! The driver's side of a dialect, whatever the backend sends.

use std::sync::Arc;

use bytes::Bytes;
use load_driver::{
    dialect::{Channel, Wire},
    plan::{Agent, Dialect, Protocol, Service, TurnDetection},
};

use super::events::{Client, Step};

/// Takes every step, and what comes of it out of the channel.
pub fn run(dialect: Dialect, manual: bool, steps: Vec<Step<'_, Client<'_>>>) {
    let (input, output) = dialect.formats_of(None).expect("every dialect has a format");
    let turn_detection = if manual { TurnDetection::None } else { TurnDetection::ServerVad };
    let agent = Agent { turn_detection, ..Agent::default() };
    feed(Service { dialect, input, output, agent, ..Service::default() }, steps);
}

/// As [`run`], of this service.
pub fn feed(service: Service, steps: Vec<Step<'_, Client<'_>>>) {
    let dialect = service.dialect;
    let service = Arc::new(service);
    let mut channel = Channel::new(&service, dialect.protocol().unwrap_or(Protocol::Grpc), "ref".to_owned());
    channel.answered();
    for step in steps {
        match step {
            Step::Text(text) => channel.decode(Wire::Text(text.to_owned())),
            Step::Binary(bytes) => channel.decode(Wire::Binary(Bytes::copy_from_slice(bytes))),
            Step::Closed(code) => channel.closed(code),
            Step::Event(event) => channel.encode(event.into()),
        }
        while channel.next_wire().is_some() {}
        while channel.next_event().is_some() {}
    }
}
