//! A server's text message: any text gives a message or an error, and a message survives its own JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::native::{server_event, server_from_json, server_message, server_to_json};

fuzz_target!(|text: &str| {
    let Ok(message) = server_from_json(text) else { return };
    let again = server_from_json(&server_to_json(&message)).expect("own JSON is read");
    assert_eq!(again, message);
    if let Ok(event) = server_event(message) {
        let again = server_from_json(&server_to_json(&server_message(event.clone()).expect("a native event"))).expect("own JSON is read");
        assert_eq!(server_event(again), Ok(event));
    }
});
