//! Whatever a client says and however a shell steps, the session keeps its rules.

use proptest::prelude::*;

use super::*;

/// Every rule that a sequence of effects must keep.
pub(super) fn check(all: &[(Micros, Effect)]) {
    let mut rules = Rules::default();
    for (index, (at, effect)) in all.iter().enumerate() {
        assert!(!rules.ended, "{effect:?} after the end");
        assert_eq!(index == 0, matches!(effect, Effect::Send(ServerEvent::Accepted(_))));
        rules.see(*at, effect);
    }
    assert_eq!(rules.costs, rules.frames, "a cost for each agent frame");
}

struct Open {
    response: ResponseId,
    start: Micros,
    frames: u32,
}

#[derive(Default)]
struct Rules {
    phase: Option<Phase>,
    open: Option<Open>,
    call: Option<String>,
    responses: u64,
    calls: u32,
    frames: u64,
    costs: u64,
    last_timestamp: u64,
    finals: HashSet<u64>,
    response_turns: u64,
    said_ended: bool,
    ended: bool,
}

impl Rules {
    fn see(&mut self, at: Micros, effect: &Effect) {
        assert!(!self.said_ended || matches!(effect, Effect::End { .. }), "{effect:?} after Ended");
        match effect {
            Effect::Phase(to) => self.move_to(*to),
            Effect::Cost(phase) => {
                assert_eq!(*phase, self.phase.unwrap_or(Phase::Listening));
                self.costs += u64::from(*phase == Phase::AgentSpeaking);
            }
            Effect::End { outcome, error } => {
                assert_eq!(
                    self.said_ended,
                    matches!(outcome, Outcome::Completed | Outcome::Drained) || error.is_some() && *outcome == Outcome::TimedOut
                );
                if self.said_ended || *outcome == Outcome::Failed {
                    assert!(self.open.is_none() && self.call.is_none(), "left open");
                }
                self.ended = true;
            }
            Effect::Fault(kind) => panic!("{} in an honest session", kind.name()),
            Effect::Send(event) => self.hear(at, event),
        }
    }

    fn move_to(&mut self, to: Phase) {
        use Phase::{AgentSpeaking, Listening, Thinking, ToolCalling, UserSpeaking};
        let from = self.phase.replace(to).unwrap_or(Listening);
        let legal: &[Phase] = match from {
            Listening => &[UserSpeaking],
            UserSpeaking => &[Thinking],
            Thinking => &[ToolCalling, AgentSpeaking, UserSpeaking, Listening],
            ToolCalling => &[Thinking, UserSpeaking, Listening],
            AgentSpeaking => &[Listening, UserSpeaking],
        };
        assert!(legal.contains(&to), "{from:?} to {to:?}");
        if from == ToolCalling && to == Thinking {
            // By a result, or by a timeout whose cancel follows.
            self.call = None;
        }
    }

    fn hear(&mut self, at: Micros, event: &ServerEvent) {
        match event {
            ServerEvent::ResponseStart { response, turn, .. } => {
                assert!(self.open.is_none() && self.call.is_none());
                self.responses += 1;
                assert_eq!((response.0, self.phase), (self.responses, Some(Phase::AgentSpeaking)));
                assert!(turn.0 > self.response_turns, "a turn is answered once");
                assert!(self.finals.contains(&turn.0), "the final transcript comes before the answer");
                self.response_turns = turn.0;
                self.open = Some(Open { response: *response, start: at, frames: 0 });
            }
            ServerEvent::Audio(audio) => {
                let open = self.open.as_mut().expect("audio without a response");
                assert_eq!((audio.response, audio.sequence), (open.response, self.frames));
                assert!(at.0 >= open.start.0 + u64::from(open.frames) * FRAME_US, "ahead of real time");
                assert!(self.frames == 0 || audio.timestamp_us >= self.last_timestamp);
                self.last_timestamp = audio.timestamp_us;
                open.frames += 1;
                self.frames += 1;
            }
            ServerEvent::ResponseEnd { response, frames, .. } => {
                let open = self.open.take().expect("end without a response");
                assert_eq!((*response, *frames), (open.response, open.frames));
                assert_ne!(*frames, 0);
            }
            ServerEvent::ToolCall { call_id, .. } => {
                assert!(self.call.is_none() && self.open.is_none());
                self.calls += 1;
                assert_eq!(*call_id, format!("call-{}", self.calls));
                self.call = Some(call_id.clone());
            }
            ServerEvent::ToolCancel { call_id } => {
                assert_eq!(*call_id, format!("call-{}", self.calls));
                self.call = None;
            }
            ServerEvent::Transcript { turn, last, .. } => {
                assert!(!self.finals.contains(&turn.0), "turn {} after its final", turn.0);
                if *last {
                    self.finals.insert(turn.0);
                }
            }
            ServerEvent::Context { response, heard_ms, .. } => {
                assert_eq!(response.map(|r| r.0), Some(self.responses));
                assert!(u64::from(*heard_ms) <= self.frames * 20);
            }
            ServerEvent::Ended(ended) => {
                assert_eq!(ended.frames_out, self.frames);
                self.said_ended = true;
            }
            ServerEvent::Error(error) => assert!(!error.message.is_empty()),
            // What only some dialects name changes nothing of the course.
            ServerEvent::Accepted(_)
            | ServerEvent::Speech(_)
            | ServerEvent::Ack { .. }
            | ServerEvent::Committed { .. }
            | ServerEvent::Answering { .. }
            | ServerEvent::AnswerDropped { .. }
            | ServerEvent::Mark { .. }
            | ServerEvent::Resumable { .. }
            | ServerEvent::GoingAway { .. } => {}
        }
    }
}

