use proto::frame::ClientAudio;

use super::*;
use crate::plan::Agent;

fn client(without_rtvi: bool) -> Pipecat {
    let service = Service { agent: Agent { without_rtvi, ..Agent::default() }, ..Service::default() };
    Pipecat::new(&Arc::new(service))
}

/// What is sent, as the type of the RTVI message or the name of the frame, with its data.
fn said(client: &mut Pipecat, event: ClientEvent) -> (Vec<(String, Value)>, Vec<ServerEvent>) {
    let mut to = Exchange::default();
    client.encode(event, &mut to);
    let mut sent = Vec::new();
    while let Some(wire) = to.next_wire() {
        sent.push(match wire {
            Wire::Close(code) => ("close".to_owned(), json!(code)),
            Wire::Text(text) => panic!("{text}"),
            Wire::Binary(bytes) => match pipecat::Frame::decode(bytes).unwrap().frame.unwrap() {
                Kind::Message(message) => {
                    let message: Value = serde_json::from_str(&message.data).unwrap();
                    assert!(message["label"] == "rtvi-ai" && message["id"].is_string(), "{message}");
                    (message["type"].as_str().unwrap().to_owned(), message["data"].clone())
                }
                Kind::Audio(audio) => ("audio".to_owned(), json!([audio.audio.len(), audio.sample_rate, audio.num_channels])),
                Kind::Interruption(_) => ("interruption".to_owned(), Value::Null),
                other @ (Kind::Text(_) | Kind::Transcription(_)) => panic!("{other:?}"),
            },
        });
    }
    (sent, std::iter::from_fn(|| to.next_event()).map(Result::unwrap).collect())
}

fn heard(client: &mut Pipecat, frame: Kind) -> Result<Vec<ServerEvent>, SessionError> {
    let mut to = Exchange::default();
    client.decode(Wire::Binary(pipecat::Frame { frame: Some(frame) }.encode_to_vec().into()), &mut to);
    assert_eq!(to.next_wire(), None);
    std::iter::from_fn(|| to.next_event()).collect()
}

fn told(client: &mut Pipecat, kind: &str, data: &Value) -> Vec<ServerEvent> {
    let data = json!({"label": "rtvi-ai", "type": kind, "data": data}).to_string();
    heard(client, Kind::Message(pipecat::MessageFrame { data })).unwrap()
}

fn sound() -> Kind {
    Kind::Audio(pipecat::AudioRawFrame { audio: vec![0; 1_280].into(), sample_rate: 16_000, num_channels: 1, ..Default::default() })
}

fn interruption() -> Kind {
    Kind::Interruption(pipecat::InterruptionFrame::default())
}

/// Of the only audio among what was heard.
fn of_response(client: &mut Pipecat) -> u64 {
    let events = heard(client, sound()).unwrap();
    let Some(ServerEvent::Audio(audio)) = events.last() else { panic!("{events:?}") };
    audio.response.0
}

fn ended(status: ResponseStatus) -> Vec<ServerEvent> {
    vec![ServerEvent::ResponseEnd { response: ResponseId(0), status, frames: 0 }]
}

