//! What dialects other than the native one need: turns committed, audio of any length, marks, greetings.

use proto::frame::ResponseWish;

use super::*;
use crate::plan::{Agent, Dialect, Service, TurnDetection};

/// Turns begin 500 after acceptance (at 1500) and after each other; speech onset at 30 ms and end at 170 ms of ten frames.
fn foreign(dialect: Dialect, agent: Agent, turns: Vec<TurnTemplate>) -> SessionPlan {
    let mut scenario = scenario(turns);
    scenario.service = Arc::new(Service { dialect, agent, ..Service::default() });
    plan(scenario)
}

fn listen(turns: usize) -> Vec<TurnTemplate> {
    (0..turns).map(|_| turn(500, ActTemplate::Listen)).collect()
}

fn manual() -> Agent {
    Agent { turn_detection: TurnDetection::None, ..Agent::default() }
}

fn by_speech() -> ActTemplate {
    ActTemplate::BargeIn { after: constant(300), explicit: false, heard: None, says: vec![utterance(5, 10, 70)] }
}

/// Milliseconds of a response, in one message.
fn burst(sequence: u64, response: u64, payload: Bytes) -> ServerEvent {
    ServerEvent::Audio(AgentAudio { sequence, timestamp_us: 0, payload, response: ResponseId(response) })
}

fn mark(name: &str) -> ServerEvent {
    ServerEvent::Mark { name: name.to_owned() }
}

fn played(bench: &Bench) -> Vec<(u64, String)> {
    let sent = bench.sent().into_iter().filter_map(|(at, event)| match event {
        ClientEvent::Played { name } => Some((at, name)),
        _ => None,
    });
    sent.collect()
}

fn truncates(bench: &Bench) -> Vec<(u64, u64, u32)> {
    let sent = bench.sent().into_iter().filter_map(|(at, event)| match event {
        ClientEvent::Truncate { response, heard_ms } => Some((at, response.0, heard_ms)),
        _ => None,
    });
    sent.collect()
}

#[test]
fn who_finds_its_own_turns_commits_them_after_the_last_audio() {
    let mut bench = Bench::live(foreign(Dialect::OpenaiRealtime, manual(), listen(1)));
    bench.run(5_000);
    // Frame 8 holds the end of speech; nothing follows it.
    assert_eq!(bench.frame_times(), (1..=9).map(|n| 1_500 + 20 * n).collect::<Vec<_>>());
    let asked = [(1_680, ClientEvent::Commit), (1_680, ClientEvent::Respond(ResponseWish::default()))];
    assert_eq!(bench.sent()[1..], asked);
    let last = bench.log.iter().rposition(|(_, action)| matches!(action, Action::Send(ClientEvent::Audio(_))));
    let commit = bench.log.iter().position(|(_, action)| *action == Action::Send(ClientEvent::Commit));
    assert!(last < commit);
    bench.hear(5_000, ServerEvent::Committed { turn: TurnId(1) });
    bench.answer(5_100, 1, 1, 5);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 5_100)]);
    assert_eq!(bench.samples(Metric::Endpointing), [], "the caller said so itself");
}

#[test]
fn markers_and_detectors_need_no_commit() {
    let mut marked = foreign(Dialect::GeminiLive, manual(), listen(1));
    Arc::make_mut(&mut marked.scenario).markers = true;
    for session in [marked, foreign(Dialect::OpenaiRealtime, Agent::default(), listen(1))] {
        let mut bench = Bench::live(session);
        bench.run(5_000);
        assert!(!bench.sent().iter().any(|(_, event)| matches!(event, ClientEvent::Commit | ClientEvent::Respond(_))));
    }
}

#[test]
fn who_breaks_in_where_nobody_listens_says_so_and_commits_what_was_said() {
    let mut bench = Bench::live(foreign(Dialect::OpenaiRealtime, manual(), vec![turn(500, by_speech())]));
    bench.hear(2_000, response_start(1, 1));
    bench.hear_frames(2_000, 1, 15);
    bench.run(2_300);
    assert_eq!(bench.sent().last(), Some(&(2_300, ClientEvent::BargeIn { response: Some(ResponseId(1)), heard_ms: 260 })));
    bench.hear(2_310, response_end(1, ResponseStatus::Interrupted));
    bench.run(3_000);
    let commits: Vec<_> = bench.sent().into_iter().filter(|(_, event)| *event == ClientEvent::Commit).map(|(at, _)| at).collect();
    assert_eq!(commits, [1_680, 2_380]);
    assert_eq!(truncates(&bench), [], "the message said it");
}

