//! Turns that are taken in other ways than the native protocol's, and what dialects are told of each step.

use proto::frame::{ResponseWish, ServerEvent, SessionSettings, ToolChoice, TurnTaking};

use super::*;

/// What happened, with the steps that only some dialects name.
fn steps(bench: &mut Bench) -> Vec<String> {
    let out = std::mem::take(&mut bench.out);
    let step = |effect: &Effect| match effect {
        Effect::Send(ServerEvent::Committed { turn }) => Some(format!("committed {}", turn.0)),
        Effect::Send(ServerEvent::Answering { turn }) => Some(format!("answering {}", turn.0)),
        Effect::Send(ServerEvent::AnswerDropped { turn, status }) => Some(format!("dropped {} {status:?}", turn.0)),
        Effect::Send(ServerEvent::Audio(_) | ServerEvent::Ack { .. } | ServerEvent::Transcript { last: false, .. }) => None,
        other => word(other),
    };
    out.iter().filter_map(step).collect()
}

fn taking(turns: TurnTaking) -> Bench {
    let mut bench = Bench::new();
    bench.say(ClientEvent::Configure(Box::new(SessionSettings { turns: Some(turns), ..SessionSettings::default() })));
    steps(&mut bench);
    bench
}

fn manual() -> Bench {
    taking(TurnTaking { detect: false, ..TurnTaking::default() })
}

fn respond(tool: ToolChoice, text: Option<&str>) -> ClientEvent {
    ClientEvent::Respond(ResponseWish { tool, text: text.map(str::to_owned) })
}

#[test]
fn a_detected_turn_is_committed_and_work_on_its_answer_is_told() {
    let mut bench = Bench::new();
    steps(&mut bench);
    bench.speak(700).silence(600).wait(3_000);
    assert_eq!(
        steps(&mut bench),
        [
            "[user_speaking]",
            "speech from 0",
            "[thinking]",
            "speech to 700",
            "committed 1",
            "answering 1",
            "final 1",
            "[agent_speaking]",
            "response 1 to 1",
            "[listening]",
            "end 1 Completed 50"
        ]
    );
}

#[test]
fn an_answer_that_is_interrupted_before_it_is_heard_is_told_to_be_dropped() {
    let mut bench = Bench::new();
    bench.speak(700).silence(520);
    steps(&mut bench);
    bench.speak(100);
    assert_eq!(steps(&mut bench), ["[user_speaking]", "speech from 1220", "dropped 1 Interrupted"]);
}

#[test]
fn without_a_detector_the_client_commits_and_asks() {
    let mut bench = manual();
    bench.silence(200);
    assert_eq!(steps(&mut bench), [] as [&str; 0], "silence is nobody speaking");
    bench.speak(700).silence(2_000);
    assert_eq!(steps(&mut bench), ["[user_speaking]"], "no silence ends the turn");
    bench.say(ClientEvent::Commit).wait(3_000);
    assert_eq!(steps(&mut bench), ["[listening]", "committed 1", "final 1"], "and no answer comes unasked");
    bench.say(respond(ToolChoice::Auto, None)).wait(3_000);
    assert_eq!(
        steps(&mut bench),
        ["[thinking]", "answering 1", "[agent_speaking]", "response 1 to 1", "[listening]", "end 1 Completed 50"]
    );
    bench.say(ClientEvent::Commit);
    assert_eq!(steps(&mut bench), ["warning InvalidArgument"], "there is nothing to commit");
}

#[test]
fn what_was_discarded_cannot_be_committed() {
    let mut bench = manual();
    bench.speak(300).say(ClientEvent::Discard).say(ClientEvent::Commit);
    assert_eq!(steps(&mut bench), ["[user_speaking]", "[listening]", "warning InvalidArgument"]);
    let mut bench = Bench::new();
    bench.speak(300).say(ClientEvent::Discard);
    steps(&mut bench);
    bench.silence(2_000);
    assert_eq!(steps(&mut bench), [] as [&str; 0], "the detector forgot it too");
}

#[test]
fn a_second_wish_while_one_is_answered_is_refused_and_changes_nothing() {
    let mut bench = manual();
    bench.say(respond(ToolChoice::Auto, Some("hello"))).say(respond(ToolChoice::Auto, None)).wait(500).say(respond(ToolChoice::Auto, None));
    bench.wait(3_000);
    assert_eq!(
        steps(&mut bench),
        [
            "[thinking]",
            "answering 0",
            "warning InvalidArgument",
            "[agent_speaking]",
            "response 1 to 0",
            "warning InvalidArgument",
            "[listening]",
            "end 1 Completed 50"
        ]
    );
}

#[test]
fn without_respond_a_turn_is_transcribed_and_waits_for_the_wish() {
    let mut bench = taking(TurnTaking { respond: false, ..TurnTaking::default() });
    bench.speak(700).silence(600).wait(3_000);
    assert_eq!(steps(&mut bench), ["[user_speaking]", "speech from 0", "[listening]", "speech to 700", "committed 1", "final 1"]);
}

#[test]
fn without_interrupt_the_answer_goes_on_and_the_turn_beside_it_is_kept() {
    let mut bench = taking(TurnTaking { interrupt: false, ..TurnTaking::default() });
    bench.speak(700).silence(900);
    steps(&mut bench);
    bench.speak(600).silence(1_500);
    assert_eq!(
        steps(&mut bench),
        [
            "speech from 1600",
            "[user_speaking]",
            "end 1 Completed 50",
            "[thinking]",
            "speech to 2200",
            "committed 2",
            "answering 2",
            "final 2",
            "[agent_speaking]",
            "response 2 to 2"
        ],
        "speech that outlasts the answer is the next turn"
    );
    // This time it ends while the answer goes on: transcribed, not answered.
    let mut bench = taking(TurnTaking { interrupt: false, silence_ms: 200, ..TurnTaking::default() });
    bench.speak(700).silence(600);
    steps(&mut bench);
    bench.speak(200).silence(1_500);
    assert_eq!(steps(&mut bench), ["speech from 1300", "speech to 1500", "committed 2", "final 2", "[listening]", "end 1 Completed 50"]);
}

