use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn any_format() -> impl Strategy<Value = AudioFormat> {
    prop::sample::select(AudioFormat::NATIVE.to_vec())
}

fn any_marker() -> impl Strategy<Value = SpeechMarker> {
    (any::<bool>(), any::<u64>()).prop_map(|(started, timestamp_us)| SpeechMarker { started, timestamp_us })
}

fn any_response() -> impl Strategy<Value = Option<ResponseId>> {
    prop::option::of((1..u64::MAX).prop_map(ResponseId))
}

fn any_payload() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..960).prop_map(Bytes::from)
}

fn any_client_event() -> impl Strategy<Value = ClientEvent> {
    prop_oneof![
        ("[ -~]{0,20}", "[a-z]{0,8}", any_format(), prop::collection::vec("[a-z_]{1,9}", 0..3), any::<u32>(), any::<u32>()).prop_map(
            |(client_ref, voice, format, tools, max_duration_ms, idle_timeout_ms)| ClientEvent::Start(SessionStart {
                client_ref,
                voice,
                input: format,
                output: format,
                tools,
                turns: TurnTaking::default(),
                max_duration_ms,
                default_duration_ms: 0,
                idle_timeout_ms,
                warning_ms: 0,
                resume: String::new(),
            })
        ),
        (any::<u64>(), any::<u64>(), any_payload(), any::<bool>())
            .prop_map(|(sequence, timestamp_us, payload, ack)| ClientEvent::Audio(ClientAudio { sequence, timestamp_us, payload, ack })),
        any_marker().prop_map(ClientEvent::Speech),
        (prop::option::of("[a-z]{1,9}"), prop::option::of(1..u32::MAX), prop::option::of(".{1,20}"))
            .prop_map(|(tool, response_ms, text)| ClientEvent::Hint(TurnHint { tool, response_ms, text })),
        (any_response(), any::<u32>()).prop_map(|(response, heard_ms)| ClientEvent::BargeIn { response, heard_ms }),
        any_response().prop_map(|response| ClientEvent::Cancel { response }),
        (".{0,9}", ".{0,30}", any::<bool>()).prop_map(|(call_id, output, failed)| ClientEvent::ToolResult { call_id, output, failed }),
        ("[a-z]{0,6}", ".{0,30}").prop_map(|(role, text)| ClientEvent::Context { role, text }),
        ".{0,30}".prop_map(|reason| ClientEvent::End { reason }),
    ]
}

fn any_server_event() -> impl Strategy<Value = ServerEvent> {
    let outcome = prop::sample::select(Outcome::ALL.to_vec());
    let status = prop::sample::select(vec![
        ResponseStatus::Completed,
        ResponseStatus::Interrupted,
        ResponseStatus::Cancelled,
        ResponseStatus::Failed,
    ]);
    prop_oneof![
        ("[a-z0-9]{1,9}", "[a-z0-9]{1,9}", "[a-z0-9]{1,9}", any_format(), any::<u32>(), any::<u32>()).prop_map(
            |(session_id, backend_id, boot_id, format, max_duration_ms, idle_timeout_ms)| ServerEvent::Accepted(SessionAccepted {
                session_id,
                backend_id,
                boot_id,
                input: format,
                output: format,
                max_duration_ms,
                idle_timeout_ms
            })
        ),
        any_marker().prop_map(ServerEvent::Speech),
        (any::<u64>(), ".{0,30}", any::<bool>()).prop_map(|(turn, text, last)| ServerEvent::Transcript { turn: TurnId(turn), text, last }),
        (any::<u64>(), any::<u64>()).prop_map(|(r, t)| ServerEvent::ResponseStart {
            response: ResponseId(r),
            turn: TurnId(t),
            text: String::new()
        }),
        (any::<u64>(), any::<u64>(), any_payload(), any::<u64>()).prop_map(|(sequence, timestamp_us, payload, r)| ServerEvent::Audio(
            AgentAudio { sequence, timestamp_us, payload, response: ResponseId(r) }
        )),
        (any::<u64>(), status, any::<u32>()).prop_map(|(r, status, frames)| ServerEvent::ResponseEnd {
            response: ResponseId(r),
            status,
            frames
        }),
        any::<u64>().prop_map(|sequence| ServerEvent::Ack { sequence }),
        (".{0,9}", ".{0,9}", ".{0,30}").prop_map(|(call_id, name, arguments)| ServerEvent::ToolCall { call_id, name, arguments }),
        ".{0,9}".prop_map(|call_id| ServerEvent::ToolCancel { call_id }),
        ("[a-z]{0,6}", ".{0,30}", any_response(), any::<u32>()).prop_map(|(role, text, response, heard_ms)| ServerEvent::Context {
            role,
            text,
            response,
            heard_ms
        }),
        (".{0,30}", any::<bool>()).prop_map(|(message, fatal)| ServerEvent::Error(SessionError {
            code: ErrorCode::BadAudio,
            message,
            fatal
        })),
        (outcome, any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(outcome, duration_ms, frames_in, frames_out)| ServerEvent::Ended(
            SessionEnded { outcome, duration_ms, frames_in, frames_out }
        )),
    ]
}