fn live() -> Pipecat {
    let mut client = client(false);
    let start = SessionStart { tools: vec!["book".into()], ..SessionStart::default() };
    let (sent, events) = said(&mut client, ClientEvent::Start(start));
    assert_eq!((sent[0].0.as_str(), sent.len(), events), ("client-ready", 1, vec![]));
    let about = json!({"version": "1.0.0", "about": {"session_id": "s-1", "backend_id": "b", "boot_id": "p"}});
    let events = told(&mut client, "bot-ready", &about);
    let [ServerEvent::Accepted(accepted)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((accepted.session_id.as_str(), accepted.boot_id.as_str()), ("s-1", "p"));
    client
}

#[test]
fn a_bot_with_rtvi_is_there_when_it_says_something_and_one_without_at_once() {
    assert_eq!(told(&mut live(), "bot-ready", &Value::Null), [], "once");
    let mut early = client(false);
    said(&mut early, ClientEvent::Start(SessionStart::default()));
    let events = heard(&mut early, sound()).unwrap();
    assert!(matches!(&events[..], [ServerEvent::Accepted(_), ServerEvent::Audio(_)]), "{events:?}");
    let (sent, events) = said(&mut client(true), ClientEvent::Start(SessionStart::default()));
    assert!(sent.is_empty() && matches!(&events[..], [ServerEvent::Accepted(_)]), "{sent:?} {events:?}");
}

#[test]
fn what_rtvi_says_of_a_response_is_its_end() {
    let mut client = live();
    assert_eq!(told(&mut client, "bot-started-speaking", &Value::Null), []);
    assert_eq!(of_response(&mut client), 0);
    assert_eq!(told(&mut client, "bot-stopped-speaking", &Value::Null), ended(ResponseStatus::Completed));
    // A bot without frames for its interruptions.
    assert_eq!(told(&mut client, "bot-interrupted", &Value::Null), ended(ResponseStatus::Interrupted));
    assert_eq!(heard(&mut client, interruption()), Ok(ended(ResponseStatus::Interrupted)));
    assert_eq!(told(&mut client, "bot-interrupted", &Value::Null), [], "once");
    for (kind, started) in [("user-started-speaking", true), ("user-stopped-speaking", false)] {
        let speech = ServerEvent::Speech(SpeechMarker { started, timestamp_us: 0 });
        assert_eq!(told(&mut client, kind, &Value::Null), [speech]);
    }
    let transcript = ServerEvent::Transcript { turn: TurnId(0), text: "hel".into(), last: false };
    assert_eq!(told(&mut client, "user-transcription", &json!({"text": "hel", "final": false})), [transcript]);
    let twice = Kind::Transcription(pipecat::TranscriptionFrame { text: "hello".into(), ..Default::default() });
    assert_eq!(heard(&mut client, twice), Ok(vec![]), "RTVI says it too");
}

#[test]
fn without_rtvi_responses_have_no_numbers() {
    let mut client = client(true);
    said(&mut client, ClientEvent::Start(SessionStart::default()));
    assert_eq!(of_response(&mut client), 0);
    assert_eq!(heard(&mut client, interruption()), Ok(ended(ResponseStatus::Interrupted)));
    let said_by_user = Kind::Transcription(pipecat::TranscriptionFrame { text: "hello".into(), ..Default::default() });
    let transcript = ServerEvent::Transcript { turn: TurnId(0), text: "hello".into(), last: true };
    assert_eq!(heard(&mut client, said_by_user), Ok(vec![transcript]));
    let (sent, _) = said(&mut client, ClientEvent::End { reason: "done".into() });
    assert_eq!(sent, [("close".to_owned(), json!(1000))]);
}

#[test]
fn what_is_said_to_the_bot() {
    let mut client = live();
    let audio = ClientAudio { sequence: 0, timestamp_us: 0, payload: Bytes::from_static(&[0; 640]), ack: false };
    assert_eq!(said(&mut client, ClientEvent::Audio(audio)).0, [("audio".to_owned(), json!([640, 16_000, 1]))]);
    assert_eq!(said(&mut client, ClientEvent::BargeIn { response: None, heard_ms: 0 }).0[0].0, "interruption");
    assert_eq!(said(&mut client, ClientEvent::Digit('#')).0, [("dtmf".to_owned(), json!({"buttons": ["#"]}))]);
    assert_eq!(said(&mut client, ClientEvent::Commit).0, []);
    let (sent, _) = said(&mut client, ClientEvent::End { reason: "done".into() });
    assert_eq!(sent, [("disconnect-bot".to_owned(), json!({})), ("close".to_owned(), json!(1000))]);
    let mut to = Exchange::default();
    client.closed(1011, &mut to);
    assert_eq!(to.next_event(), None);
    client.closed(1000, &mut to);
    assert!(matches!(to.next_event(), Some(Ok(ServerEvent::Ended(_)))));
    let pcm24 = Service { output: AudioFormat::Pcm24k, ..Service::default() };
    assert_eq!(Pipecat::new(&Arc::new(pcm24)).path(), "/pipecat?sample_rate=24000");
}

#[test]
fn tools_are_answered_if_the_profile_knows_them() {
    let mut client = live();
    let call = told(&mut client, "llm-function-call", &json!({"function_name": "lookup", "tool_call_id": "c1", "args": {"q": 1}}));
    assert_eq!(call, [ServerEvent::ToolCall { call_id: "c1".into(), name: "lookup".into(), arguments: r#"{"q":1}"#.into() }]);
    let result = ClientEvent::ToolResult { call_id: "c1".into(), output: r#"{"ok":true}"#.into(), failed: false };
    let expected = json!({"function_name": "lookup", "tool_call_id": "c1", "arguments": {"q": 1}, "result": {"ok": true}});
    assert_eq!(said(&mut client, result.clone()).0, [("llm-function-call-result".to_owned(), expected)]);
    assert_eq!(said(&mut client, result).0, [], "answered");
    let in_progress = |name: &str| json!({"function_name": name, "tool_call_id": name, "arguments": {}});
    assert_eq!(told(&mut client, "llm-function-call-in-progress", &in_progress("own")), []);
    assert_eq!(told(&mut client, "llm-function-call-in-progress", &in_progress("book")).len(), 1);
    let stopped = told(&mut client, "llm-function-call-stopped", &json!({"tool_call_id": "book", "cancelled": true}));
    assert_eq!(stopped, [ServerEvent::ToolCancel { call_id: "book".into() }]);
    assert_eq!(told(&mut client, "llm-function-call-stopped", &json!({"tool_call_id": "own"})), []);
}

#[test]
fn errors_are_told_and_what_is_no_frame_is_malformed() {
    let mut client = live();
    let error = told(&mut client, "error", &json!({"error": "no voice", "fatal": true}));
    assert!(matches!(&error[..], [ServerEvent::Error(error)] if error.fatal && error.message == "no voice"), "{error:?}");
    let error = told(&mut client, "error-response", &json!({"error": "what?"}));
    assert!(matches!(&error[..], [ServerEvent::Error(error)] if !error.fatal), "{error:?}");
    assert_eq!(told(&mut client, "metrics", &json!({})), []);
    assert_eq!(heard(&mut client, Kind::Message(pipecat::MessageFrame { data: "own words".into() })), Ok(vec![]));
    let other_rate = pipecat::AudioRawFrame { audio: vec![0; 2].into(), sample_rate: 24_000, num_channels: 1, ..Default::default() };
    assert!(heard(&mut client, Kind::Audio(other_rate)).unwrap_err().message.contains("24000 Hz"));
    for wire in [Wire::Text("{}".into()), Wire::Binary(vec![0xff; 5].into())] {
        let mut to = Exchange::default();
        client.decode(wire, &mut to);
        assert!(matches!(to.next_event(), Some(Err(_))));
    }
}
