use proto::frame::{ClientAudio, Outcome, ResponseWish};

use super::*;
use crate::plan::Agent;

fn new(agent: Agent) -> Elevenlabs {
    Elevenlabs::new(&Arc::new(Service { input: AudioFormat::Pcm16k, output: AudioFormat::Mulaw8k, agent, ..Service::default() }))
}

fn said(dialect: &mut Elevenlabs, event: ClientEvent) -> Vec<Value> {
    let mut to = Exchange::default();
    dialect.encode(event, &mut to);
    wires(&mut to)
}

fn wires(to: &mut Exchange) -> Vec<Value> {
    std::iter::from_fn(|| to.next_wire())
        .map(|wire| match wire {
            Wire::Text(text) => serde_json::from_str(&text).unwrap(),
            Wire::Close(code) => json!(code),
            Wire::Binary(_) => panic!("{wire:?}"),
        })
        .collect()
}

fn heard(dialect: &mut Elevenlabs, message: &Value) -> Vec<Result<ServerEvent, SessionError>> {
    let mut to = Exchange::default();
    dialect.decode(Wire::Text(message.to_string()), &mut to);
    std::iter::from_fn(|| to.next_event()).collect()
}

fn event(dialect: &mut Elevenlabs, message: &Value) -> ServerEvent {
    let mut all = heard(dialect, message);
    assert_eq!(all.len(), 1, "{message}: {all:?}");
    all.remove(0).unwrap()
}

fn audio(event_id: u64) -> Value {
    json!({"type": "audio", "audio_event": {"audio_base_64": base64::encode(&[1; 160]), "event_id": event_id}})
}

#[test]
fn the_path_holds_what_the_query_can_say() {
    assert_eq!(new(Agent::default()).path(), "/v1/convai/conversation?output_format=ulaw_8000");
    let agent = Agent { id: Some("a b&c".to_owned()), greets: true, ..Agent::default() };
    assert_eq!(new(agent).path(), "/v1/convai/conversation?agent_id=a%20b%26c&output_format=ulaw_8000&greeting=1");
}

#[test]
fn only_what_is_asked_for_is_overridden() {
    let start = SessionStart { client_ref: "mine".to_owned(), ..SessionStart::default() };
    assert_eq!(
        said(&mut new(Agent::default()), ClientEvent::Start(start.clone())),
        [json!({"type": "conversation_initiation_client_data", "user_id": "mine"})]
    );
    let agent = Agent { voice: Some("v".to_owned()), instructions: Some("be brief".to_owned()), ..Agent::default() };
    let start = SessionStart { tools: vec!["a".to_owned(), "b".to_owned()], ..start };
    let first = &said(&mut new(agent), ClientEvent::Start(start))[0];
    assert_eq!(first["conversation_config_override"], json!({"agent": {"prompt": {"prompt": "be brief"}}, "tts": {"voice_id": "v"}}));
    assert_eq!(first["dynamic_variables"]["client_tools"], "a,b");
}

#[test]
fn events_are_said() {
    let mut dialect = new(Agent::default());
    let frame = ClientAudio { sequence: 0, timestamp_us: 0, payload: vec![1, 2, 3].into(), ack: false };
    assert_eq!(said(&mut dialect, ClientEvent::Audio(frame)), [json!({"user_audio_chunk": "AQID"})]);
    let result = ClientEvent::ToolResult { call_id: "c".to_owned(), output: "o".to_owned(), failed: true };
    assert_eq!(said(&mut dialect, result), [json!({"type": "client_tool_result", "tool_call_id": "c", "result": "o", "is_error": true})]);
    assert!(said(&mut dialect, ClientEvent::Respond(ResponseWish::default())).is_empty());
    let wish = ResponseWish { text: Some("hello".to_owned()), ..ResponseWish::default() };
    assert_eq!(said(&mut dialect, ClientEvent::Respond(wish)), [json!({"type": "user_message", "text": "hello"})]);
}

