//! A caller of the driver: whatever the backend says and however time passes, it is over once, as the ledger must have it.
#![no_main]

use std::{sync::LazyLock, time::Duration};

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use load_driver::{
    caller::{Action, Caller},
    ledger::FailureCause,
    plan::Plan,
    profile::{Source, open_text},
};
use proto::{
    audio::AudioFormat,
    frame::{AgentAudio, ErrorCode, Outcome, ResponseStatus, ServerEvent, SessionAccepted, SessionEnded, SessionError, SpeechMarker},
    ids::{ResponseId, TurnId},
    native::decode_server,
    time::Micros,
};

const PROFILE: &str = "
name: fuzz
target: embedded
defaults:
  executor: constant-sessions
  sessions: 1
  duration: 20s
  conversations:
    - turns:
        - {wait: 100ms, say: {synth: 400ms}, response: 1s}
        - {wait: 100ms, say: {synth: 400ms}, barge_in: {after: 200ms, say: {synth: 300ms}}}
        - {wait: 0, say: {synth: 300ms}, barge_in: {after: 300ms, explicit: true}}
        - {wait: 50ms, say: {synth: 300ms}, cancel: {after: 200ms}}
        - {wait: 50ms, say: {synth: 300ms}, tool: {name: weather, takes: 200ms}}
        - {wait: 200ms}
scenarios:
  once: {}
  markers: {markers: true, ack_every: 1, session_length: 6s}
  noisy: {send_silence: true, ack_every: 3, session_length: 10s, format: mulaw_8k}
  cut: {session_length: 3s, end: tcp_rst}
  cancelled: {session_length: 3s, end: cancel, protocol: websocket}
  killed: {session_length: 3s, end: kill_worker, kill_at: 15s}
  telephone: {dialect: twilio, session_length: 10s, conversations: [{turns: [{wait: 100ms, say: {synth: 400ms}, response: 1s}, {wait: 100ms, say: {synth: 400ms}, barge_in: {after: 200ms, say: {synth: 300ms}}}, {wait: 200ms}]}]}
  greeted: {dialect: twilio, agent: {greets: true}, send_silence: true, conversations: [{turns: [{wait: 100ms, say: {synth: 400ms}, response: 1s}, {wait: 100ms, say: {synth: 400ms}, barge_in: {after: 200ms, say: {synth: 300ms}}}, {wait: 200ms}]}]}
  committed: {dialect: openai_realtime, agent: {turn_detection: none, greets: true}}
  unnamed: {dialect: elevenlabs, agent: {id: one}, conversations: [{turns: [{wait: 100ms, say: {synth: 400ms}}, {wait: 50ms, say: {synth: 300ms}, tool: {name: weather, takes: 200ms}}, {wait: 100ms, say: {synth: 400ms}, barge_in: {after: 200ms, say: {synth: 300ms}}}]}]}
";

static PLAN: LazyLock<Plan> = LazyLock::new(|| {
    let loaded = open_text(&Source::Shipped("fuzz".to_owned()), "fuzz.yaml", PROFILE, &[]).unwrap_or_else(|error| panic!("{error}"));
    Plan::build(&loaded.profile, "00000000").expect("it can be planned")
});

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// A message as it came over the wire.
    Wire(&'a [u8]),
    Connected {
        fresh: bool,
    },
    Accepted {
        same_format: bool,
        idle_timeout_ms: u32,
    },
    Speech {
        started: bool,
    },
    Transcript {
        turn: u8,
        last: bool,
    },
    ResponseStart {
        response: u8,
        turn: u8,
    },
    /// Frames of a response, in sequence, 20 ms apart.
    Audio {
        response: u8,
        frames: u8,
        loud: bool,
    },
    OddAudio {
        response: u64,
        sequence: u64,
        /// Bytes, of any number.
        length: u16,
        loud: bool,
    },
    Committed {
        turn: u8,
    },
    Answering {
        turn: u8,
    },
    AnswerDropped {
        turn: u8,
    },
    Marks {
        times: u8,
    },
    GoingAway,
    ResponseEnd {
        response: u8,
        status: u8,
    },
    Ack {
        sequence: u8,
    },
    ToolCall {
        call: u8,
        known: bool,
    },
    ToolCancel {
        call: u8,
    },
    Error {
        overloaded: bool,
        fatal: bool,
    },
    Ended {
        outcome: u8,
    },
    /// Time passes, up to 6.5 s; the caller is stepped once, late.
    Late(u16),
    /// Time passes to the next wake, so often.
    Wakes(u8),
    Stop {
        in_ms: u16,
    },
    Closed,
}

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    scenario: u8,
    late_ms: u8,
    steps: Vec<Step<'a>>,
}

