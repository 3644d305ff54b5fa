use super::*;

/// Turns begin 500 after acceptance (at 1500) and after each other; speech onset at 30 ms and end at 170 ms of ten frames.
fn session(turns: usize) -> SessionPlan {
    plan(scenario((0..turns).map(|_| turn(500, ActTemplate::Listen)).collect()))
}

fn session_with(turns: usize, change: impl FnOnce(&mut ScenarioPlan)) -> SessionPlan {
    let mut scenario = scenario((0..turns).map(|_| turn(500, ActTemplate::Listen)).collect());
    change(&mut scenario);
    plan(scenario)
}

#[test]
fn frames_go_at_absolute_times_without_gaps() {
    let mut bench = Bench::live(session(1));
    bench.hear(1_690, speech(false));
    bench.run(3_000);
    // Each when the last of it was spoken.
    assert_eq!(bench.frame_times(), (1..=10).map(|n| 1_500 + 20 * n).collect::<Vec<_>>());
    for (n, (_, frame)) in bench.frames().iter().enumerate() {
        assert_eq!((frame.sequence, frame.timestamp_us), (n as u64, 500_000 + 20_000 * n as u64));
        assert_eq!(frame.payload[0], 1, "what is said, not silence");
    }
    assert_eq!(bench.count(Counter::FramesSent), 10);
    assert_eq!(bench.count(Counter::SpeechUs), 140_000);
    assert_eq!(bench.count(Counter::Turns), 1);
}

#[test]
fn a_late_step_sends_every_due_frame_with_its_own_lag() {
    let mut bench = Bench::live(session(1));
    bench.run(1_540);
    bench.late(1_625);
    let lags = bench.samples(Metric::ScheduleLag);
    assert_eq!(
        lags,
        [
            (1_520, 1_520, 1_520),
            (1_540, 1_540, 1_540),
            (1_560, 1_560, 1_625),
            (1_580, 1_580, 1_625),
            (1_600, 1_600, 1_625),
            (1_620, 1_620, 1_625)
        ]
    );
    bench.run(3_000);
    assert_eq!(bench.frame_times()[6..10], [1_640, 1_660, 1_680, 1_700], "the schedule does not shift");
}

#[test]
fn the_answer_is_measured_from_the_end_of_speech() {
    let mut bench = Bench::live(session(2));
    bench.hear(1_560, transcript(1, false));
    bench.hear(1_580, transcript(1, false));
    bench.hear(1_900, transcript(1, true));
    bench.answer(2_000, 1, 1, 5);
    assert_eq!(bench.samples(Metric::TranscriptFirst), [(1_530, 1_530, 1_560)]);
    assert_eq!(bench.samples(Metric::TranscriptFinal), [(1_670, 1_670, 1_900)]);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 2_000)]);
    assert_eq!(bench.samples(Metric::TimeToFirstStream), [(100, 100, 1_560)]);
    assert_eq!((bench.count(Counter::FramesReceived), bench.count(Counter::Responses)), (5, 1));
    assert_eq!((bench.count(Counter::Underruns), bench.count(Counter::SequenceGaps)), (0, 0));
    // Heard out at 2000 + 40 + 5 * 20 = 2140; the next turn 500 later.
    bench.run(2_639);
    assert_eq!((bench.count(Counter::TurnsAnswered), bench.count(Counter::Turns)), (1, 1));
    bench.run(2_640);
    assert_eq!(bench.count(Counter::Turns), 2);
}

#[test]
fn service_time_counts_from_the_frame_that_carried_the_end_of_speech() {
    let mut bench = Bench::live(session(1));
    bench.run(1_660);
    // Frame 8 (160 to 180 ms, with the end at 170) is due at 1680 and goes at 1692.
    bench.late(1_692);
    bench.answer(2_000, 1, 1, 1);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_682, 2_000)]);
}

#[test]
fn silence_follows_until_the_server_hears_the_end() {
    for heard in [speech(false), transcript(1, true), response_start(1, 1)] {
        let mut bench = Bench::live(session(1));
        bench.hear(1_790, heard);
        bench.run(4_000);
        assert_eq!(bench.frame_times(), (1..15).map(|n| 1_500 + 20 * n).collect::<Vec<_>>());
        assert_eq!(bench.frames()[10].1.payload, Bytes::from(vec![0; 640]));
        assert_eq!(bench.count(Counter::SpeechUs), 140_000);
    }
}

