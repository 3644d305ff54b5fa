use bytes::Bytes;
use proto::{
    frame::{AgentAudio, ResponseWish},
    ids::{ResponseId, TurnId},
};
use serde_json::json;

use super::*;

const SESSION: &str = "projects/p/locations/l/apps/a/sessions/mine";

type Said = Vec<Result<ClientEvent, SessionError>>;

fn say(ces: &mut Ces, message: In) -> Said {
    let mut all = Vec::new();
    let message = v1::BidiSessionClientMessage { message_type: Some(message) };
    ces.decode(message, &mut Exchange::new(&mut |event| all.push(event), &mut |_| panic!("no answer is due")));
    all
}

fn input(ces: &mut Ces, input: Input) -> Said {
    say(ces, In::RealtimeInput(v1::SessionInput { input_type: Some(input), will_continue: false }))
}

fn hear(ces: &mut Ces, event: ServerEvent) -> Vec<Out> {
    let mut all = Vec::new();
    let mut message = |message: v1::BidiSessionServerMessage| all.push(message.message_type.expect("a message"));
    ces.encode(event, &mut Exchange::new(&mut |_| panic!("no event is due"), &mut message));
    all
}

fn config(input: Option<(i32, i32)>, output: Option<(i32, i32)>) -> v1::SessionConfig {
    v1::SessionConfig {
        session: SESSION.to_owned(),
        input_audio_config: input.map(|(audio_encoding, sample_rate_hertz)| v1::InputAudioConfig {
            audio_encoding,
            sample_rate_hertz,
            ..v1::InputAudioConfig::default()
        }),
        output_audio_config: output.map(|(audio_encoding, sample_rate_hertz)| v1::OutputAudioConfig { audio_encoding, sample_rate_hertz }),
        ..v1::SessionConfig::default()
    }
}

fn open(config: v1::SessionConfig) -> (Ces, SessionStart) {
    let mut ces = Ces::new(String::new());
    match say(&mut ces, In::Config(config)).as_slice() {
        [Ok(ClientEvent::Start(start))] => (ces, start.clone()),
        other => panic!("{other:?}"),
    }
}

fn voice() -> v1::SessionConfig {
    config(Some((1, 16_000)), Some((1, 16_000)))
}

fn audio() -> ServerEvent {
    ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, payload: Bytes::from_static(&[1, 2]), response: ResponseId(1) })
}

fn output(turn_index: i32, output_type: Option<Output>) -> Out {
    let turn_completed = output_type.is_none();
    Out::SessionOutput(v1::SessionOutput { output_type, turn_completed, turn_index })
}

#[test]
fn every_format_of_the_api_is_taken_and_others_are_refused() {
    for (wire, format) in [
        ((1, 8_000), AudioFormat::Pcm8k),
        ((1, 16_000), AudioFormat::Pcm16k),
        ((1, 24_000), AudioFormat::Pcm24k),
        ((1, 48_000), AudioFormat::Pcm48k),
        ((2, 8_000), AudioFormat::Mulaw8k),
        ((3, 8_000), AudioFormat::Alaw8k),
    ] {
        let (_, start) = open(config(Some(wire), Some((1, 24_000))));
        assert_eq!((start.input, start.output, start.client_ref.as_str()), (format, AudioFormat::Pcm24k, "mine"));
    }
    for wrong in [(0, 16_000), (1, 11_025), (1, -1), (2, 16_000), (9, 8_000)] {
        for config in [config(Some(wrong), None), config(Some((1, 16_000)), Some(wrong))] {
            let said = say(&mut Ces::new(String::new()), In::Config(config));
            assert!(matches!(&said[..], [Err(error)] if error.code == ErrorCode::UnsupportedFormat && error.fatal), "{wrong:?}");
        }
    }
}

