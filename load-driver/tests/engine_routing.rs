//! Whole engines that ask a router: what it grants is where sessions go, and comes back when they are over.

mod engine_support;

use std::{collections::BTreeMap, io::Write, net::TcpListener, sync::Arc, time::Duration};

use agent_server::runtime::clock::Clock;
use engine_support::backend::Backend;
use load_driver::{
    engine::{
        Balancer, BalancerConfig, Engine, EngineEvent, EngineHandle, EngineOptions, Targets,
        routes::{Routes, RoutesConfig},
        wire::read_event,
        worker::{Work, WorkerCommand, WorkerJob, run_worker},
    },
    ledger::{FailureCause, Finish, LedgerEntry, LedgerEvent},
    plan::Plan,
    profile::{Profile, ReportSource, Source, load},
    routing::{Backend as Known, Made, Policy, RouterConfig, Table},
};
use proto::{frame::Outcome, time::Micros};
use rand_chacha::ChaCha8Rng;
use tokio::sync::mpsc;

/// The first that may be picked.
#[derive(Debug)]
struct First;

impl Policy for First {
    fn weight(&self, _: &Known) -> Option<f64> {
        None
    }

    fn pick(&mut self, table: &Table, _: &mut ChaCha8Rng) -> Option<usize> {
        (0..table.len()).find(|index| table.eligible(*index))
    }
}

const FIRST: Made = Made { name: "first", about: "the first", make: |_| Box::new(First) };

