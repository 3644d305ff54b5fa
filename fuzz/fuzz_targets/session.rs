//! A session of the server: whatever is decoded and however time passes, it is accepted once, ends once, and says nothing after.
#![no_main]

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use agent_server::session::{Effect, Session, SessionConfig, validate_start};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use proto::{
    audio::AudioFormat,
    dist::Distribution,
    frame::{ClientAudio, ClientEvent, ErrorCode, ServerEvent, SessionError, SessionStart, SpeechMarker, TurnHint},
    ids::ResponseId,
    native::decode_client,
    time::Micros,
};

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// A message as it came over the wire.
    Wire(&'a [u8]),
    /// Frames of sound or of silence, 20 ms apart, as a well-behaved client sends them.
    Audio {
        loud: bool,
        frames: u8,
        ack: bool,
    },
    /// One frame of any size, any number.
    OddAudio {
        sequence: u64,
        timestamp_us: u64,
        bytes: u16,
    },
    Speech {
        started: bool,
        timestamp_us: u64,
    },
    Hint {
        tool: u8,
        response_ms: Option<u16>,
        text: Option<&'a str>,
    },
    BargeIn {
        response: Option<u8>,
        heard_ms: u32,
    },
    Cancel {
        response: Option<u8>,
    },
    ToolResult {
        call: u8,
    },
    /// Time passes, up to 6.5 s; the session is stepped once, late.
    Late(u16),
    /// Time passes to the next wake, so often.
    Wakes(u8),
    Error {
        fatal: bool,
    },
    Keepalive,
    Drain,
    Disconnect,
}

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    /// A start as it came over the wire, if it is one; else a plain one.
    start: &'a [u8],
    format: u8,
    steps: Vec<Step<'a>>,
}

static CONFIG: LazyLock<Arc<SessionConfig>> = LazyLock::new(|| {
    Arc::new(SessionConfig {
        backend_id: "b".to_owned(),
        boot_id: "boot".to_owned(),
        think: Distribution::Uniform(Duration::ZERO, Duration::from_millis(400)),
        tool_timeout: Duration::from_secs(2),
        response: Distribution::Uniform(Duration::from_millis(1), Duration::from_secs(3)),
        tool_rate: 0.3,
        endpoint_silence: Duration::from_millis(300),
        vad_threshold: 300.0,
        max_duration: Some(Duration::from_secs(120)),
        idle_timeout: Duration::from_secs(20),
        seed: 11,
        cost: "idle=1us,thinking=1us,tool=1us".parse().unwrap_or_default(),
    })
});

/// What the session did, checked as it comes.
#[derive(Default)]
struct Rules {
    out: Vec<Effect>,
    accepted: bool,
    ends: u32,
    frames: u64,
    response: Option<ResponseId>,
    last_response: u64,
    /// Of the response under way.
    spoken: u32,
}

impl Rules {
    fn see(&mut self, session: &Session, now: Micros, stepped: bool) {
        for effect in std::mem::take(&mut self.out) {
            assert_eq!(self.ends, 0, "{effect:?} after the end");
            match effect {
                Effect::Send(event) => self.hear(event),
                Effect::End { .. } => self.ends += 1,
                Effect::Phase(_) | Effect::Cost(_) | Effect::Fault(_) => {}
            }
        }
        assert_eq!(session.ended(), self.ends == 1);
        assert_eq!(session.phase().is_none(), session.ended());
        assert_eq!(session.frames().1, self.frames);
        if stepped {
            assert!(session.next_wake() > now, "a step that leaves something due spins");
        }
    }

    fn hear(&mut self, event: ServerEvent) {
        assert_eq!(matches!(event, ServerEvent::Accepted(_)), !std::mem::replace(&mut self.accepted, true));
        match event {
            ServerEvent::ResponseStart { response, .. } => {
                assert!(self.response.is_none() && response.0 == self.last_response + 1);
                (self.response, self.last_response, self.spoken) = (Some(response), response.0, 0);
            }
            ServerEvent::Audio(audio) => {
                assert_eq!((audio.sequence, Some(audio.response)), (self.frames, self.response));
                self.frames += 1;
                self.spoken += 1;
            }
            ServerEvent::ResponseEnd { response, frames, .. } => {
                assert_eq!((self.response.take(), self.spoken), (Some(response), frames));
            }
            _ => {}
        }
    }
}

struct Bench {
    session: Session,
    rules: Rules,
    now: Micros,
    format: AudioFormat,
    sequence: u64,
}

