//! Each transition and each metric, with times computed by hand. Times are milliseconds of the run unless they say otherwise.

mod behaviour;
mod ends;
mod faults;
mod foreign;
mod inferred;
mod interruptions;
mod link;
mod moving;
mod random;
mod turns;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use proto::{
    audio::AudioFormat,
    dist::Distribution,
    frame::{
        AgentAudio, ClientAudio, ClientEvent, ErrorCode, Outcome, ResponseStatus, ServerEvent, SessionAccepted, SessionEnded, SessionError,
        SpeechMarker,
    },
    ids::{PlanIndex, ResponseId, TurnId},
    time::Micros,
};

use super::{Action, Caller};
use crate::{
    audio::Utterance,
    ledger::{FailureCause, Finish},
    plan::{ActTemplate, Conversation, EndKind, Protocol, ScenarioPlan, SessionPlan, TurnTemplate, WaitTemplate},
    record::{Counter, Metric},
};

pub(super) fn ms(ms: u64) -> Micros {
    Micros::from_millis(ms)
}

pub(super) fn constant(ms: u64) -> Distribution {
    Distribution::Constant(Duration::from_millis(ms))
}

/// `frames` of 20 ms, with speech between both times.
pub(super) fn utterance(frames: usize, speech_start_ms: u64, speech_end_ms: u64) -> Arc<Utterance> {
    let format = AudioFormat::Pcm16k;
    Arc::new(Utterance {
        format,
        payload: Bytes::from(vec![1; frames * format.frame_bytes()]),
        speech_start_us: speech_start_ms * 1_000,
        speech_end_us: speech_end_ms * 1_000,
        text: String::new(),
    })
}

/// Ten frames; speech from 30 to 170 ms.
pub(super) fn says() -> Vec<Arc<Utterance>> {
    vec![utterance(10, 30, 170)]
}

pub(super) fn turn(wait: u64, act: ActTemplate) -> TurnTemplate {
    TurnTemplate { wait: WaitTemplate::After(constant(wait)), says: says(), act, response: None, dtmf: "".into() }
}

pub(super) fn scenario(turns: Vec<TurnTemplate>) -> ScenarioPlan {
    ScenarioPlan {
        number: 0,
        name: "test".to_owned(),
        protocol: Protocol::Grpc,
        service: Arc::default(),
        lanes: Vec::new(),
        conversations: vec![Conversation { weight: 1.0, turns }],
        session_length: None,
        ends: Vec::new(),
        kill_at: None,
        backend: None,
        own_connection: false,
        speaking_ratio: None,
        send_silence: false,
        markers: false,
        ack_every: 0,
        response_timeout: Duration::from_secs(10),
        start_timeout: Duration::from_secs(5),
        expect: None,
        drains: Vec::new(),
    }
}

pub(super) fn plan(scenario: ScenarioPlan) -> SessionPlan {
    SessionPlan {
        index: PlanIndex(7),
        start: ms(100),
        scenario: Arc::new(scenario),
        seed: 1,
        conversation: 0,
        length: None,
        end: EndKind::Graceful,
        client_ref: "run-7".to_owned(),
        resumes: None,
    }
}

pub(super) fn accepted() -> ServerEvent {
    accepted_with(0)
}

pub(super) fn accepted_with(idle_timeout_ms: u32) -> ServerEvent {
    ServerEvent::Accepted(SessionAccepted {
        session_id: "s-1".to_owned(),
        backend_id: "b".to_owned(),
        boot_id: "boot".to_owned(),
        input: AudioFormat::Pcm16k,
        output: AudioFormat::Pcm16k,
        max_duration_ms: 0,
        idle_timeout_ms,
    })
}

pub(super) fn response_start(response: u64, turn: u64) -> ServerEvent {
    ServerEvent::ResponseStart { response: ResponseId(response), turn: TurnId(turn), text: String::new() }
}

pub(super) fn response_end(response: u64, status: ResponseStatus) -> ServerEvent {
    ServerEvent::ResponseEnd { response: ResponseId(response), status, frames: 0 }
}

pub(super) fn audio(sequence: u64, response: u64) -> ServerEvent {
    ServerEvent::Audio(AgentAudio { sequence, timestamp_us: 0, payload: voice(20), response: ResponseId(response) })
}

/// So many milliseconds that can be heard.
pub(super) fn voice(ms: usize) -> Bytes {
    Bytes::from(vec![1; ms * AudioFormat::Pcm16k.frame_bytes() / 20])
}

pub(super) fn transcript(turn: u64, last: bool) -> ServerEvent {
    ServerEvent::Transcript { turn: TurnId(turn), text: String::new(), last }
}

pub(super) fn speech(started: bool) -> ServerEvent {
    ServerEvent::Speech(SpeechMarker { started, timestamp_us: 0 })
}

pub(super) fn ended(outcome: Outcome) -> ServerEvent {
    ServerEvent::Ended(SessionEnded { outcome, duration_ms: 0, frames_in: 0, frames_out: 0 })
}

pub(super) fn fatal(code: ErrorCode) -> ServerEvent {
    ServerEvent::Error(SessionError::fatal(code, "test"))
}

pub(super) fn tool_call(call_id: &str, name: &str) -> ServerEvent {
    ServerEvent::ToolCall { call_id: call_id.to_owned(), name: name.to_owned(), arguments: "{}".to_owned() }
}

/// A caller and everything that it did.
pub(super) struct Bench {
    pub(super) caller: Caller,
    pub(super) log: Vec<(Micros, Action)>,
    /// Next agent frame.
    sequence: u64,
}

