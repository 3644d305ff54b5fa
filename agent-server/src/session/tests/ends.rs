//! How sessions end, and what a client may not say.

use super::*;
use proto::frame::{MAX_NAME_BYTES, MAX_TEXT_BYTES, MAX_TOOLS};

#[test]
fn goodbye_completes_and_closes_what_was_under_way() {
    let mut bench = Bench::new();
    bench.speak(100);
    bench.say(ClientEvent::End { reason: String::new() });
    assert_eq!(bench.take().last_chunk::<2>().unwrap(), &["ended completed 100ms in 5 out 0", "END completed"]);

    let mut bench = Bench::new();
    bench.turn().wait(THINK + 30).take();
    bench.say(ClientEvent::End { reason: String::new() });
    assert_eq!(bench.take(), ["end 1 Cancelled 2", "ended completed 930ms in 0 out 2", "END completed"]);

    let mut bench = Bench::new();
    bench.hint("order", 0, "").turn().wait(THINK).take();
    bench.act(Session::on_drain);
    assert_eq!(bench.take(), ["uncall call-1", "ended drained 900ms in 0 out 0", "END drained"]);
}

#[test]
fn nothing_follows_an_end() {
    type End = fn(&mut Session, Micros, &mut Vec<Effect>);
    let ends: [(End, &str); 5] = [
        (Session::on_disconnect, "END cancelled"),
        (Session::on_keepalive_timeout, "END timed_out"),
        (Session::on_drain, "END drained"),
        (|s, now, out| s.on_event(ClientEvent::Start(start(AudioFormat::Pcm16k)), now, out), "END failed AlreadyStarted"),
        (|s, now, out| s.on_error(SessionError::fatal(ErrorCode::MalformedMessage, "x"), now, out), "END failed MalformedMessage"),
    ];
    for (end, word) in ends {
        let mut bench = Bench::new();
        bench.turn().wait(THINK + 30);
        bench.act(end);
        assert!(bench.session.ended());
        assert_eq!(bench.session.next_wake(), Micros::NEVER);
        assert_eq!(bench.take().last().unwrap(), word);
        for (again, _) in ends {
            bench.act(again);
        }
        bench.speak(200).turn().result("call-1").barge_in(None, 0);
        bench.now = Micros::NEVER;
        bench.act(Session::step);
        assert_eq!(bench.take(), [] as [&str; 0], "after {word}");
    }
}

#[test]
fn a_client_is_not_idle_before_it_is_accepted() {
    let (now, wait) = (Micros(7), Duration::from_mins(2));
    let mut session = Session::new(Arc::new(config()), 0, String::new(), start(AudioFormat::Pcm16k), wait, now, &mut Vec::new());
    let mut out = Vec::new();
    session.step(now + wait, &mut out);
    assert!(!session.ended(), "{out:?}");
    session.step(now + wait + config().idle_timeout, &mut out);
    assert!(matches!(out.last(), Some(Effect::End { outcome: Outcome::TimedOut, .. })), "{out:?}");
}

#[test]
fn silent_ends_tell_nobody() {
    for end in [Session::on_disconnect as fn(&mut Session, Micros, &mut Vec<Effect>), Session::on_keepalive_timeout] {
        let mut bench = Bench::new();
        bench.turn().wait(THINK + 30).take();
        bench.act(end);
        assert_eq!(bench.take().len(), 1);
    }
}

#[test]
fn the_smaller_deadline_holds() {
    for (theirs, expected) in [(0, 1_200_000), (2_000, 2_000), (u32::MAX, 1_200_000)] {
        let mut out = Vec::new();
        let start = SessionStart { max_duration_ms: theirs, idle_timeout_ms: theirs / 2, ..start(AudioFormat::Pcm16k) };
        Session::new(Arc::new(config()), 0, String::new(), start, Duration::ZERO, Micros(7), &mut out);
        let [Effect::Send(ServerEvent::Accepted(accepted))] = &out[..] else { panic!("{out:?}") };
        assert_eq!((accepted.max_duration_ms, accepted.idle_timeout_ms), (expected, if theirs == 2_000 { 1_000 } else { 60_000 }));
    }
}

