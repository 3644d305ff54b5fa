//! What goes wrong on purpose goes wrong as its name says, and an honest session shows none of it.

use super::*;
use crate::fault::{FaultKind, SessionFates};

fn doomed(kind: FaultKind) -> Bench {
    let mut bench = Bench::new();
    bench.take();
    bench.act(|session, now, out| session.doom(SessionFates::of([kind]), now, out));
    bench
}

/// Times of frames, ms from the first.
fn frame_times(bench: &Bench) -> Vec<u64> {
    let sent = bench.audio_sent();
    sent.iter().map(|(at, _)| at.since(sent[0].0).as_millis() as u64).collect()
}

#[test]
fn audio_goes_on_after_an_interruption() {
    let mut bench = doomed(FaultKind::StaleAudioAfterBargeIn);
    bench.turn().wait(THINK + 200).take();
    bench.barge_in(Some(1), 100);
    assert_eq!(bench.take(), ["[listening]", "end 1 Interrupted 11", "context 1 100ms 0w", "!stale_audio_after_barge_in"]);
    bench.wait(5_000);
    let stale = bench.take();
    let [only] = stale.as_slice() else { panic!("{stale:?}") };
    let frames: u64 = only.strip_prefix("audio*").unwrap().parse().unwrap();
    assert!((50..=150).contains(&frames), "{frames} frames");
    assert_eq!(bench.phase(), Some(Phase::Listening));
    let sequences: Vec<u64> = bench.audio_sent().iter().map(|(_, audio)| audio.sequence).collect();
    assert_eq!(sequences, (0..sequences.len() as u64).collect::<Vec<_>>());
    // The next response ends what is left.
    bench.turn().wait(THINK + 200).barge_in(Some(2), 100).turn().wait(THINK + 500);
    let responses: Vec<u64> = bench.audio_sent().iter().map(|(_, audio)| audio.response.0).collect();
    let third = responses.iter().position(|response| *response == 3).unwrap();
    assert!(responses[third..].iter().all(|response| *response == 3), "{responses:?}");
}

#[test]
fn an_answer_that_is_dropped_before_it_begins_is_heard_all_the_same() {
    let mut bench = doomed(FaultKind::StaleAudioAfterBargeIn);
    bench.turn().wait(THINK / 2).take();
    bench.barge_in(None, 0);
    assert!(!bench.take().contains(&"!stale_audio_after_barge_in".to_owned()), "not yet");
    bench.wait(THINK + 5_000);
    let said = bench.take();
    let [strike, start, audio] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!((strike.as_str(), start.as_str()), ("!stale_audio_after_barge_in", "response 1 to 1"), "{said:?}");
    let frames: u64 = audio.strip_prefix("audio*").unwrap().parse().unwrap();
    assert!((50..=150).contains(&frames), "{frames} frames");
    // An answer that comes first takes its place.
    bench.turn().wait(THINK / 2).barge_in(None, 0).turn().wait(THINK + 200);
    assert!(bench.take().iter().filter(|word| *word == "!stale_audio_after_barge_in").count() <= 1);
    assert_eq!(bench.phase(), Some(Phase::AgentSpeaking));
}

#[test]
fn there_are_holes_between_frames_and_all_frames_come() {
    let mut bench = doomed(FaultKind::OutputGaps);
    bench.turn().wait(5_000);
    let times = frame_times(&bench);
    assert_eq!(times.len(), 50);
    let holes: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0] - 20).filter(|hole| *hole > 0).collect();
    assert_eq!(holes.len(), 2, "{times:?}");
    assert!(holes.iter().all(|hole| (110..350).contains(hole)), "{holes:?}");
}

#[test]
fn a_session_falls_silent_after_its_first_answer_and_stays() {
    let mut bench = doomed(FaultKind::SilentSession);
    bench.speak(400).silence(500).wait(2_000).take();
    bench.speak(500).silence(1_000).wait(2_000);
    assert_eq!(bench.take(), ["!silent_session", "ack 50", "ack 100"]);
    bench.say(ClientEvent::Commit).say(ClientEvent::Respond(proto::frame::ResponseWish::default())).turn().wait(3_000);
    assert_eq!(bench.take(), [] as [&str; 0]);
    bench.say(ClientEvent::End { reason: String::new() });
    assert!(bench.take().last().unwrap().starts_with("END completed"));
}