#[test]
fn what_is_wrong_is_told_by_its_status() {
    let first = |message: In| say(&mut Ces::new(String::new()), message);
    let later = |wrong: Input| input(&mut open(voice()).0, wrong);
    let named = |session: &str| first(In::Config(v1::SessionConfig { session: session.to_owned(), ..voice() }));
    let text = v1::SessionInput { input_type: Some(Input::Text("hi".to_owned())), will_continue: false };
    let unknown = v1::ToolResponses { tool_responses: vec![v1::ToolResponse { id: "x".to_owned(), ..v1::ToolResponse::default() }] };
    for (said, code, told) in [
        (first(In::RealtimeInput(text)), ErrorCode::NotStarted, "first message must be `config`"),
        (say(&mut open(voice()).0, In::Config(voice())), ErrorCode::AlreadyStarted, "config came twice"),
        (named(""), ErrorCode::InvalidArgument, "config.session must be"),
        (named("projects/p/locations/l/apps//sessions/s"), ErrorCode::InvalidArgument, "config.session must be"),
        (named("projects/p/locations/l/apps/a/sessions/"), ErrorCode::InvalidArgument, "config.session must be"),
        (say(&mut open(voice()).0, In::RealtimeInput(v1::SessionInput::default())), ErrorCode::MalformedMessage, "holds no input"),
        (later(Input::Audio(Bytes::from_static(&[1]))), ErrorCode::BadAudio, "no whole samples"),
        (later(Input::Dtmf("1x".to_owned())), ErrorCode::InvalidArgument, "dtmf holds 'x'"),
        (later(Input::ToolResponses(unknown)), ErrorCode::UnknownToolCall, "id `x`"),
    ] {
        let Some(Err(error)) = said.last() else { panic!("{told}: {said:?}") };
        assert!(error.fatal && error.code == code && error.message.contains(told), "{error:?}");
    }
    let mut said = Vec::new();
    Ces::new(String::new()).decode(v1::BidiSessionClientMessage::default(), &mut Exchange::new(&mut |event| said.push(event), &mut |_| {}));
    assert!(matches!(&said[..], [Err(error)] if error.code == ErrorCode::MalformedMessage));
}

#[test]
fn every_kind_of_input_means_something_or_nothing() {
    let (mut ces, _) = open(voice());
    let wish = |text: Option<&str>| Ok(ClientEvent::Respond(ResponseWish { text: text.map(str::to_owned), ..ResponseWish::default() }));
    let stop = || Ok(ClientEvent::BargeIn { response: None, heard_ms: 0 });
    assert!(matches!(
        &input(&mut ces, Input::Audio(Bytes::from(vec![0; 40_000])))[..],
        [Ok(ClientEvent::Audio(_)), Ok(ClientEvent::Audio(_))]
    ));
    let part = v1::SessionInput { input_type: Some(Input::Text("first".to_owned())), will_continue: true };
    assert_eq!(say(&mut ces, In::RealtimeInput(part)), []);
    assert_eq!(input(&mut ces, Input::Text("second".to_owned())), [stop(), wish(Some("first second"))]);
    let digits = input(&mut ces, Input::Dtmf("1#".to_owned()));
    assert_eq!(digits, [Ok(ClientEvent::Digit('1')), Ok(ClientEvent::Digit('#')), stop(), wish(Some("1#"))]);
    assert_eq!(input(&mut ces, Input::Event(v1::Event { event: "welcome".to_owned() })), [stop(), wish(Some("welcome"))]);
    assert_eq!(input(&mut ces, Input::Image(v1::Image::default())), []);
    assert_eq!(input(&mut ces, Input::Blob(v1::Blob::default())), []);
    let variables = |value: Value| Input::Variables(structs::from_json(value.as_object().expect("an object").clone()));
    assert_eq!(input(&mut ces, variables(json!({ "name": "x" }))), []);
    let tools = SessionSettings { tools: Some(vec!["lookup".to_owned()]), ..SessionSettings::default() };
    assert_eq!(input(&mut ces, variables(json!({ "tools": ["lookup"] }))), [Ok(ClientEvent::Configure(Box::new(tools)))]);
}

