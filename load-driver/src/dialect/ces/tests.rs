use bytes::Bytes;
use proto::{frame::ClientAudio, ids::ResponseId};

use super::*;
use crate::plan::Agent;

fn ces(format: AudioFormat, id: Option<&str>) -> Ces {
    let agent = Agent { id: id.map(str::to_owned), ..Agent::default() };
    Ces::new(&Arc::new(Service { input: format, output: format, agent, ..Service::default() }))
}

fn said(ces: &mut Ces, event: ClientEvent) -> Vec<Out> {
    let mut to = Exchange::default();
    ces.encode(event, &mut to);
    std::iter::from_fn(|| to.next_wire())
        .map(|wire| match wire {
            Wire::Binary(bytes) => v1::BidiSessionClientMessage::decode(bytes).expect("a message").message_type.expect("some"),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn hear(ces: &mut Ces, message: In) -> Vec<ServerEvent> {
    let mut to = Exchange::default();
    let message = v1::BidiSessionServerMessage { message_type: Some(message) };
    ces.decode(Wire::Binary(message.encode_to_vec().into()), &mut to);
    std::iter::from_fn(|| to.next_event()).map(|event| event.expect("a message")).collect()
}

fn output(turn_index: i32, output_type: Option<Output>) -> In {
    let turn_completed = output_type.is_none();
    In::SessionOutput(v1::SessionOutput { output_type, turn_completed, turn_index })
}

fn sound(turn: i32) -> In {
    output(turn, Some(Output::Audio(Bytes::from_static(&[0; 640]))))
}

fn heard(transcript: &str) -> In {
    In::RecognitionResult(v1::RecognitionResult { transcript: transcript.to_owned() })
}

fn names(events: &[ServerEvent]) -> Vec<String> {
    events
        .iter()
        .map(|event| match event {
            ServerEvent::ResponseStart { response, turn, .. } => format!("start {} of {}", response.0, turn.0),
            ServerEvent::Audio(audio) => format!("audio {} of {}", audio.sequence, audio.response.0),
            ServerEvent::ResponseEnd { response, status, frames } => format!("end {} {status:?} {frames}", response.0),
            ServerEvent::Transcript { turn, text, .. } => format!("{}: {text}", turn.0),
            ServerEvent::ToolCall { call_id, name, arguments } => format!("call {call_id} {name} {arguments}"),
            other => format!("{other:?}"),
        })
        .collect()
}

#[test]
fn the_configuration_names_session_formats_and_tools() {
    let mut mulaw = ces(AudioFormat::Mulaw8k, Some("projects/p/locations/eu/apps/a/"));
    assert_eq!(mulaw.headers()[0].1, "location=projects/p/locations/eu");
    let start = SessionStart {
        client_ref: "run.1/2".to_owned(),
        input: AudioFormat::Mulaw8k,
        output: AudioFormat::Mulaw8k,
        tools: vec!["lookup".to_owned()],
        ..SessionStart::default()
    };
    let all = said(&mut mulaw, ClientEvent::Start(start));
    let [Out::Config(config), Out::RealtimeInput(variables)] = &all[..] else { panic!("{all:?}") };
    assert_eq!(config.session, "projects/p/locations/eu/apps/a/sessions/run-1-2");
    let (input, output) = (config.input_audio_config.as_ref().unwrap(), config.output_audio_config.as_ref().unwrap());
    assert_eq!((input.audio_encoding, input.sample_rate_hertz, output.audio_encoding, output.sample_rate_hertz), (2, 8_000, 2, 8_000));
    assert!(matches!(&variables.input_type, Some(Input::Variables(variables)) if variables.fields.contains_key("tools")));
    assert_eq!(said(&mut ces(AudioFormat::Pcm24k, None), ClientEvent::Start(SessionStart::default())).len(), 1);
}

#[test]
fn what_the_caller_says_goes_as_input() {
    let mut ces = ces(AudioFormat::Pcm16k, None);
    let payload = Bytes::from_static(&[7; 640]);
    let audio = ClientEvent::Audio(ClientAudio { sequence: 0, timestamp_us: 0, payload: payload.clone(), ack: true });
    let input = |input| Out::RealtimeInput(v1::SessionInput { input_type: Some(input), will_continue: false });
    assert_eq!(said(&mut ces, audio), [input(Input::Audio(payload))]);
    assert_eq!(said(&mut ces, ClientEvent::Digit('#')), [input(Input::Dtmf("#".to_owned()))]);
    for silent in [ClientEvent::Commit, ClientEvent::Discard, ClientEvent::BargeIn { response: None, heard_ms: 0 }] {
        assert_eq!(said(&mut ces, silent), []);
    }
    for (output, failed, key) in [(r#"{"ok":true}"#, false, "ok"), ("plain", false, "output"), (r#"{"ok":true}"#, true, "error")] {
        let result = ClientEvent::ToolResult { call_id: "7".to_owned(), output: output.to_owned(), failed };
        let all = said(&mut ces, result);
        let [Out::RealtimeInput(v1::SessionInput { input_type: Some(Input::ToolResponses(responses)), .. })] = &all[..] else {
            panic!("{all:?}");
        };
        assert_eq!(responses.tool_responses[0].id, "7");
        assert!(responses.tool_responses[0].response.as_ref().unwrap().fields.contains_key(key), "{key}");
    }
}

#[test]
fn answers_are_told_by_audio_and_turns_and_what_was_interrupted_stays_so() {
    let mut ces = ces(AudioFormat::Pcm16k, None);
    let call = v1::ToolCall {
        id: "7".to_owned(),
        tool_identifier: Some(tool_call::ToolIdentifier::Tool("projects/p/locations/l/apps/a/tools/lookup".to_owned())),
        ..v1::ToolCall::default()
    };
    let signal = || In::InterruptionSignal(v1::InterruptionSignal { barge_in: true });
    let mut all = Vec::new();
    for message in [
        heard("book"),
        heard("book it"),
        output(1, Some(Output::Text("sure".to_owned()))),
        sound(1),
        output(1, None),
        heard("and"),
        sound(2),
        signal(),
        sound(2),
        output(2, None),
        heard("stop"),
        sound(3),
        output(3, Some(Output::ToolCalls(v1::ToolCalls { tool_calls: vec![call] }))),
        sound(3),
        output(3, None),
        signal(),
        In::GoAway(v1::GoAway {}),
    ] {
        all.extend(hear(&mut ces, message));
    }
    assert_eq!(
        names(&all),
        [
            "1: book",
            "1: book it",
            "start 1 of 1",
            "audio 0 of 1",
            "end 1 Completed 1",
            "2: and",
            "start 2 of 2",
            "audio 1 of 2",
            "end 2 Interrupted 1",
            "audio 2 of 2",
            "3: stop",
            "start 3 of 3",
            "audio 3 of 3",
            "call 7 lookup {}",
            "end 3 Completed 1",
            "start 4 of 0",
            "audio 4 of 4",
            "end 4 Completed 1",
            "end 0 Interrupted 0",
            "GoingAway { left_ms: 0 }",
        ]
    );
}

#[test]
fn the_head_is_the_acceptance_and_the_half_close_the_goodbye() {
    let mut ces = ces(AudioFormat::Pcm16k, None);
    let mut to = Exchange::default();
    ces.answered(&mut to);
    assert!(matches!(to.next_event(), Some(Ok(ServerEvent::Accepted(accepted))) if accepted.input == AudioFormat::Pcm16k));
    ces.closed(0, &mut to);
    assert_eq!(to.next_event(), None, "the backend ended it");
    ces.encode(ClientEvent::End { reason: String::new() }, &mut to);
    assert_eq!(to.next_wire(), Some(Wire::Close(0)));
    ces.closed(0, &mut to);
    assert_eq!(to.next_event(), Some(Ok(ended())));
}

#[test]
fn an_agent_that_ends_the_session_is_answered_once() {
    let mut ces = ces(AudioFormat::Pcm16k, None);
    let mut to = Exchange::default();
    for message in [In::EndSession(v1::EndSession::default()), output(1, Some(Output::EndSession(v1::EndSession::default())))] {
        ces.message(v1::BidiSessionServerMessage { message_type: Some(message) }, &mut to);
    }
    assert_eq!((to.next_wire(), to.next_wire()), (Some(Wire::Close(0)), None));
    assert_eq!((to.next_event(), to.next_event()), (Some(Ok(ended())), None));
    let mut expired = self::ces(AudioFormat::Pcm16k, None);
    let metadata = structs::from_json(json!({ "outcome": "timed_out" }).as_object().expect("a map").clone());
    let end = In::EndSession(v1::EndSession { metadata: Some(metadata) });
    expired.message(v1::BidiSessionServerMessage { message_type: Some(end) }, &mut to);
    assert!(matches!(to.next_event(), Some(Ok(ServerEvent::Ended(ended))) if ended.outcome == Outcome::TimedOut));
    ces.decode(Wire::Binary(Bytes::from_static(&[0xff; 9])), &mut to);
    assert!(matches!(to.next_event(), Some(Err(error)) if error.code == ErrorCode::MalformedMessage));
}

/// A service that does not say when its answer is over.
#[test]
fn after_an_end_that_was_given_up_audio_is_of_the_next_answer() {
    let mut ces = ces(AudioFormat::Pcm16k, None);
    assert_eq!(names(&hear(&mut ces, sound(1))), ["start 1 of 0", "audio 0 of 1"]);
    said(&mut ces, ClientEvent::GiveUp { response: ResponseId(1) });
    assert_eq!(names(&hear(&mut ces, heard("and"))), ["1: and"]);
    assert_eq!(names(&hear(&mut ces, sound(2))), ["start 2 of 1", "audio 1 of 2"]);
    said(&mut ces, ClientEvent::GiveUp { response: ResponseId(2) });
    // One that still comes, in whatever way, is its own.
    assert_eq!(names(&hear(&mut ces, output(2, None))), ["end 2 Completed 1"]);
    hear(&mut ces, sound(3));
    said(&mut ces, ClientEvent::GiveUp { response: ResponseId(3) });
    let signal = In::InterruptionSignal(v1::InterruptionSignal { barge_in: true });
    assert_eq!(names(&hear(&mut ces, signal)), ["end 3 Interrupted 1"]);
}