#[test]
fn a_response_has_no_end_and_the_words_before_it_come_twice() {
    let mut bench = doomed(FaultKind::NoTurnEnd);
    bench.turn().wait(3_000);
    let words = bench.take();
    assert_eq!(words.iter().filter(|word| *word == "final 1").count(), 2, "{words:?}");
    assert!(words.contains(&"!no_turn_end".to_owned()) && !words.iter().any(|word| word.starts_with("end")), "{words:?}");
    assert_eq!(bench.phase(), Some(Phase::Listening));
}

#[test]
fn a_turn_is_answered_twice_and_no_more() {
    let mut bench = doomed(FaultKind::DoubleResponse);
    bench.turn().wait(10_000);
    let responses = |bench: &mut Bench| bench.take().into_iter().filter(|word| word.starts_with("response")).collect::<Vec<_>>();
    assert_eq!(responses(&mut bench), ["response 1 to 1", "response 2 to 1"]);
    bench.turn().wait(10_000);
    assert_eq!(responses(&mut bench), ["response 3 to 2", "response 4 to 2"]);
}

#[test]
fn speech_just_after_a_response_is_not_heard_and_later_speech_is() {
    let mut bench = doomed(FaultKind::VadDrop);
    bench.speak(400).silence(500).wait(THINK + 1_000).take();
    bench.wait(300).speak(400).silence(600);
    assert_eq!(bench.take(), ["!vad_drop", "ack 50"]);
    bench.wait(2_000).speak(400).silence(500).wait(THINK + 1_100);
    assert_eq!(bench.take().last().unwrap(), "end 2 Completed 50");
    let mut bench = doomed(FaultKind::VadDrop);
    bench.speak(400).silence(500).wait(THINK + 1_000).wait(2_000).take();
    bench.speak(400);
    assert_eq!(bench.take()[0], "[user_speaking]", "not at a boundary");
}

#[test]
fn a_session_begins_with_what_is_not_its_own() {
    let mut bench = doomed(FaultKind::CrossTalk);
    bench.wait(2_000);
    let words = bench.take();
    assert_eq!(words, ["[agent_speaking]", "!cross_talk", "response 1 to 0", "audio*40", "[listening]", "end 1 Completed 40"]);
    bench.turn().wait(3_000);
    assert_eq!(bench.take().last().unwrap(), "end 2 Completed 50");
}

#[test]
fn an_interruption_at_an_edge_wedges_the_session_and_one_in_the_middle_does_not() {
    for edge in [0, 100_000] {
        let mut bench = doomed(FaultKind::TruncateEdge);
        bench.turn().wait(THINK + 200).barge_in(Some(1), 100).turn().wait(THINK + 200).take();
        bench.barge_in(Some(2), edge);
        assert!(bench.take().contains(&"!truncate_edge".to_owned()), "{edge}");
        bench.turn().wait(5_000);
        assert_eq!(bench.take(), [] as [&str; 0]);
        // The same by a truncation after the fact.
        let mut bench = doomed(FaultKind::TruncateEdge);
        bench.turn().wait(THINK + 200).turn();
        bench.say(ClientEvent::Truncate { response: ResponseId(1), heard_ms: edge }).take();
        bench.wait(5_000);
        assert_eq!(bench.take(), [] as [&str; 0]);
    }
}

#[test]
fn a_ghost_goes_through_its_phases_until_its_time_has_come() {
    let mut bench = Bench::new();
    bench.turn().wait(THINK + 200).take();
    bench.act(|session, now, _| session.haunt(Outcome::Cancelled, now + Duration::from_secs(19), now));
    bench.wait(18_999);
    let phases: HashSet<String> = bench.take().into_iter().filter(|word| word.starts_with('[')).collect();
    assert!(phases.len() >= 3 && !bench.session.ended(), "{phases:?}");
    bench.wait(1);
    assert_eq!(bench.take().last().unwrap(), "END cancelled");
}

#[test]
fn who_is_fated_for_nothing_is_as_any_other() {
    let course = |doomed: bool| {
        let mut bench = Bench::new();
        if doomed {
            bench.act(|session, now, out| session.doom(SessionFates::default(), now, out));
        }
        bench.speak(400).silence(500).wait(THINK + 300).barge_in(Some(1), 0).turn().wait(3_000).speak(400).silence(500).wait(3_000);
        bench.all
    };
    assert_eq!(course(true), course(false));
    assert!(!course(true).iter().any(|(_, effect)| matches!(effect, Effect::Fault(_))));
}
