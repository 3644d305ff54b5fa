//! A client's binary message: any bytes give an event or an error, and an event survives its own encoding.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use proto::native::{client_message, decode_client};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(event) = decode_client(Bytes::copy_from_slice(bytes)) {
        let again = client_message(event.clone()).expect("a native event").encode_to_vec();
        assert_eq!(decode_client(again.into()), Ok(event));
    }
});
