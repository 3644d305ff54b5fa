//! How the agents behaved in conversation: what counters and latencies say together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{Lines, count, ms, percent, seconds, table};
use crate::record::{Counter, Metric, Registry, histogram};
use crate::threshold::evaluate::whole_of;

/// Events, and their share of what they could have been.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// How many.
    pub count: u64,
    /// Of so many.
    pub of: u64,
    /// One over the other; none of nothing.
    pub rate: Option<f64>,
}

/// What a user would notice, of a run or of a scenario: the same for every dialect.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Behaviour {
    /// Turns whose answer did not come in time, of all turns.
    pub missed_responses: Share,
    /// Responses that answered nobody, or somebody who had an answer, of all responses.
    pub spurious_responses: Share,
    /// Interruptions made by the users.
    pub barge_ins: u64,
    /// The agent never stopped, of the interruptions that could show it (`barge_ins_judged`): not those that crossed the end of the response on the
    /// wire, had nothing left to stop, or were cut short by the session's end.
    pub missed_barge_ins: Share,
    /// Responses that were broken off although the user had not spoken, of all responses.
    pub false_barge_ins: Share,
    /// Audio that came after its playout deadline, of all frames.
    pub underruns: Share,
    /// Playout lost to that, milliseconds.
    pub underrun_ms: f64,
    /// How late such audio was; none without.
    pub audio_gap_p95_ms: Option<f64>,
    /// As above.
    pub audio_gap_max_ms: Option<f64>,
    /// Length of the agents' audio over the time in which it came, over all responses that are over: below 1 it comes slower than it is
    /// played. None where all came at once.
    pub real_time_factor: Option<f64>,
    /// Users and agents could be heard at once, milliseconds.
    pub talk_over_ms: f64,
    /// Of the users' speech; none without.
    pub talk_over_rate: Option<f64>,
    /// Users' speech sent, milliseconds.
    pub user_speech_ms: f64,
    /// Agents' audio received, milliseconds.
    pub agent_audio_ms: f64,
}

impl Behaviour {
    /// Of the scenarios that `of` accepts.
    pub fn new(registry: &Registry, of: impl Fn(usize) -> bool) -> Self {
        let n = |counter| registry.counter(counter, &of);
        let share = |counter| {
            let (count, of) = (n(counter), whole_of(counter).map_or(0, n));
            Share { count, of, rate: ratio(count, of) }
        };
        let ms = |us: u64| us as f64 / 1_000.0;
        let gap = registry.latency(Metric::AudioGap, &of).map(|(response, _)| response);
        Self {
            missed_responses: share(Counter::TurnsMissed),
            spurious_responses: share(Counter::ResponsesSpurious),
            barge_ins: n(Counter::BargeIns),
            missed_barge_ins: share(Counter::BargeInsMissed),
            false_barge_ins: share(Counter::BargeInsFalse),
            underruns: share(Counter::Underruns),
            underrun_ms: ms(n(Counter::UnderrunUs)),
            audio_gap_p95_ms: gap.as_ref().and_then(|gap| histogram::quantile(gap, 0.95)).map(ms),
            audio_gap_max_ms: gap.as_ref().and_then(histogram::max).map(ms),
            real_time_factor: ratio(n(Counter::PacedMediaUs), n(Counter::PacedWallUs)),
            talk_over_ms: ms(n(Counter::TalkOverUs)),
            talk_over_rate: ratio(n(Counter::TalkOverUs), n(Counter::SpeechUs)),
            user_speech_ms: ms(n(Counter::SpeechUs)),
            agent_audio_ms: ms(n(Counter::FramesReceived) * proto::frame::FRAME_US),
        }
    }