#[test]
fn after_an_interruption_by_speech_the_server_learns_what_was_heard() {
    let mut bench = Bench::live(foreign(Dialect::OpenaiRealtime, Agent::default(), vec![turn(500, by_speech())]));
    bench.hear(2_000, response_start(1, 1));
    // A second in one message: played from 2040 to 3040.
    bench.hear(2_000, burst(0, 1, voice(1_000)));
    bench.hear(2_400, speech(true));
    bench.hear(2_410, response_end(1, ResponseStatus::Interrupted));
    bench.run(3_000);
    assert_eq!(truncates(&bench), [(2_410, 1, 360)]);
    assert_eq!(bench.samples(Metric::BargeInSignal), [(2_310, 2_310, 2_400)]);
    assert_eq!(bench.samples(Metric::BargeInStop), [(2_310, 2_310, 2_410)]);
    assert_eq!(bench.samples(Metric::BargeInLastPacket), [(2_310, 2_310, 2_310)], "the last came long before");
    assert_eq!(bench.samples(Metric::BargeInSilent), [(2_310, 2_310, 2_400)]);
}

#[test]
fn what_was_sent_in_full_and_still_plays_can_be_interrupted() {
    // Played from 2040 to 4040; the server has long been done.
    let start = |act| {
        let mut bench = Bench::live(foreign(Dialect::OpenaiRealtime, Agent::default(), vec![turn(500, act)]));
        bench.hear(2_000, response_start(1, 1));
        bench.hear(2_000, burst(0, 1, voice(2_000)));
        bench.hear(2_010, response_end(1, ResponseStatus::Completed));
        bench
    };
    let mut bench = start(by_speech());
    bench.hear(2_400, speech(true));
    bench.run(3_000);
    assert_eq!(truncates(&bench), [(2_400, 1, 360)]);
    assert_eq!(bench.samples(Metric::BargeInSignal), [(2_310, 2_310, 2_400)]);
    assert_eq!(bench.samples(Metric::BargeInSilent), [(2_310, 2_310, 2_400)]);
    assert_eq!((bench.count(Counter::BargeIns), bench.count(Counter::BargeInsMissed), bench.count(Counter::BargeInsFalse)), (1, 0, 0));
    // The server never hears of it: the rest is played over the user.
    let mut bench = start(by_speech());
    bench.run(9_000);
    assert_eq!(bench.counts([Counter::BargeIns, Counter::BargeInsJudged, Counter::BargeInsMissed]), [1, 1, 1]);
    assert_eq!(truncates(&bench), []);
    // By message there is nothing to stop but the loudspeaker.
    let mut bench = start(ActTemplate::BargeIn { after: constant(300), explicit: true, heard: None, says: Vec::new() });
    bench.run(9_000);
    assert_eq!(truncates(&bench), [(2_300, 1, 260)]);
    assert_eq!(bench.counts([Counter::BargeIns, Counter::BargeInsJudged, Counter::BargeInsMissed]), [1, 0, 0]);
    assert_eq!(bench.goodbye(), Some(2_300));
    // One that is nearly over is heard out.
    let mut bench = start(ActTemplate::BargeIn { after: constant(2_000), explicit: true, heard: None, says: Vec::new() });
    bench.run(9_000);
    assert_eq!((bench.count(Counter::BargeIns), bench.goodbye()), (0, Some(4_040)));
}

/// Where the driver numbers the audio itself no gap can be seen: a threshold on gaps has nothing to rest on.
#[test]
fn only_what_the_backend_numbered_can_have_gaps() {
    for (dialect, counted) in [(Dialect::Native, (2, 1)), (Dialect::OpenaiRealtime, (0, 0)), (Dialect::Ces, (0, 0))] {
        let mut bench = Bench::live(foreign(dialect, Agent::default(), listen(1)));
        bench.hear(2_000, response_start(1, 1));
        bench.hear(2_000, audio(0, 1));
        bench.hear(2_020, audio(7, 1));
        assert_eq!((bench.count(Counter::AudioNumbered), bench.count(Counter::SequenceGaps)), counted, "{dialect:?}");
    }
}

