use http::HeaderMap;
use proto::{
    audio::AudioFormat,
    frame::AgentAudio,
    ids::{ResponseId, TurnId},
};
use serde_json::{Value, json};

use super::*;

fn bot() -> Bot {
    let mut headers = HeaderMap::new();
    headers.insert(proto::frame::CLIENT_REF_HEADER, "by-header".parse().unwrap());
    Bot::new(&Upgrade { path: "/twilio", query: "", headers: &headers })
}

fn hear(bot: &mut Bot, text: &str) -> Result<Vec<ClientEvent>, SessionError> {
    let mut all = Vec::new();
    bot.decode(Frame::Text(text.into()), &mut Exchange::new(&mut |event| all.push(event), &mut |frame| panic!("{frame:?}")));
    all.into_iter().collect()
}

fn say(bot: &mut Bot, event: ServerEvent) -> Vec<Value> {
    let mut all = Vec::new();
    bot.encode(event, &mut Exchange::new(&mut |event| panic!("{event:?}"), &mut |frame| all.push(frame)));
    let json = |frame| match frame {
        Frame::Text(text) => serde_json::from_str(&text).unwrap(),
        Frame::Binary(_) => panic!("a binary frame"),
    };
    all.into_iter().map(json).collect()
}

fn audio(payload: &'static [u8]) -> ServerEvent {
    ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, payload: Bytes::from_static(payload), response: ResponseId(1) })
}

fn ended(status: ResponseStatus) -> ServerEvent {
    ServerEvent::ResponseEnd { response: ResponseId(7), status, frames: 3 }
}

const TWILIO: &str = r#"{"event":"start","sequenceNumber":"1","streamSid":"MZ1","start":{"accountSid":"AC1","streamSid":"MZ1","callSid":"CA1",
    "tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1},"customParameters":{"client_ref":"s-1","voice":"v"}}}"#;
const TELNYX: &str = r#"{"event":"start","sequence_number":"1","stream_id":"st\"1","start":{"user_id":"u","call_control_id":"cc","media_format":
    {"encoding":"PCMA","sample_rate":8000,"channels":1}}}"#;
const PLIVO: &str = r#"{"event":"start","sequenceNumber":0,"start":{"callId":"c","streamId":"st1","accountId":"a","tracks":["inbound"],
    "mediaFormat":{"encoding":"audio/x-l16","sampleRate":16000}},"extra_headers":"{}"}"#;
const EXOTEL: &str = r#"{"event":"start","sequence_number":"1","stream_sid":"st1","start":{"stream_sid":"st1","call_sid":"c","account_sid":"a",
    "custom_parameters":{"client_ref":"s-2"},"media_format":{"encoding":"base64","sample_rate":"8000","bit_rate":"128kbps"}}}"#;