#[test]
fn an_end_that_was_heard_inside_the_speech_was_a_pause() {
    let mut bench = Bench::live(session(1));
    bench.hear(1_600, speech(false));
    bench.run(9_000);
    // 200 ms of utterance and 1500 of silence.
    assert_eq!(bench.frame_times(), (1..=85).map(|n| 1_500 + 20 * n).collect::<Vec<_>>());
}

#[test]
fn markers_mark_the_speech_and_no_silence_follows() {
    let mut bench = Bench::live(session_with(1, |scenario| scenario.markers = true));
    bench.run(5_000);
    assert_eq!(bench.frames().len(), 10);
    let marks: Vec<_> = bench.sent().into_iter().filter(|(_, event)| matches!(event, ClientEvent::Speech(_))).collect();
    let mark = |started, timestamp_us| ClientEvent::Speech(SpeechMarker { started, timestamp_us });
    assert_eq!(marks, [(1_540, mark(true, 530_000)), (1_680, mark(false, 670_000))]);
}

#[test]
fn a_microphone_never_pauses() {
    let mut bench = Bench::live(session_with(1, |scenario| {
        scenario.send_silence = true;
        scenario.conversations[0].turns[0].wait = WaitTemplate::After(constant(510));
    }));
    bench.answer(2_000, 1, 1, 5);
    bench.run(3_000);
    // From acceptance to goodbye; the speech begins with the next frame of the running clock.
    assert_eq!(bench.goodbye(), Some(2_140));
    assert_eq!(bench.frame_times(), (1..57).map(|n| 1_000 + 20 * n).collect::<Vec<_>>());
    let loud: Vec<_> = bench.frames().iter().filter(|(_, frame)| frame.payload[0] == 1).map(|(at, _)| at.as_millis()).collect();
    assert_eq!(loud, (1..=10).map(|n| 1_520 + 20 * n).collect::<Vec<_>>());
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_690, 1_690, 2_000)]);
}

#[test]
fn a_mute_caller_shows_that_it_lives() {
    let mut waits = session(1);
    let mut scenario = scenario(vec![turn(9_500, ActTemplate::Listen)]);
    scenario.ack_every = 0;
    waits.scenario = Arc::new(scenario);
    let mut bench = Bench::new(waits);
    bench.act(ms(110), |caller, out| caller.on_connected(true, ms(110), out));
    bench.hear(1_000, accepted_with(6_000));
    bench.run(10_400);
    assert_eq!(bench.frame_times(), [4_000, 7_000, 10_000]);
}

#[test]
fn hints_say_what_the_mock_should_understand() {
    let mut template = turn(500, ActTemplate::Tool { name: "lookup".to_owned(), takes: constant(1) });
    template.response = Some(constant(700));
    let mut said = Utterance::clone(&template.says[0]);
    said.text = "hello".to_owned();
    template.says = vec![Arc::new(said)];
    let mut bench = Bench::live(plan(scenario(vec![template])));
    bench.run(1_520);
    let first = bench.log.iter().position(|(_, action)| matches!(action, Action::Send(ClientEvent::Audio(_)))).expect("audio");
    let hint = bench.log.iter().position(|(_, action)| matches!(action, Action::Send(ClientEvent::Hint(_)))).expect("hint");
    assert!(hint < first);
    let Action::Send(ClientEvent::Hint(hint)) = &bench.log[hint].1 else { panic!("hint") };
    assert_eq!((hint.tool.as_deref(), hint.response_ms, hint.text.as_deref()), (Some("lookup"), Some(700), Some("hello")));
}

#[test]
fn a_missed_answer_is_counted_and_life_goes_on() {
    let mut bench = Bench::live(session_with(2, |scenario| scenario.response_timeout = Duration::from_secs(2)));
    bench.run(3_669);
    assert_eq!(bench.count(Counter::TurnsMissed), 0);
    bench.run(3_670);
    assert_eq!(bench.count(Counter::TurnsMissed), 1);
    bench.run(4_190);
    assert_eq!(bench.count(Counter::Turns), 2);
    assert_eq!(bench.frame_times().last(), Some(&4_190));
}

