//! A session on a bench: a synthetic user in virtual time, every effect kept with its time.

use std::collections::HashSet;

use bytes::Bytes;
use proto::{
    frame::{AgentAudio, ClientAudio, ClientEvent, FRAME_US, SpeechMarker},
    ids::ResponseId,
};

use super::*;

mod ends;
mod properties;
mod taking;
mod trouble;
mod turns;

const THINK: u64 = 300;
const ENDPOINT: u64 = 500;

fn config() -> SessionConfig {
    SessionConfig {
        backend_id: "b".to_owned(),
        boot_id: "boot".to_owned(),
        think: Distribution::Constant(Duration::from_millis(THINK)),
        tool_timeout: Duration::from_secs(2),
        response: Distribution::Constant(Duration::from_secs(1)),
        tool_rate: 0.0,
        endpoint_silence: Duration::from_millis(ENDPOINT),
        vad_threshold: 300.0,
        max_duration: None,
        idle_timeout: Duration::from_mins(1),
        seed: 11,
        cost: CostSpec::default(),
    }
}

fn start(format: AudioFormat) -> SessionStart {
    SessionStart {
        client_ref: "c".to_owned(),
        input: format,
        output: format,
        tools: vec!["weather".to_owned(), "order".to_owned()],
        ..SessionStart::default()
    }
}

struct Bench {
    session: Session,
    format: AudioFormat,
    now: Micros,
    began: Micros,
    sequence: u64,
    /// Effects not yet looked at by [`Self::take`].
    out: Vec<Effect>,
    all: Vec<(Micros, Effect)>,
}

impl Bench {
    fn new() -> Self {
        Self::with(config(), AudioFormat::Pcm16k)
    }

    fn with(config: SessionConfig, format: AudioFormat) -> Self {
        let now = Micros(5_000_000);
        let mut out = Vec::new();
        let session = Session::new(Arc::new(config), 3, "s".to_owned(), start(format), Duration::ZERO, now, &mut out);
        let mut bench = Self { session, format, now, began: now, sequence: 0, out: Vec::new(), all: Vec::new() };
        bench.keep(out);
        bench
    }

    fn keep(&mut self, out: Vec<Effect>) {
        self.all.extend(out.iter().map(|e| (self.now, e.clone())));
        self.out.extend(out);
    }

    fn act(&mut self, act: impl FnOnce(&mut Session, Micros, &mut Vec<Effect>)) -> &mut Self {
        let mut out = Vec::new();
        act(&mut self.session, self.now, &mut out);
        self.keep(out);
        self
    }

    fn say(&mut self, event: ClientEvent) -> &mut Self {
        self.act(|s, now, out| s.on_event(event, now, out))
    }

    /// Lets time pass, stepping exactly when the session asks.
    fn wait(&mut self, ms: u64) -> &mut Self {
        self.wait_us(ms * 1_000)
    }

    fn wait_us(&mut self, us: u64) -> &mut Self {
        let end = Micros(self.now.0 + us);
        while self.session.next_wake() <= end {
            self.now = self.now.max(self.session.next_wake());
            self.act(Session::step);
        }
        self.now = end;
        self
    }

    fn audio(&mut self, payload: Bytes) -> &mut Self {
        let audio = ClientAudio {
            sequence: self.sequence,
            timestamp_us: self.now.0 - self.began.0,
            payload,
            ack: self.sequence.is_multiple_of(50),
        };
        self.sequence += 1;
        self.say(ClientEvent::Audio(audio))
    }

    fn frame(&mut self, amplitude: i16) -> &mut Self {
        let samples: Vec<i16> = (0..self.format.frame_samples()).map(|i| if i % 2 == 0 { amplitude } else { -amplitude }).collect();
        let payload = self.format.encode(&samples);
        self.audio(payload)
    }

    fn frames(&mut self, amplitude: i16, ms: u64) -> &mut Self {
        for _ in 0..ms / 20 {
            self.frame(amplitude).wait(20);
        }
        self
    }

    fn speak(&mut self, ms: u64) -> &mut Self {
        self.frames(4_000, ms)
    }

    fn silence(&mut self, ms: u64) -> &mut Self {
        self.frames(0, ms)
    }