fn started(text: &str) -> (Bot, SessionStart) {
    let mut bot = bot();
    assert_eq!(hear(&mut bot, r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#), Ok(vec![]));
    let said = hear(&mut bot, text).unwrap();
    let [ClientEvent::Start(start)] = &said[..] else { panic!("{said:?}") };
    (bot, start.clone())
}

#[test]
fn a_start_opens_the_session_in_the_format_of_its_variant() {
    for (text, variant, format, client_ref) in [
        (TWILIO, Variant::Twilio, AudioFormat::Mulaw8k, "s-1"),
        (TELNYX, Variant::Telnyx, AudioFormat::Alaw8k, "by-header"),
        (PLIVO, Variant::Plivo, AudioFormat::Pcm16k, "by-header"),
        (EXOTEL, Variant::Exotel, AudioFormat::Pcm8k, "s-2"),
    ] {
        let (bot, start) = started(text);
        assert_eq!(bot.call.unwrap().call.variant, variant);
        assert_eq!((start.input, start.output, start.client_ref.as_str()), (format, format, client_ref), "{variant:?}");
    }
    assert_eq!(started(TWILIO).1.voice, "v");
}

#[test]
fn each_variant_is_answered_in_its_own_words() {
    for (text, media, mark, clear) in [
        (
            TWILIO,
            json!({"event": "media", "streamSid": "MZ1", "media": {"payload": "AAEC"}}),
            json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": "response-7"}}),
            json!({"event": "clear", "streamSid": "MZ1"}),
        ),
        (
            TELNYX,
            json!({"event": "media", "stream_id": "st\"1", "media": {"payload": "AAEC"}}),
            json!({"event": "mark", "stream_id": "st\"1", "mark": {"name": "response-7"}}),
            json!({"event": "clear", "stream_id": "st\"1"}),
        ),
        (
            PLIVO,
            json!({"event": "playAudio", "streamId": "st1", "media": {"contentType": "audio/x-l16", "sampleRate": 16000, "payload": "AAEC"}}),
            json!({"event": "checkpoint", "streamId": "st1", "name": "response-7"}),
            json!({"event": "clearAudio", "streamId": "st1"}),
        ),
        (
            EXOTEL,
            json!({"event": "media", "stream_sid": "st1", "media": {"payload": "AAEC"}}),
            json!({"event": "mark", "stream_sid": "st1", "mark": {"name": "response-7"}}),
            json!({"event": "clear", "stream_sid": "st1"}),
        ),
    ] {
        let (mut bot, _) = started(text);
        assert_eq!(say(&mut bot, audio(&[0, 1, 2])), [media]);
        assert_eq!(say(&mut bot, ended(ResponseStatus::Completed)), [mark]);
        assert_eq!(say(&mut bot, ended(ResponseStatus::Interrupted)), [clear]);
        let start = ServerEvent::ResponseStart { response: ResponseId(1), turn: TurnId(1), text: "hello".into() };
        assert_eq!(say(&mut bot, start), Vec::<Value>::new());
    }
}

#[test]
fn the_network_is_heard() {
    let (mut bot, _) = started(TWILIO);
    let media = |payload: &str| {
        json!({"event": "media", "streamSid": "MZ1", "media": {"track": "inbound", "chunk": "9", "payload": payload}}).to_string()
    };
    let said = hear(&mut bot, &media(&base64::encode(&[0xff; 160]))).unwrap();
    let [ClientEvent::Audio(audio)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((audio.sequence, audio.timestamp_us, audio.payload.len()), (0, 0, 160));
    // An older chunk that comes late, with an escaped slash.
    let said = hear(&mut bot, r#"{"event":"media","streamSid":"MZ1","media":{"chunk":"2","payload":"\/\/8="}}"#).unwrap();
    let [ClientEvent::Audio(audio)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((audio.sequence, audio.timestamp_us, &audio.payload[..]), (1, 20_000, &[0xff, 0xff][..]));
    let digit = r##"{"event":"dtmf","streamSid":"MZ1","dtmf":{"track":"inbound_track","digit":"#"}}"##;
    assert_eq!(hear(&mut bot, digit), Ok(vec![ClientEvent::Digit('#')]));
    let mark = r#"{"event":"mark","streamSid":"MZ1","mark":{"name":"response-1"}}"#;
    assert_eq!(hear(&mut bot, mark), Ok(vec![ClientEvent::Played { name: "response-1".into() }]));
    assert_eq!(hear(&mut bot, r#"{"event":"clearedAudio","streamSid":"MZ1"}"#), Ok(vec![]));
    let stop = r#"{"event":"stop","streamSid":"MZ1","stop":{"accountSid":"AC1","callSid":"CA1"}}"#;
    assert_eq!(hear(&mut bot, stop), Ok(vec![ClientEvent::End { reason: "stop".into() }]));
    let (mut plivo, _) = started(PLIVO);
    let played = r#"{"event":"playedStream","sequenceNumber":3,"streamId":"st1","name":"response-1"}"#;
    assert_eq!(hear(&mut plivo, played), Ok(vec![ClientEvent::Played { name: "response-1".into() }]));
}

#[test]
fn a_close_is_a_goodbye_where_there_is_no_other() {
    for (text, said) in [(TWILIO, 0), (PLIVO, 1)] {
        let (mut bot, _) = started(text);
        let mut all = Vec::new();
        for code in [1000, 1001] {
            bot.closed(code, &mut Exchange::new(&mut |event| all.push(event), &mut |_| {}));
        }
        assert_eq!(all.len(), said, "{all:?}");
    }
}

#[test]
fn what_is_wrong_is_said_and_ends_the_session() {
    use ErrorCode::{AlreadyStarted, BadAudio, InvalidArgument, MalformedMessage, NotStarted, UnsupportedFormat};
    for (text, code, says) in [
        ("hello", MalformedMessage, "expected"),
        ("[]", MalformedMessage, "event"),
        (r#"{"evnt":"start"}"#, MalformedMessage, "missing field `event`"),
        (r#"{"event":"media","media":{"payload":""}}"#, NotStarted, "`media` came before `start`"),
        (r#"{"event":"stop"}"#, NotStarted, "`stop` came before `start`"),
        (r#"{"event":"start"}"#, MalformedMessage, "`start` without `start`"),
        (r#"{"event":"start","start":{}}"#, MalformedMessage, "must name its stream"),
        (
            r#"{"event":"start","streamSid":"MZ","start":{"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":16000}}}"#,
            UnsupportedFormat,
            "`audio/x-mulaw` at 16000 Hz",
        ),
        (
            r#"{"event":"start","streamSid":"MZ","start":{"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":2}}}"#,
            UnsupportedFormat,
            "2 channel(s)",
        ),
    ] {
        let error = hear(&mut bot(), text).unwrap_err();
        assert!(error.fatal && error.code == code && error.message.contains(says), "{text}: {error:?}");
    }
    for (text, code, says) in [
        (TWILIO, AlreadyStarted, "a second `start`"),
        (r#"{"event":"media","streamSid":"MZ1"}"#, MalformedMessage, "`media` without `media`"),
        (r#"{"event":"media","streamSid":"MZ1","media":{}}"#, MalformedMessage, "media.payload"),
        (r#"{"event":"media","streamSid":"MZ1","media":{"payload":"?"}}"#, BadAudio, "not base64"),
        (r#"{"event":"media","streamSid":"MZ1","media":{"track":"outbound","payload":""}}"#, InvalidArgument, "`outbound`"),
        (r#"{"event":"media","streamSid":"MZ2","media":{"payload":""}}"#, InvalidArgument, "`MZ2`"),
        (r#"{"event":"dtmf","streamSid":"MZ1","dtmf":{"digit":"12"}}"#, InvalidArgument, "`12`"),
        (r#"{"event":"dtmf","streamSid":"MZ1"}"#, MalformedMessage, "dtmf.digit"),
        (r#"{"event":"mark","streamSid":"MZ1","mark":{}}"#, MalformedMessage, "mark.name"),
    ] {
        let error = hear(&mut started(TWILIO).0, text).unwrap_err();
        assert!(error.fatal && error.code == code && error.message.contains(says), "{text}: {error:?}");
    }
    let odd = r#"{"event":"media","stream_sid":"st1","media":{"payload":"AAAA"}}"#;
    assert_eq!(hear(&mut started(EXOTEL).0, odd).unwrap_err().code, BadAudio);
    let long = json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": "x".repeat(200)}}).to_string();
    assert_eq!(hear(&mut started(TWILIO).0, &long).unwrap_err().code, InvalidArgument);
}