#[test]
fn a_late_answer_is_no_answer_to_the_next_turn() {
    // The next turn speaks from 4170 to 4370, end of speech 4340.
    let next = || {
        let mut bench = Bench::live(session_with(2, |scenario| scenario.response_timeout = Duration::from_secs(2)));
        bench.hear(1_600, transcript(1, false));
        bench
    };
    // Announced before the next turn began.
    let mut bench = next();
    bench.hear(4_000, response_start(1, 1));
    bench.hear_frames(4_400, 1, 2);
    bench.hear(4_450, response_end(1, ResponseStatus::Completed));
    assert_eq!(bench.samples(Metric::TurnResponse), []);
    bench.answer(5_000, 2, 2, 5);
    assert_eq!(bench.samples(Metric::TurnResponse), [(4_340, 4_340, 5_000)]);
    // Announced after it began, but for the earlier turn; so are its last words.
    let mut bench = next();
    bench.hear(4_350, transcript(1, true));
    bench.hear(4_400, response_start(1, 1));
    bench.hear_frames(4_400, 1, 2);
    bench.hear(4_450, response_end(1, ResponseStatus::Completed));
    assert_eq!(bench.samples(Metric::TranscriptFinal), []);
    bench.run(6_339);
    assert_eq!(bench.count(Counter::TurnsMissed), 1);
    bench.run(6_340);
    assert_eq!(bench.count(Counter::TurnsMissed), 2, "the second deadline is the second turn's");
}

#[test]
fn an_answered_turn_leaves_no_deadline_behind() {
    let mut bench = Bench::live(session_with(2, |scenario| scenario.response_timeout = Duration::from_secs(2)));
    bench.answer(3_000, 1, 1, 5);
    bench.answer(5_000, 2, 2, 5);
    bench.run(9_000);
    assert_eq!((bench.count(Counter::TurnsAnswered), bench.count(Counter::TurnsMissed)), (2, 0));
}

#[test]
fn an_answer_that_dries_up_is_missed() {
    let mut bench = Bench::live(session(1));
    bench.hear(2_000, response_start(1, 1));
    bench.hear_frames(2_000, 1, 2);
    bench.run(12_019);
    assert_eq!(bench.count(Counter::TurnsMissed), 0);
    bench.run(12_020);
    assert_eq!((bench.count(Counter::TurnsMissed), bench.count(Counter::TurnsAnswered)), (1, 0));
}

#[test]
fn failed_and_empty_answers_are_missed() {
    let mut bench = Bench::live(session(1));
    bench.hear(2_000, response_start(1, 1));
    bench.hear_frames(2_000, 1, 2);
    bench.hear(2_040, response_end(1, ResponseStatus::Failed));
    assert_eq!((bench.count(Counter::TurnsMissed), bench.goodbye()), (1, Some(2_040)));
    let mut bench = Bench::live(session(1));
    bench.answer(2_000, 1, 1, 0);
    bench.run(11_669);
    assert_eq!(bench.count(Counter::TurnsMissed), 0, "another response may still come");
    bench.run(11_670);
    assert_eq!(bench.count(Counter::TurnsMissed), 1);
}

#[test]
fn a_response_over_the_users_speech_is_no_measure() {
    let mut bench = Bench::live(session(1));
    bench.hear(1_600, response_start(1, 1));
    bench.hear_frames(1_600, 1, 10);
    bench.hear(1_800, response_end(1, ResponseStatus::Completed));
    bench.run(3_000);
    assert_eq!(bench.samples(Metric::TurnResponse), []);
    assert_eq!(bench.count(Counter::TurnsAnswered), 1);
    // Broken off before the end of speech: the next is the answer, and is measured.
    let mut bench = Bench::live(session(1));
    bench.hear(1_600, response_start(1, 1));
    bench.hear_frames(1_600, 1, 2);
    bench.hear(1_640, response_end(1, ResponseStatus::Interrupted));
    bench.answer(2_000, 2, 2, 5);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 2_000)]);
}