    fn mark(&mut self, started: bool) -> &mut Self {
        let timestamp_us = self.now.0 - self.began.0;
        self.say(ClientEvent::Speech(SpeechMarker { started, timestamp_us }))
    }

    /// A marked turn of 600 ms without audio.
    fn turn(&mut self) -> &mut Self {
        self.mark(true).wait(600).mark(false)
    }

    fn hint(&mut self, tool: &str, response_ms: u32, text: &str) -> &mut Self {
        self.say(ClientEvent::Hint(TurnHint { tool: Some(tool.to_owned()), response_ms: Some(response_ms), text: Some(text.to_owned()) }))
    }

    fn result(&mut self, call_id: &str) -> &mut Self {
        self.say(ClientEvent::ToolResult { call_id: call_id.to_owned(), output: "{}".to_owned(), failed: false })
    }

    fn barge_in(&mut self, response: Option<u64>, heard_ms: u32) -> &mut Self {
        self.say(ClientEvent::BargeIn { response: response.map(ResponseId), heard_ms })
    }

    fn phase(&self) -> Option<Phase> {
        self.session.phase()
    }

    /// What happened since the last call, in short words, without costs.
    fn take(&mut self) -> Vec<String> {
        let out = std::mem::take(&mut self.out);
        let mut words: Vec<String> = Vec::new();
        for word in out.iter().filter_map(word) {
            match (words.last_mut(), word.as_str()) {
                (Some(last), "audio") if last.starts_with("audio") => {
                    let count: u32 = last.strip_prefix("audio*").map_or(1, |n| n.parse().unwrap());
                    *last = format!("audio*{}", count + 1);
                }
                _ => words.push(word),
            }
        }
        words
    }

    fn audio_sent(&self) -> Vec<(Micros, AgentAudio)> {
        self.all
            .iter()
            .filter_map(|(at, e)| match e {
                Effect::Send(ServerEvent::Audio(audio)) => Some((*at, audio.clone())),
                _ => None,
            })
            .collect()
    }
}

fn word(effect: &Effect) -> Option<String> {
    Some(match effect {
        Effect::Cost(_) => return None,
        Effect::Fault(kind) => format!("!{}", kind.name()),
        Effect::Phase(phase) => format!("[{}]", phase.name()),
        Effect::End { outcome, error } => format!("END {outcome}{}", error.as_ref().map_or(String::new(), |e| format!(" {:?}", e.code))),
        Effect::Send(event) => match event {
            // Steps that only some dialects name: they have tests of their own.
            ServerEvent::Committed { .. } | ServerEvent::Answering { .. } | ServerEvent::AnswerDropped { .. } => return None,
            ServerEvent::Mark { name } => format!("mark {name}"),
            ServerEvent::Resumable { handle } => format!("resumable {handle}"),
            ServerEvent::GoingAway { left_ms } => format!("going away in {left_ms}ms"),
            ServerEvent::Accepted(_) => "accepted".to_owned(),
            ServerEvent::Speech(m) => format!("speech {} {}", if m.started { "from" } else { "to" }, m.timestamp_us / 1_000),
            ServerEvent::Transcript { turn, last, .. } => format!("{} {}", if *last { "final" } else { "partial" }, turn.0),
            ServerEvent::ResponseStart { response, turn, .. } => format!("response {} to {}", response.0, turn.0),
            ServerEvent::Audio(_) => "audio".to_owned(),
            ServerEvent::ResponseEnd { response, status, frames } => format!("end {} {status:?} {frames}", response.0),
            ServerEvent::Ack { sequence } => format!("ack {sequence}"),
            ServerEvent::ToolCall { call_id, name, .. } => format!("call {call_id} {name}"),
            ServerEvent::ToolCancel { call_id } => format!("uncall {call_id}"),
            ServerEvent::Context { response, heard_ms, text, .. } => {
                format!("context {} {heard_ms}ms {}w", response.map_or(0, |r| r.0), text.split_whitespace().count())
            }
            ServerEvent::Error(error) => format!("{} {:?}", if error.fatal { "fatal" } else { "warning" }, error.code),
            ServerEvent::Ended(ended) => {
                format!("ended {} {}ms in {} out {}", ended.outcome, ended.duration_ms, ended.frames_in, ended.frames_out)
            }
        },
    })
}