fn profile(yaml: &str) -> Profile {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("p.yaml");
    std::fs::write(&file, yaml).expect("written");
    load(&Source::File(file), &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn plan(yaml: &str) -> Plan {
    Plan::build(&profile(yaml), "cafe0001").expect("a plan")
}

/// Reports come with the sessions, and are stale at once: what is refused is not known beforehand.
fn blind(backends: usize, retries: u32) -> BalancerConfig {
    let router =
        RouterConfig { policy: FIRST, backends, balancers: 1, share: false, staleness: Duration::ZERO, error_penalty: 1.0, seed: 1 };
    let routes = RoutesConfig { router, source: ReportSource::InBand, lag: Duration::ZERO, retries };
    BalancerConfig { routes, report_interval: Duration::from_secs(1), joins: Vec::new() }
}

fn hearing(policy: &str, backends: usize, source: &str) -> BalancerConfig {
    let yaml = format!(
        "routing: {{policy: {policy}, reports: {source}, report_interval: 100ms}}\n\
         scenarios: {{a: {{executor: constant-arrival-rate, rate: 1, duration: 1s, {TALK}}}}}"
    );
    BalancerConfig::of(&profile(&yaml), backends, 0).expect("a policy").expect("routing")
}

/// What an engine said of its sessions.
#[derive(Default)]
struct Heard {
    sessions: BTreeMap<u64, Vec<LedgerEntry>>,
    done: usize,
}

impl Heard {
    fn hear(&mut self, event: EngineEvent) {
        match event {
            EngineEvent::Ledger { entries, .. } => {
                for entry in entries {
                    self.sessions.entry(entry.index.0).or_default().push(entry);
                }
            }
            EngineEvent::Done { .. } => self.done += 1,
            EngineEvent::Fatal { message } => panic!("{message}"),
            EngineEvent::Ready
            | EngineEvent::StoodStill { .. }
            | EngineEvent::Struck { .. }
            | EngineEvent::Storm { .. }
            | EngineEvent::Said { .. }
            | EngineEvent::Interval(_)
            | EngineEvent::StoodStill { .. }
            | EngineEvent::Voice(_) => {}
        }
    }

    /// Without what every session begins with, and without what the backends called it.
    fn lives(&self) -> Vec<Vec<String>> {
        let word = |entry: &LedgerEntry| match &entry.event {
            LedgerEvent::Scheduled { .. } | LedgerEvent::Forced { .. } | LedgerEvent::Deaf { .. } | LedgerEvent::Raced => None,
            LedgerEvent::Attempted { backend, .. } => Some(backend.map_or("front".to_owned(), |index| index.to_string())),
            LedgerEvent::Retried { cause } => Some(format!("Retried {cause:?}")),
            LedgerEvent::Accepted { .. } => Some("Accepted".to_owned()),
            LedgerEvent::Ended { finish } => Some(format!("{finish:?}")),
            LedgerEvent::Failed { cause } => Some(format!("{cause:?}")),
        };
        self.sessions.values().map(|entries| entries.iter().filter_map(word).collect()).collect()
    }

    fn count(&self, wanted: impl Fn(&LedgerEvent) -> bool) -> usize {
        self.sessions.values().flatten().filter(|entry| wanted(&entry.event)).count()
    }

    fn accepted(&self) -> usize {
        self.count(|event| matches!(event, LedgerEvent::Accepted { .. }))
    }

    /// Dials of a backend, by the time since the first entry.
    fn attempts(&self, wanted: usize) -> Vec<u64> {
        let of = |entry: &LedgerEntry| matches!(entry.event, LedgerEvent::Attempted { backend: Some(index), .. } if index == wanted);
        self.sessions.values().flatten().filter(|entry| of(entry)).map(|entry| entry.at_us).collect()
    }

    fn ages(&self) -> Vec<Option<u64>> {
        let age = |entry: &LedgerEntry| match entry.event {
            LedgerEvent::Attempted { report_age_us, .. } => Some(report_age_us),
            _ => None,
        };
        self.sessions.values().flatten().filter_map(age).collect()
    }
}

/// Sessions and debits that the router has on each backend.
fn held(routes: &Routes) -> Vec<(u32, u32)> {
    routes.with(|router, _| {
        let table = router.knows(0).expect("one balancer");
        (0..table.len()).map(|index| (table.backend(index).open, table.backend(index).granted)).collect()
    })
}

struct Setup {
    targets: Arc<Targets>,
    balancer: Balancer,
}

fn setup(config: &BalancerConfig, addresses: &[String]) -> Setup {
    let targets = Arc::new(Targets::resolve(addresses).expect("addresses"));
    let mut balancer = Balancer::start(config, &targets).expect("starts");
    balancer.wait_ready();
    Setup { targets, balancer }
}

/// Runs the engine until its shard is done; `meanwhile` is called after each event. All grants are back then.
fn run(yaml: &str, setup: Setup, mut meanwhile: impl FnMut(&EngineHandle, &Heard, &Routes)) -> Heard {
    let (sender, events) = mpsc::channel(64);
    let Setup { targets, balancer } = setup;
    let routes = Arc::clone(balancer.routes());
    let handle = Engine::start(plan(yaml), EngineOptions::default(), targets, Some(balancer), Clock::start(), sender).expect("starts");
    // Closed first when a test fails: the engine would wait for somebody to read.
    let mut events = events;
    let mut heard = Heard::default();
    while heard.done < 1 {
        heard.hear(events.blocking_recv().expect("a shard says when it is done"));
        meanwhile(&handle, &heard, &routes);
    }
    assert!(held(&routes).iter().all(|held| *held == (0, 0)), "grants are lost: {:?}", held(&routes));
    handle.join();
    heard
}

fn addresses<const N: usize>(backends: &[Backend; N]) -> Vec<String> {
    backends.iter().map(|backend| backend.address.to_string()).collect()
}

/// Nobody listens there.
fn dead() -> String {
    TcpListener::bind("127.0.0.1:0").expect("binds").local_addr().expect("bound").to_string()
}

fn goodbye() -> String {
    format!("{:?}", Finish::Goodbye(Outcome::Completed))
}

const TALK: &str = "conversations: [{turns: [{wait: 10ms, say: {synth: 100ms}, response: 100ms}]}]";

#[test]
fn sessions_go_where_the_policy_says() {
    let backends = [Backend::start("--think 10ms"), Backend::start("--think 10ms"), Backend::start("--think 10ms")];
    let scenario = |protocol| format!("{{executor: constant-arrival-rate, rate: 6, duration: 1s, protocol: {protocol}, {TALK}}}");
    let yaml = format!("scenarios: {{a: {}, b: {}}}", scenario("grpc"), scenario("websocket"));
    let heard = run(&yaml, setup(&hearing("round_robin", 3, "in_band"), &addresses(&backends)), |_, _, _| {});
    assert_eq!(heard.lives().len(), 12);
    assert!(heard.lives().iter().all(|life| life[1..] == ["Accepted".to_owned(), goodbye()]), "{:?}", heard.lives());
    assert_eq!([0, 1, 2].map(|index| heard.attempts(index).len()), [4, 4, 4]);
    for backend in &backends {
        backend.eventually("at rest", |s| s.active == 0 && s.ended["completed"] == 4);
    }

    let heard = run(&yaml, setup(&blind(3, 0), &addresses(&backends)), |_, _, _| {});
    assert_eq!([0, 1, 2].map(|index| heard.attempts(index).len()), [12, 0, 0]);
}

#[test]
fn a_pinned_session_goes_where_it_is_pinned_to() {
    let backends = [Backend::start("--think 10ms"), Backend::start("--think 10ms")];
    let yaml = format!(
        "target: {{embedded: {{backends: 2}}}}\n\
         scenarios: {{a: {{executor: constant-arrival-rate, rate: 5, duration: 1s, backend: 1, {TALK}}}}}"
    );
    let heard = run(&yaml, setup(&blind(2, 3), &addresses(&backends)), |_, _, _| {});
    assert_eq!([0, 1].map(|index| heard.attempts(index).len()), [0, 5]);
}

#[test]
fn a_refused_session_is_taken_elsewhere() {
    for protocol in ["grpc", "websocket"] {
        let backends = [Backend::start("--max-sessions 1"), Backend::start("")];
        // One session takes the only place of the first; the others come while it has it.
        let yaml = format!(
            "scenarios: {{holder: {{executor: constant-arrival-rate, rate: 1, duration: 1s, conversations: [{{turns: [{{wait: 3s}}]}}]}}, \
             a: {{protocol: {protocol}, executor: constant-arrival-rate, rate: 5, duration: 1s, startTime: 500ms, {TALK}}}}}"
        );
        let heard = run(&yaml, setup(&blind(2, 1), &addresses(&backends)), |_, _, _| {});
        let mut lives = heard.lives();
        lives.sort();
        assert_eq!(lives.remove(0), ["0".to_owned(), "Accepted".to_owned(), goodbye()]);
        assert_eq!(lives, vec![["0".to_owned(), "Retried Rejected".to_owned(), "1".to_owned(), "Accepted".to_owned(), goodbye()]; 5]);
        assert_eq!(backends[0].snapshot().started, 1);
        backends[1].eventually("at rest", |s| s.active == 0 && s.started == 5);
    }
}

#[test]
fn a_session_that_nobody_takes_fails_when_its_retries_are_used_up() {
    let backends = [Backend::start(""), Backend::start("")];
    let setup = setup(&blind(2, 3), &addresses(&backends));
    // The feed has seen them; the sessions do not find them.
    for index in 0..2 {
        setup.targets.replace(index, &dead()).expect("an address");
    }
    let yaml = format!("scenarios: {{a: {{executor: constant-arrival-rate, rate: 1, duration: 1s, {TALK}}}}}");
    let heard = run(&yaml, setup, |_, _, _| {});
    let refused = "Retried ConnectionRefused";
    assert_eq!(heard.lives(), [["0", refused, "1", refused, "0", refused, "1", "ConnectionRefused"]]);
}

#[test]
fn a_session_without_another_backend_says_so() {
    let backends = [Backend::start("")];
    let setup = setup(&blind(1, 3), &addresses(&backends));
    setup.targets.replace(0, &dead()).expect("an address");
    let yaml = format!("scenarios: {{a: {{executor: constant-arrival-rate, rate: 1, duration: 1s, {TALK}}}}}");
    let heard = run(&yaml, setup, |_, _, _| {});
    assert_eq!(heard.lives(), [["0", "Retried ConnectionRefused", "NoBackend"]]);
}

#[test]
fn without_any_backend_sessions_fail_undialled_and_in_no_busy_loop() {
    let yaml = format!(
        "scenarios: {{a: {{executor: constant-sessions, sessions: 2, duration: 1500ms, {TALK}}}, \
         b: {{executor: constant-arrival-rate, rate: 4, duration: 1s, {TALK}}}}}"
    );
    let heard = run(&yaml, setup(&blind(1, 1), &[dead()]), |_, _, _| {});
    // Two lanes that begin anew after a second, and four sessions.
    assert_eq!(heard.lives(), vec![["NoBackend"]; 8]);
}

#[test]
fn every_grant_comes_back_however_sessions_end() {
    let backends = [Backend::start("--max-sessions 8"), Backend::start("")];
    let mut yaml = "scenarios:\n".to_owned();
    for protocol in ["grpc", "websocket"] {
        for end in ["graceful", "cancel", "tcp_fin", "tcp_rst", "half_open"] {
            let settings =
                "executor: constant-arrival-rate, rate: 4, duration: 1s, session_length: 300ms, conversations: [{turns: [{wait: 1s}]}]";
            yaml.extend(["  ", protocol, "-", end, ": {protocol: ", protocol, ", end: ", end, ", ", settings, "}\n"]);
        }
    }
    let mut most = 0;
    let heard = run(&yaml, setup(&blind(2, 1), &addresses(&backends)), |_, _, routes| {
        most = most.max(held(routes).iter().map(|(open, _)| open).sum::<u32>());
    });
    assert!((5..=40).contains(&most), "{most} sessions at once, of 40 that take 300 ms each in a second");
    assert_eq!((heard.lives().len(), heard.accepted()), (40, 40));
}

const LONG: &str = "scenarios: {a: {executor: constant-sessions, sessions: 4, duration: 60s, session_length: 60s, \
                    conversations: [{turns: [{wait: 1s}]}]}, b: {executor: constant-sessions, sessions: 4, duration: 60s, \
                    protocol: websocket, session_length: 60s, conversations: [{turns: [{wait: 1s}]}]}}";

#[test]
fn every_grant_comes_back_when_the_run_is_stopped_or_cut() {
    let backends = [Backend::start("")];
    for cut in [false, true] {
        let mut seen = false;
        run(LONG, setup(&blind(1, 0), &addresses(&backends)), |handle, heard, routes| {
            if heard.accepted() == 8 {
                seen |= held(routes)[0].0 == 8;
                if cut { handle.abort() } else { handle.stop(Micros::ZERO) }
            }
        });
        assert!(seen, "the router never had all eight");
    }
}

#[test]
fn a_backend_that_is_down_gets_nothing_until_it_is_back() {
    for source in ["in_band", "out_of_band"] {
        let mut first = Backend::start("");
        let second = Backend::start("");
        let address = first.address.to_string();
        let setup = setup(&hearing("round_robin", 2, source), &[address.clone(), second.address.to_string()]);
        let yaml = format!("scenarios: {{a: {{executor: constant-arrival-rate, rate: 50, duration: 30s, gracefulStop: 5s, {TALK}}}}}");
        let unix_us = || Clock::start().unix_us(Micros::ZERO);
        let eligible = |routes: &Routes| routes.with(|router, _| router.knows(0).expect("one").eligible(0));
        let (mut killed, mut down, mut back, mut enough) = (false, None, None, usize::MAX);
        let heard = run(&yaml, setup, |handle, heard, routes| {
            let (on_first, on_second) = (heard.attempts(0).len(), heard.attempts(1).len());
            if !killed && on_first >= 5 {
                first.kill();
                killed = true;
            } else if killed && down.is_none() && !eligible(routes) {
                down = Some(unix_us());
                enough = on_second + 20;
            } else if down.is_some() && back.is_none() && on_second >= enough {
                back = Some((unix_us(), Backend::start_at(&address, "")));
                enough = on_first + 5;
            } else if back.is_some() && on_first >= enough {
                handle.stop(Micros::ZERO);
            }
        });
        let (until, _back) = back.expect("it came back");
        let while_down = down.expect("it went down")..until;
        assert!(heard.attempts(0).iter().all(|at| !while_down.contains(at)), "{source}: dialled while it was down");
        assert!(heard.attempts(0).iter().any(|at| *at >= until), "{source}: never dialled again");
    }
}

#[test]
fn reports_arrive_in_band_and_out_of_band() {
    for (source, protocol) in [("out_of_band", "grpc"), ("in_band", "grpc"), ("in_band", "websocket")] {
        let backends = [Backend::start("--think 10ms"), Backend::start("--think 10ms")];
        let yaml = format!("scenarios: {{a: {{executor: constant-arrival-rate, rate: 20, duration: 1s, protocol: {protocol}, {TALK}}}}}");
        let setup = setup(&hearing("round_robin", 2, source), &addresses(&backends));
        let heard = run(&yaml, setup, |_, _, _| {});
        let ages = heard.ages();
        let known = ages.iter().flatten().count();
        // In band the first session of each backend goes there unheard; a second one may be on its way before the answer.
        let unknown = if source == "in_band" { 2..=6 } else { 0..=0 };
        assert!(unknown.contains(&(ages.len() - known)), "{source} over {protocol}: {ages:?}");
        assert!(ages.iter().flatten().all(|age| (1..1_500_000).contains(age)), "{source} over {protocol}: {ages:?}");
    }
}

#[test]
fn a_front_is_dialled_and_nobody_is_named() {
    let backend = Backend::start("--think 10ms");
    let (sender, mut events) = mpsc::channel(64);
    let targets = Arc::new(Targets::resolve(&[backend.address.to_string()]).expect("an address"));
    let options = EngineOptions { front: true, ..EngineOptions::default() };
    let yaml = format!("scenarios: {{a: {{executor: constant-arrival-rate, rate: 2, duration: 1s, {TALK}}}}}");
    let handle = Engine::start(plan(&yaml), options, targets, None, Clock::start(), sender).expect("starts");
    let mut heard = Heard::default();
    while heard.done < 1 {
        heard.hear(events.blocking_recv().expect("a shard says when it is done"));
    }
    assert_eq!(heard.lives(), vec![["front".to_owned(), "Accepted".to_owned(), goodbye()]; 2]);
    handle.join();
}

/// What a worker process does, over pipes, in a thread.
#[test]
fn a_worker_balances_by_itself() {
    let backends = [Backend::start("--think 10ms"), Backend::start("--think 10ms")];
    let job = WorkerJob {
        profile: String::new(),
        run_id: "beef0002".to_owned(),
        worker: 0,
        workers: 1,
        scenarios: None,
        targets: addresses(&backends),
        through: Vec::new(),
        connection: load_driver::plan::Connection::default(),
        private: std::collections::BTreeSet::new(),
        resumed: None,
        options: EngineOptions::default(),
    };
    let work = Work {
        plan: plan(&format!("scenarios: {{a: {{executor: constant-arrival-rate, rate: 4, duration: 1s, {TALK}}}}}")),
        balancer: Some(blind(2, 0)),
    };
    let (input, mut commands) = std::io::pipe().expect("a pipe");
    let (mut events, output) = std::io::pipe().expect("a pipe");
    let thread = std::thread::spawn(move || run_worker(std::io::BufReader::new(input), output, |_| Ok(work)));
    writeln!(commands, "{}", serde_json::to_string(&job).expect("json")).expect("written");
    assert!(matches!(read_event(&mut events), Ok(Some(EngineEvent::Ready))));
    let start = WorkerCommand::Start { epoch_unix_us: Clock::start().unix_us(Micros::ZERO) };
    writeln!(commands, "{}", serde_json::to_string(&start).expect("json")).expect("written");
    let mut heard = Heard::default();
    while heard.done == 0 {
        heard.hear(read_event(&mut events).expect("frames").expect("more, before it is done"));
    }
    drop(commands);
    thread.join().expect("no panic").expect("no error");
    assert_eq!(heard.lives(), vec![["0".to_owned(), "Accepted".to_owned(), goodbye()]; 4]);
    backends[0].eventually("at rest", |s| s.active == 0 && s.started == 4);
}

#[test]
fn a_policy_that_is_none_is_named() {
    let mut profile =
        profile(&format!("routing: {{}}\nscenarios: {{a: {{executor: constant-arrival-rate, rate: 1, duration: 1s, {TALK}}}}}"));
    let config = BalancerConfig::of(&profile, 2, 7).expect("the default").expect("routing");
    assert_eq!((config.routes.router.policy.name, config.routes.router.backends), ("round_robin", 2));
    let routing = profile.routing.as_mut().expect("routing");
    routing.policy = load_driver::profile::Policies::One("robin".to_owned());
    let error = BalancerConfig::of(&profile, 2, 0).expect_err("no such policy").to_string();
    assert!(error.contains("`robin`") && error.contains("round_robin"), "{error}");
    profile.routing = None;
    assert!(BalancerConfig::of(&profile, 2, 0).expect("nothing to be wrong").is_none());
    assert_eq!(format!("{:?}", FailureCause::NoBackend), "NoBackend");
}