#[test]
fn late_frames_are_gaps_and_shift_playout() {
    let mut bench = Bench::live(session(1));
    bench.hear(2_000, response_start(1, 1));
    // Deadlines: 2040, 2060, 2080; then a gap of 30 ms shifts them by 30: 2130, 2150.
    for (n, at) in [2_000, 2_060, 2_110, 2_130, 2_151].into_iter().enumerate() {
        bench.hear(at, audio(n as u64, 1));
    }
    assert_eq!(bench.samples(Metric::AudioGap), [(2_080, 2_080, 2_110), (2_150, 2_150, 2_151)]);
    assert_eq!((bench.count(Counter::Underruns), bench.count(Counter::UnderrunUs)), (2, 31_000));
    bench.hear(2_152, response_end(1, ResponseStatus::Completed));
    bench.run(3_000);
    assert_eq!(bench.goodbye(), Some(2_171), "heard out");
}

#[test]
fn agent_sequence_gaps_are_counted() {
    let mut bench = Bench::live(session(1));
    bench.hear(2_000, response_start(1, 1));
    for (sequence, gaps) in [(0, 0), (1, 0), (3, 1), (4, 1), (2, 2), (5, 2), (u64::MAX, 3), (6, 4)] {
        bench.hear(2_000, audio(sequence, 1));
        assert_eq!(bench.count(Counter::SequenceGaps), gaps, "after {sequence}");
    }
}

#[test]
fn acknowledgements_are_asked_for_and_timed() {
    let mut bench = Bench::live(session_with(1, |scenario| scenario.ack_every = 4));
    bench.run(1_590);
    bench.late(1_603);
    bench.run(1_700);
    let asked: Vec<_> = bench.frames().iter().filter(|(_, frame)| frame.ack).map(|(_, frame)| frame.sequence).collect();
    assert_eq!(asked, [0, 4, 8]);
    for (at, sequence) in [(1_605, 4), (1_610, 4), (1_611, 0), (1_700, 8), (1_701, 5)] {
        bench.hear(at, ServerEvent::Ack { sequence });
    }
    assert_eq!(bench.samples(Metric::FrameRtt), [(1_600, 1_603, 1_605), (1_680, 1_680, 1_700)]);
    assert_eq!(bench.count(Counter::ServerErrors), 0);
    bench.hear(1_702, ServerEvent::Ack { sequence: 1_000 });
    assert_eq!(bench.count(Counter::ServerErrors), 1, "no such frame was sent");
}

#[test]
fn at_most_16_acknowledgements_are_waited_for() {
    let mut bench = Bench::live(session_with(1, |scenario| scenario.ack_every = 1));
    bench.run(3_200);
    assert_eq!(bench.frames().len(), 85);
    bench.hear(3_210, ServerEvent::Ack { sequence: 68 });
    assert_eq!(bench.samples(Metric::FrameRtt), []);
    bench.hear(3_210, ServerEvent::Ack { sequence: 69 });
    assert_eq!(bench.samples(Metric::FrameRtt).len(), 1);
}

#[test]
fn everybody_at_once() {
    let at = |t| TurnTemplate { wait: WaitTemplate::At(ms(t)), ..turn(0, ActTemplate::Listen) };
    let mut bench = Bench::live(plan(scenario(vec![at(7_000), at(8_000)])));
    bench.answer(9_000, 1, 1, 5);
    bench.run(9_160);
    assert_eq!(bench.samples(Metric::TurnResponse), [(7_170, 7_170, 9_000)]);
    assert_eq!(bench.frame_times().last(), Some(&9_160), "a time that has passed is now");
}

#[test]
fn silence_is_a_turn_without_a_question() {
    let silent = TurnTemplate { says: Vec::new(), ..turn(300, ActTemplate::Listen) };
    let mut bench = Bench::live(plan(scenario(vec![silent, turn(500, ActTemplate::Listen)])));
    bench.run(1_820);
    assert_eq!(bench.count(Counter::Turns), 1);
    assert_eq!(bench.frame_times(), [1_820]);
}

#[test]
fn keys_are_pressed_when_their_turn_begins() {
    let pressed = TurnTemplate { says: Vec::new(), dtmf: "1#".into(), ..turn(300, ActTemplate::Listen) };
    let mut bench = Bench::live(plan(scenario(vec![pressed, turn(500, ActTemplate::Listen)])));
    bench.run(2_000);
    let keys: Vec<_> = bench.sent().into_iter().filter(|(_, event)| matches!(event, ClientEvent::Digit(_))).collect();
    assert_eq!(keys, [(1_300, ClientEvent::Digit('1')), (1_300, ClientEvent::Digit('#'))]);
}

