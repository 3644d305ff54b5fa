//! A caller and the mock's session at the two ends of a perfect link, in virtual time: every latency is arithmetic.

use std::collections::VecDeque;

use agent_server::session::{Effect, Session, SessionConfig};

use super::*;

const DIAL: u64 = 40;
const WAIT: u64 = 500;
const ENDPOINT: u64 = 500;
const THINK: u64 = 200;
const RESPONSE: u64 = 1_000;
/// What is said: from 40 to 840 ms of 900.
const ONSET: u64 = 40;
const END: u64 = 840;
/// The detector wants three loud frames; the third is sent when it is over.
const NOTICE: u64 = 60;
/// First partial transcript after the onset was noticed; final one after the end was.
const PARTIAL: u64 = 300;
const FINAL: u64 = 40;
/// The caller's jitter buffer.
const JITTER: u64 = 40;

/// Speech between silences, so loud that no detector misses it.
fn spoken() -> Vec<Arc<Utterance>> {
    let format = AudioFormat::Pcm16k;
    let samples = |loud: bool| (0..format.frame_samples()).map(move |n| if loud { 4_000 * (1 - 2 * (n % 2) as i16) } else { 0 });
    let pcm: Vec<i16> = (0..45).flat_map(|frame| samples((2..42).contains(&frame))).collect();
    let (speech_start_us, speech_end_us) = (ONSET * 1_000, END * 1_000);
    vec![Arc::new(Utterance { format, payload: format.encode(&pcm), speech_start_us, speech_end_us, text: "one two three".to_owned() })]
}

fn conversation() -> Vec<TurnTemplate> {
    let turn = |act| TurnTemplate { says: spoken(), response: Some(constant(RESPONSE)), ..turn(WAIT, act) };
    vec![
        turn(ActTemplate::Listen),
        turn(ActTemplate::BargeIn { after: constant(400), explicit: false, heard: None, says: spoken() }),
        turn(ActTemplate::BargeIn { after: constant(310), explicit: true, heard: None, says: Vec::new() }),
        turn(ActTemplate::Tool { name: "lookup".to_owned(), takes: constant(700) }),
        turn(ActTemplate::Cancel { after: constant(110) }),
    ]
}

fn config() -> SessionConfig {
    SessionConfig {
        backend_id: "b".to_owned(),
        boot_id: "boot".to_owned(),
        think: constant(THINK),
        tool_timeout: Duration::from_secs(5),
        response: constant(9_000),
        tool_rate: 0.0,
        endpoint_silence: Duration::from_millis(ENDPOINT),
        vad_threshold: 300.0,
        max_duration: None,
        idle_timeout: Duration::from_mins(1),
        seed: 1,
        cost: agent_server::cost::CostSpec::default(),
    }
}

/// Both ends and what is on the way between them.
struct Link {
    bench: Bench,
    session: Option<Session>,
    delay: Duration,
    up: VecDeque<(Micros, ClientEvent)>,
    down: VecDeque<(Micros, ServerEvent)>,
    /// How much of the caller's log was put on the way.
    taken: usize,
}

impl Link {
    fn new(plan: SessionPlan, delay: u64) -> Self {
        let mut bench = Bench::new(plan);
        let connected = ms(100 + DIAL);
        bench.act(connected, |caller, out| caller.on_connected(true, connected, out));
        let delay = Duration::from_millis(delay);
        Self { bench, session: None, delay, up: VecDeque::new(), down: VecDeque::new(), taken: 0 }
    }

    /// Until nothing is left to do.
    fn run(&mut self) {
        loop {
            for (at, action) in &self.bench.log[self.taken..] {
                if let Action::Send(event) = action {
                    self.up.push_back((*at + self.delay, event.clone()));
                }
            }
            self.taken = self.bench.log.len();
            let up = self.up.front().map_or(Micros::NEVER, |(at, _)| *at);
            let down = self.down.front().map_or(Micros::NEVER, |(at, _)| *at);
            let session = self.session.as_ref().map_or(Micros::NEVER, Session::next_wake);
            let now = up.min(down).min(session).min(self.bench.caller.next_wake());
            if now == Micros::NEVER {
                break;
            }
            let mut effects = Vec::new();
            if up == now {
                let (_, event) = self.up.pop_front().expect("front");
                match (&mut self.session, event) {
                    (None, ClientEvent::Start(start)) => {
                        self.session =
                            Some(Session::new(Arc::new(config()), 0, "s-0".to_owned(), start, Duration::ZERO, now, &mut effects));
                    }
                    (Some(session), event) => session.on_event(event, now, &mut effects),
                    (None, event) => panic!("{event:?} before the start"),
                }
            } else if down == now {
                let (_, event) = self.down.pop_front().expect("front");
                self.bench.act(now, |caller, out| caller.on_event(event, now, out));
            } else if session == now {
                self.session.as_mut().expect("session").step(now, &mut effects);
            } else {
                self.bench.act(now, |caller, out| caller.step(now, out));
            }
            for effect in effects {
                if let Effect::Send(event) = effect {
                    self.down.push_back((now + self.delay, event));
                }
            }
        }
    }
}