/// What the caller did, checked as it comes.
#[derive(Default)]
struct Rules {
    out: Vec<Action>,
    accepted: bool,
    over: u32,
}

impl Rules {
    fn see(&mut self, caller: &Caller, now: Micros, settled: bool) {
        for action in std::mem::take(&mut self.out) {
            assert_eq!(self.over, 0, "{action:?} after the end");
            match action {
                Action::Accepted(_) => assert!(!std::mem::replace(&mut self.accepted, true), "accepted twice"),
                Action::Ended(_) | Action::Failed(_) => {
                    assert_eq!(matches!(action, Action::Ended(_)), self.accepted, "{action:?}");
                    self.over += 1;
                }
                Action::Measure(sample) => assert!(sample.intended <= sample.to && sample.to <= now, "{sample:?} at {now}"),
                // What else it does is its own affair.
                _ => {}
            }
        }
        assert_eq!(caller.over(), self.over == 1);
        if settled {
            assert!(caller.next_wake() > now, "a step that leaves something due spins");
        }
    }
}

struct Bench {
    caller: Caller,
    rules: Rules,
    now: Micros,
    sequence: u64,
}

impl Bench {
    fn hear(&mut self, event: ServerEvent) {
        self.caller.on_event(event, self.now, &mut self.rules.out);
        self.rules.see(&self.caller, self.now, true);
    }

    fn wait(&mut self, until: Micros) {
        self.now = self.now.max(until);
        self.caller.step(self.now, &mut self.rules.out);
        self.rules.see(&self.caller, self.now, true);
    }

    fn accepted(&self, same_format: bool, idle_timeout_ms: u32) -> ServerEvent {
        let ours = self.caller.plan().scenario.service.input;
        let format = if same_format { ours } else { AudioFormat::ALL.into_iter().find(|f| *f != ours).expect("there are three") };
        ServerEvent::Accepted(SessionAccepted {
            session_id: "s".to_owned(),
            backend_id: "b".to_owned(),
            boot_id: "boot".to_owned(),
            input: format,
            output: format,
            max_duration_ms: 0,
            idle_timeout_ms,
        })
    }

    fn audio(&mut self, response: u64, sequence: u64, length: usize, loud: bool) {
        // What is no silence in any format.
        let payload = vec![if loud { 0x20 } else { 0xff }; length].into();
        self.hear(ServerEvent::Audio(AgentAudio { sequence, timestamp_us: 0, payload, response: ResponseId(response) }));
    }