#[test]
fn a_tool_is_answered_after_its_time_and_the_round_trip_measured() {
    let act = ActTemplate::Tool { name: "lookup".to_owned(), takes: constant(15_000) };
    let mut bench = Bench::live(plan(scenario(vec![turn(500, act)])));
    bench.hear(2_000, tool_call("c-1", "lookup"));
    bench.run(16_999);
    assert_eq!(bench.count(Counter::TurnsMissed), 0, "the caller's own time is no miss");
    bench.run(17_000);
    let result = ClientEvent::ToolResult { call_id: "c-1".to_owned(), output: r#"{"ok":true}"#.to_owned(), failed: false };
    assert_eq!(bench.sent().last(), Some(&(17_000, result)));
    bench.answer(17_300, 1, 1, 5);
    bench.run(20_000);
    assert_eq!(bench.samples(Metric::ToolRoundTrip), [(2_000, 2_000, 17_300)]);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 17_300)]);
    assert_eq!((bench.count(Counter::ToolCalls), bench.count(Counter::TurnsAnswered)), (1, 1));
}

#[test]
fn an_agent_that_does_not_resume_is_missed_in_its_time() {
    let act = ActTemplate::Tool { name: "lookup".to_owned(), takes: constant(1_000) };
    let mut bench = Bench::live(plan(scenario(vec![turn(500, act)])));
    bench.hear(2_000, tool_call("c-1", "lookup"));
    bench.run(12_999);
    assert_eq!(bench.count(Counter::TurnsMissed), 0);
    bench.run(13_000);
    assert_eq!(bench.count(Counter::TurnsMissed), 1);
}

#[test]
fn words_before_the_tool_are_not_the_resumption() {
    let act = ActTemplate::Tool { name: "lookup".to_owned(), takes: constant(1_000) };
    let mut bench = Bench::live(plan(scenario(vec![turn(500, act)])));
    bench.hear(2_000, tool_call("c-1", "lookup"));
    bench.answer(2_050, 1, 1, 5);
    bench.answer(4_000, 2, 1, 5);
    bench.run(9_000);
    assert_eq!(bench.samples(Metric::ToolRoundTrip), [(2_000, 2_000, 4_000)]);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 2_050)]);
    assert_eq!(bench.goodbye(), Some(4_140));
}

/// Words, their end and the call in any order: the call leaves the turn open, its result is sent, and the answer is what follows.
#[test]
fn a_call_after_words_leaves_the_turn_open() {
    let planned = || ActTemplate::Tool { name: "lookup".to_owned(), takes: constant(500) };
    let end = || response_end(1, ResponseStatus::Completed);
    let call = || tool_call("c-1", "lookup");
    // The words are played until 2140.
    for (act, result_at) in [(planned(), 2_600), (ActTemplate::Listen, 2_100)] {
        for order in [[end(), call()], [call(), end()]] {
            let mut bench = Bench::live(plan(scenario(vec![turn(500, act.clone())])));
            bench.hear(2_000, response_start(1, 1));
            bench.hear_frames(2_000, 1, 5);
            for event in order {
                bench.hear(2_100, event);
            }
            bench.run(4_000);
            let results: Vec<_> = bench.sent().into_iter().filter(|(_, event)| matches!(event, ClientEvent::ToolResult { .. })).collect();
            let result = ClientEvent::ToolResult { call_id: "c-1".to_owned(), output: r#"{"ok":true}"#.to_owned(), failed: false };
            assert_eq!(results, [(result_at, result)]);
            assert_eq!((bench.count(Counter::TurnsAnswered), bench.goodbye()), (0, None), "the agent has not resumed");
            bench.answer(4_000, 2, 1, 5);
            bench.run(9_000);
            assert_eq!(bench.samples(Metric::ToolRoundTrip), [(2_100, 2_100, 4_000)]);
            assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 2_000)]);
            assert_eq!((bench.count(Counter::TurnsAnswered), bench.count(Counter::ResponsesSpurious)), (1, 0));
            assert_eq!(bench.goodbye(), Some(4_140));
        }
    }
}

