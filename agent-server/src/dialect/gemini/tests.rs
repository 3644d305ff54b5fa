use proto::{
    frame::{AgentAudio, Outcome, ResponseWish, SessionAccepted},
    ids::{ResponseId, TurnId},
};
use serde_json::{Value, json};

use super::*;

type Said = Vec<Result<ClientEvent, SessionError>>;

fn say(gemini: &mut Gemini, message: &str) -> Said {
    let mut all = Vec::new();
    gemini.decode(
        Frame::Text(message.to_owned().into()),
        &mut Exchange::new(&mut |event| all.push(event), &mut |_| panic!("no answer is due")),
    );
    all
}

fn json_of(frame: &Frame) -> Value {
    match frame {
        Frame::Text(text) => serde_json::from_str(text).unwrap(),
        Frame::Binary(_) => panic!("text is due"),
    }
}

fn hear(gemini: &mut Gemini, event: ServerEvent) -> Vec<Value> {
    let mut all = Vec::new();
    gemini.encode(event, &mut Exchange::new(&mut |_| panic!("no event is due"), &mut |frame| all.push(json_of(&frame))));
    all
}

fn open(setup: &str) -> (Gemini, SessionStart) {
    let mut gemini = Gemini::new("me".to_owned());
    match say(&mut gemini, setup).as_slice() {
        [Ok(ClientEvent::Start(start))] => (gemini, start.clone()),
        other => panic!("{other:?}"),
    }
}

fn error(said: &Said) -> &SessionError {
    match said.last() {
        Some(Err(error)) => error,
        other => panic!("an error is due: {other:?}"),
    }
}

const PLAIN: &str = r#"{"setup":{"model":"models/x"}}"#;

fn audio_frame() -> ServerEvent {
    ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, payload: vec![1, 2, 3].into(), response: ResponseId(1) })
}

fn accepted() -> ServerEvent {
    ServerEvent::Accepted(SessionAccepted {
        session_id: "s-1".to_owned(),
        backend_id: String::new(),
        boot_id: String::new(),
        input: INPUT,
        output: OUTPUT,
        max_duration_ms: 0,
        idle_timeout_ms: 0,
    })
}

#[test]
fn both_casings_mean_the_same() {
    let camel = r#"{"setup":{"model":"m","generationConfig":{"responseModalities":["AUDIO"],"speechConfig":{"voiceConfig":{"prebuiltVoiceConfig":
        {"voiceName":"Puck"}}}},"tools":[{"functionDeclarations":[{"name":"a"},{"name":"b"}]},{"googleSearch":{}}],"inputAudioTranscription":{},
        "realtimeInputConfig":{"automaticActivityDetection":{"disabled":true,"silenceDurationMs":300},"activityHandling":"NO_INTERRUPTION"},
        "sessionResumption":{"transparent":true}}}"#;
    let snake = r#"{"setup":{"model":"m","generation_config":{"response_modalities":["AUDIO"],"speech_config":{"voice_config":{"prebuilt_voice_config":
        {"voice_name":"Puck"}}}},"tools":[{"function_declarations":[{"name":"a"},{"name":"b"}]},{"google_search":{}}],"input_audio_transcription":{},
        "realtime_input_config":{"automatic_activity_detection":{"disabled":true,"silence_duration_ms":300},"activity_handling":"NO_INTERRUPTION"},
        "session_resumption":{"transparent":true}}}"#;
    for setup in [camel, snake] {
        let (gemini, start) = open(setup);
        assert_eq!((start.client_ref.as_str(), start.voice.as_str(), start.tools.len()), ("me", "Puck", 2));
        assert_eq!((start.input, start.output, start.warning_ms), (INPUT, OUTPUT, WARNING_MS));
        let turns = TurnTaking { detect: false, respond: true, interrupt: false, silence_ms: 300, resume: true };
        assert_eq!(start.turns, turns);
        let wishes = gemini.wishes.unwrap();
        assert!(wishes.manual && wishes.input_transcription && !wishes.output_transcription && wishes.resumption && wishes.transparent);
    }
}

