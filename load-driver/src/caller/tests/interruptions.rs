use super::*;

/// One question (1500 to 1700), interrupted 300 after the first agent frame.
fn session(act: ActTemplate) -> Bench {
    let mut bench = Bench::live(plan(scenario(vec![turn(500, act)])));
    bench.hear(1_900, transcript(1, true));
    bench.hear(2_000, response_start(1, 1));
    bench
}

fn by_message() -> ActTemplate {
    ActTemplate::BargeIn { after: constant(300), explicit: true, heard: None, says: Vec::new() }
}

fn by_speech() -> ActTemplate {
    ActTemplate::BargeIn { after: constant(300), explicit: false, heard: None, says: vec![utterance(5, 10, 70)] }
}

#[test]
fn an_explicit_interruption_says_what_was_heard() {
    let mut bench = session(by_message());
    bench.hear_frames(2_000, 1, 15);
    bench.run(2_300);
    // 2300 is 260 ms into a playout that began at 2040.
    let message = ClientEvent::BargeIn { response: Some(ResponseId(1)), heard_ms: 260 };
    assert_eq!(bench.sent().last(), Some(&(2_300, message)));
    bench.hear_frames(2_300, 1, 2);
    bench.hear(2_350, response_end(1, ResponseStatus::Interrupted));
    assert_eq!(bench.goodbye(), Some(2_350), "what waits to be played is thrown away");
    assert_eq!(bench.samples(Metric::BargeInStop), []);
    bench.run(2_850);
    assert_eq!(bench.samples(Metric::BargeInStop), [(2_300, 2_300, 2_350)]);
    let counts = [Counter::BargeIns, Counter::BargeInsMissed, Counter::StaleFrames, Counter::TurnsAnswered];
    assert_eq!(counts.map(|counter| bench.count(counter)), [1, 0, 0, 1]);
}

#[test]
fn heard_ms_is_what_came_when_the_playout_has_run_dry() {
    let mut bench = session(by_message());
    bench.hear_frames(2_000, 1, 3);
    bench.run(2_300);
    assert_eq!(bench.sent().last(), Some(&(2_300, ClientEvent::BargeIn { response: Some(ResponseId(1)), heard_ms: 60 })));
}

#[test]
fn service_time_of_an_interruption_counts_from_its_sending() {
    let mut bench = session(by_message());
    bench.hear_frames(2_000, 1, 2);
    bench.late(2_312);
    bench.hear(2_340, response_end(1, ResponseStatus::Interrupted));
    bench.run(3_000);
    assert_eq!(bench.samples(Metric::BargeInStop), [(2_300, 2_312, 2_340)]);
}

#[test]
fn stale_frames_prolong_the_stop() {
    let mut bench = session(by_message());
    bench.hear_frames(2_000, 1, 15);
    bench.hear(2_350, response_end(1, ResponseStatus::Interrupted));
    bench.hear_frames(2_360, 1, 10);
    bench.run(9_000);
    assert_eq!(bench.samples(Metric::BargeInStop), [(2_300, 2_300, 2_540)]);
    assert_eq!((bench.count(Counter::StaleFrames), bench.count(Counter::BargeInsMissed)), (10, 0));
}

#[test]
fn an_agent_that_acknowledges_and_talks_on_has_not_stopped() {
    let mut bench = session(ActTemplate::BargeIn { after: constant(300), explicit: true, heard: None, says: says() });
    bench.hear_frames(2_000, 1, 15);
    bench.hear(2_350, response_end(1, ResponseStatus::Interrupted));
    bench.hear_frames(2_360, 1, 200);
    bench.run(9_000);
    assert_eq!(bench.samples(Metric::BargeInStop), []);
    assert_eq!((bench.count(Counter::StaleFrames), bench.count(Counter::BargeInsMissed)), (200, 1));
}

#[test]
fn an_agent_that_talks_on_for_3_s_has_not_stopped() {
    let mut bench = session(by_message());
    bench.hear_frames(2_000, 1, 200);
    bench.run(9_000);
    assert_eq!(bench.samples(Metric::BargeInStop), []);
    assert_eq!((bench.count(Counter::BargeIns), bench.count(Counter::BargeInsMissed)), (1, 1));
    assert_eq!(bench.goodbye(), Some(5_300));
}

#[test]
fn a_response_that_ends_by_itself_was_not_stopped_unless_it_crossed() {
    for (frames, missed) in [(20, 0), (60, 1)] {
        let mut bench = session(by_message());
        bench.hear_frames(2_000, 1, frames);
        bench.hear(2_000 + 20 * frames, response_end(1, ResponseStatus::Completed));
        bench.run(9_000);
        assert_eq!(bench.samples(Metric::BargeInStop), []);
        // What crossed says nothing, and is no part of what the rate of missed ones rests on.
        let counters = [Counter::BargeIns, Counter::BargeInsJudged, Counter::BargeInsMissed];
        assert_eq!(bench.counts(counters), [1, missed, missed], "{frames} frames");
        assert_eq!(bench.count(Counter::TurnsAnswered), 1);
    }
}