#[test]
fn an_agent_that_does_not_resume_after_its_words_is_missed() {
    let planned = ActTemplate::Tool { name: "lookup".to_owned(), takes: constant(500) };
    for (act, missed_at) in [(planned, 12_600), (ActTemplate::Listen, 12_100)] {
        let mut bench = Bench::live(plan(scenario(vec![turn(500, act)])));
        bench.answer(2_000, 1, 1, 5);
        bench.hear(2_100, tool_call("c-1", "lookup"));
        bench.run(missed_at - 1);
        assert_eq!((bench.count(Counter::TurnsAnswered), bench.count(Counter::TurnsMissed)), (0, 0));
        bench.run(missed_at);
        assert_eq!((bench.count(Counter::TurnsAnswered), bench.count(Counter::TurnsMissed)), (0, 1));
    }
}

/// What goes on in the same response after an unplanned call, whose result was sent at once, is the resumption: nothing more is awaited.
#[test]
fn words_after_an_unplanned_call_are_the_answer() {
    let mut bench = Bench::live(session(1));
    bench.hear(2_000, response_start(1, 1));
    bench.hear_frames(2_000, 1, 5);
    bench.hear(2_100, tool_call("c-1", "lookup"));
    bench.hear_frames(2_120, 1, 5);
    bench.hear(2_220, response_end(1, ResponseStatus::Completed));
    bench.run(9_000);
    assert_eq!((bench.count(Counter::TurnsAnswered), bench.count(Counter::TurnsMissed)), (1, 0));
}

#[test]
fn a_cancelled_tool_is_not_answered() {
    let act = ActTemplate::Tool { name: "lookup".to_owned(), takes: constant(1_000) };
    let mut bench = Bench::live(plan(scenario(vec![turn(500, act)])));
    bench.hear(2_000, tool_call("c-1", "lookup"));
    bench.hear(2_100, ServerEvent::ToolCancel { call_id: "other".to_owned() });
    bench.hear(2_500, ServerEvent::ToolCancel { call_id: "c-1".to_owned() });
    bench.answer(4_000, 1, 1, 5);
    bench.run(9_000);
    assert!(!bench.sent().iter().any(|(_, event)| matches!(event, ClientEvent::ToolResult { .. })));
    assert_eq!(bench.samples(Metric::ToolRoundTrip), []);
    assert_eq!(bench.count(Counter::TurnsAnswered), 1);
}

#[test]
fn an_unexpected_tool_is_answered_at_once() {
    let mut bench = Bench::live(session(1));
    bench.hear(2_000, tool_call("c-1", "lookup"));
    assert!(matches!(bench.sent().last(), Some((2_000, ClientEvent::ToolResult { call_id, .. })) if call_id == "c-1"));
    bench.answer(2_300, 1, 1, 5);
    assert_eq!(bench.samples(Metric::ToolRoundTrip), [(2_000, 2_000, 2_300)]);
}

#[test]
fn a_server_that_breaks_the_protocol_is_counted_and_heard() {
    let mut bench = Bench::live(session(1));
    bench.hear(1_900, audio(0, 0));
    bench.hear(1_900, response_start(0, 0));
    bench.hear(1_900, response_end(9, ResponseStatus::Completed));
    assert_eq!(bench.count(Counter::ServerErrors), 3);
    bench.hear(2_000, audio(1, 1));
    assert_eq!(bench.count(Counter::ServerErrors), 4, "never announced");
    bench.hear(2_020, response_start(1, 1));
    bench.hear(2_020, audio(2, 1));
    bench.hear(2_040, response_end(1, ResponseStatus::Completed));
    bench.hear(2_040, response_end(1, ResponseStatus::Completed));
    assert_eq!(bench.count(Counter::ServerErrors), 6);
    bench.hear(2_041, ServerEvent::Error(SessionError::warning(ErrorCode::SequenceGap, "test")));
    assert_eq!(bench.count(Counter::ServerErrors), 7);
    bench.run(3_000);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 2_000)]);
    assert_eq!(bench.count(Counter::TurnsAnswered), 1);
}

