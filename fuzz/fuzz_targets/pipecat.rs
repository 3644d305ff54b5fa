//! Pipecat's protobuf transport, as the bot and as its client: whatever a peer sends, and whatever is said to it, nothing panics.
#![no_main]

mod sides;

use libfuzzer_sys::fuzz_target;
use load_driver::plan::Dialect;

fuzz_target!(|input: sides::Input<'_>| sides::feed(&input, Dialect::Pipecat, "/pipecat"));