    /// As a table; empty when nobody spoke.
    pub fn describe(&self) -> String {
        if self.missed_responses.of == 0 && self.agent_audio_ms <= 0.0 {
            return String::new();
        }
        let row = |name: &str, cells: [String; 3]| std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>();
        let share = |name: &str, s: Share, of: &str| row(name, [count(s.count), format!("{} {of}", count(s.of)), percent(s.count, s.of)]);
        let length = |ms: f64| seconds(ms / 1_000.0);
        let pace = self.real_time_factor.map_or_else(|| "-".to_owned(), |factor| format!("{factor:.3}"));
        let talk_over = self.talk_over_rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.1} %", rate * 100.0));
        let mut shown = Lines::default();
        let rows = table(
            &["", "count", "of", "share"],
            &[
                share("missed responses", self.missed_responses, "turns"),
                share("spurious responses", self.spurious_responses, "responses"),
                share("missed barge-ins", self.missed_barge_ins, "judged"),
                share("false barge-ins", self.false_barge_ins, "responses"),
                share("underruns", self.underruns, "frames"),
                row("talk-over", [length(self.talk_over_ms), format!("{} of speech", length(self.user_speech_ms)), talk_over]),
                row("real-time factor", [pace, format!("{} of audio", length(self.agent_audio_ms)), String::new()]),
            ],
        );
        if let (Some(p95), Some(max)) = (self.audio_gap_p95_ms, self.audio_gap_max_ms) {
            let lost = length(self.underrun_ms);
            shown.line(format_args!("  underruns took {lost} of playout: gap p95 {} ms, max {} ms", ms(p95), ms(max)));
        }
        rows + &shown.into_text()
    }
}

/// None of nothing; to six digits, more would only be noise.
fn ratio(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| (part as f64 / of as f64 * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use proto::time::Micros;

    use super::*;
    use crate::{
        engine::IntervalReport,
        plan::{Dialect, Protocol},
        record::{Sample, ScenarioLabel, ShardRecorder},
    };

    /// Rates rest on what they are a part of, by scenario; without samples there are none.
    #[test]
    fn by_hand() {
        let label = |name: &str| ScenarioLabel { name: name.to_owned(), protocol: Protocol::Grpc, dialect: Dialect::Native, expect: None };
        let mut registry = Registry::new(0, vec![label("talk"), label("listen")]);
        let mut recorder = ShardRecorder::new(2);
        for (counter, n) in [
            (Counter::Turns, 50),
            (Counter::TurnsMissed, 1),
            (Counter::Responses, 40),
            (Counter::ResponsesSpurious, 2),
            (Counter::BargeIns, 12),
            (Counter::BargeInsJudged, 10),
            (Counter::BargeInsMissed, 3),
            (Counter::BargeInsFalse, 4),
            (Counter::FramesReceived, 1_000),
            (Counter::Underruns, 5),
            (Counter::UnderrunUs, 250_000),
            (Counter::SpeechUs, 60_000_000),
            (Counter::TalkOverUs, 1_500_000),
            (Counter::PacedMediaUs, 19_000_000),
            (Counter::PacedWallUs, 20_000_000),
        ] {
            recorder.count(0, counter, n);
        }
        recorder.record(0, &Sample { metric: Metric::AudioGap, intended: Micros(0), actual: Micros(0), to: Micros(80_000) });
        let scenarios = recorder.take();
        registry.add(IntervalReport { shard: 0, from_us: 0, to_us: 1_000_000, active: 1, speaking: 0, tasks: 0, warmup: false, scenarios });
        registry.finish();
        let b = Behaviour::new(&registry, |scenario| scenario == 0);
        let rates = [b.missed_responses, b.spurious_responses, b.missed_barge_ins, b.false_barge_ins, b.underruns].map(|share| share.rate);
        assert_eq!(rates, [Some(0.02), Some(0.05), Some(0.3), Some(0.1), Some(0.005)]);
        assert_eq!((b.real_time_factor, b.talk_over_rate), (Some(0.95), Some(0.025)));
        assert_eq!([b.agent_audio_ms, b.underrun_ms, b.talk_over_ms].map(|ms| ms as u64), [20_000, 250, 1_500]);
        assert!(b.audio_gap_p95_ms.is_some_and(|ms| (80.0..80.1).contains(&ms)));
        assert_eq!(Behaviour::new(&registry, |_| true), b);
        insta::assert_snapshot!(b.describe(), @r"
                              count               of   share
          missed responses        1         50 turns   2.0 %
          spurious responses      2     40 responses   5.0 %
          missed barge-ins        3        10 judged  30.0 %
          false barge-ins         4     40 responses  10.0 %
          underruns               5     1,000 frames   0.5 %
          talk-over            1.5s  1m00s of speech   2.5 %
          real-time factor    0.950     20s of audio
          underruns took 250ms of playout: gap p95 80.1 ms, max 80.1 ms
        ");
        let nothing = Behaviour::new(&registry, |scenario| scenario == 1);
        assert_eq!((nothing, nothing.describe()), (Behaviour::default(), String::new()));
    }
}