proptest! {
    #[test]
    fn client_events_survive_the_wire(event in any_client_event()) {
        let message = client_message(event.clone()).expect("a native event");
        prop_assert_eq!(decode_client(Bytes::from(message.encode_to_vec())), Ok(event.clone()));
        let json = client_to_json(&message);
        prop_assert_eq!(client_from_json(&json).and_then(client_event), Ok(event), "{}", json);
    }

    #[test]
    fn server_events_survive_the_wire(event in any_server_event()) {
        let message = server_message(event.clone()).expect("a native event");
        prop_assert_eq!(decode_server(Bytes::from(message.encode_to_vec())), Ok(event.clone()));
        let json = server_to_json(&message);
        prop_assert_eq!(server_from_json(&json).and_then(server_event), Ok(event), "{}", json);
    }

    #[test]
    fn garbage_is_an_error_or_an_event_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,200}") {
        let _ = decode_client(Bytes::from(bytes.clone()));
        let _ = decode_server(Bytes::from(bytes));
        let _ = client_from_json(&text);
        let _ = server_from_json(&text);
    }
}

#[test]
fn every_error_code_survives_the_wire() {
    for code in 1..=15 {
        let event = error_code(code).expect("the schema's codes are contiguous");
        assert_eq!(wire_error_code(event) as i32, code);
    }
    assert!(error_code(0).is_err());
    assert!(error_code(16).is_err());
}

#[test]
fn a_person_can_write_the_start_by_hand() {
    let message = client_from_json(r#"{"start": {"encoding": "AUDIO_ENCODING_PCM16", "sampleRate": 16000}}"#).unwrap();
    let Ok(ClientEvent::Start(start)) = client_event(message) else { panic!("not a start") };
    assert_eq!((start.input, start.output), (AudioFormat::Pcm16k, AudioFormat::Pcm16k));
}

#[test]
fn errors_say_what_to_do() {
    let rate =
        client_from_json(r#"{"start": {"encoding": "AUDIO_ENCODING_PCM16", "sampleRate": 44100}}"#).and_then(client_event).unwrap_err();
    assert_eq!(rate.code, ErrorCode::UnsupportedFormat);
    assert!(rate.message.contains("PCM16 at 44100 Hz is not served; use PCM16 at 16000"), "{rate}");

    let unknown = client_from_json(r#"{"begin": {}}"#).unwrap_err();
    assert_eq!(unknown.code, ErrorCode::MalformedMessage);
    assert!(unknown.message.contains("begin"), "{unknown}");

    let empty = client_from_json("{}").and_then(client_event).unwrap_err();
    assert!(empty.message.contains("no event"), "{empty}");

    let trailing = client_from_json(r#"{"end": {}} x"#).unwrap_err();
    assert_eq!(trailing.code, ErrorCode::MalformedMessage);
}
