//! Whole engines against a real backend: what the ledger says is what the backend counted.

mod engine_support;

use std::{collections::BTreeMap, io::Write, sync::Arc, time::Duration};

use agent_server::runtime::clock::Clock;
use engine_support::backend::Backend;
use load_driver::{
    engine::{
        Engine, EngineEvent, EngineHandle, EngineOptions, IntervalReport, Targets,
        wire::read_event,
        worker::{WorkerCommand, WorkerJob, run_worker},
    },
    ledger::{FailureCause, Finish, LedgerEvent},
    plan::{EndKind, Plan},
    profile::{Source, load},
    record::{Counter, Metric},
};
use proto::{frame::Outcome, time::Micros};
use tokio::sync::mpsc;

fn plan(yaml: &str) -> Plan {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("p.yaml");
    std::fs::write(&file, yaml).expect("written");
    let profile = load(&Source::File(file), &[]).unwrap_or_else(|error| panic!("{error}"));
    Plan::build(&profile, "cafe0001").expect("a plan")
}

/// What an engine said, put together.
#[derive(Default)]
struct Heard {
    sessions: BTreeMap<u64, Vec<LedgerEvent>>,
    intervals: Vec<IntervalReport>,
    done: usize,
}

impl Heard {
    fn hear(&mut self, event: EngineEvent, watermarks: &mut BTreeMap<usize, u64>) {
        match event {
            EngineEvent::Struck { .. }
            | EngineEvent::Storm { .. }
            | EngineEvent::StoodStill { .. }
            | EngineEvent::Ready
            | EngineEvent::Said { .. }
            | EngineEvent::Voice(_) => {}
            EngineEvent::Ledger { shard, entries, complete_to_us } => {
                let watermark = watermarks.entry(shard).or_default();
                for entry in entries {
                    assert!(entry.at_us >= *watermark, "an entry older than what was promised");
                    assert!(entry.at_us <= complete_to_us, "an entry from the future");
                    self.sessions.entry(entry.index.0).or_default().push(entry.event);
                }
                *watermark = complete_to_us;
            }
            EngineEvent::Interval(report) => self.intervals.push(report),
            EngineEvent::Done { .. } => self.done += 1,
            EngineEvent::Fatal { message } => panic!("{message}"),
        }
    }

    fn count(&self, counter: Counter) -> u64 {
        let counts = self.intervals.iter().flat_map(|i| &i.scenarios).flat_map(|s| &s.counts);
        counts.filter(|(c, _)| *c == counter).map(|(_, n)| n).sum()
    }

    fn samples(&self, metric: Metric) -> u64 {
        let latencies = self.intervals.iter().flat_map(|i| &i.scenarios).flat_map(|s| &s.latencies);
        latencies.filter(|(m, _, _)| *m == metric).map(|(_, response, _)| response.len()).sum()
    }

    /// How each session ended, after checking that it lived in order.
    fn ends(&self) -> BTreeMap<String, usize> {
        let mut ends = BTreeMap::new();
        for (index, events) in &self.sessions {
            assert!(matches!(events[0], LedgerEvent::Scheduled { .. }), "{index}: {events:?}");
            let accepted = events.iter().filter(|e| matches!(e, LedgerEvent::Accepted { .. })).count();
            let end = match events.last() {
                Some(LedgerEvent::Ended { finish }) => {
                    assert_eq!(accepted, 1, "{index}: {events:?}");
                    format!("{finish:?}")
                }
                Some(LedgerEvent::Failed { cause }) => {
                    assert_eq!(accepted, 0, "{index}: {events:?}");
                    format!("{cause:?}")
                }
                _ => panic!("session {index} never ended: {events:?}"),
            };
            let over = events.iter().filter(|e| matches!(e, LedgerEvent::Ended { .. } | LedgerEvent::Failed { .. })).count();
            assert_eq!(over, 1, "{index}: {events:?}");
            *ends.entry(end).or_default() += 1;
        }
        ends
    }
}

