//! Deepgram Voice Agent, both sides: whatever a peer sends and our own side says, no panic.
#![no_main]

#[path = "support/driver.rs"]
mod driver;
#[path = "support/events.rs"]
mod events;
#[path = "support/server.rs"]
mod server;

use events::{Client, Server, Step};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use load_driver::plan::Dialect;

#[derive(Debug, Arbitrary)]
enum Input<'a> {
    Server { started: bool, steps: Vec<Step<'a, Server<'a>>> },
    Driver { manual: bool, steps: Vec<Step<'a, Client<'a>>> },
}

const PATH: &str = "/v1/agent/converse";
const START: &str = r#"{"type":"Settings","agent":{"think":{"functions":[{"name":"a"}]}}}"#;

fuzz_target!(|input: Input<'_>| match input {
    Input::Driver { manual, steps } => driver::run(Dialect::Deepgram, manual, steps),
    Input::Server { started, steps } => server::run(PATH, started.then_some(START), steps),
});
