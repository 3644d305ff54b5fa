//! Each row of the transition table, and the ways in which turns meet.

use super::*;

#[test]
fn a_detected_turn_is_transcribed_answered_and_over() {
    let mut bench = Bench::new();
    assert_eq!(bench.take(), ["accepted"]);
    bench.silence(100).speak(700);
    assert_eq!(bench.take(), ["ack 0", "[user_speaking]", "speech from 100", "partial 1", "partial 1"]);
    bench.silence(480);
    assert_eq!(bench.take(), ["ack 50"], "words come no more");
    // The last frame that fills the endpoint silence arrives 480 ms after the speech.
    bench.silence(20);
    assert_eq!(bench.take(), ["[thinking]", "speech to 800"]);
    bench.wait(20);
    assert_eq!(bench.take(), ["final 1"]);
    bench.wait(259);
    assert_eq!(bench.take(), [] as [&str; 0]);
    bench.wait(1);
    assert_eq!(bench.take(), ["[agent_speaking]", "response 1 to 1", "audio"]);
    bench.wait(979);
    assert_eq!(bench.take(), ["audio*48"]);
    bench.wait(1);
    assert_eq!(bench.take(), ["audio", "[listening]", "end 1 Completed 50"]);
    bench.wait(5_000);
    assert_eq!(bench.take(), [] as [&str; 0]);
}

#[test]
fn an_answer_begins_later_by_what_the_processor_is_behind_when_the_turn_ends() {
    let answered_after = |backlogs: [u64; 2]| {
        let mut bench = Bench::new();
        bench.session.on_backlog(Duration::from_millis(backlogs[0]));
        bench.turn();
        let asked = bench.now;
        bench.session.on_backlog(Duration::from_millis(backlogs[1]));
        bench.wait(5_000);
        bench.audio_sent()[0].0.since(asked).as_millis() as u64
    };
    assert_eq!(answered_after([0, 0]), THINK);
    assert_eq!(answered_after([700, 0]), THINK + 700, "its place in the line is taken");
    assert_eq!(answered_after([0, 700]), THINK, "who comes later stands behind it");
}

#[test]
fn partials_follow_the_speech_and_the_final_has_the_hints_words() {
    let mut bench = Bench::new();
    bench.hint("", 200, "will it rain in bern tomorrow").speak(1_000).silence(500).wait(100);
    let texts: Vec<_> = bench
        .all
        .iter()
        .filter_map(|(_, e)| match e {
            Effect::Send(ServerEvent::Transcript { text, last, .. }) => Some((text.as_str(), *last)),
            _ => None,
        })
        .collect();
    assert_eq!(texts, [("will it", false), ("will it rain", false), ("will it rain in", false), ("will it rain in bern tomorrow", true)]);
    bench.take();
    bench.wait(1_000);
    assert_eq!(bench.take().last().unwrap(), "end 1 Completed 10");
}

#[test]
fn without_frames_in_silence_the_turn_ends_by_the_clock() {
    let mut bench = Bench::new();
    bench.speak(400).take();
    bench.wait(499);
    assert_eq!(bench.phase(), Some(Phase::UserSpeaking));
    bench.wait(1);
    assert_eq!(bench.take(), ["[thinking]", "speech to 400"]);
}

#[test]
fn markers_override_the_detector_for_good() {
    let mut bench = Bench::new();
    bench.mark(true).speak(100).silence(2_000);
    assert_eq!(bench.phase(), Some(Phase::UserSpeaking), "silence does not end a marked turn");
    bench.mark(false);
    assert_eq!(bench.phase(), Some(Phase::Thinking));
    bench.speak(200);
    assert_eq!(bench.phase(), Some(Phase::Thinking), "loud frames are no onset any more");
    bench.wait(5_000).speak(200);
    assert_eq!(bench.phase(), Some(Phase::Listening));
    assert!(!bench.take().iter().any(|w| w.starts_with("speech")), "only the detector announces speech");
}

#[test]
fn the_first_marker_takes_over_speech_that_the_detector_heard() {
    let mut bench = Bench::new();
    bench.speak(100).take();
    bench.mark(true).mark(true).wait(100);
    assert_eq!(bench.take(), [] as [&str; 0], "the same turn");
    bench.mark(false);
    assert_eq!(bench.take(), ["[thinking]"]);
    bench.mark(false);
    assert_eq!(bench.take(), [] as [&str; 0]);
}

#[test]
fn a_tool_is_called_answered_and_spoken_about() {
    let mut bench = Bench::new();
    bench.hint("order", 100, "a coffee").turn().take();
    bench.wait(THINK);
    assert_eq!(bench.take(), ["final 1", "[tool_calling]", "call call-1 order"]);
    bench.wait(700).result("call-1");
    assert_eq!(bench.take(), ["[thinking]"]);
    bench.wait(THINK);
    assert_eq!(bench.take(), ["[agent_speaking]", "response 1 to 1", "audio"]);
    bench.result("call-1");
    assert_eq!(bench.take(), ["warning UnknownToolCall"]);
    bench.wait(80);
    assert_eq!(bench.take(), ["audio*4", "[listening]", "end 1 Completed 5"]);
}