/// Runs the engine until all shards are done; `meanwhile` is called after each event.
fn run(yaml: &str, target: &str, mut meanwhile: impl FnMut(&EngineHandle, &Heard)) -> (Heard, EngineHandle) {
    let (sender, events) = mpsc::channel(64);
    let targets = Arc::new(Targets::resolve(&[target.to_owned()]).expect("an address"));
    let options = EngineOptions { shards: 2, ..EngineOptions::default() };
    let handle = Engine::start(plan(yaml), options, targets, None, Clock::start(), sender).expect("starts");
    // Closed first when a test fails: the engine would wait for somebody to read.
    let mut events = events;
    let (mut heard, mut watermarks) = (Heard::default(), BTreeMap::new());
    while heard.done < 2 {
        heard.hear(events.blocking_recv().expect("shards say when they are done"), &mut watermarks);
        meanwhile(&handle, &heard);
    }
    (heard, handle)
}

fn ends<const N: usize>(expected: [(String, usize); N]) -> BTreeMap<String, usize> {
    expected.into_iter().collect()
}

const TALK: &str = "conversations: [{turns: [{wait: 100ms, say: {synth: 500ms}, response: 400ms}]}]";

#[test]
fn sessions_over_both_protocols_end_in_order_and_are_counted() {
    let backend = Backend::start("--think 50ms");
    let scenario = |protocol| {
        format!("{{executor: constant-arrival-rate, rate: 20, duration: 1s, protocol: {protocol}, markers: true, ack_every: 1, {TALK}}}")
    };
    let yaml = format!("scenarios: {{a: {}, b: {}}}", scenario("grpc"), scenario("websocket"));
    let (heard, handle) = run(&yaml, &backend.address.to_string(), |_, _| {});
    assert_eq!(heard.ends(), ends([(format!("{:?}", Finish::Goodbye(Outcome::Completed)), 40)]));
    let snapshot = backend.eventually("at rest", |s| s.active == 0);
    assert_eq!((snapshot.started, snapshot.ended["completed"]), (40, 40));
    assert_eq!(snapshot.frames_in, heard.count(Counter::FramesSent));
    assert_eq!(snapshot.frames_out, heard.count(Counter::FramesReceived));
    assert_eq!(heard.count(Counter::SendDrops), 0);
    assert_eq!(heard.count(Counter::TurnsAnswered), 40);
    assert_eq!(heard.samples(Metric::SessionStartup), 40);
    assert_eq!(heard.samples(Metric::FrameRtt), heard.count(Counter::FramesSent));
    handle.join();
}

#[test]
fn every_forced_end_is_seen_by_the_backend_for_what_it_is() {
    let backend = Backend::start("--keepalive-interval 200ms --keepalive-timeout 300ms");
    let kinds = [EndKind::Cancel, EndKind::TcpFin, EndKind::TcpRst, EndKind::HalfOpen];
    let mut yaml = "scenarios:\n".to_owned();
    for protocol in ["grpc", "websocket"] {
        for kind in kinds {
            let name = kind.name();
            let settings =
                "executor: constant-arrival-rate, rate: 3, duration: 1s, session_length: 300ms, conversations: [{turns: [{wait: 1s}]}]";
            yaml.extend(["  ", protocol, "-", name, ": {protocol: ", protocol, ", end: ", name, ", ", settings, "}\n"]);
        }
    }
    let (heard, handle) = run(&yaml, &backend.address.to_string(), |_, _| {});
    let expected = kinds.map(|kind| (format!("{:?}", Finish::Forced(kind)), 6));
    assert_eq!(heard.ends(), ends(expected));
    // The silent sockets are still there: only the keepalive can find them.
    let snapshot = backend.eventually("all found", |s| s.active == 0);
    assert_eq!(snapshot.started, 24);
    assert_eq!(snapshot.ended.get("completed").copied().unwrap_or(0), 0);
    // Silence is a timeout, or a cancel where the backend sees only that its connection is given up.
    let (cancelled, timed_out) = (snapshot.ended["cancelled"], snapshot.ended["timed_out"]);
    assert!(cancelled + timed_out == 24 && (1..=6).contains(&timed_out), "{snapshot:?}");
    handle.join();
}