#[test]
fn the_longest_life_follows_from_the_dialect_where_it_is_not_set() {
    const HOUR: u32 = 3_600_000;
    for (ours, theirs, expected) in [
        (None, 0, HOUR),
        (None, HOUR, HOUR),
        (None, 2 * HOUR, HOUR),
        (None, 2_000, 2_000),
        (Some(60_000), HOUR, 60_000),
        (Some(2 * HOUR), HOUR, HOUR),
    ] {
        let mut out = Vec::new();
        let start = SessionStart { max_duration_ms: theirs, default_duration_ms: HOUR, ..start(AudioFormat::Pcm16k) };
        let config = SessionConfig { max_duration: ours.map(|ms| Duration::from_millis(u64::from(ms))), ..config() };
        Session::new(Arc::new(config), 0, String::new(), start, Duration::ZERO, Micros(7), &mut out);
        let [Effect::Send(ServerEvent::Accepted(accepted))] = &out[..] else { panic!("{out:?}") };
        assert_eq!(accepted.max_duration_ms, expected, "{ours:?}, {theirs}");
    }
}

#[test]
fn a_session_lives_until_its_deadline_whatever_it_says() {
    let mut bench = Bench::with(SessionConfig { max_duration: Some(Duration::from_secs(2)), ..config() }, AudioFormat::Pcm16k);
    bench.silence(1_980).wait_us(19_999);
    assert!(!bench.session.ended());
    bench.take();
    bench.wait_us(1);
    assert_eq!(bench.take(), ["fatal Deadline", "ended timed_out 2000ms in 99 out 0", "END timed_out Deadline"]);
    // A message does not get in before it, either.
    let mut bench = Bench::with(SessionConfig { max_duration: Some(Duration::from_secs(2)), ..config() }, AudioFormat::Pcm16k);
    bench.now += Duration::from_secs(3);
    bench.say(ClientEvent::End { reason: String::new() });
    assert_eq!(bench.take().last().unwrap(), "END timed_out Deadline");
}

#[test]
fn only_messages_put_off_the_idle_timeout() {
    let mut bench = Bench::new();
    bench.wait(59_000);
    bench.act(|s, now, out| s.on_error(SessionError::warning(ErrorCode::MalformedMessage, "x"), now, out));
    bench.take();
    bench.wait(59_999);
    assert_eq!(bench.take(), [] as [&str; 0]);
    bench.wait(1);
    assert_eq!(bench.take(), ["fatal Idle", "ended timed_out 119000ms in 0 out 0", "END timed_out Idle"]);
}

#[test]
fn an_idle_session_wakes_for_its_deadlines_only() {
    let mut bench = Bench::new();
    assert_eq!(bench.session.next_wake(), bench.now + Duration::from_mins(1));
    bench.silence(1_000);
    assert_eq!(bench.session.next_wake(), Micros(bench.now.0 - 20_000) + Duration::from_mins(1));
}

#[test]
fn bad_audio_costs_the_frame_and_a_warning() {
    let cases: [(AudioFormat, usize, bool); 9] = [
        (AudioFormat::Pcm16k, 0, false),
        (AudioFormat::Pcm16k, 639, false),
        (AudioFormat::Pcm16k, 2, true),
        (AudioFormat::Pcm16k, 32_000, true),
        (AudioFormat::Pcm16k, 32_002, false),
        (AudioFormat::Mulaw8k, 159, true),
        (AudioFormat::Mulaw8k, 8_001, false),
        (AudioFormat::Pcm24k, 48_000, true),
        (AudioFormat::Pcm24k, 48_002, false),
    ];
    for (format, bytes, good) in cases {
        let mut bench = Bench::with(config(), format);
        bench.take();
        bench.audio(Bytes::from(vec![format.silence_byte(); bytes]));
        let expected = if good { "ack 0" } else { "warning BadAudio" };
        assert_eq!(bench.take(), [expected], "{format} {bytes}");
        assert_eq!(bench.session.frames().0, u64::from(good));
        bench.frame(0);
        assert_eq!(bench.take(), [] as [&str; 0], "no gap after it");
    }
}