#[test]
fn a_tool_that_does_not_answer_is_given_up() {
    let mut bench = Bench::new();
    bench.hint("order", 100, "").turn().wait(THINK).take();
    bench.wait(1_999);
    assert_eq!(bench.take(), [] as [&str; 0]);
    bench.wait(1);
    assert_eq!(bench.take(), ["[thinking]", "uncall call-1"]);
    bench.result("call-1");
    assert_eq!(bench.take(), ["warning UnknownToolCall"]);
    bench.wait(THINK + 80);
    assert_eq!(bench.take(), ["[agent_speaking]", "response 1 to 1", "audio*5", "[listening]", "end 1 Completed 5"]);
}

#[test]
fn tool_rate_calls_without_a_hint() {
    let mut bench = Bench::with(SessionConfig { tool_rate: 1.0, ..config() }, AudioFormat::Pcm16k);
    bench.turn().wait(THINK);
    assert_eq!(bench.phase(), Some(Phase::ToolCalling));
}

#[test]
fn frames_keep_an_absolute_schedule_and_late_ones_come_together() {
    let mut bench = Bench::new();
    bench.turn().wait(THINK).take();
    let first = bench.now;
    // A shell that is late for 70 ms, then on time.
    bench.now += Duration::from_millis(70);
    bench.act(Session::step);
    assert_eq!(bench.take(), ["audio*3"]);
    assert_eq!(bench.session.next_wake(), first + Duration::from_millis(80));
    bench.wait(10);
    assert_eq!(bench.take(), ["audio"]);
    let sent = bench.audio_sent();
    for (n, (at, audio)) in sent.iter().enumerate() {
        assert_eq!(audio.sequence, n as u64);
        let due = first.0 + n as u64 * FRAME_US;
        assert_eq!(audio.timestamp_us, due - bench.began.0);
        assert!(at.0 >= due);
    }
}

#[test]
fn barge_in_by_message_stops_truncates_and_listens() {
    let mut bench = Bench::new();
    bench.turn().wait(THINK + 950).take();
    bench.barge_in(Some(1), 850);
    assert_eq!(bench.take(), ["[listening]", "end 1 Interrupted 48", "context 1 850ms 2w"]);
    bench.wait(5_000);
    assert_eq!(bench.take(), [] as [&str; 0], "nothing is said until the user has spoken");
    bench.turn().wait(THINK);
    assert_eq!(bench.take().last_chunk::<2>().unwrap(), &["response 2 to 2", "audio"]);
}

#[test]
fn barge_in_by_speech_estimates_what_was_heard_and_answers_anew() {
    let mut bench = Bench::new();
    bench.speak(400).silence(ENDPOINT).wait(THINK + 100).take();
    bench.speak(60);
    let words = bench.take();
    assert_eq!(words[words.len() - 4..], ["[user_speaking]", "speech from 1300", "end 1 Interrupted 9", "context 1 160ms 0w"]);
    bench.speak(300).silence(ENDPOINT).wait(THINK);
    assert_eq!(bench.take().last_chunk::<2>().unwrap(), &["response 2 to 2", "audio*2"]);
}

#[test]
fn interrupts_before_the_agent_began_cancel_the_answer() {
    // Thinking: the final transcript still comes, the response never begins.
    let mut bench = Bench::new();
    bench.turn().take();
    bench.barge_in(None, 0);
    assert_eq!(bench.take(), ["[listening]", "final 1"]);
    bench.wait(5_000);
    assert_eq!(bench.take(), [] as [&str; 0]);
    // In a tool call.
    bench.hint("weather", 100, "").turn().wait(THINK).take();
    bench.say(ClientEvent::Cancel { response: Some(ResponseId(0)) });
    assert_eq!(bench.take(), ["[listening]", "uncall call-1"]);
    bench.result("call-1");
    assert_eq!(bench.take(), ["warning UnknownToolCall"]);
    // By speech.
    bench.turn().wait(100).take();
    bench.mark(true);
    assert_eq!(bench.take(), ["[user_speaking]"]);
    bench.wait(600).mark(false).wait(THINK);
    assert_eq!(bench.take().last_chunk::<2>().unwrap(), &["response 1 to 4", "audio"]);
}