#[test]
fn a_refused_port_is_a_failure_for_each_session() {
    let mut backend = Backend::start("");
    backend.kill();
    let yaml = format!(
        "scenarios: {{a: {{executor: constant-arrival-rate, rate: 10, duration: 1s, {TALK}}}, \
         b: {{executor: constant-arrival-rate, rate: 10, duration: 1s, protocol: websocket, {TALK}}}}}"
    );
    let (heard, handle) = run(&yaml, &backend.address.to_string(), |_, _| {});
    assert_eq!(heard.ends(), ends([(format!("{:?}", FailureCause::ConnectionRefused), 20)]));
    handle.join();
}

#[test]
fn a_closed_lane_goes_on_after_an_end_but_not_in_a_busy_loop_after_a_failure() {
    let backend = Backend::start("");
    let yaml = "scenarios: {a: {executor: constant-sessions, sessions: 2, duration: 1s, session_length: 100ms, end: cancel, \
                conversations: [{turns: [{wait: 50ms}]}]}}";
    let (heard, handle) = run(yaml, &backend.address.to_string(), |_, _| {});
    let sessions = heard.sessions.len();
    assert!((6..=20).contains(&sessions), "{sessions} sessions of 100 ms in two lanes of a second");
    handle.join();
    let mut backend = backend;
    backend.kill();
    let (heard, handle) = run(yaml, &backend.address.to_string(), |_, _| {});
    assert_eq!(heard.sessions.len(), 2);
    handle.join();
}

#[test]
fn refused_sessions_are_rejected_and_never_counted() {
    let backend = Backend::start("--max-sessions 1");
    // One session takes the only place; the others come while it has it.
    let late = format!("executor: constant-arrival-rate, rate: 5, duration: 1s, startTime: 500ms, {TALK}");
    let yaml = format!(
        "scenarios: {{holder: {{executor: constant-arrival-rate, rate: 1, duration: 1s, conversations: [{{turns: [{{wait: 3s}}]}}]}}, \
         a: {{{late}}}, b: {{protocol: websocket, {late}}}}}"
    );
    let (heard, handle) = run(&yaml, &backend.address.to_string(), |_, _| {});
    assert_eq!(
        heard.ends(),
        ends([(format!("{:?}", Finish::Goodbye(Outcome::Completed)), 1), (format!("{:?}", FailureCause::Rejected), 10)])
    );
    let snapshot = backend.snapshot();
    assert_eq!((snapshot.started, snapshot.rejected), (1, 10));
    handle.join();
}

const LONG: &str = "scenarios: {a: {executor: constant-sessions, sessions: 4, duration: 60s, session_length: 60s, \
                    conversations: [{turns: [{wait: 1s}]}]}, b: {executor: constant-sessions, sessions: 4, duration: 60s, \
                    protocol: websocket, session_length: 60s, conversations: [{turns: [{wait: 1s}]}]}}";

fn accepted(heard: &Heard) -> usize {
    heard.sessions.values().filter(|events| events.iter().any(|e| matches!(e, LedgerEvent::Accepted { .. }))).count()
}

#[test]
fn a_stop_says_goodbye() {
    let backend = Backend::start("");
    let (heard, handle) = run(LONG, &backend.address.to_string(), |handle, heard| {
        if accepted(heard) == 8 {
            handle.stop(Micros::ZERO);
        }
    });
    assert_eq!(heard.ends(), ends([(format!("{:?}", Finish::Goodbye(Outcome::Completed)), 8)]));
    backend.eventually("at rest", |s| s.active == 0 && s.ended["completed"] == 8);
    handle.join();
}

#[test]
fn an_abort_cuts_every_session() {
    let backend = Backend::start("");
    let (heard, handle) = run(LONG, &backend.address.to_string(), |handle, heard| {
        if accepted(heard) == 8 {
            handle.abort();
        }
    });
    assert_eq!(heard.ends(), ends([(format!("{:?}", Finish::Lost(FailureCause::Aborted)), 8)]));
    backend.eventually("at rest", |s| s.active == 0 && s.ended["cancelled"] == 8);
    handle.join();
}