#[test]
fn the_silence_that_ends_a_turn_is_the_clients_choice() {
    let mut bench = taking(TurnTaking { silence_ms: 200, ..TurnTaking::default() });
    bench.speak(400).silence(180);
    assert_eq!(steps(&mut bench), ["[user_speaking]", "speech from 0"]);
    bench.silence(20);
    assert_eq!(steps(&mut bench), ["[thinking]", "speech to 400", "committed 1", "answering 1"]);
}

#[test]
fn without_resume_a_tools_result_waits_for_the_wish_however_late() {
    let mut bench = taking(TurnTaking { resume: false, ..TurnTaking::default() });
    bench.say(respond(ToolChoice::Named("order".to_owned()), Some("one pizza"))).wait(500);
    assert_eq!(steps(&mut bench), ["[thinking]", "answering 0", "[tool_calling]", "call call-1 order"]);
    bench.wait(30_000).result("call-1");
    assert_eq!(steps(&mut bench), [] as [&str; 0]);
    bench.result("call-1");
    assert_eq!(steps(&mut bench), ["warning UnknownToolCall"], "it was answered");
    bench.say(respond(ToolChoice::Auto, None)).wait(3_000);
    assert_eq!(
        steps(&mut bench),
        ["[thinking]", "answering 0", "[agent_speaking]", "response 1 to 0", "[listening]", "end 1 Completed 50"]
    );
}

#[test]
fn a_tool_is_called_by_wish_by_name_in_the_text_or_not_at_all() {
    let called = |tool: ToolChoice, text: Option<&str>| {
        let mut bench = manual();
        bench.say(respond(tool, text)).wait(1_000);
        steps(&mut bench).into_iter().find_map(|step| step.strip_prefix("call call-1 ").map(str::to_owned))
    };
    assert_eq!(called(ToolChoice::Auto, None), None);
    assert_eq!(called(ToolChoice::Any, None).as_deref(), Some("weather"));
    assert_eq!(called(ToolChoice::Named("order".to_owned()), None).as_deref(), Some("order"));
    assert_eq!(called(ToolChoice::Named("nothing".to_owned()), None), None);
    assert_eq!(called(ToolChoice::Auto, Some("please call order now")).as_deref(), Some("order"));
    assert_eq!(called(ToolChoice::Auto, Some("a reorder, please")), None, "a part of a word is no name");
    assert_eq!(called(ToolChoice::Never, Some("please call order now")), None);
}

#[test]
fn settings_change_formats_voice_and_tools_and_wrong_ones_change_nothing() {
    let mut bench = manual();
    let settings = |tools: &[&str]| {
        ClientEvent::Configure(Box::new(SessionSettings {
            input: Some(AudioFormat::Alaw8k),
            output: Some(AudioFormat::Mulaw8k),
            tools: Some(tools.iter().map(|&tool| tool.to_owned()).collect()),
            ..SessionSettings::default()
        }))
    };
    bench.say(settings(&["two", "two"]));
    assert_eq!(steps(&mut bench), ["warning InvalidArgument"]);
    bench.speak(100);
    assert_eq!(steps(&mut bench), ["[user_speaking]"], "PCM as before");
    bench.say(ClientEvent::Discard).say(settings(&["two"]));
    bench.format = AudioFormat::Alaw8k;
    bench.speak(100).say(ClientEvent::Commit).say(respond(ToolChoice::Any, None)).wait(1_000);
    assert!(steps(&mut bench).contains(&"call call-1 two".to_owned()));
    bench.result("call-1").wait(1_000);
    assert!(bench.audio_sent().iter().all(|(_, audio)| audio.payload.len() == AudioFormat::Mulaw8k.frame_bytes()));
}

#[test]
fn who_asks_to_be_warned_of_the_end_is_warned_once() {
    let mut out = Vec::new();
    let begin = Micros(0);
    let start = SessionStart { max_duration_ms: 60_000, warning_ms: 3_000, ..start(AudioFormat::Pcm16k) };
    let mut session = Session::new(Arc::new(config()), 1, "s".to_owned(), start, Duration::ZERO, begin, &mut out);
    let mut warned = Vec::new();
    while session.next_wake() <= Micros::from_millis(59_999) {
        let now = session.next_wake();
        out.clear();
        session.step(now, &mut out);
        warned.extend(out.iter().filter_map(word).map(|word| (now.as_millis(), word)));
    }
    assert_eq!(warned, [(57_000, "going away in 3000ms".to_owned())]);
}

#[test]
fn a_truncation_must_name_a_response_that_was() {
    let mut bench = Bench::new();
    let truncate = |response| ClientEvent::Truncate { response: ResponseId(response), heard_ms: 100 };
    bench.say(truncate(1));
    assert_eq!(steps(&mut bench), ["accepted", "warning InvalidArgument"]);
    bench.turn().wait(3_000);
    steps(&mut bench);
    bench.say(truncate(1)).say(ClientEvent::Played { name: "m".to_owned() }).say(ClientEvent::Digit('1'));
    assert_eq!(steps(&mut bench), [] as [&str; 0]);
}