#[test]
fn an_interrupt_without_its_response_changes_nothing() {
    let mut bench = Bench::new();
    bench.take();
    bench.barge_in(None, 10).barge_in(Some(0), 10).say(ClientEvent::Cancel { response: None });
    assert_eq!(bench.take(), [] as [&str; 0], "listening");
    bench.mark(true).take();
    bench.barge_in(None, 10);
    assert_eq!(bench.take(), [] as [&str; 0], "user speaking");
    bench.mark(false).wait(THINK + 2_000).turn().take();
    bench.barge_in(Some(1), 10).say(ClientEvent::Cancel { response: Some(ResponseId(1)) });
    assert_eq!(bench.phase(), Some(Phase::Thinking), "the old response is not this one");
    bench.wait(THINK).take();
    bench.barge_in(Some(1), 10);
    assert_eq!(bench.take(), [] as [&str; 0]);
    assert_eq!(bench.phase(), Some(Phase::AgentSpeaking));
    bench.barge_in(Some(3), 10);
    assert_eq!(bench.take(), ["warning InvalidArgument"], "a response that was never begun");
    bench.say(ClientEvent::Cancel { response: Some(ResponseId(2)) });
    assert_eq!(bench.take(), ["[listening]", "end 2 Cancelled 1"]);
}

#[test]
fn heard_is_never_more_than_was_sent() {
    for (heard, expected) in [(0, "context 1 0ms 0w"), (u32::MAX, "context 1 520ms 1w")] {
        let mut bench = Bench::new();
        bench.turn().wait(THINK + 510).take();
        bench.barge_in(None, heard);
        assert_eq!(bench.take().last().unwrap(), expected);
    }
}

#[test]
fn a_pause_taken_for_the_end_keeps_the_turns_hint() {
    let mut bench = Bench::new();
    bench.hint("order", 100, "").speak(400).silence(600);
    assert_eq!(bench.phase(), Some(Phase::Thinking));
    bench.speak(400).silence(ENDPOINT).wait(THINK);
    assert_eq!(bench.phase(), Some(Phase::ToolCalling), "the second half calls the tool");
    // Once called, the hint is spent: in the call, and in the thinking after it.
    bench.speak(400).silence(ENDPOINT).wait(THINK);
    assert_eq!(bench.phase(), Some(Phase::AgentSpeaking));
    bench.wait(2_000).hint("order", 100, "").speak(400).silence(ENDPOINT).wait(THINK).result("call-2").wait(100);
    assert_eq!(bench.phase(), Some(Phase::Thinking));
    bench.speak(400).silence(ENDPOINT).wait(THINK);
    assert_eq!(bench.phase(), Some(Phase::AgentSpeaking));
}

/// At every millisecond of thinking, tool and answer: silence follows at once, and the next turn is answered with a new response.
#[test]
fn barge_in_at_any_millisecond_stops_at_once_and_gets_a_new_answer() {
    for (tool, marker) in [("", true), ("", false), ("order", true), ("order", false)] {
        for ms in 0..=(if tool.is_empty() { 420 } else { 1_120 }) {
            let mut bench = Bench::new();
            bench.hint(tool, 100, "").turn();
            if tool.is_empty() {
                bench.wait(ms);
            } else {
                bench.wait(ms.min(700));
                bench.result("call-1").wait(ms.saturating_sub(700));
            }
            let sent = bench.audio_sent().len();
            if marker {
                bench.mark(true);
            } else {
                bench.barge_in(None, 0).wait(1).mark(true);
            }
            bench.wait(900);
            assert_eq!(bench.audio_sent().len(), sent, "{tool} {ms}");
            let before = bench.audio_sent().last().map_or(0, |(_, a)| a.response.0);
            bench.mark(false).wait(THINK);
            let last = bench.audio_sent().last().unwrap().1.clone();
            assert_eq!((bench.audio_sent().len(), last.response.0), (sent + 1, before + 1), "{tool} {ms}");
            properties::check(&bench.all);
        }
    }
}

#[test]
fn steady_noise_and_silence_start_no_turn_and_cost_nothing() {
    for format in AudioFormat::ALL {
        let mut bench = Bench::with(config(), format);
        bench.silence(2_000).frames(250, 5_000);
        assert_eq!(bench.phase(), Some(Phase::Listening));
        assert!(!bench.all.iter().any(|(_, e)| matches!(e, Effect::Cost(_))));
    }
}

#[test]
fn the_agents_own_voice_is_taken_for_a_turn_in_every_format() {
    for format in AudioFormat::ALL {
        let mut bench = Bench::with(config(), format);
        for n in 0..90 {
            bench.audio(Voice::of("v", 1).frame(format, 0, n)).wait(20);
        }
        bench.silence(600);
        let words = bench.take();
        assert_eq!(words.iter().filter(|w| w.starts_with("speech from")).count(), 1, "{format} {words:?}");
        assert_eq!(bench.phase(), Some(Phase::Thinking), "{format}");
    }
}