#[test]
fn playout_is_by_duration() {
    let mut bench = Bench::live(foreign(Dialect::Deepgram, Agent::default(), listen(1)));
    bench.hear(2_000, response_start(1, 1));
    // 30 and 45 ms, then a second at once: 2040, 2070, 2115, 3115.
    for (n, (at, ms)) in [(2_000, 30), (2_030, 45), (2_031, 1_000)].into_iter().enumerate() {
        let payload = Bytes::from(vec![1; ms * 32]);
        bench.hear(at, burst(n as u64, 1, payload));
    }
    assert_eq!(bench.count(Counter::FramesReceived), 53, "1,075 ms");
    bench.hear(3_125, burst(3, 1, voice(20)));
    assert_eq!(bench.samples(Metric::AudioGap), [(3_115, 3_115, 3_125)]);
    assert_eq!(bench.count(Counter::FramesReceived), 54, "what makes no frame is carried on");
    bench.hear(3_125, response_end(1, ResponseStatus::Completed));
    bench.run(9_000);
    assert_eq!(bench.goodbye(), Some(3_145));
    // Of 1,095 ms, 1,075 came before the last, in 1,125.
    assert_eq!((bench.count(Counter::PacedMediaUs), bench.count(Counter::PacedWallUs)), (1_075_000, 1_125_000));
}

#[test]
fn silence_before_the_first_word_is_no_answer_yet() {
    let mut bench = Bench::live(foreign(Dialect::OpenaiRealtime, Agent::default(), listen(1)));
    bench.hear(2_000, response_start(1, 1));
    bench.hear(2_000, burst(0, 1, Bytes::from(vec![0; 640 * 10])));
    assert_eq!((bench.samples(Metric::TurnResponse), bench.samples(Metric::TimeToFirstStream)), (Vec::new(), Vec::new()));
    // A message that ends with a voice is heard.
    bench.hear(2_100, burst(1, 1, [vec![0; 640 * 50], vec![1; 640]].concat().into()));
    bench.run(3_199);
    assert_eq!(bench.samples(Metric::TurnResponse), [], "behind 1,200 ms of silence that were to be played from 2000 on");
    bench.run(3_200);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 3_200)]);
    // An answer of nothing but silence is none.
    let mut bench = Bench::live(foreign(Dialect::OpenaiRealtime, Agent::default(), listen(1)));
    bench.hear(2_000, response_start(1, 1));
    bench.hear(2_000, burst(0, 1, Bytes::from(vec![0; 640 * 10])));
    bench.hear(2_200, response_end(1, ResponseStatus::Completed));
    bench.run(20_000);
    assert_eq!((bench.count(Counter::TurnsAnswered), bench.count(Counter::TurnsMissed)), (0, 1));
}

#[test]
fn marks_are_reached_when_their_audio_was_played_or_thrown_away() {
    let mut bench = Bench::live(foreign(Dialect::Twilio, Agent::default(), listen(1)));
    bench.hear(1_400, mark("nothing"));
    assert_eq!(played(&bench), [(1_400, "nothing".to_owned())]);
    bench.hear(2_000, burst(0, 0, voice(100)));
    bench.hear(2_000, mark("first"));
    bench.hear(2_000, burst(1, 0, voice(900)));
    bench.hear(2_001, mark("second"));
    bench.hear(2_002, mark("third"));
    bench.run(2_139);
    assert_eq!(played(&bench).len(), 1);
    bench.run(2_500);
    assert_eq!(played(&bench)[1..], [(2_140, "first".to_owned())]);
    bench.hear(2_510, response_end(0, ResponseStatus::Interrupted));
    assert_eq!(played(&bench)[2..], [(2_510, "second".to_owned()), (2_510, "third".to_owned())]);
}

#[test]
fn marks_are_bounded_and_none_is_told_after_goodbye() {
    let mut bench = Bench::live(foreign(Dialect::Twilio, Agent::default(), listen(1)));
    bench.hear(2_000, burst(0, 0, voice(60_000)));
    for n in 0..5_000 {
        bench.hear(2_001, mark(&n.to_string()));
    }
    assert_eq!(bench.count(Counter::ServerErrors), 5_000 - 4_096);
    bench.stop(2_100, 2_100);
    bench.run(2_100);
    assert!(bench.goodbye().is_some());
    bench.hear(2_200, response_end(0, ResponseStatus::Interrupted));
    bench.hear(2_300, mark("late"));
    bench.run(90_000);
    assert_eq!(played(&bench), []);
}