    fn step(&mut self, step: Step<'_>) {
        use ResponseStatus::{Cancelled, Completed, Failed, Interrupted};
        match step {
            Step::Wire(bytes) => match decode_server(bytes.to_vec().into()) {
                Ok(event) => self.hear(event),
                Err(_) => self.closed(FailureCause::Protocol),
            },
            Step::Connected { fresh } => {
                self.caller.on_connected(fresh, self.now, &mut self.rules.out);
                self.rules.see(&self.caller, self.now, false);
            }
            Step::Accepted { same_format, idle_timeout_ms } => self.hear(self.accepted(same_format, idle_timeout_ms)),
            Step::Speech { started } => self.hear(ServerEvent::Speech(SpeechMarker { started, timestamp_us: 0 })),
            Step::Transcript { turn, last } => {
                self.hear(ServerEvent::Transcript { turn: TurnId(turn.into()), text: "so".to_owned(), last });
            }
            Step::ResponseStart { response, turn } => {
                self.hear(ServerEvent::ResponseStart {
                    response: ResponseId(response.into()),
                    turn: TurnId(turn.into()),
                    text: String::new(),
                });
            }
            Step::Audio { response, frames, loud } => {
                for _ in 0..frames % 64 {
                    let length = self.caller.plan().scenario.service.output.frame_bytes();
                    self.audio(response.into(), self.sequence, length, loud);
                    self.sequence += 1;
                    self.wait(self.now + Duration::from_millis(20));
                }
            }
            Step::OddAudio { response, sequence, length, loud } => self.audio(response, sequence, length.into(), loud),
            Step::Committed { turn } => self.hear(ServerEvent::Committed { turn: TurnId(turn.into()) }),
            Step::Answering { turn } => self.hear(ServerEvent::Answering { turn: TurnId(turn.into()) }),
            Step::AnswerDropped { turn } => {
                self.hear(ServerEvent::AnswerDropped { turn: TurnId(turn.into()), status: Cancelled });
            }
            Step::Marks { times } => {
                for n in 0..times {
                    self.hear(ServerEvent::Mark { name: n.to_string() });
                }
            }
            Step::GoingAway => self.hear(ServerEvent::GoingAway { left_ms: 1_000 }),
            Step::ResponseEnd { response, status } => {
                let status = [Completed, Interrupted, Cancelled, Failed][usize::from(status) % 4];
                self.hear(ServerEvent::ResponseEnd { response: ResponseId(response.into()), status, frames: 0 });
            }
            Step::Ack { sequence } => self.hear(ServerEvent::Ack { sequence: sequence.into() }),
            Step::ToolCall { call, known } => {
                let name = if known { "weather" } else { "unheard-of" }.to_owned();
                self.hear(ServerEvent::ToolCall { call_id: format!("call-{call}"), name, arguments: "{}".to_owned() });
            }
            Step::ToolCancel { call } => self.hear(ServerEvent::ToolCancel { call_id: format!("call-{call}") }),
            Step::Error { overloaded, fatal } => {
                let code = if overloaded { ErrorCode::Overloaded } else { ErrorCode::Internal };
                self.hear(ServerEvent::Error(SessionError { code, message: "no".to_owned(), fatal }));
            }
            Step::Ended { outcome } => self.hear(ServerEvent::Ended(SessionEnded {
                outcome: Outcome::ALL[usize::from(outcome) % 5],
                duration_ms: 0,
                frames_in: 0,
                frames_out: 0,
            })),
            Step::Late(tenths) => self.wait(self.now + Duration::from_micros(u64::from(tenths) * 100)),
            Step::Wakes(times) => {
                for _ in 0..times {
                    if self.caller.next_wake() == Micros::NEVER {
                        break;
                    }
                    self.wait(self.caller.next_wake());
                }
            }
            Step::Stop { in_ms } => {
                let deadline = self.now + Duration::from_millis(in_ms.into());
                self.caller.stop(deadline, self.now, &mut self.rules.out);
                self.rules.see(&self.caller, self.now, true);
            }
            Step::Closed => self.closed(FailureCause::Eof),
        }
    }

    fn closed(&mut self, cause: FailureCause) {
        self.caller.on_closed(cause, self.now, &mut self.rules.out);
        self.rules.see(&self.caller, self.now, false);
    }
}

fuzz_target!(|input: Input<'_>| {
    let scenario = usize::from(input.scenario) % PLAN.scenarios.len();
    let start = Micros::from_millis(100);
    let plan = PLAN.session(scenario, 0, u32::from(input.scenario) / 16, start);
    let now = start + Duration::from_millis(input.late_ms.into());
    let mut bench = Bench { caller: Caller::new(plan, now), rules: Rules::default(), now, sequence: 0 };
    for step in input.steps {
        bench.step(step);
    }
    bench.closed(FailureCause::Eof);
    assert_eq!(bench.rules.over, 1);
});
