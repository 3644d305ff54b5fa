//! Responses that nobody names: told by their sound.

use super::*;
use crate::plan::{Agent, Dialect, Service};

/// A telephone line: turns begin 500 after acceptance (at 1500) and after each other; speech onset at 30 ms and end at 170 ms.
fn telephone(agent: Agent, turns: Vec<TurnTemplate>) -> Bench {
    let mut scenario = scenario(turns);
    scenario.service = Arc::new(Service { dialect: Dialect::Twilio, agent, ..Service::default() });
    Bench::live(plan(scenario))
}

fn listen(turns: usize) -> Vec<TurnTemplate> {
    (0..turns).map(|_| turn(500, ActTemplate::Listen)).collect()
}

fn by_speech() -> Vec<TurnTemplate> {
    vec![turn(500, ActTemplate::BargeIn { after: constant(300), explicit: false, heard: None, says: vec![utterance(40, 10, 770)] })]
}

impl Bench {
    /// The line from `from` to `to`, in real time: voice or silence.
    fn line(&mut self, from: u64, to: u64, loud: bool) {
        for at in (from..to).step_by(20) {
            let payload = if loud { voice(20) } else { Bytes::from(vec![0; 640]) };
            let sequence = self.sequence;
            self.sequence += 1;
            self.hear(at, ServerEvent::Audio(AgentAudio { sequence, timestamp_us: 0, payload, response: ResponseId(0) }));
        }
    }

    pub(super) fn counts<const N: usize>(&self, counters: [Counter; N]) -> [u64; N] {
        counters.map(|counter| self.count(counter))
    }
}

#[test]
fn an_answer_begins_with_the_first_sound_and_is_over_when_it_was_heard_out() {
    let mut bench = telephone(Agent::default(), listen(2));
    bench.line(1_000, 2_000, false);
    bench.line(2_000, 2_600, true);
    bench.line(2_600, 3_500, false);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 2_000)]);
    assert_eq!(bench.samples(Metric::TimeToFirstStream), [(100, 100, 2_000)], "silence is no sign of life");
    // The last sound came at 2580: over at 3580, known then, since 2640.
    bench.run(3_579);
    assert_eq!(bench.counts([Counter::TurnsAnswered, Counter::Responses]), [0, 0]);
    bench.run(3_580);
    assert_eq!(bench.counts([Counter::TurnsAnswered, Counter::Responses, Counter::Turns]), [1, 1, 2]);
    bench.run(3_600);
    assert_eq!(bench.frame_times().into_iter().find(|at| *at > 3_300), Some(3_600), "the next turn was due at 3140: it begins at once");
    assert_eq!(bench.counts([Counter::Underruns, Counter::ResponsesSpurious, Counter::ServerErrors]), [0, 0, 0]);
    assert_eq!((bench.count(Counter::PacedMediaUs), bench.count(Counter::PacedWallUs)), (580_000, 580_000));
}

#[test]
fn a_long_wait_counts_from_the_last_sound() {
    let mut bench = telephone(Agent::default(), vec![turn(500, ActTemplate::Listen), turn(3_000, ActTemplate::Listen)]);
    bench.line(2_000, 2_600, true);
    bench.run(9_000);
    // Heard out at 2640.
    assert_eq!(bench.frame_times().into_iter().find(|at| *at > 4_000), Some(5_660));
}

#[test]
fn a_burst_is_over_when_it_was_played() {
    let mut bench = telephone(Agent::default(), listen(1));
    let payload = voice(4_000);
    bench.hear(2_000, ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, payload, response: ResponseId(0) }));
    bench.run(6_039);
    assert_eq!(bench.goodbye(), None);
    bench.run(6_040);
    assert_eq!(bench.goodbye(), Some(6_040));
    assert_eq!(bench.counts([Counter::PacedMediaUs, Counter::PacedWallUs]), [0, 0], "all at once has no pace");
}

#[test]
fn a_pause_between_sentences_is_no_end() {
    let mut bench = telephone(Agent::default(), listen(1));
    bench.line(2_000, 2_400, true);
    bench.line(3_300, 3_500, true);
    bench.run(9_000);
    // Played out at 2440; a listener hears the hole, whatever made it.
    assert_eq!(bench.samples(Metric::AudioGap), [(2_440, 2_440, 3_300)]);
    assert_eq!(bench.counts([Counter::Responses, Counter::TurnsAnswered, Counter::ResponsesSpurious]), [1, 1, 0]);
    assert_eq!(bench.goodbye(), Some(4_480));
    // A line that is silent in between has no hole.
    let mut bench = telephone(Agent::default(), listen(1));
    bench.line(2_000, 2_400, true);
    bench.line(2_400, 3_300, false);
    bench.line(3_300, 3_500, true);
    bench.run(9_000);
    assert_eq!((bench.samples(Metric::AudioGap), bench.count(Counter::Responses)), (Vec::new(), 1));
}