#[test]
fn every_latency_is_arithmetic() {
    for delay in [0, 5, 33, 120] {
        let mut session = scenario(conversation());
        session.ack_every = 10;
        let mut link = Link::new(plan(session), delay);
        link.run();
        let bench = &link.bench;
        let round_trip = 2 * delay;

        let dialed = 100;
        let accepted = dialed + DIAL + round_trip;
        assert_eq!(bench.samples(Metric::Connect), [(dialed, dialed, dialed + DIAL)]);
        assert_eq!(bench.samples(Metric::SessionStartup), [(dialed, dialed, accepted)]);

        // When each user turn begins, and when its answer is first heard.
        let answer = |begin: u64| begin + END + ENDPOINT + THINK + round_trip;
        let heard_out = |first: u64| first + JITTER + RESPONSE;
        let plain = accepted + WAIT;
        let interrupted = heard_out(answer(plain)) + WAIT;
        let interruption = answer(interrupted) + 400;
        let by_message = heard_out(answer(interruption)) + WAIT;
        let message = answer(by_message) + 310;
        let tool = message + round_trip + WAIT;
        let called = answer(tool);
        let resumed = called + 700 + round_trip + THINK;
        let cancelled = heard_out(resumed) + WAIT;
        let cancel = answer(cancelled) + 110;
        let goodbye = cancel + round_trip;

        let begins = [plain, interrupted, interruption, by_message, tool, cancelled];
        let expect = |from: u64, to: &dyn Fn(u64) -> u64| begins.map(|begin| (begin + from, begin + from, to(begin)));
        assert_eq!(bench.samples(Metric::TurnResponse), expect(END, &|begin| if begin == tool { resumed } else { answer(begin) }));
        assert_eq!(bench.samples(Metric::TranscriptFirst), expect(ONSET, &|begin| begin + ONSET + NOTICE + PARTIAL + round_trip));
        assert_eq!(bench.samples(Metric::TranscriptFinal), expect(END, &|begin| begin + END + ENDPOINT + FINAL + round_trip));
        assert_eq!(bench.samples(Metric::TimeToFirstStream), [(100, 100, plain + ONSET + NOTICE + PARTIAL + round_trip)]);
        let onset = interruption + ONSET;
        let stops = [(onset, onset + NOTICE + round_trip), (message, message + round_trip), (cancel, cancel + round_trip)];
        assert_eq!(bench.samples(Metric::BargeInStop), stops.map(|(from, to)| (from, from, to)));
        assert_eq!(bench.samples(Metric::BargeInSignal), stops.map(|(from, to)| (from, from, to)));
        // A client that interrupts by message silences its own loudspeaker: that is no measure of the server.
        assert_eq!(bench.samples(Metric::BargeInSilent), [(onset, onset, onset + NOTICE + round_trip)]);
        let last_packets = bench.samples(Metric::BargeInLastPacket);
        assert_eq!(last_packets.len(), 3);
        assert!(last_packets.iter().zip(stops).all(|((from, _, to), (begin, end))| *from == begin && end - to <= 20 && *to <= end));
        assert_eq!(bench.samples(Metric::Endpointing), expect(END, &|begin| begin + END + ENDPOINT + round_trip));
        assert_eq!(bench.samples(Metric::ToolRoundTrip), [(called, called, resumed)]);
        let trips = bench.samples(Metric::FrameRtt);
        assert_eq!(trips.len() as u64, bench.count(Counter::FramesSent).div_ceil(10));
        assert!(trips.iter().all(|(from, _, to)| to - from == round_trip));
        assert!(bench.samples(Metric::ScheduleLag).iter().all(|(intended, _, to)| intended == to));
        let heard = bench.sent().into_iter().find_map(|(at, event)| match event {
            ClientEvent::BargeIn { heard_ms, .. } => Some((at, heard_ms)),
            _ => None,
        });
        assert_eq!(heard, Some((message, 310 - JITTER as u32)));
        assert_eq!(bench.goodbye(), Some(goodbye));
        assert_eq!(bench.over(), Some((goodbye + round_trip, Action::Ended(Finish::Goodbye(Outcome::Completed)))));

        for (counter, n) in [
            (Counter::Turns, 6),
            (Counter::TurnsAnswered, 6),
            (Counter::TurnsMissed, 0),
            (Counter::Responses, 6),
            (Counter::BargeIns, 3),
            (Counter::BargeInsJudged, 3),
            (Counter::BargeInsMissed, 0),
            (Counter::BargeInsFalse, 0),
            (Counter::ResponsesSpurious, 0),
            (Counter::TalkOverUs, (NOTICE + round_trip) * 1_000),
            (Counter::StaleFrames, 0),
            (Counter::ToolCalls, 1),
            (Counter::Underruns, 0),
            (Counter::SequenceGaps, 0),
            (Counter::ServerErrors, 0),
            (Counter::SpeechUs, 6 * (END - ONSET) * 1_000),
        ] {
            assert_eq!(bench.count(counter), n, "{counter:?} at a delay of {delay} ms");
        }
        let (frames_in, frames_out) = link.session.as_ref().expect("session").frames();
        assert_eq!((bench.count(Counter::FramesSent), bench.count(Counter::FramesReceived)), (frames_in, frames_out));
    }
}
