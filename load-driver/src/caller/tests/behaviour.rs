//! What a user would notice of an agent: endpointing, false interruptions, spurious answers, both talking at once, and the pace of audio.

use super::*;

fn session(turns: usize) -> Bench {
    Bench::live(plan(scenario((0..turns).map(|_| turn(500, ActTemplate::Listen)).collect())))
}

#[test]
fn endpointing_is_from_the_end_of_speech_to_the_servers_word() {
    let committed = ServerEvent::Committed { turn: TurnId(1) };
    for word in [speech(false), committed] {
        let mut bench = session(1);
        bench.hear(1_600, word.clone());
        assert_eq!(bench.samples(Metric::Endpointing), [], "that was a pause");
        bench.hear(2_170, word.clone());
        bench.hear(2_190, word);
        assert_eq!(bench.samples(Metric::Endpointing), [(1_670, 1_670, 2_170)]);
    }
    let mut scenario = scenario(vec![turn(500, ActTemplate::Listen)]);
    scenario.markers = true;
    let mut bench = Bench::live(plan(scenario));
    bench.hear(2_170, speech(false));
    assert_eq!(bench.samples(Metric::Endpointing), [], "the caller's own word");
}

#[test]
fn a_response_that_is_broken_off_without_the_user_is_a_false_interruption() {
    for (status, no) in [(ResponseStatus::Interrupted, 1), (ResponseStatus::Cancelled, 1), (ResponseStatus::Completed, 0)] {
        let mut bench = session(1);
        bench.hear(2_000, response_start(1, 1));
        bench.hear_frames(2_000, 1, 5);
        bench.hear(2_100, response_end(1, status));
        assert_eq!(bench.count(Counter::BargeInsFalse), no, "{status:?}");
    }
    // The user was still speaking when it began.
    let mut bench = session(1);
    bench.hear(1_600, response_start(1, 1));
    bench.hear_frames(1_600, 1, 5);
    bench.hear(1_900, response_end(1, ResponseStatus::Interrupted));
    assert_eq!(bench.count(Counter::BargeInsFalse), 0);
    // The user asked for it.
    for explicit in [true, false] {
        let act = ActTemplate::BargeIn { after: constant(300), explicit, heard: None, says: says() };
        let mut bench = Bench::live(plan(scenario(vec![turn(500, act)])));
        bench.hear(2_000, response_start(1, 1));
        bench.hear_frames(2_000, 1, 20);
        bench.hear(2_400, response_end(1, ResponseStatus::Interrupted));
        assert_eq!(bench.count(Counter::BargeInsFalse), 0);
    }
}

#[test]
fn a_second_response_to_a_turn_is_spurious() {
    // At the same time.
    let mut bench = session(2);
    bench.hear(2_000, response_start(1, 1));
    bench.hear_frames(2_000, 1, 3);
    bench.hear(2_060, response_start(2, 1));
    assert_eq!(bench.count(Counter::ResponsesSpurious), 0, "nobody has heard it");
    bench.hear_frames(2_060, 2, 3);
    assert_eq!(bench.count(Counter::ResponsesSpurious), 1);
    // After the answer was heard out.
    let mut bench = session(2);
    bench.answer(2_000, 1, 1, 5);
    bench.answer(2_300, 2, 1, 5);
    bench.answer(3_500, 3, 2, 5);
    assert_eq!(bench.count(Counter::ResponsesSpurious), 1);
}

#[test]
fn a_late_answer_is_not_spurious_but_late_only_once() {
    let mut plan = plan(scenario((0..2).map(|_| turn(5_000, ActTemplate::Listen)).collect()));
    Arc::make_mut(&mut plan.scenario).response_timeout = Duration::from_secs(1);
    let mut bench = Bench::live(plan);
    // Missed at 7170.
    bench.answer(8_000, 1, 1, 5);
    assert_eq!((bench.count(Counter::TurnsMissed), bench.count(Counter::ResponsesSpurious)), (1, 0));
    bench.answer(9_000, 2, 1, 5);
    assert_eq!(bench.count(Counter::ResponsesSpurious), 1);
}

#[test]
fn the_words_after_a_tool_are_not_spurious() {
    let tool = ActTemplate::Tool { name: "lookup".to_owned(), takes: constant(100) };
    for act in [tool, ActTemplate::Listen] {
        let mut bench = Bench::live(plan(scenario(vec![turn(500, act), turn(9_000, ActTemplate::Listen)])));
        bench.hear(2_000, response_start(1, 1));
        bench.hear_frames(2_000, 1, 5);
        bench.hear(2_100, tool_call("c", "lookup"));
        bench.hear(2_100, response_end(1, ResponseStatus::Completed));
        bench.answer(2_600, 2, 1, 5);
        bench.run(5_000);
        assert_eq!(bench.count(Counter::ResponsesSpurious), 0);
    }
}

#[test]
fn talk_over_is_what_both_said_at_once() {
    // The user speaks from 1530 to 1670; the agent is heard from 1640 (a frame each 20 ms from 1600) to 1740.
    let mut bench = session(1);
    bench.hear(1_600, response_start(1, 1));
    bench.hear_frames(1_600, 1, 5);
    bench.run(1_700);
    assert_eq!(bench.count(Counter::TalkOverUs), 30_000);
    // One that waits for its turn does not talk over anybody.
    let mut bench = session(1);
    bench.answer(2_000, 1, 1, 5);
    bench.run(9_000);
    assert_eq!(bench.count(Counter::TalkOverUs), 0);
    // One that is not stopped does, all the time: the interruption is heard from 2330 to 2470.
    let act = ActTemplate::BargeIn { after: constant(300), explicit: false, heard: None, says: says() };
    let mut bench = Bench::live(plan(scenario(vec![turn(500, act)])));
    bench.hear(2_000, response_start(1, 1));
    bench.hear_frames(2_000, 1, 40);
    assert_eq!(bench.count(Counter::TalkOverUs), 140_000);
    // What is thrown away is not heard: stopped at 2370.
    let act = ActTemplate::BargeIn { after: constant(300), explicit: false, heard: None, says: says() };
    let mut bench = Bench::live(plan(scenario(vec![turn(500, act)])));
    bench.hear(2_000, response_start(1, 1));
    bench.hear_frames(2_000, 1, 19);
    bench.hear(2_370, response_end(1, ResponseStatus::Interrupted));
    bench.run(9_000);
    assert_eq!(bench.count(Counter::TalkOverUs), 40_000);
}

#[test]
fn the_pace_is_audio_over_the_time_in_which_it_came() {
    for (step, wall) in [(20, 180_000), (40, 360_000), (5, 45_000)] {
        let mut bench = session(1);
        bench.hear(2_000, response_start(1, 1));
        for n in 0..10 {
            bench.hear(2_000 + step * n, audio(n, 1));
        }
        bench.hear(3_000, response_end(1, ResponseStatus::Completed));
        assert_eq!((bench.count(Counter::PacedMediaUs), bench.count(Counter::PacedWallUs)), (180_000, wall));
    }
    let mut bench = session(1);
    bench.answer(2_000, 1, 1, 1);
    assert_eq!((bench.count(Counter::PacedMediaUs), bench.count(Counter::PacedWallUs)), (0, 0), "one message has no pace");
}
