//! A client's text message: any text gives a message or an error, and a message survives its own JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::native::{client_event, client_from_json, client_message, client_to_json};

fuzz_target!(|text: &str| {
    let Ok(message) = client_from_json(text) else { return };
    let again = client_from_json(&client_to_json(&message)).expect("own JSON is read");
    assert_eq!(again, message);
    if let Ok(event) = client_event(message) {
        let again = client_from_json(&client_to_json(&client_message(event.clone()).expect("a native event"))).expect("own JSON is read");
        assert_eq!(client_event(again), Ok(event));
    }
});