impl Bench {
    /// Dials at the planned time, 100.
    pub(super) fn new(plan: SessionPlan) -> Self {
        Self { caller: Caller::new(plan, ms(100)), log: Vec::new(), sequence: 0 }
    }

    /// Accepted at 1000.
    pub(super) fn live(plan: SessionPlan) -> Self {
        let mut bench = Self::new(plan);
        bench.act(ms(110), |caller, out| caller.on_connected(true, ms(110), out));
        bench.hear(1_000, accepted());
        bench
    }

    pub(super) fn act(&mut self, now: Micros, f: impl FnOnce(&mut Caller, &mut Vec<Action>)) {
        let mut out = Vec::new();
        f(&mut self.caller, &mut out);
        self.log.extend(out.into_iter().map(|action| (now, action)));
    }

    /// A punctual shard, up to `to`.
    pub(super) fn run(&mut self, to: u64) {
        while self.caller.next_wake() <= ms(to) {
            let now = self.caller.next_wake();
            self.act(now, |caller, out| caller.step(now, out));
        }
    }

    /// A shard that wakes late: one step at `now` for everything due.
    pub(super) fn late(&mut self, now: u64) {
        self.act(ms(now), |caller, out| caller.step(ms(now), out));
    }

    pub(super) fn hear(&mut self, now: u64, event: ServerEvent) {
        self.run(now);
        self.act(ms(now), |caller, out| caller.on_event(event, ms(now), out));
    }

    /// Frames of a response, the first at `from`, one each 20 ms.
    pub(super) fn hear_frames(&mut self, from: u64, response: u64, frames: u64) {
        for n in 0..frames {
            let sequence = self.sequence;
            self.sequence += 1;
            self.hear(from + 20 * n, audio(sequence, response));
        }
    }

    /// An answer of `frames`, the first at `from`, in full.
    pub(super) fn answer(&mut self, from: u64, response: u64, turn: u64, frames: u64) {
        self.hear(from, response_start(response, turn));
        self.hear_frames(from, response, frames);
        self.hear(from + 20 * frames, response_end(response, ResponseStatus::Completed));
    }

    pub(super) fn close(&mut self, now: u64, cause: FailureCause) {
        self.act(ms(now), |caller, out| caller.on_closed(cause, ms(now), out));
    }

    pub(super) fn stop(&mut self, now: u64, deadline: u64) {
        self.act(ms(now), |caller, out| caller.stop(ms(deadline), ms(now), out));
    }

    /// (intended, actual, to) of a metric, in microseconds.
    pub(super) fn samples_us(&self, metric: Metric) -> Vec<(u64, u64, u64)> {
        let samples = self.log.iter().filter_map(|(_, action)| match action {
            Action::Measure(sample) if sample.metric == metric => Some((sample.intended.0, sample.actual.0, sample.to.0)),
            _ => None,
        });
        samples.collect()
    }

    /// (intended, actual, to) of a metric.
    pub(super) fn samples(&self, metric: Metric) -> Vec<(u64, u64, u64)> {
        self.samples_us(metric).into_iter().map(|(a, b, c)| (a / 1_000, b / 1_000, c / 1_000)).collect()
    }

    pub(super) fn count(&self, counter: Counter) -> u64 {
        let counts = self.log.iter().filter_map(|(_, action)| match action {
            Action::Count(of, n) if *of == counter => Some(*n),
            _ => None,
        });
        counts.sum()
    }

    /// What was sent besides audio, with the time.
    pub(super) fn sent(&self) -> Vec<(u64, ClientEvent)> {
        let sent = self.log.iter().filter_map(|(at, action)| match action {
            Action::Send(ClientEvent::Audio(_)) => None,
            Action::Send(event) => Some((at.as_millis(), event.clone())),
            _ => None,
        });
        sent.collect()
    }

    pub(super) fn frames(&self) -> Vec<(Micros, ClientAudio)> {
        let frames = self.log.iter().filter_map(|(at, action)| match action {
            Action::Send(ClientEvent::Audio(audio)) => Some((*at, audio.clone())),
            _ => None,
        });
        frames.collect()
    }

    pub(super) fn frame_times(&self) -> Vec<u64> {
        self.frames().iter().map(|(at, _)| at.as_millis()).collect()
    }

    /// When `End` was sent.
    pub(super) fn goodbye(&self) -> Option<u64> {
        self.sent().into_iter().find(|(_, event)| matches!(event, ClientEvent::End { .. })).map(|(at, _)| at)
    }

    /// The end and its time; checks that it is the last action and that the caller knows.
    pub(super) fn over(&self) -> Option<(u64, Action)> {
        let ends = |action: &Action| matches!(action, Action::Ended(_) | Action::Failed(_));
        let at = self.log.iter().position(|(_, action)| ends(action));
        assert_eq!(at.is_some(), self.caller.over());
        let at = at?;
        assert_eq!(at, self.log.len() - 1, "nothing follows the end");
        assert_eq!(self.caller.next_wake(), Micros::NEVER);
        Some((self.log[at].0.as_millis(), self.log[at].1.clone()))
    }

    pub(super) fn dropped(&self) -> bool {
        self.log.iter().any(|(_, action)| *action == Action::Drop)
    }
}

pub(super) fn lost(cause: FailureCause) -> Action {
    Action::Ended(Finish::Lost(cause))
}

#[test]
fn an_idle_caller_is_small() {
    assert!(size_of::<Caller>() - size_of::<SessionPlan>() < 600, "{}", size_of::<Caller>() - size_of::<SessionPlan>());
}