#[test]
fn a_killed_backend_loses_its_sessions_and_the_run_ends() {
    let mut backend = Backend::start("");
    let address = backend.address.to_string();
    let (heard, handle) = run(LONG, &address, |handle, heard| {
        if accepted(heard) == 8 {
            backend.kill();
            // Those that come after are refused; they do not hold the run.
            handle.stop(Micros::ZERO + Duration::from_mins(1));
        }
    });
    for (end, _) in heard.ends() {
        let lost = [FailureCause::Eof, FailureCause::Reset].map(|cause| format!("{:?}", Finish::Lost(cause)));
        assert!(lost.contains(&end), "{end}");
    }
    handle.join();
}

/// What a worker process does, over pipes, in a thread.
#[test]
fn a_worker_runs_its_part_and_leaves_when_its_input_ends() {
    let backend = Backend::start("");
    let yaml = format!(
        "scenarios: {{a: {{executor: constant-arrival-rate, rate: 10, duration: 1s, {TALK}}}, \
         b: {{executor: constant-arrival-rate, rate: 10, duration: 1s, {TALK}}}}}"
    );
    let whole = plan(&yaml);
    let mut sessions = Vec::new();
    for worker in 0..2 {
        let job = WorkerJob {
            profile: String::new(),
            run_id: "beef0002".to_owned(),
            worker,
            workers: 2,
            scenarios: Some(vec![1]),
            targets: vec![backend.address.to_string()],
            through: Vec::new(),
            connection: load_driver::plan::Connection::default(),
            private: ["X-Key".to_owned()].into(),
            resumed: None,
            options: EngineOptions::default(),
        };
        let (input, mut commands) = std::io::pipe().expect("a pipe");
        let (mut events, output) = std::io::pipe().expect("a pipe");
        let plan = whole.clone();
        let build = move |job: &WorkerJob| {
            assert!(job.connection.private.contains("X-Key"), "what is to be masked is masked in workers too");
            Ok(plan.into())
        };
        let thread = std::thread::spawn(move || run_worker(std::io::BufReader::new(input), output, build));
        writeln!(commands, "{}", serde_json::to_string(&job).expect("json")).expect("written");
        assert!(matches!(read_event(&mut events), Ok(Some(EngineEvent::Ready))), "a worker is ready before it is started");
        let start = WorkerCommand::Start { epoch_unix_us: Clock::start().unix_us(Micros::ZERO) };
        writeln!(commands, "{}", serde_json::to_string(&start).expect("json")).expect("written");
        let (mut heard, mut watermarks) = (Heard::default(), BTreeMap::new());
        while heard.done == 0 {
            heard.hear(read_event(&mut events).expect("frames").expect("more, before it is done"), &mut watermarks);
        }
        assert!(!thread.is_finished(), "a worker stays until it is let go");
        drop(commands);
        assert!(read_event(&mut events).expect("frames").is_none());
        thread.join().expect("no panic").expect("no error");
        assert_eq!(heard.ends(), ends([(format!("{:?}", Finish::Goodbye(Outcome::Completed)), 5)]));
        for (index, events) in heard.sessions {
            let LedgerEvent::Scheduled { scenario: 1, client_ref, .. } = &events[0] else { panic!("{events:?}") };
            assert!(client_ref.starts_with("beef0002-"), "{client_ref}");
            sessions.push(index);
        }
    }
    sessions.sort_unstable();
    sessions.dedup();
    assert_eq!(sessions.len(), 10, "the parts add up to the whole");
}

#[test]
fn a_worker_says_what_is_wrong_with_its_job() {
    let (mut events, output) = std::io::pipe().expect("a pipe");
    run_worker("{\n".as_bytes(), output, |_| panic!("no plan is due")).expect_err("no job");
    let Ok(Some(EngineEvent::Fatal { message })) = read_event(&mut events) else { panic!("a fatal event is due") };
    assert!(message.contains("failed to parse the worker's job"), "{message}");
}