#[test]
fn what_goes_on_after_a_long_pause_is_no_second_answer_but_another_later_is() {
    for (from, spurious) in [(3_600, 0), (6_500, 1)] {
        let mut bench = telephone(Agent::default(), vec![turn(500, ActTemplate::Listen), turn(20_000, ActTemplate::Listen)]);
        bench.line(2_000, 2_400, true);
        bench.line(from, from + 200, true);
        bench.run(9_000);
        assert_eq!(bench.counts([Counter::Responses, Counter::TurnsAnswered, Counter::ResponsesSpurious]), [2, 1, spurious]);
    }
}

#[test]
fn a_clear_stops_it() {
    let mut bench = telephone(Agent::default(), by_speech());
    bench.line(2_000, 2_400, true);
    // Interrupted at 2300, onset at 2310; cleared at 2400 while 40 ms wait.
    bench.hear(2_400, response_end(0, ResponseStatus::Interrupted));
    bench.line(3_600, 3_800, true);
    bench.run(9_000);
    let from = 2_310;
    assert_eq!(bench.samples(Metric::BargeInSignal), [(from, from, 2_400)]);
    assert_eq!(bench.samples(Metric::BargeInLastPacket), [(from, from, 2_380)]);
    assert_eq!(bench.samples(Metric::BargeInStop), [(from, from, 2_400)]);
    assert_eq!(bench.samples(Metric::BargeInSilent), [(from, from, 2_400)]);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 2_000), (3_070, 3_070, 3_600)]);
    let counters = [Counter::BargeIns, Counter::BargeInsMissed, Counter::BargeInsFalse, Counter::StaleFrames, Counter::ResponsesSpurious];
    assert_eq!(bench.counts(counters), [1, 0, 0, 0, 0]);
    assert_eq!(bench.count(Counter::TalkOverUs), 90_000);
    assert!(!bench.sent().iter().any(|(_, event)| matches!(event, ClientEvent::Truncate { .. })), "a telephone has no word for it");
}

#[test]
fn what_was_buffered_and_not_cleared_plays_on() {
    let mut bench = telephone(Agent::default(), by_speech());
    let payload = voice(1_000);
    bench.hear(2_000, ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, payload, response: ResponseId(0) }));
    bench.run(9_000);
    let from = 2_310;
    assert_eq!(bench.samples(Metric::BargeInSignal), []);
    assert_eq!(bench.samples(Metric::BargeInLastPacket), [(from, from, from)]);
    assert_eq!(bench.samples(Metric::BargeInSilent), [(from, from, 3_040)]);
    // The user speaks from 2310 to 3070.
    assert_eq!(bench.count(Counter::TalkOverUs), 730_000);
}

#[test]
fn a_bot_that_only_falls_silent_has_stopped() {
    let mut bench = telephone(Agent::default(), by_speech());
    bench.line(2_000, 2_600, true);
    bench.line(2_600, 3_400, false);
    // The next words are the answer, though less than a second has passed since the interruption ended.
    bench.line(3_400, 3_600, true);
    bench.run(9_000);
    let from = 2_310;
    assert_eq!(bench.samples(Metric::BargeInStop), [(from, from, 2_580)]);
    assert_eq!(bench.samples(Metric::BargeInSilent), [(from, from, 2_640)]);
    assert_eq!(bench.samples(Metric::TurnResponse)[1..], [(3_070, 3_070, 3_400)]);
    assert_eq!(bench.counts([Counter::BargeInsMissed, Counter::TurnsAnswered, Counter::ResponsesSpurious]), [0, 2, 0]);
}

#[test]
fn a_bot_that_talks_on_was_not_stopped() {
    let mut bench = telephone(Agent::default(), by_speech());
    bench.line(2_000, 5_500, true);
    bench.run(5_500);
    assert_eq!(bench.counts([Counter::BargeIns, Counter::BargeInsMissed]), [1, 1]);
    assert_eq!(bench.samples(Metric::BargeInStop), []);
}