#[test]
fn costs_are_charged_for_each_20_ms_of_speaking() {
    let mut bench = Bench::new();
    bench.mark(true).speak(200);
    // One payload of 100 ms is five frames' work.
    let long = Bytes::from(vec![0; 5 * bench.format.frame_bytes()]);
    bench.audio(long).mark(false).wait(5_000);
    let costs = |phase| bench.all.iter().filter(|(_, e)| *e == Effect::Cost(phase)).count();
    assert_eq!((costs(Phase::UserSpeaking), costs(Phase::AgentSpeaking)), (15, 50));
    assert_eq!(bench.session.frames(), (11, 50));
}

#[test]
fn phases_without_audio_are_charged_by_time_and_only_when_they_cost() {
    let cost = "idle=1us,thinking=2us,tool=3us".parse().unwrap();
    let mut bench = Bench::with(SessionConfig { cost, tool_rate: 1.0, ..config() }, AudioFormat::Pcm16k);
    bench.wait(1_000).mark(true).wait(1_000).mark(false);
    // Thinks, calls, waits in vain for two seconds, thinks again, speaks for one, listens.
    bench.wait(THINK + 2_000 + THINK + 1_000 + 500);
    assert_eq!(bench.phase(), Some(Phase::Listening));
    let costs = |phase| bench.all.iter().filter(|(_, e)| *e == Effect::Cost(phase)).count();
    // Every 20 ms but those of the answer's 49 gaps between frames; a phase's last, broken 20 ms are free.
    let charged = costs(Phase::Listening) + costs(Phase::Thinking) + costs(Phase::ToolCalling);
    let silent_ms = 1_000 + (THINK + 2_000 + THINK + 1_000 + 500) - 49 * 20;
    assert!((silent_ms as usize / 20 - 4..=silent_ms as usize / 20).contains(&charged), "{charged} of {silent_ms} ms");
    assert_eq!(costs(Phase::ToolCalling), 100);
    assert!(costs(Phase::Listening) >= 76 && costs(Phase::Thinking) >= THINK as usize / 20);
    assert_eq!((costs(Phase::UserSpeaking), costs(Phase::AgentSpeaking)), (0, 50));
    properties::check(&bench.all);
}

#[test]
fn a_stalled_shell_is_charged_for_a_second_at_most() {
    let cost = "idle=1us".parse().unwrap();
    let mut bench = Bench::with(SessionConfig { cost, ..config() }, AudioFormat::Pcm16k);
    bench.now += Duration::from_secs(30);
    bench.act(Session::step);
    assert_eq!(bench.all.iter().filter(|(_, e)| *e == Effect::Cost(Phase::Listening)).count(), 50);
    bench.wait(20);
    assert_eq!(bench.all.iter().filter(|(_, e)| *e == Effect::Cost(Phase::Listening)).count(), 51);
}

#[test]
fn a_turn_boundary_inside_one_payload_is_heard() {
    let mut bench = Bench::new();
    let mut samples = vec![0i16; 16_000];
    for (n, sample) in samples.iter_mut().enumerate() {
        if (3_200..6_400).contains(&n) || n >= 14_720 {
            *sample = if n % 2 == 0 { 4_000 } else { -4_000 };
        }
    }
    let payload = bench.format.encode(&samples);
    bench.take();
    bench.audio(payload);
    assert_eq!(
        bench.take(),
        ["ack 0", "[user_speaking]", "speech from 200", "[thinking]", "speech to 400", "[user_speaking]", "speech from 920", "final 1"]
    );
}

#[test]
fn a_session_is_small() {
    assert!(size_of::<Session>() <= 320, "{}", size_of::<Session>());
    assert!(size_of::<Effect>() <= 160, "{}", size_of::<Effect>());
}

#[test]
fn responses_of_different_turns_differ_in_phrase() {
    let mut bench = Bench::new();
    for _ in 0..12 {
        bench.turn().wait(THINK + 1_000);
    }
    let first: HashSet<_> = bench.audio_sent().chunks(50).map(|c| c[0].1.payload.as_ptr()).collect();
    assert!(first.len() > 1);
}

#[test]
fn an_answer_keeps_its_format_and_the_next_has_the_new_one() {
    let mut bench = Bench::new();
    bench.turn().wait(THINK + 100);
    let output = Some(AudioFormat::Mulaw8k);
    bench.say(ClientEvent::Configure(Box::new(SessionSettings { output, ..SessionSettings::default() })));
    bench.wait(5_000).turn().wait(5_000);
    for (_, audio) in bench.audio_sent() {
        let format = if audio.response == ResponseId(1) { AudioFormat::Pcm16k } else { AudioFormat::Mulaw8k };
        assert_eq!(audio.payload.len(), format.frame_bytes(), "{:?}", audio.response);
    }
    assert_eq!(bench.audio_sent().last().unwrap().1.response, ResponseId(2));
}