#[derive(Debug, Clone)]
enum Act {
    Wait(u64),
    /// A shell that sleeps: time passes without a step, then one comes.
    Stall(u64),
    /// As before, but an event comes before the step.
    Late(u64),
    Speak(u64),
    Silence(u64),
    Event(ClientEvent),
    Warning,
    End(u8),
}

fn events() -> impl Strategy<Value = ClientEvent> {
    let response = || prop::option::of((0..4u64).prop_map(ResponseId));
    let tool = prop::sample::select(vec![None, Some("order"), Some("weather"), Some("pizza"), Some("")]);
    prop_oneof![
        4 => (any::<bool>(), any::<u32>()).prop_map(|(started, t)| ClientEvent::Speech(SpeechMarker { started, timestamp_us: t.into() })),
        3 => (tool, prop::option::of(0..700u32), prop::option::of("[a-z ]{0,20}")).prop_map(|(tool, response_ms, text)| {
            ClientEvent::Hint(TurnHint { tool: tool.map(str::to_owned), response_ms, text })
        }),
        3 => (response(), any::<u16>()).prop_map(|(response, heard)| ClientEvent::BargeIn { response, heard_ms: heard.into() }),
        2 => response().prop_map(|response| ClientEvent::Cancel { response }),
        3 => (0..5u32).prop_map(|n| ClientEvent::ToolResult { call_id: format!("call-{n}"), output: String::new(), failed: n == 2 }),
        1 => Just(ClientEvent::Context { role: "user".to_owned(), text: "x".to_owned() }),
        2 => (any::<u64>(), any::<u64>(), 0..40_000usize, any::<bool>()).prop_map(|(sequence, timestamp_us, bytes, ack)| {
            ClientEvent::Audio(ClientAudio { sequence, timestamp_us, payload: vec![0x55; bytes].into(), ack })
        }),
    ]
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0..900_000u64).prop_map(Act::Wait),
        2 => (0..400_000u64).prop_map(Act::Stall),
        2 => (0..400_000u64).prop_map(Act::Late),
        6 => (20..900u64).prop_map(Act::Speak),
        4 => (20..900u64).prop_map(Act::Silence),
        14 => events().prop_map(Act::Event),
        1 => Just(Act::Warning),
    ];
    (prop::collection::vec(act, 0..50), 0..7u8).prop_map(|(mut acts, end)| {
        acts.push(Act::End(end));
        acts.extend([Act::Wait(1_000_000), Act::End((end + 1) % 6), Act::Speak(100)]);
        acts
    })
}

