//! A server's binary message: any bytes give an event or an error, and an event survives its own encoding.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use proto::native::{decode_server, server_message};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(event) = decode_server(Bytes::copy_from_slice(bytes)) {
        let again = server_message(event.clone()).expect("a native event").encode_to_vec();
        assert_eq!(decode_server(again.into()), Ok(event));
    }
});