#[test]
fn a_conversation_is_heard() {
    let mut dialect = new(Agent::default());
    let metadata = json!({"type": "conversation_initiation_metadata", "conversation_initiation_metadata_event":
        {"conversation_id": "s-1", "agent_output_audio_format": "ulaw_8000", "user_input_audio_format": "pcm_16000"}});
    let ServerEvent::Accepted(accepted) = event(&mut dialect, &metadata) else { panic!() };
    assert_eq!((accepted.session_id.as_str(), accepted.input, accepted.output), ("s-1", AudioFormat::Pcm16k, AudioFormat::Mulaw8k));
    let score = |score: f64| json!({"type": "vad_score", "vad_score_event": {"vad_score": score}});
    let marker = |event| matches!(event, ServerEvent::Speech(SpeechMarker { started: true, .. }));
    assert!(heard(&mut dialect, &score(0.5)).is_empty() && marker(event(&mut dialect, &score(0.9))));
    assert!(heard(&mut dialect, &score(0.5)).is_empty() && !marker(event(&mut dialect, &score(0.1))));
    let transcript = json!({"type": "user_transcript", "user_transcription_event": {"user_transcript": "hello"}});
    let turn = TurnId(1);
    assert_eq!(
        heard(&mut dialect, &transcript),
        [Ok(ServerEvent::Committed { turn }), Ok(ServerEvent::Transcript { turn, text: "hello".to_owned(), last: true })]
    );
    for sequence in 0..3 {
        let ServerEvent::Audio(heard) = event(&mut dialect, &audio(sequence + 1)) else { panic!() };
        assert_eq!(
            (heard.sequence, heard.timestamp_us, heard.response, heard.payload.len()),
            (sequence, sequence * 20_000, ResponseId(0), 160)
        );
    }
    // What an interruption covers is dropped however late it comes; the numbers go on without gap.
    let interruption = json!({"type": "interruption", "interruption_event": {"event_id": 5}});
    let ended = ServerEvent::ResponseEnd { response: ResponseId(0), status: ResponseStatus::Interrupted, frames: 0 };
    assert_eq!(event(&mut dialect, &interruption), ended);
    assert!(heard(&mut dialect, &audio(4)).is_empty() && heard(&mut dialect, &audio(5)).is_empty());
    assert!(matches!(event(&mut dialect, &audio(6)), ServerEvent::Audio(audio) if audio.sequence == 3));
    let call = json!({"type": "client_tool_call", "client_tool_call": {"tool_name": "t", "tool_call_id": "c", "parameters": {"a": 1}}});
    let ServerEvent::ToolCall { call_id, name, arguments } = event(&mut dialect, &call) else { panic!() };
    assert_eq!((call_id.as_str(), name.as_str(), arguments.as_str()), ("c", "t", r#"{"a":1}"#));
    let mut to = Exchange::default();
    dialect.decode(Wire::Text(json!({"type": "ping", "ping_event": {"event_id": 7, "ping_ms": null}}).to_string()), &mut to);
    assert_eq!(wires(&mut to), [json!({"type": "pong", "event_id": 7})]);
    assert!(heard(&mut dialect, &json!({"type": "something_new"})).is_empty());
}

#[test]
fn a_format_that_is_not_spoken_is_named() {
    let metadata = json!({"type": "conversation_initiation_metadata", "conversation_initiation_metadata_event":
        {"conversation_id": "s-1", "agent_output_audio_format": "pcm_44100"}});
    let all = heard(&mut new(Agent::default()), &metadata);
    assert!(matches!(&all[..], [Err(error)] if error.message.contains("pcm_44100")), "{all:?}");
}

#[test]
fn what_is_no_message_loses_the_session() {
    for text in
        ["{", "", r#"{"type":"audio"}"#, r#"{"type":"audio","audio_event":{"audio_base_64":"*"}}"#, r#"{"type":"client_tool_call"}"#]
    {
        let mut to = Exchange::default();
        new(Agent::default()).decode(Wire::Text(text.to_owned()), &mut to);
        assert!(matches!(to.next_event(), Some(Err(_))), "{text}");
    }
}

#[test]
fn a_close_is_the_end_that_was_due() {
    let outcome = |dialect: &mut Elevenlabs| {
        let mut to = Exchange::default();
        dialect.closed(1000, &mut to);
        to.next_event().map(|event| match event {
            Ok(ServerEvent::Ended(ended)) => ended.outcome,
            other => panic!("{other:?}"),
        })
    };
    let mut dialect = new(Agent::default());
    assert_eq!(outcome(&mut dialect), None);
    assert_eq!(said(&mut dialect, ClientEvent::End { reason: String::new() }), [json!(1000)]);
    assert_eq!(outcome(&mut dialect), Some(Outcome::Completed));
    for (kind, fatal, expected) in [("deadline", true, Some(Outcome::TimedOut)), ("deadline", false, None), ("override_error", true, None)]
    {
        let mut dialect = new(Agent::default());
        let error = json!({"type": "error", "error_event": {"error_type": kind, "message": "m", "fatal": fatal}});
        let ServerEvent::Error(error) = event(&mut dialect, &error) else { panic!() };
        assert_eq!((error.fatal, error.message.as_str()), (fatal, "m"));
        assert_eq!(outcome(&mut dialect), expected, "{kind}");
    }
}