#[test]
fn each_gap_and_each_repeat_is_told_once() {
    let mut bench = Bench::new();
    bench.silence(60).take();
    for (sequence, expected) in
        [(7, true), (8, false), (8, true), (9, false), (0, true), (1, false), (u64::MAX, true), (2, true), (3, false)]
    {
        bench.sequence = sequence;
        bench.say(ClientEvent::Audio(ClientAudio { sequence, timestamp_us: 0, payload: Bytes::from_static(&[0; 640]), ack: false }));
        let told = if expected { vec!["warning SequenceGap"] } else { vec![] };
        assert_eq!(bench.take(), told, "{sequence}");
    }
    assert_eq!(bench.session.frames().0, 12);
}

#[test]
fn fields_out_of_their_limits_are_refused_and_the_session_lives() {
    let long = "x".repeat(MAX_TEXT_BYTES + 1);
    let context = |role: &str, text: &str| ClientEvent::Context { role: role.to_owned(), text: text.to_owned() };
    let hint = |tool: &str, ms: u32, text: &str| {
        ClientEvent::Hint(TurnHint { tool: Some(tool.to_owned()), response_ms: Some(ms), text: Some(text.to_owned()) })
    };
    let result = |id: &str, output: &str| ClientEvent::ToolResult { call_id: id.to_owned(), output: output.to_owned(), failed: true };
    let cases = [
        (context("user", "hello"), None),
        (context("robot", "hello"), Some("warning InvalidArgument")),
        (context("agent", &long), Some("warning InvalidArgument")),
        (hint("order", MAX_RESPONSE_HINT_MS, "x"), None),
        (hint("", 0, ""), None),
        (hint("pizza", 0, ""), Some("warning InvalidArgument")),
        (hint("", MAX_RESPONSE_HINT_MS + 1, ""), Some("warning InvalidArgument")),
        (hint("", 0, &long), Some("warning InvalidArgument")),
        (result(&"x".repeat(MAX_NAME_BYTES + 1), ""), Some("warning InvalidArgument")),
        (result("call-1", &long), Some("warning InvalidArgument")),
        (result("call-1", ""), Some("warning UnknownToolCall")),
        (result("call-0", ""), Some("warning UnknownToolCall")),
        (result("", ""), Some("warning UnknownToolCall")),
    ];
    for (event, expected) in cases {
        let mut bench = Bench::new();
        bench.take();
        let shown = format!("{event:.80?}");
        bench.say(event);
        assert_eq!(bench.take(), expected.into_iter().collect::<Vec<_>>(), "{shown}");
        assert_eq!(bench.phase(), Some(Phase::Listening));
    }
}

#[test]
fn a_start_is_checked_before_admission() {
    let base = || start(AudioFormat::Pcm16k);
    let tools = |names: &[&str]| SessionStart { tools: names.iter().map(|&n| n.to_owned()).collect(), ..base() };
    let many: Vec<String> = (0..=MAX_TOOLS).map(|n| format!("t{n}")).collect();
    let good = [
        base(),
        SessionStart { client_ref: String::new(), tools: Vec::new(), ..base() },
        SessionStart { client_ref: "~".repeat(MAX_NAME_BYTES), tools: many[1..].to_vec(), ..base() },
        tools(&[&"a".repeat(64), "A-9_z"]),
    ];
    for start in good {
        assert_eq!(validate_start(&start), Ok(()));
    }
    let bad = [
        SessionStart { client_ref: "x".repeat(MAX_NAME_BYTES + 1), ..base() },
        SessionStart { client_ref: "tab\t".to_owned(), ..base() },
        SessionStart { client_ref: "grün".to_owned(), ..base() },
        SessionStart { voice: "x".repeat(MAX_NAME_BYTES + 1), ..base() },
        SessionStart { voice: "\0".to_owned(), ..base() },
        SessionStart { tools: many, ..base() },
        tools(&[""]),
        tools(&[&"a".repeat(65)]),
        tools(&["no spaces"]),
        tools(&["twice", "twice"]),
    ];
    for start in bad {
        let error = validate_start(&start).unwrap_err();
        assert!(error.fatal && error.code == ErrorCode::InvalidArgument && error.message.starts_with("start."), "{error:?}");
    }
}