#[test]
fn audio_comes_in_every_form_that_clients_use() {
    // 0xfb 0xef, 0xff 0xfe: the two alphabets differ in it.
    for (message, rate) in [
        (r#"{"realtimeInput":{"audio":{"data":"++///g==","mimeType":"audio/pcm;rate=16000"}}}"#, 16_000),
        (r#"{"realtime_input":{"audio":{"data":"--___g==","mime_type":"audio/pcm"}}}"#, 16_000),
        (r#"{"realtime_input":{"media_chunks":[{"data":"--___g","mime_type":"audio/pcm;rate=8000"}]}}"#, 8_000),
        (
            r#"{"realtimeInput":{"mediaChunks":[{"data":"++///g==","mimeType":"audio/pcm; rate=48000"},{"data":"x","mimeType":"image/jpeg"}]}}"#,
            48_000,
        ),
    ] {
        let (mut gemini, _) = open(PLAIN);
        let said = say(&mut gemini, message);
        let audio = match said.as_slice() {
            [Ok(ClientEvent::Audio(audio))] if rate == 16_000 => audio,
            [Ok(ClientEvent::Configure(settings)), Ok(ClientEvent::Audio(audio))] => {
                assert_eq!(settings.input, AudioFormat::pcm(rate));
                audio
            }
            other => panic!("{message}: {other:?}"),
        };
        assert_eq!(audio.payload.as_ref(), [0xfb, 0xef, 0xff, 0xfe], "{message}");
    }
    let (mut gemini, _) = open(PLAIN);
    for ignored in [r#"{"realtimeInput":{"video":{"data":"x","mimeType":"image/jpeg"}}}"#, r#"{"realtimeInput":{"audioStreamEnd":true}}"#] {
        assert_eq!(say(&mut gemini, ignored), []);
    }
    gemini.decode(
        Frame::Binary(br#"{"realtimeInput":{"audio":{"data":"AAA=","mimeType":"audio/pcm"}}}"#.to_vec().into()),
        &mut Exchange::new(&mut |event| assert!(matches!(event, Ok(ClientEvent::Audio(_)))), &mut |_| panic!("no answer is due")),
    );
}

#[test]
fn what_is_wrong_is_told_by_the_close() {
    let first = |message: &str| say(&mut Gemini::new(String::new()), message);
    let later = |message: &str| say(&mut open(PLAIN).0, message);
    for (said, code, told) in [
        (first("hello"), ErrorCode::MalformedMessage, "not a BidiGenerateContentClientMessage"),
        (first("[1]"), ErrorCode::MalformedMessage, "not a BidiGenerateContentClientMessage"),
        (first(r#"{"realtimeInput":{"audioStreamEnd":true}}"#), ErrorCode::NotStarted, "first message must be `setup`"),
        (first(r#"{"setup":{}}"#), ErrorCode::InvalidArgument, "setup.model is missing"),
        (
            first(r#"{"setup":{"model":"m","generationConfig":{"responseModalities":["SMELL"]}}}"#),
            ErrorCode::InvalidArgument,
            "responseModalities",
        ),
        (first(r#"{"setup":{"model":"m","sessionResumption":{"handle":"x"}}}"#), ErrorCode::InvalidArgument, "handle was not issued here"),
        (later(PLAIN), ErrorCode::AlreadyStarted, "setup came twice"),
        (later(r#"{"hello":{}}"#), ErrorCode::MalformedMessage, "unknown name `hello`"),
        (later("{}"), ErrorCode::MalformedMessage, "unknown name ``"),
        (later(r#"{"realtimeInput":{}}"#), ErrorCode::InvalidArgument, "realtimeInput is empty"),
        (later(r#"{"realtimeInput":{"audio":{"data":"A!","mimeType":"audio/pcm"}}}"#), ErrorCode::InvalidArgument, "no base64"),
        (later(r#"{"realtimeInput":{"audio":{"data":"AAAA","mimeType":"audio/pcm"}}}"#), ErrorCode::BadAudio, "3 bytes of audio"),
        (
            later(r#"{"realtimeInput":{"audio":{"data":"AAA=","mimeType":"audio/mp3"}}}"#),
            ErrorCode::UnsupportedFormat,
            "`audio/mp3` is not taken",
        ),
        (
            later(r#"{"realtimeInput":{"audio":{"data":"AAA=","mimeType":"audio/pcm;rate=11025"}}}"#),
            ErrorCode::UnsupportedFormat,
            "not taken",
        ),
        (later(r#"{"realtimeInput":{"activityStart":{}}}"#), ErrorCode::InvalidArgument, "automaticActivityDetection.disabled"),
        (later(r#"{"toolResponse":{"functionResponses":[{"name":"x"}]}}"#), ErrorCode::InvalidArgument, "without its id"),
        (later(r#"{"toolResponse":{"functionResponses":[{"id":"x"}]}}"#), ErrorCode::UnknownToolCall, "id `x`"),
    ] {
        let error = error(&said);
        assert!(error.fatal && error.code == code && error.message.contains(told), "{told}: {error:?}");
        let close = Gemini::new(String::new()).close(&Close { outcome: Some(Outcome::Failed), error: Some(error.clone()) });
        match code {
            ErrorCode::NotStarted | ErrorCode::AlreadyStarted => assert_eq!(close, None, "the common table says 1008"),
            _ => assert_eq!(u16::from(close.unwrap().code), 1007),
        }
    }
    let late = Close { outcome: Some(Outcome::TimedOut), error: Some(SessionError::fatal(ErrorCode::Deadline, "late")) };
    let frame = Gemini::new(String::new()).close(&late).unwrap();
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1011, "Deadline expired"));
}

#[test]
fn text_turns_stop_what_is_said_and_ask_for_an_answer() {
    let (mut gemini, _) = open(PLAIN);
    let part = r#"{"clientContent":{"turns":[{"role":"user","parts":[{"text":"hello"}]}],"turnComplete":false}}"#;
    assert_eq!(say(&mut gemini, part), []);
    let history = r#"{"client_content":{"turns":[{"role":"user","parts":[{"text":"old"}]},{"role":"model","parts":[{"text":"answer"}]}]}}"#;
    assert_eq!(say(&mut gemini, history), []);
    let said = say(&mut gemini, r#"{"client_content":{"turns":[{"parts":[{"text":"call"},{"text":"lookup"}]}],"turn_complete":true}}"#);
    let wish = |text: Option<&str>| Ok(ClientEvent::Respond(ResponseWish { text: text.map(str::to_owned), ..ResponseWish::default() }));
    let stop = || Ok(ClientEvent::BargeIn { response: None, heard_ms: 0 });
    assert_eq!(said, [stop(), wish(Some("call lookup"))]);
    assert_eq!(say(&mut gemini, r#"{"realtimeInput":{"text":"now"}}"#), [stop(), wish(Some("now"))]);
    assert_eq!(say(&mut gemini, r#"{"clientContent":{"turnComplete":true}}"#), [stop(), wish(None)]);
}

#[test]
fn a_client_that_marks_its_speech_says_when_in_its_audio() {
    let (mut gemini, _) = open(r#"{"setup":{"model":"m","realtimeInputConfig":{"automaticActivityDetection":{"disabled":true}}}}"#);
    let second = base64::encode(&vec![0; 32_000]);
    let audio = format!(r#"{{"realtimeInput":{{"audio":{{"data":"{second}","mimeType":"audio/pcm;rate=16000"}}}}}}"#);
    assert_eq!(say(&mut gemini, &audio).len(), 1);
    let marker = |started, timestamp_us| Ok(ClientEvent::Speech(SpeechMarker { started, timestamp_us }));
    assert_eq!(say(&mut gemini, r#"{"realtimeInput":{"activityStart":{}}}"#), [marker(true, 1_000_000)]);
    assert_eq!(say(&mut gemini, r#"{"realtimeInput":{"text":"within"}}"#), []);
    let hint = Ok(ClientEvent::Hint(TurnHint { text: Some("within".to_owned()), ..TurnHint::default() }));
    assert_eq!(say(&mut gemini, r#"{"realtime_input":{"activity_end":{}}}"#), [hint, marker(false, 1_000_000)]);
}

#[test]
fn an_answer_is_told_as_the_service_tells_it() {
    let (mut gemini, _) =
        open(r#"{"setup":{"model":"m","outputAudioTranscription":{},"inputAudioTranscription":{},"sessionResumption":{}}}"#);
    let first = hear(&mut gemini, accepted());
    assert_eq!(first[0], json!({ "setupComplete": { "sessionId": "s-1" } }));
    let handle = |message: &Value| message["sessionResumptionUpdate"]["newHandle"].as_str().unwrap().to_owned();
    assert_eq!(handle::turns(&handle(&first[1])), Some(0));
    let transcript = |text: &str, last| ServerEvent::Transcript { turn: TurnId(1), text: text.to_owned(), last };
    assert_eq!(hear(&mut gemini, transcript("book", false)), [json!({ "serverContent": { "inputTranscription": { "text": "book" } } })]);
    let rest = json!({ "serverContent": { "inputTranscription": { "text": " a table", "finished": true } } });
    assert_eq!(hear(&mut gemini, transcript("book a table", true)), [rest]);
    let start = ServerEvent::ResponseStart { response: ResponseId(1), turn: TurnId(1), text: "sure thing".to_owned() };
    assert_eq!(hear(&mut gemini, start), Vec::<Value>::new());
    let frame = hear(&mut gemini, audio_frame());
    assert_eq!(
        frame[0],
        json!({ "serverContent": { "modelTurn": { "role": "model", "parts": [{ "inlineData": { "mimeType": "audio/pcm;rate=24000", "data": "AQID" } }] } } })
    );
    assert_eq!(frame[1..], [json!({ "serverContent": { "outputTranscription": { "text": "sure" } } })]);
    let end = |status| ServerEvent::ResponseEnd { response: ResponseId(1), status, frames: 1 };
    let done = hear(&mut gemini, end(ResponseStatus::Completed));
    assert_eq!(done[0], json!({ "serverContent": { "outputTranscription": { "finished": true } } }));
    assert_eq!(done[1], json!({ "serverContent": { "generationComplete": true } }));
    assert_eq!(done[2]["serverContent"], json!({ "turnComplete": true }));
    assert_eq!(done[2]["usageMetadata"]["totalTokenCount"], 0);
    assert_eq!(handle::turns(&handle(&done[3])), Some(1));
    // Another session goes on from there.
    let (mut next, _) = open(&json!({ "setup": { "model": "m", "sessionResumption": { "handle": handle(&done[3]) } } }).to_string());
    assert_eq!(handle::turns(&handle(&hear(&mut next, accepted())[1])), Some(1));
    let cut = hear(&mut gemini, end(ResponseStatus::Interrupted));
    assert_eq!(cut[0], json!({ "serverContent": { "interrupted": true } }));
    assert_eq!(cut[1]["serverContent"], json!({ "turnComplete": true }));
    assert_eq!(hear(&mut gemini, end(ResponseStatus::Cancelled)), Vec::<Value>::new());
    assert_eq!(hear(&mut gemini, ServerEvent::GoingAway { left_ms: 49_500 }), [json!({ "goAway": { "timeLeft": "49.500s" } })]);
}

#[test]
fn tools_are_called_by_object_and_answered_by_id() {
    let (mut gemini, _) = open(PLAIN);
    let call = |id: &str| ServerEvent::ToolCall { call_id: id.to_owned(), name: "f".to_owned(), arguments: r#"{"a":1}"#.to_owned() };
    let told = json!({ "toolCall": { "functionCalls": [{ "id": "call-1", "name": "f", "args": { "a": 1 } }] } });
    assert_eq!(hear(&mut gemini, call("call-1")), [told]);
    let cancel = ServerEvent::ToolCancel { call_id: "call-1".to_owned() };
    assert_eq!(hear(&mut gemini, cancel), [json!({ "toolCallCancellation": { "ids": ["call-1"] } })]);
    let result = r#"{"tool_response":{"function_responses":[{"id":"call-1","name":"f","response":{"error":"no"}}]}}"#;
    let expected = ClientEvent::ToolResult { call_id: "call-1".to_owned(), output: r#"{"error":"no"}"#.to_owned(), failed: true };
    assert_eq!(say(&mut gemini, result), [Ok(expected)]);
}

#[test]
fn a_text_client_hears_no_audio() {
    let (mut gemini, _) = open(r#"{"setup":{"model":"m","generationConfig":{"responseModalities":["TEXT"]}}}"#);
    hear(&mut gemini, ServerEvent::ResponseStart { response: ResponseId(1), turn: TurnId(1), text: "well yes".to_owned() });
    let said: Vec<Value> = (0..40).flat_map(|_| hear(&mut gemini, audio_frame())).collect();
    let part = |text: &str| json!({ "serverContent": { "modelTurn": { "role": "model", "parts": [{ "text": text }] } } });
    assert_eq!(said, [part("well"), part(" yes")]);
}

#[test]
fn an_orderly_close_is_the_goodbye() {
    for (code, goodbye) in [(1000, true), (1005, true), (1001, false), (1011, false)] {
        let (mut gemini, _) = open(PLAIN);
        let mut said = Vec::new();
        gemini.closed(code, &mut Exchange::new(&mut |event| said.push(event), &mut |_| panic!("no answer is due")));
        assert_eq!(matches!(said.as_slice(), [Ok(ClientEvent::End { .. })]), goodbye, "{code}");
    }
}

#[test]
fn paths_of_every_version_are_served_and_others_not() {
    for path in [
        "/ws/google.ai.generativelanguage.v1.GenerativeService.BidiGenerateContent",
        "/ws/google.ai.generativelanguage.v1alpha.GenerativeService.BidiGenerateContentConstrained",
        "/ws/google.cloud.aiplatform.v1beta1.LlmBidiService/BidiGenerateContent",
    ] {
        assert!((WEBSOCKET.serves)(path), "{path}");
    }
    for path in ["/", "/BidiGenerateContent/x", "/v1/realtime"] {
        assert!(!(WEBSOCKET.serves)(path), "{path}");
    }
}