#[test]
fn an_answer_is_text_audio_and_the_end_of_its_turn() {
    let (mut ces, _) = open(voice());
    let heard = hear(&mut ces, ServerEvent::Transcript { turn: TurnId(1), text: "book it".to_owned(), last: false });
    assert_eq!(heard, [Out::RecognitionResult(v1::RecognitionResult { transcript: "book it".to_owned() })]);
    let start = || ServerEvent::ResponseStart { response: ResponseId(1), turn: TurnId(1), text: "sure thing".to_owned() };
    let end = |status| ServerEvent::ResponseEnd { response: ResponseId(1), status, frames: 1 };
    let sound = || Some(Output::Audio(Bytes::from_static(&[1, 2])));
    assert_eq!(hear(&mut ces, start()), [output(1, Some(Output::Text("sure thing".to_owned())))]);
    assert_eq!(hear(&mut ces, audio()), [output(1, sound())]);
    assert_eq!(hear(&mut ces, end(ResponseStatus::Completed)), [output(1, None)]);
    hear(&mut ces, start());
    assert_eq!(hear(&mut ces, audio()), [output(2, sound())]);
    let signal = Out::InterruptionSignal(v1::InterruptionSignal { barge_in: true });
    assert_eq!(hear(&mut ces, end(ResponseStatus::Interrupted)), [signal]);
    assert_eq!(hear(&mut ces, start()), [output(3, Some(Output::Text("sure thing".to_owned())))]);
    assert_eq!(hear(&mut ces, ServerEvent::GoingAway { left_ms: 1 }), [Out::GoAway(v1::GoAway {})]);
    // Without a loudspeaker, and word by word.
    let (mut ces, _) = open(v1::SessionConfig { enable_text_streaming: true, ..config(None, None) });
    assert_eq!(hear(&mut ces, start()), []);
    let said: Vec<Out> = (0..60).flat_map(|_| hear(&mut ces, audio())).collect();
    assert_eq!(said, [output(1, Some(Output::Text("sure".to_owned()))), output(1, Some(Output::Text(" thing".to_owned())))]);
}

#[test]
fn a_tool_is_called_within_its_turn_and_answered_by_id() {
    let (mut ces, _) = open(voice());
    let call = ServerEvent::ToolCall { call_id: "call-1".to_owned(), name: "lookup".to_owned(), arguments: r#"{"n":1}"#.to_owned() };
    let [Out::SessionOutput(v1::SessionOutput { output_type: Some(Output::ToolCalls(calls)), turn_index: 1, turn_completed: false })] =
        &hear(&mut ces, call)[..]
    else {
        panic!("a tool call is due");
    };
    let told = &calls.tool_calls[0];
    assert_eq!(told.tool_identifier, Some(ToolIdentifier::Tool("projects/p/locations/l/apps/a/tools/lookup".to_owned())));
    assert_eq!((told.display_name.as_str(), Value::from(structs::to_json(told.args.clone().unwrap()))), ("lookup", json!({ "n": 1.0 })));
    let response = structs::from_json(json!({ "error": "no" }).as_object().unwrap().clone());
    let responses = vec![v1::ToolResponse { id: "call-1".to_owned(), response: Some(response), ..v1::ToolResponse::default() }];
    let result = ClientEvent::ToolResult { call_id: "call-1".to_owned(), output: r#"{"error":"no"}"#.to_owned(), failed: true };
    assert_eq!(input(&mut ces, Input::ToolResponses(v1::ToolResponses { tool_responses: responses })), [Ok(result)]);
    hear(&mut ces, ServerEvent::ResponseStart { response: ResponseId(1), turn: TurnId(1), text: String::new() });
    assert_eq!(
        hear(&mut ces, ServerEvent::ResponseEnd { response: ResponseId(1), status: ResponseStatus::Completed, frames: 1 }),
        [output(1, None)]
    );
}

#[test]
fn the_half_close_is_the_goodbye_of_a_session() {
    for (mut ces, expected) in [(Ces::new(String::new()), 0), (open(voice()).0, 1)] {
        let mut said = Vec::new();
        ces.closed(0, &mut Exchange::new(&mut |event| said.push(event), &mut |_| panic!("no answer is due")));
        assert_eq!(said.len(), expected);
    }
}