#[test]
fn an_agent_that_greets_is_heard_out_first() {
    let greets = || foreign(Dialect::OpenaiRealtime, Agent { greets: true, ..Agent::default() }, listen(1));
    let mut bench = Bench::live(greets());
    bench.hear(1_200, response_start(1, 0));
    bench.hear(1_200, burst(0, 1, voice(1_000)));
    bench.hear(1_300, response_end(1, ResponseStatus::Completed));
    // Heard out at 2240; the turn begins 500 later.
    bench.run(2_739);
    assert_eq!((bench.count(Counter::Turns), bench.count(Counter::ResponsesSpurious)), (0, 0));
    assert_eq!(bench.samples(Metric::TimeToFirstStream), [(100, 100, 1_200)]);
    bench.run(2_740);
    assert_eq!(bench.count(Counter::Turns), 1);
    bench.hear(3_500, response_start(2, 0));
    bench.hear(3_500, burst(1, 2, voice(100)));
    assert_eq!(bench.samples(Metric::TurnResponse), [(2_910, 2_910, 3_500)]);
    // One that does not is waited for as long as for an answer.
    let mut bench = Bench::live(greets());
    bench.run(11_499);
    assert_eq!(bench.count(Counter::Turns), 0);
    bench.run(11_500);
    assert_eq!((bench.count(Counter::Turns), bench.count(Counter::TurnsMissed)), (1, 0));
}

#[test]
fn a_greeting_that_nobody_expects_answers_nobody() {
    let mut bench = Bench::live(foreign(Dialect::OpenaiRealtime, Agent::default(), listen(1)));
    bench.hear(1_200, response_start(1, 0));
    bench.hear(1_200, burst(0, 1, voice(100)));
    assert_eq!(bench.count(Counter::ResponsesSpurious), 1);
}

#[test]
fn turns_without_a_number_are_the_open_one() {
    let mut bench = Bench::live(foreign(Dialect::Elevenlabs, Agent::default(), listen(2)));
    for (from, response) in [(1_500, 1), (2_640, 2)] {
        bench.hear(from + 300, transcript(0, true));
        bench.answer(from + 500, response, 0, 5);
    }
    assert_eq!(bench.samples(Metric::TranscriptFinal), [(1_670, 1_670, 1_800), (2_810, 2_810, 2_940)]);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 2_000), (2_810, 2_810, 3_140)]);
    bench.run(9_000);
    assert_eq!((bench.count(Counter::TurnsAnswered), bench.count(Counter::ResponsesSpurious)), (2, 0));
}

#[test]
fn a_server_that_goes_away_is_left_after_the_turn() {
    let away = ServerEvent::GoingAway { left_ms: 9_000 };
    let mut bench = Bench::live(foreign(Dialect::GeminiLive, Agent::default(), listen(3)));
    bench.hear(1_600, away.clone());
    bench.answer(2_000, 1, 1, 5);
    bench.run(3_000);
    assert_eq!((bench.goodbye(), bench.count(Counter::GoingAways)), (Some(2_140), 1));
    let mut bench = Bench::live(foreign(Dialect::GeminiLive, Agent::default(), listen(3)));
    bench.hear(1_200, away);
    assert_eq!(bench.goodbye(), Some(1_200));
}

#[test]
fn an_answer_that_plays_for_longer_than_the_response_timeout_is_not_missed() {
    for ended in [true, false] {
        let mut bench = Bench::live(foreign(Dialect::OpenaiRealtime, Agent::default(), listen(1)));
        bench.hear(2_000, response_start(1, 1));
        bench.hear(2_000, burst(0, 1, voice(30_000)));
        if ended {
            bench.hear(2_010, response_end(1, ResponseStatus::Completed));
        } else {
            // The end is told when all was played.
            bench.hear(32_000, response_end(1, ResponseStatus::Completed));
        }
        bench.run(60_000);
        assert_eq!((bench.count(Counter::TurnsAnswered), bench.count(Counter::TurnsMissed)), (1, 0));
        assert_eq!(bench.goodbye(), Some(32_040));
    }
}
