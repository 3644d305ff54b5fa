//! What a seed stands for: a fleet, its settings, who calls, and what the network does meanwhile.

use std::{fmt::Write, time::Duration};

use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

/// One run.
#[derive(Debug, Clone)]
pub struct Draw {
    pub seed: u64,
    pub backends: usize,
    /// Of both programs' shards, and of the simulation's steps.
    pub tick: Duration,
    /// Of a segment.
    pub latency: (Duration, Duration),
    /// Share of writes that are cut short.
    pub short: f64,
    /// Settings of the backends, as flags.
    pub server: Vec<String>,
    pub profile: String,
    /// In order of time.
    pub events: Vec<Event>,
    pub poll: Duration,
    /// The longest that the network holds news up.
    pub outage: Duration,
    pub keepalive: Duration,
    /// Between the driver and those that have none of the pings.
    pub longest_session: Duration,
}

/// Something that befalls a backend.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    pub at: Duration,
    pub backend: usize,
    pub what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// Packets wait.
    Hold,
    /// They go on.
    Release,
    /// Packets vanish, and with them every connection that wanted to send.
    Partition,
    /// The same towards the backend only, or from it only.
    PartitionTowards,
    PartitionFrom,
    Repair,
    /// Packets take up to so many milliseconds.
    Slow(u64),
    Steady,
    /// `kill -9`: the sockets close.
    Kill,
    /// The machine loses its power: nothing is said any more.
    PowerOff,
    /// The process is there again.
    Start,
    /// As by SIGTERM, but the process stays until it is asked for its counters.
    Drain,
}

const DIALECTS: [&str; 9] = [
    "protocol: grpc",
    "protocol: grpc, own_connection: true",
    "protocol: websocket",
    "dialect: openai_realtime",
    "dialect: twilio, send_silence: true",
    "dialect: pipecat",
    "dialect: gemini_live",
    "dialect: deepgram, send_silence: true",
    "dialect: ces, send_silence: true",
];
const ENDS: [&str; 5] = ["graceful", "cancel", "tcp_fin", "tcp_rst", "half_open"];

fn ms(range: std::ops::Range<u64>, rng: &mut ChaCha8Rng) -> u64 {
    rng.random_range(range)
}

impl Draw {
    /// Of a seed, with these defects and faults of the backends on top.
    pub fn of(seed: u64, wrong: &[&str]) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let backends = rng.random_range(1..=2);
        let tick = Duration::from_millis(*[5, 10].choose(rng).expect("some"));
        let latency_max = *[1, 5, 40, 150].choose(rng).expect("some");
        let keepalive = (ms(500..2_000, rng), ms(500..1_500, rng));
        let mut server = vec![
            "--think=20ms".to_owned(),
            "--response=uniform(60ms, 300ms)".to_owned(),
            "--endpoint-silence=100ms".to_owned(),
            format!("--seed={seed}"),
            format!("--shards={}", rng.random_range(1..=2)),
            format!("--keepalive-interval={}ms", keepalive.0),
            format!("--keepalive-timeout={}ms", keepalive.1),
            format!("--start-timeout={}ms", ms(1_000..3_000, rng)),
            format!("--drain-timeout={}ms", ms(100..3_000, rng)),
        ];
        if rng.random_bool(0.7) {
            server.push(format!("--max-sessions={}", rng.random_range(1..8)));
        }
        if rng.random_bool(0.4) {
            server.push(format!("--max-duration={}ms", ms(500..4_000, rng)));
        }
        if rng.random_bool(0.3) {
            server.push(format!("--idle-timeout={}ms", ms(300..3_000, rng)));
        }
        if rng.random_bool(0.3) {
            server.push(format!("--http2-max-streams={}", rng.random_range(1..5)));
        }
        server.extend(wrong.iter().map(|defect| (*defect).to_owned()));
        let (events, outage) = events(backends, rng);
        Self {
            seed,
            backends,
            tick,
            latency: (Duration::from_millis(ms(0..2, rng)), Duration::from_millis(latency_max)),
            short: *[0.0, 0.05, 0.5].choose(rng).expect("some"),
            server,
            profile: profile(seed, rng),
            events,
            poll: Duration::from_millis(ms(100..400, rng)),
            outage,
            keepalive: Duration::from_millis(keepalive.0 + keepalive.1),
            longest_session: Duration::from_secs(8),
        }
    }
}

fn profile(seed: u64, rng: &mut ChaCha8Rng) -> String {
    let mut text = format!("seed: {seed}\ntarget: embedded\nscenarios:\n");
    for number in 0..rng.random_range(1..=3) {
        let dialect = *DIALECTS.choose(rng).expect("some");
        let executor = if rng.random_bool(0.5) {
            format!("executor: constant-arrival-rate, rate: {}, duration: {}ms", rng.random_range(1..=6), ms(500..2_500, rng))
        } else {
            format!("executor: constant-sessions, sessions: {}, duration: {}ms", rng.random_range(1..=4), ms(500..3_000, rng))
        };
        let ends: Vec<String> = ENDS
            .iter()
            .map(|kind| (kind, rng.random_range(0..3)))
            .filter(|(_, weight)| *weight > 0)
            .map(|(kind, weight)| format!("{{kind: {kind}, weight: {weight}}}"))
            .collect();
        let ends = if ends.is_empty() { "graceful".to_owned() } else { format!("[{}]", ends.join(", ")) };
        let wait = ms(20..1_000, rng);
        let say = ms(100..300, rng);
        let barge_in = if rng.random_bool(0.2) { ", barge_in: {after: 60ms, say: {synth: 100ms}}" } else { "" };
        writeln!(
            text,
            "  s{number}: {{{executor}, {dialect}, startTime: {}ms, gracefulStop: {}ms, session_length: {}ms, response_timeout: 1s, \
             start_timeout: 2s, end: {ends}, conversations: [{{turns: [{{wait: {wait}ms, say: {{synth: {say}ms}}{barge_in}}}]}}]}}",
            ms(0..500, rng),
            ms(100..2_000, rng),
            ms(200..3_000, rng),
        )
        .expect("a string");
    }
    text
}

/// What befalls the backends, and the longest that news is held up by it.
fn events(backends: usize, rng: &mut ChaCha8Rng) -> (Vec<Event>, Duration) {
    let mut events = Vec::new();
    let mut outage = Duration::ZERO;
    for backend in 0..backends {
        // One after the other, so that each begins in a healthy network.
        let mut at = Duration::from_millis(ms(100..1_500, rng));
        for _ in 0..rng.random_range(0..=2) {
            let lasts = Duration::from_millis(ms(50..2_000, rng));
            let (begin, end) = match rng.random_range(0..8) {
                0 | 1 => (What::Hold, What::Release),
                2 => (What::Partition, What::Repair),
                3 => (*[What::PartitionTowards, What::PartitionFrom].choose(rng).expect("some"), What::Repair),
                4 => (What::Slow(ms(100..500, rng)), What::Steady),
                5 => (What::Kill, What::Start),
                6 => (What::PowerOff, What::Start),
                _ => (What::Drain, What::Repair),
            };
            events.push(Event { at, backend, what: begin });
            events.push(Event { at: at + lasts, backend, what: end });
            if begin != What::Drain {
                outage = outage.max(lasts);
            }
            at += lasts + Duration::from_millis(ms(100..1_500, rng));
        }
    }
    events.sort_by_key(|event| event.at);
    (events, outage)
}