#[test]
fn what_comes_after_the_clear_is_stale() {
    let mut bench = telephone(Agent::default(), by_speech());
    bench.line(2_000, 2_400, true);
    bench.hear(2_400, response_end(0, ResponseStatus::Interrupted));
    bench.line(2_420, 2_520, true);
    bench.run(9_000);
    let from = 2_310;
    assert_eq!(bench.count(Counter::StaleFrames), 5);
    assert_eq!(bench.samples(Metric::BargeInStop), [(from, from, 2_500)]);
    assert_eq!(bench.samples(Metric::BargeInSilent), [(from, from, 2_520)]);
    assert_eq!(bench.counts([Counter::Responses, Counter::ResponsesSpurious]), [1, 0]);
}

#[test]
fn an_interruption_in_a_pause_waits_for_the_next_word() {
    let mut bench = telephone(Agent::default(), by_speech());
    bench.line(2_000, 2_200, true);
    bench.run(2_450);
    assert_eq!(bench.counts([Counter::Turns, Counter::BargeIns]), [1, 0]);
    bench.line(2_500, 2_700, true);
    assert_eq!(bench.counts([Counter::Turns, Counter::BargeIns]), [2, 1]);
}

#[test]
fn a_clear_while_nothing_plays_is_nothing() {
    let mut bench = telephone(Agent::default(), listen(1));
    bench.hear(1_600, response_end(0, ResponseStatus::Interrupted));
    bench.line(2_000, 2_200, true);
    bench.run(9_000);
    let counters = [Counter::Responses, Counter::TurnsAnswered, Counter::BargeInsFalse, Counter::ServerErrors];
    assert_eq!(bench.counts(counters), [1, 1, 0, 0]);
}

#[test]
fn a_clear_although_nobody_spoke_is_a_false_interruption() {
    let mut bench = telephone(Agent::default(), listen(1));
    bench.line(2_000, 2_200, true);
    bench.hear(2_210, response_end(0, ResponseStatus::Interrupted));
    assert_eq!(bench.count(Counter::BargeInsFalse), 1);
    assert_eq!(bench.goodbye(), Some(2_210));
}

#[test]
fn a_bot_that_greets_is_heard_out() {
    let mut bench = telephone(Agent { greets: true, ..Agent::default() }, listen(1));
    bench.line(1_200, 2_000, true);
    bench.run(9_000);
    assert_eq!(bench.samples(Metric::TimeToFirstStream), [(100, 100, 1_200)]);
    // Heard out at 2040, known at 2980; the turn was due at 2540.
    assert_eq!(bench.frame_times().first(), Some(&3_000));
    assert_eq!(bench.counts([Counter::ResponsesSpurious, Counter::Responses, Counter::Turns]), [0, 1, 1]);
    let mut bench = telephone(Agent::default(), listen(1));
    bench.line(1_100, 1_300, true);
    assert_eq!(bench.count(Counter::ResponsesSpurious), 1);
}

#[test]
fn unnamed_audio_belongs_to_the_named_response_under_way() {
    let mut bench = telephone(Agent::default(), listen(1));
    bench.hear(2_000, response_start(1, 0));
    bench.line(2_000, 2_200, true);
    bench.hear(2_200, response_end(1, ResponseStatus::Completed));
    bench.run(9_000);
    assert_eq!(bench.goodbye(), Some(2_240));
    assert_eq!(bench.counts([Counter::Responses, Counter::ServerErrors]), [1, 0]);
}

#[test]
fn a_named_response_ends_the_one_without_a_name() {
    let mut bench = telephone(Agent::default(), listen(2));
    bench.line(2_000, 2_200, true);
    bench.hear(2_210, response_start(1, 0));
    bench.line(2_220, 2_420, true);
    bench.hear(2_420, response_end(1, ResponseStatus::Completed));
    bench.run(9_000);
    assert_eq!(bench.counts([Counter::TurnsAnswered, Counter::Responses, Counter::Turns]), [1, 2, 2]);
}

#[test]
fn a_tool_is_resumed_from_after_a_pause_or_without_one() {
    let tool = || vec![turn(500, ActTemplate::Tool { name: "lookup".to_owned(), takes: constant(100) })];
    for (resumed, trips) in [(2_800, vec![(2_200, 2_200, 2_800)]), (2_400, vec![(2_200, 2_200, 2_400)]), (2_200, Vec::new())] {
        let mut bench = telephone(Agent::default(), tool());
        bench.line(2_000, 2_200, true);
        bench.hear(2_200, tool_call("c", "lookup"));
        bench.line(resumed, resumed + 400, true);
        bench.run(20_000);
        assert_eq!(bench.samples(Metric::ToolRoundTrip), trips);
        assert_eq!(bench.counts([Counter::TurnsAnswered, Counter::TurnsMissed]), [1, 0], "from {resumed}");
        assert_eq!(bench.goodbye(), Some(resumed + 1_380));
    }
    // It never says another word.
    let mut bench = telephone(Agent::default(), tool());
    bench.line(2_000, 2_200, true);
    bench.hear(2_200, tool_call("c", "lookup"));
    bench.run(60_000);
    assert_eq!(bench.counts([Counter::TurnsAnswered, Counter::TurnsMissed]), [0, 1]);
}