#[test]
fn a_response_that_ends_earlier_is_not_interrupted() {
    for act in [by_message(), by_speech(), ActTemplate::Cancel { after: constant(300) }] {
        let mut bench = session(act);
        bench.hear_frames(2_000, 1, 14);
        bench.hear(2_280, response_end(1, ResponseStatus::Completed));
        bench.run(9_000);
        assert_eq!((bench.count(Counter::BargeIns), bench.count(Counter::Turns)), (0, 1));
        assert_eq!(bench.goodbye(), Some(2_320));
    }
}

#[test]
fn a_spoken_interruption_is_the_next_thing_answered() {
    let mut bench = session(by_speech());
    // Speaks from 2300 to 2400; onset at 2310, end of speech at 2370.
    bench.hear_frames(2_000, 1, 20);
    bench.hear(2_395, response_end(1, ResponseStatus::Interrupted));
    bench.hear(2_450, transcript(2, false));
    bench.hear(2_460, transcript(2, true));
    bench.answer(2_700, 2, 2, 5);
    bench.run(9_000);
    assert_eq!(bench.samples(Metric::BargeInStop), [(2_310, 2_310, 2_395)]);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 2_000), (2_370, 2_370, 2_700)]);
    assert_eq!(bench.samples(Metric::TranscriptFirst), [(1_530, 1_530, 1_900), (2_310, 2_310, 2_450)]);
    assert_eq!(bench.samples(Metric::TranscriptFinal), [(1_670, 1_670, 1_900), (2_370, 2_370, 2_460)]);
    assert_eq!((bench.count(Counter::Turns), bench.count(Counter::TurnsAnswered), bench.count(Counter::BargeIns)), (2, 2, 1));
    assert_eq!(bench.goodbye(), Some(2_840));
    assert!(!bench.sent().iter().any(|(_, event)| matches!(event, ClientEvent::BargeIn { .. })));
    let speech: Vec<_> = bench.frame_times().into_iter().filter(|at| (2_300..=2_400).contains(at)).collect();
    assert_eq!(speech, [2_320, 2_340, 2_360, 2_380, 2_400]);
}

#[test]
fn the_interrupted_response_does_not_answer_the_interruption() {
    let mut bench = session(by_speech());
    bench.hear_frames(2_000, 1, 100);
    bench.hear(4_000, response_end(1, ResponseStatus::Completed));
    bench.run(12_369);
    assert_eq!((bench.count(Counter::BargeInsMissed), bench.count(Counter::TurnsMissed)), (1, 0));
    bench.run(12_370);
    assert_eq!((bench.count(Counter::TurnsAnswered), bench.count(Counter::TurnsMissed)), (1, 1));
}

#[test]
fn a_spoken_interruption_with_a_message_is_both() {
    let mut bench = session(ActTemplate::BargeIn { after: constant(300), explicit: true, heard: None, says: says() });
    bench.hear_frames(2_000, 1, 15);
    bench.hear(2_320, response_end(1, ResponseStatus::Interrupted));
    bench.answer(3_000, 2, 2, 5);
    assert_eq!(bench.samples(Metric::BargeInStop), [(2_300, 2_300, 2_320)]);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 2_000), (2_470, 2_470, 3_000)]);
    assert_eq!(bench.count(Counter::BargeIns), 1);
}

#[test]
fn a_cancel_is_measured_like_an_interruption() {
    let mut bench = session(ActTemplate::Cancel { after: constant(300) });
    bench.hear_frames(2_000, 1, 17);
    bench.hear(2_330, response_end(1, ResponseStatus::Cancelled));
    assert!(bench.sent().contains(&(2_300, ClientEvent::Cancel { response: Some(ResponseId(1)) })));
    bench.run(9_000);
    assert_eq!(bench.samples(Metric::BargeInStop), [(2_300, 2_300, 2_330)]);
    assert_eq!((bench.count(Counter::BargeIns), bench.count(Counter::TurnsAnswered)), (1, 1));
    assert_eq!(bench.goodbye(), Some(2_330));
}

#[test]
fn a_stop_that_the_end_of_the_session_overtakes_is_still_measured() {
    let mut bench = session(by_message());
    bench.hear_frames(2_000, 1, 15);
    bench.hear(2_350, response_end(1, ResponseStatus::Interrupted));
    bench.hear(2_400, ended(Outcome::Completed));
    assert_eq!(bench.samples(Metric::BargeInStop), [(2_300, 2_300, 2_350)]);
    assert_eq!(bench.over().map(|(at, _)| at), Some(2_400));
}