impl Bench {
    fn act(&mut self, act: impl FnOnce(&mut Session, Micros, &mut Vec<Effect>)) {
        act(&mut self.session, self.now, &mut self.rules.out);
        self.rules.see(&self.session, self.now, false);
    }

    fn say(&mut self, event: ClientEvent) {
        self.act(|session, now, out| session.on_event(event, now, out));
    }

    fn wait(&mut self, until: Micros) {
        self.now = self.now.max(until);
        self.session.step(self.now, &mut self.rules.out);
        self.rules.see(&self.session, self.now, true);
    }

    fn audio(&mut self, payload: Vec<u8>, ack: bool) {
        let audio = ClientAudio { sequence: self.sequence, timestamp_us: self.now.0, payload: payload.into(), ack };
        self.sequence += 1;
        self.say(ClientEvent::Audio(audio));
    }

    fn step(&mut self, step: Step<'_>) {
        let response = |r: Option<u8>| r.map(|r| ResponseId(r.into()));
        match step {
            Step::Wire(bytes) => match decode_client(bytes.to_vec().into()) {
                Ok(event) => self.say(event),
                Err(error) => self.act(|session, now, out| session.on_error(error, now, out)),
            },
            Step::Audio { loud, frames, ack } => {
                for _ in 0..frames % 64 {
                    let bytes = self.format.frame_bytes();
                    let sound = if loud { [0x10, 0x90] } else { [self.format.silence_byte(); 2] };
                    self.audio((0..bytes).map(|at| sound[at / 2 % 2]).collect(), ack);
                    self.wait(self.now + Duration::from_millis(20));
                }
            }
            Step::OddAudio { sequence, timestamp_us, bytes } => {
                let payload = vec![0x55; bytes.into()].into();
                self.say(ClientEvent::Audio(ClientAudio { sequence, timestamp_us, payload, ack: true }));
            }
            Step::Speech { started, timestamp_us } => self.say(ClientEvent::Speech(SpeechMarker { started, timestamp_us })),
            Step::Hint { tool, response_ms, text } => self.say(ClientEvent::Hint(TurnHint {
                tool: ["weather", "order", "unheard-of"].get(usize::from(tool)).map(ToString::to_string),
                response_ms: response_ms.map(u32::from),
                text: text.map(str::to_owned),
            })),
            Step::BargeIn { response: named, heard_ms } => self.say(ClientEvent::BargeIn { response: response(named), heard_ms }),
            Step::Cancel { response: named } => self.say(ClientEvent::Cancel { response: response(named) }),
            Step::ToolResult { call } => {
                self.say(ClientEvent::ToolResult { call_id: format!("call-{call}"), output: String::new(), failed: false });
            }
            Step::Late(tenths) => self.wait(self.now + Duration::from_micros(u64::from(tenths) * 100)),
            Step::Wakes(times) => {
                for _ in 0..times {
                    if self.session.ended() {
                        break;
                    }
                    self.wait(self.session.next_wake());
                }
            }
            Step::Error { fatal } => {
                let error = SessionError { code: ErrorCode::MalformedMessage, message: "odd".to_owned(), fatal };
                self.act(|session, now, out| session.on_error(error, now, out));
            }
            Step::Keepalive => self.act(Session::on_keepalive_timeout),
            Step::Drain => self.act(Session::on_drain),
            Step::Disconnect => self.act(Session::on_disconnect),
        }
    }
}

fn plain_start(format: AudioFormat) -> SessionStart {
    SessionStart {
        client_ref: "c".to_owned(),
        input: format,
        output: format,
        tools: vec!["weather".to_owned(), "order".to_owned()],
        ..SessionStart::default()
    }
}

fuzz_target!(|input: Input<'_>| {
    let format = AudioFormat::ALL[usize::from(input.format) % AudioFormat::ALL.len()];
    let start = match decode_client(input.start.to_vec().into()) {
        Ok(ClientEvent::Start(start)) if validate_start(&start).is_ok() => start,
        _ => plain_start(format),
    };
    let mut rules = Rules::default();
    let now = Micros(5_000_000);
    let format = start.input;
    let session = Session::new(CONFIG.clone(), 3, "s".to_owned(), start, Duration::ZERO, now, &mut rules.out);
    rules.see(&session, now, false);
    assert!(rules.accepted);
    let mut bench = Bench { session, rules, now, format, sequence: 0 };
    for step in input.steps {
        bench.step(step);
    }
    bench.act(Session::on_disconnect);
    assert_eq!(bench.rules.ends, 1);
});