fn configs() -> impl Strategy<Value = SessionConfig> {
    (any::<u64>(), 0..3u32, 0..3u32, 0..=2u32).prop_map(|(seed, think, response, tools)| SessionConfig {
        seed,
        think: Distribution::Uniform(Duration::ZERO, Duration::from_millis(1 + 300 * u64::from(think))),
        response: Distribution::Uniform(Duration::ZERO, Duration::from_millis(1 + 500 * u64::from(response))),
        tool_rate: f64::from(tools) / 2.0,
        tool_timeout: Duration::from_millis(u64::from(think) * 200),
        max_duration: Some(Duration::from_secs(20)),
        idle_timeout: Duration::from_secs(3),
        cost: if seed % 2 == 0 { "idle=1us,thinking=1us,tool=1us".parse().unwrap() } else { CostSpec::default() },
        ..config()
    })
}

fn run(config: &SessionConfig, format: AudioFormat, acts: &[Act]) -> Bench {
    let mut bench = Bench::with(config.clone(), format);
    for act in acts {
        match act {
            Act::Wait(us) => bench.wait_us(*us),
            Act::Stall(us) => {
                bench.now += Duration::from_micros(*us);
                bench.act(Session::step)
            }
            Act::Late(us) => {
                bench.now += Duration::from_micros(*us);
                &mut bench
            }
            Act::Speak(ms) => bench.speak(*ms),
            Act::Silence(ms) => bench.silence(*ms),
            Act::Event(event) => bench.say(event.clone()),
            Act::Warning => bench.act(|s, now, out| s.on_error(SessionError::warning(ErrorCode::MalformedMessage, "x"), now, out)),
            Act::End(how) => match how {
                0 => bench.say(ClientEvent::End { reason: String::new() }),
                1 => bench.act(Session::on_disconnect),
                2 => bench.act(Session::on_keepalive_timeout),
                3 => bench.act(Session::on_drain),
                4 => bench.say(ClientEvent::Start(start(format))),
                5 => bench.act(|s, now, out| s.on_error(SessionError::fatal(ErrorCode::MessageTooLarge, "x"), now, out)),
                // Silence until a deadline ends it.
                _ => bench.wait(30_000),
            },
        };
        let next = bench.session.next_wake();
        assert!(bench.session.ended() == (next == Micros::NEVER));
        assert!(next <= bench.began + Duration::from_secs(20) || bench.session.ended());
    }
    bench
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_session_keeps_the_rules_and_ends_once(config in configs(), format in prop::sample::select(&AudioFormat::ALL[..]), acts in acts()) {
        let bench = run(&config, format, &acts);
        check(&bench.all);
        prop_assert_eq!(bench.all.iter().filter(|(_, e)| matches!(e, Effect::End { .. })).count(), 1);
        // The same again is the same to the byte.
        prop_assert_eq!(&run(&config, format, &acts).all, &bench.all);
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The phase that the effects tell is the phase that the session is in.
    #[test]
    fn effects_tell_the_phase(config in configs(), acts in acts()) {
        for end in 0..acts.len() {
            let bench = run(&config, AudioFormat::Mulaw8k, &acts[..end]);
            let told = bench.all.iter().rev().find_map(|(_, e)| match e {
                Effect::Phase(phase) => Some(*phase),
                _ => None,
            });
            if let Some(phase) = bench.phase() {
                prop_assert_eq!(phase, told.unwrap_or(Phase::Listening));
            }
        }
    }
}

#[test]
fn the_rules_can_be_broken() {
    let mut bench = Bench::new();
    bench.turn().wait(2_000);
    bench.act(Session::on_drain);
    check(&bench.all);
    let broken = |change: fn(&mut Vec<(Micros, Effect)>)| {
        let mut all = bench.all.clone();
        change(&mut all);
        std::panic::catch_unwind(|| check(&all)).is_err()
    };
    assert!(broken(|all| {
        let last = all.last().unwrap().clone();
        all.push(last);
    }));
    assert!(broken(|all| all.retain(|(_, e)| !matches!(e, Effect::Send(ServerEvent::ResponseEnd { .. })))));
    assert!(broken(|all| all.retain(|(_, e)| !matches!(e, Effect::Phase(Phase::Thinking)))));
    assert!(broken(|all| {
        let at = all.iter().position(|(_, e)| matches!(e, Effect::Send(ServerEvent::Audio(_)))).unwrap();
        all.remove(at);
    }));
    assert!(broken(|all| {
        let at = all.iter().rposition(|(_, e)| matches!(e, Effect::Send(ServerEvent::Audio(_)))).unwrap();
        all[at].0 = Micros(all[at].0.0 - 1);
    }));
}