#[test]
fn a_speaking_ratio_fixes_the_rhythm_unless_the_answer_takes_longer() {
    // 140 ms of speech at a quarter: a cycle of 560 ms from begin to begin.
    let template = TurnTemplate { wait: WaitTemplate::Ratio(0.25), ..turn(0, ActTemplate::Listen) };
    let mut bench = Bench::live(plan(scenario(vec![template; 3])));
    let first = bench.caller.next_wake();
    assert!((ms(1_000)..ms(1_420)).contains(&first), "{first}");
    let begins = |bench: &mut Bench, at: Micros| {
        bench.act(Micros(at.0 - 1), |caller, out| caller.step(Micros(at.0 - 1), out));
        let before = bench.count(Counter::Turns);
        bench.act(at, |caller, out| caller.step(at, out));
        bench.count(Counter::Turns) - before
    };
    let hear = |bench: &mut Bench, at: Micros, event| bench.act(at, |caller, out| caller.on_event(event, at, out));
    assert_eq!(begins(&mut bench, first), 1);
    let answer = |bench: &mut Bench, at: Micros, response| {
        hear(bench, at, response_start(response, response));
        hear(bench, at, audio(response - 1, response));
        hear(bench, at, response_end(response, ResponseStatus::Completed));
    };
    answer(&mut bench, first + Duration::from_millis(200), 1);
    let second = first + Duration::from_millis(560);
    assert_eq!(begins(&mut bench, second), 1);
    answer(&mut bench, second + Duration::from_millis(700), 2);
    assert_eq!(begins(&mut bench, second + Duration::from_millis(760)), 1, "when it was heard out");
}

#[test]
fn a_second_response_does_not_take_the_answers_place() {
    let mut bench = Bench::live(session(2));
    bench.hear(2_000, response_start(1, 1));
    bench.hear_frames(2_000, 1, 3);
    bench.hear(2_060, response_start(2, 1));
    bench.hear(2_060, response_end(1, ResponseStatus::Completed));
    bench.hear_frames(2_060, 2, 20);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 2_000)]);
    assert_eq!(bench.count(Counter::TurnsAnswered), 1);
}

/// The speech of a caller that sends silence too begins with a frame of its own, at most one frame later, and without a gap.
#[test]
fn speech_falls_on_the_frames_of_a_running_clock() {
    for wait in [500, 501, 519, 520] {
        let mut bench = Bench::live(session_with(1, |scenario| {
            scenario.send_silence = true;
            scenario.conversations[0].turns[0].wait = WaitTemplate::After(constant(wait));
        }));
        bench.run(2_000);
        assert_eq!(bench.frame_times(), (1..=50).map(|n| 1_000 + 20 * n).collect::<Vec<_>>());
        let loud = bench.frames().into_iter().find(|(_, frame)| frame.payload[0] == 1).map(|(at, _)| at.as_millis());
        assert_eq!(loud, Some(if wait == 500 { 1_520 } else { 1_540 }), "after {wait} ms");
    }
}

/// What the user hears, not what has arrived.
#[test]
fn an_answer_is_heard_when_the_silence_before_it_was_played() {
    let silent = |ms: usize| Bytes::from(vec![0; 32 * ms]);
    for (messages, heard) in [
        (vec![(2_000, [silent(1_000), voice(1_000)].concat().into())], 3_000),
        (vec![(2_000, silent(1_000)), (2_005, voice(1_000))], 3_000),
        // Paced: nothing waits.
        (vec![(2_000, silent(20)), (2_020, silent(20)), (2_040, voice(20))], 2_040),
        (vec![(2_000, silent(20)), (2_500, voice(20))], 2_500),
    ] {
        let mut bench = Bench::live(plan(scenario(vec![turn(500, ActTemplate::Listen)])));
        bench.hear(2_000, response_start(1, 1));
        for (sequence, (at, payload)) in (0..).zip(messages) {
            bench.hear(at, ServerEvent::Audio(AgentAudio { sequence, timestamp_us: 0, payload, response: ResponseId(1) }));
        }
        bench.run(heard);
        assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, heard)]);
    }
    // Thrown away, or hung up on, it is never heard.
    let waiting = || {
        let mut bench = Bench::live(plan(scenario(vec![turn(500, ActTemplate::Listen)])));
        bench.hear(2_000, response_start(1, 1));
        let payload = [silent(1_000), voice(1_000)].concat().into();
        bench.hear(2_000, ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, payload, response: ResponseId(1) }));
        bench
    };
    let mut bench = waiting();
    bench.hear(2_500, response_end(1, ResponseStatus::Interrupted));
    bench.run(9_000);
    assert_eq!(bench.samples(Metric::TurnResponse), []);
    let mut bench = waiting();
    bench.close(2_500, FailureCause::Eof);
    assert_eq!(bench.samples(Metric::TurnResponse), []);
}