const OF_A_TURN: [Counter; 3] = [Counter::TurnsAnswered, Counter::TurnsMissed, Counter::ResponsesSpurious];

/// The user speaks from 1530 to 1670.
#[test]
fn an_echo_of_the_user_is_no_answer() {
    for delay in [10, 20, 90] {
        let mut bench = telephone(Agent::default(), listen(2));
        bench.line(1_530 + delay, 1_670 + delay, true);
        bench.run(60_000);
        assert_eq!(bench.counts(OF_A_TURN), [0, 2, 1], "{delay}");
        assert!(bench.count(Counter::TalkOverUs) > 0, "it is heard all the same");
        assert_eq!(bench.samples(Metric::TurnResponse), []);
    }
}

#[test]
fn an_echo_that_lags_by_most_of_a_second_is_still_none() {
    // Speech of two seconds, from 1500 on; its echo ends 800 after it.
    let mut turns = listen(1);
    turns[0].says = vec![utterance(110, 0, 2_000)];
    let mut bench = telephone(Agent::default(), turns);
    bench.line(2_300, 4_300, true);
    bench.run(60_000);
    assert_eq!(bench.counts(OF_A_TURN), [0, 1, 1]);
}

#[test]
fn what_began_in_the_users_words_and_goes_on_well_after_them_is_an_answer() {
    let mut bench = telephone(Agent::default(), listen(1));
    bench.line(1_600, 2_700, true);
    bench.run(60_000);
    assert_eq!(bench.counts(OF_A_TURN), [1, 0, 0]);
    assert_eq!(bench.samples(Metric::TurnResponse), [], "nobody knows since when it answers");
    // It came in a burst.
    let mut bench = telephone(Agent::default(), listen(1));
    bench.hear(1_600, ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, payload: voice(4_000), response: ResponseId(0) }));
    bench.run(60_000);
    assert_eq!(bench.counts(OF_A_TURN), [1, 0, 0]);
    assert_eq!(bench.goodbye(), Some(5_640));
}

#[test]
fn an_answer_after_an_early_sound_has_an_onset_of_its_own() {
    // Within the pause of one response, and after it.
    for from in [2_200, 4_000] {
        let mut bench = telephone(Agent::default(), listen(1));
        bench.line(1_600, 1_700, true);
        bench.line(from, from + 400, true);
        bench.run(60_000);
        assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, from)]);
        assert_eq!(bench.counts(OF_A_TURN), [1, 0, u64::from(from == 4_000)], "{from}");
    }
    // Too little silence after the user's end, as in an echo that stalls on its way, and it goes on for too short a time.
    let mut bench = telephone(Agent::default(), listen(1));
    bench.line(1_600, 1_640, true);
    bench.line(2_080, 2_300, true);
    bench.run(60_000);
    assert_eq!(bench.counts(OF_A_TURN), [0, 1, 1]);
}

/// What the user hears, not what has arrived.
#[test]
fn silence_that_comes_before_the_voice_is_waited_for() {
    // In one message.
    let mut bench = telephone(Agent::default(), listen(1));
    let payload = Bytes::from([vec![0; 640 * 50], vec![1; 640 * 50]].concat());
    bench.hear(2_000, ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, payload, response: ResponseId(0) }));
    bench.run(3_000);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 3_000)]);
    assert_eq!(bench.samples(Metric::TimeToFirstStream), [(100, 100, 3_000)]);
    // In many, all at once; before them the line was silent in real time, and once late.
    let mut bench = telephone(Agent::default(), listen(1));
    bench.line(1_000, 1_700, false);
    bench.line(1_760, 2_000, false);
    let still = |sequence| AgentAudio { sequence, timestamp_us: 0, payload: Bytes::from(vec![0; 640]), response: ResponseId(0) };
    for sequence in 0..50 {
        bench.hear(2_000, ServerEvent::Audio(still(sequence)));
    }
    bench.hear(2_000, ServerEvent::Audio(AgentAudio { payload: voice(20), ..still(50) }));
    bench.run(3_000);
    assert_eq!(bench.samples(Metric::TurnResponse), [(1_670, 1_670, 3_000)]);
}
