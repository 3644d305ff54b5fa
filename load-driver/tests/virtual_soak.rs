//! A day of protocol time in seconds: thousands of callers and sessions with churn and faults in paused time, the tracker, the ledger and the
//! recorder beside them. What they hold after a day is what they held after two hours.
//!
//! Callers and sessions speak to each other directly: the wires are the business of `simulation`.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use agent_server::{
    admin::wire::{EndRecord, LoadJson, SnapshotJson},
    runtime::clock::Clock,
    session::{Effect, Session, SessionConfig},
    tracker::{LiveSession, Phase, Sessions},
};
use clap::Parser;
use load_driver::{
    caller::{Action, Caller},
    counters::CounterSample,
    engine::IntervalReport,
    ledger::{BackendConfig, FailureCause, Judgement, Ledger, LedgerConfig, LedgerEntry, LedgerEvent, SourceId},
    plan::{EndKind, Plan},
    profile::{Source, open_text},
    record::{Registry, ScenarioLabel, ShardRecorder, series::MAX_POINTS},
};
use proto::{
    frame::{ClientEvent, ErrorCode, Outcome, ServerEvent, SessionError},
    ids::PlanIndex,
    time::Micros,
};

const RUN: &str = "cafe0001";
const T0: u64 = 1_700_000_000_000_000;
const SOURCE: SourceId = SourceId { worker: 0, shard: 0 };
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
/// One way.
const DELAY: Duration = Duration::from_millis(20);
/// Until a backend gives a silent peer up.
const KEEPALIVE: Duration = Duration::from_secs(15);
const CAP: u64 = 44;
/// Between two looks at the counters.
const LOOK: Duration = Duration::from_secs(15);
/// Between two reports of the recorder.
const REPORT: Duration = Duration::from_mins(1);
/// What the ledger keeps of a session for ever: a hash of its name; and what of one that a kill of its backend cut: its row. By what they print.
const KEPT: (usize, usize) = (24, 1_000);

const PROFILE: &str = "
seed: 5
target: embedded
defaults: {duration: 24h, gracefulStop: 1m, response_timeout: 5s}
scenarios:
  talkers:
    {executor: constant-sessions, sessions: 30, session_length: 'uniform(2m, 12m)', end: [{kind: graceful, weight: 3}, {kind: cancel}, {kind: tcp_fin}, {kind: tcp_rst}, {kind: half_open}],
     conversations: [{turns: [{wait: 'uniform(90s, 270s)', say: {synth: 200ms}, response: 200ms}]}]}
  rush:     # meets a full backend every few minutes
    {executor: poisson-arrivals, rate: 1, timeUnit: 20s, session_length: 'uniform(2m, 6m)', conversations: [{turns: [{wait: 150s, say: {synth: 200ms}, response: 200ms}]}]}
  silent:   # the backend ends them: nothing is said for longer than it waits
    {executor: constant-sessions, sessions: 5, session_length: 30m, conversations: [{turns: [{wait: 10m, say: {synth: 200ms}}]}]}
";

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    args: agent_server::config::ServeArgs,
}

/// What is due, in order of time, and of its making.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due(Micros, u64, What);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Look,
    /// The backend's process is killed, and another takes its place.
    Kill,
    /// Every connection breaks.
    Storm,
    /// Past the end of every lane.
    Stop,
    Start {
        scenario: usize,
        lane: usize,
        iteration: u32,
    },
    Caller(usize),
    Session(usize),
    Up(usize),
    Down(usize),
    /// The backend notices that a peer is gone; silently or not.
    Lost(usize, bool),
}

/// A call: both ends, and what is on the way between them.
struct Call {
    scenario: usize,
    lane: usize,
    iteration: u32,
    caller: Option<Caller>,
    session: Option<(Session, LiveSession)>,
    up: VecDeque<ClientEvent>,
    down: VecDeque<Down>,
    caller_wake: Micros,
    session_wake: Micros,
}

enum Down {
    Event(ServerEvent),
    Closed(FailureCause),
}

struct World {
    clock: Clock,
    plan: Plan,
    config: Arc<SessionConfig>,
    sessions: Arc<Sessions>,
    boot: u64,
    read: u64,
    calls: BTreeMap<usize, Call>,
    next_call: usize,
    due: BinaryHeap<Reverse<Due>>,
    made: u64,
    ledger: Ledger,
    entries: Vec<LedgerEntry>,
    recorder: ShardRecorder,
    registry: Registry,
    looked: u64,
    actions: Vec<Action>,
    effects: Vec<Effect>,
    counts: BTreeMap<&'static str, u64>,
    /// Unix microseconds, for the tracker.
    now_us: Arc<AtomicU64>,
}

fn sessions(now_us: &Arc<AtomicU64>) -> Arc<Sessions> {
    let now_us = Arc::clone(now_us);
    Sessions::new(1, Some(CAP), Box::new(move || now_us.load(Relaxed)))
}

impl World {
    fn new(clock: Clock) -> Self {
        let loaded = open_text(&Source::File("soak.yaml".into()), "soak.yaml", PROFILE, &[]).unwrap_or_else(|error| panic!("{error}"));
        let plan = Plan::build(&loaded.profile, RUN).expect("a plan");
        let flags = Flags::parse_from(["agent-server", "--think=200ms", "--idle-timeout=5m", "--max-duration=10m"]);
        let config = agent_server::config::ServerConfig::resolve(flags.args).expect("settings");
        let mut ledger = Ledger::new(LedgerConfig {
            poll_interval_us: LOOK.as_micros() as u64,
            ..LedgerConfig::new(RUN, T0, vec![BackendConfig { watched: true, fresh: true }])
        });
        ledger.open(SOURCE, T0);
        let now_us = Arc::new(AtomicU64::new(T0));
        let labels = plan.scenarios.iter().map(|scenario| ScenarioLabel::from(&**scenario)).collect();
        let mut world = Self {
            clock,
            config: Arc::new(config.session("agent", "boot-1")),
            sessions: sessions(&now_us),
            boot: 1,
            read: 0,
            calls: BTreeMap::new(),
            next_call: 0,
            due: BinaryHeap::new(),
            made: 0,
            ledger,
            entries: Vec::new(),
            recorder: ShardRecorder::new(plan.scenarios.len()),
            registry: Registry::new(T0, labels),
            looked: T0,
            actions: Vec::new(),
            effects: Vec::new(),
            counts: BTreeMap::new(),
            now_us,
            plan,
        };
        world.set(Micros::ZERO, What::Look);
        for (scenario, lane, start) in world.lanes() {
            world.set(start, What::Start { scenario, lane, iteration: 0 });
        }
        world.set(world.plan.ends_at(), What::Stop);
        for hour in 1..24 {
            let at = Micros::ZERO + HOUR * hour;
            world.set(at + Duration::from_mins(20), What::Kill);
            world.set(at + Duration::from_mins(40), What::Storm);
        }
        world
    }

    fn lanes(&self) -> Vec<(usize, usize, Micros)> {
        let scenarios = self.plan.scenarios.iter().enumerate();
        scenarios.flat_map(|(n, scenario)| scenario.lanes.iter().enumerate().map(move |(lane, one)| (n, lane, one.start))).collect()
    }

    fn set(&mut self, at: Micros, what: What) {
        self.made += 1;
        self.due.push(Reverse(Due(at, self.made, what)));
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn log(&mut self, index: PlanIndex, at: Micros, event: LedgerEvent) {
        self.entries.push(LedgerEntry { index, at_us: self.clock.unix_us(at), event });
    }

    async fn run(&mut self, until: Duration) {
        while let Some(Reverse(Due(at, ..))) = self.due.peek()
            && *at <= Micros::ZERO + until
        {
            let at = *at;
            tokio::time::sleep_until(self.clock.instant(at).into()).await;
            let now = self.clock.now();
            assert!(now >= at && now < at + Duration::from_millis(2), "time is not as it was set");
            // What is due by now, all of it: the timers of a runtime know milliseconds.
            while self.due.peek().is_some_and(|Reverse(Due(at, ..))| *at <= now) {
                let Some(Reverse(Due(at, _, what))) = self.due.pop() else { break };
                self.now_us.store(self.clock.unix_us(at), Relaxed);
                self.happen(at, what);
            }
        }
    }

    fn happen(&mut self, now: Micros, what: What) {
        match what {
            What::Look => {
                self.look(now);
                self.set(now + LOOK, What::Look);
            }
            What::Kill => self.kill(now),
            What::Storm => self.storm(now),
            What::Stop => self.stop(now),
            What::Start { scenario, lane, iteration } => self.start(scenario, lane, iteration, now),
            What::Caller(key) => {
                if self.calls.get_mut(&key).is_some_and(|call| call.caller_wake <= now) {
                    self.caller(key, now, |caller, out| caller.step(now, out));
                }
            }
            What::Session(key) => {
                if self.calls.get_mut(&key).is_some_and(|call| call.session_wake <= now) {
                    self.session(key, now, |session, out| session.step(now, out));
                }
            }
            What::Up(key) => {
                let Some(event) = self.calls.get_mut(&key).and_then(|call| call.up.pop_front()) else { return };
                self.arrive(key, event, now);
            }
            What::Down(key) => match self.calls.get_mut(&key).and_then(|call| call.down.pop_front()) {
                None => {}
                Some(Down::Event(event)) => self.caller(key, now, |caller, out| caller.on_event(event, now, out)),
                Some(Down::Closed(cause)) => self.caller(key, now, |caller, out| caller.on_closed(cause, now, out)),
            },
            What::Lost(key, silent) => {
                let lost = |session: &mut Session, out: &mut Vec<_>| {
                    if silent { session.on_keepalive_timeout(now, out) } else { session.on_disconnect(now, out) }
                };
                self.session(key, now, lost);
            }
        }
    }

    fn start(&mut self, scenario: usize, lane: usize, iteration: u32, now: Micros) {
        let of = &self.plan.scenarios[scenario].lanes[lane];
        if now >= of.stop {
            return;
        }
        let number = of.number;
        let plan = self.plan.session(scenario, number, iteration, now);
        let (index, protocol, end, client_ref) = (plan.index, plan.scenario.protocol, plan.end, plan.client_ref.clone());
        self.log(index, now, LedgerEvent::Scheduled { scenario: scenario as u16, protocol, end, client_ref });
        self.log(index, now, LedgerEvent::Attempted { backend: Some(0), report_age_us: None });
        let key = self.next_call;
        self.next_call += 1;
        self.calls.insert(
            key,
            Call {
                scenario,
                lane,
                iteration,
                caller: Some(Caller::new(plan, now)),
                session: None,
                up: VecDeque::new(),
                down: VecDeque::new(),
                caller_wake: Micros::NEVER,
                session_wake: Micros::NEVER,
            },
        );
        self.count("calls");
        self.caller(key, now, |caller, out| caller.on_connected(true, now, out));
    }

    /// Lets a caller act, and does what it wants.
    fn caller(&mut self, key: usize, now: Micros, f: impl FnOnce(&mut Caller, &mut Vec<Action>)) {
        let mut actions = std::mem::take(&mut self.actions);
        let Some(caller) = self.calls.get_mut(&key).and_then(|call| call.caller.as_mut()) else { return self.actions = actions };
        f(caller, &mut actions);
        let index = caller.plan().index;
        let (over, wake) = (caller.over(), caller.next_wake());
        let mut failed = false;
        for action in actions.drain(..) {
            let scenario = self.calls[&key].scenario as u16;
            match action {
                Action::Send(event) => {
                    if matches!(event, ClientEvent::End { .. }) {
                        self.log(index, now, LedgerEvent::Forced { kind: EndKind::Graceful });
                    }
                    self.calls.get_mut(&key).expect("it acts").up.push_back(event);
                    self.set(now + DELAY, What::Up(key));
                }
                Action::Measure(sample) => self.recorder.record(scenario, &sample),
                Action::Count(counter, by) => self.recorder.count(scenario, counter, by),
                Action::Voice(_) | Action::Explain(..) => {}
                Action::Resume(_) => panic!("no session of this day is taken up again"),
                Action::Race => panic!("no fault strikes this day"),
                Action::Force(kind) => {
                    if matches!(kind, EndKind::Cancel | EndKind::TcpFin | EndKind::TcpRst | EndKind::HalfOpen) {
                        self.log(index, now, LedgerEvent::Forced { kind });
                        let silent = kind == EndKind::HalfOpen;
                        self.set(now + if silent { KEEPALIVE } else { DELAY }, What::Lost(key, silent));
                    }
                }
                Action::Drop => self.set(now + DELAY, What::Lost(key, false)),
                Action::Accepted(accepted) => {
                    let event = LedgerEvent::Accepted {
                        session_id: accepted.session_id,
                        backend_id: accepted.backend_id,
                        boot_id: accepted.boot_id,
                    };
                    self.log(index, now, event);
                }
                Action::Ended(finish) => {
                    failed = matches!(finish, load_driver::ledger::Finish::Lost(_));
                    self.log(index, now, LedgerEvent::Ended { finish });
                }
                Action::Failed(cause) => {
                    failed = true;
                    self.count(if cause == FailureCause::Rejected { "rejected" } else { "failed" });
                    self.log(index, now, LedgerEvent::Failed { cause });
                }
            }
        }
        self.actions = actions;
        let Some(call) = self.calls.get_mut(&key) else { return };
        if over {
            call.caller = None;
            let (scenario, lane, iteration) = (call.scenario, call.lane, call.iteration);
            if self.plan.scenarios[scenario].lanes[lane].repeat {
                let at = if failed { now + Duration::from_secs(1) } else { now };
                self.set(at, What::Start { scenario, lane, iteration: iteration + 1 });
            }
            self.forget(key);
        } else if wake != call.caller_wake {
            call.caller_wake = wake;
            if wake != Micros::NEVER {
                self.set(wake.max(now), What::Caller(key));
            }
        }
    }

    /// Nothing is left of the call.
    fn forget(&mut self, key: usize) {
        if self.calls.get(&key).is_some_and(|call| call.caller.is_none() && call.session.is_none() && call.up.is_empty()) {
            self.calls.remove(&key);
        }
    }

    fn arrive(&mut self, key: usize, event: ClientEvent, now: Micros) {
        let call = self.calls.get_mut(&key).expect("it has sent");
        match (event, call.session.is_some()) {
            (ClientEvent::Start(start), false) => match self.sessions.admit(&start.client_ref) {
                Err(_full) => {
                    let error = SessionError::fatal(ErrorCode::Overloaded, "full");
                    call.down.extend([Down::Event(ServerEvent::Error(error)), Down::Closed(FailureCause::Rejected)]);
                    self.set(now + DELAY, What::Down(key));
                    self.set(now + DELAY, What::Down(key));
                }
                Ok(counted) => {
                    let mut effects = std::mem::take(&mut self.effects);
                    let config = Arc::clone(&self.config);
                    let session = Session::new(config, counted.number(), counted.id(), start, Duration::ZERO, now, &mut effects);
                    call.session = Some((session, counted));
                    self.effects = effects;
                    self.session(key, now, |_, _| {});
                }
            },
            (event, true) => self.session(key, now, |session, out| session.on_event(event, now, out)),
            (_, false) => self.forget(key),
        }
    }

    /// Lets a session act, and does what it wants.
    fn session(&mut self, key: usize, now: Micros, f: impl FnOnce(&mut Session, &mut Vec<Effect>)) {
        let mut effects = std::mem::take(&mut self.effects);
        let Some(call) = self.calls.get_mut(&key) else { return self.effects = effects };
        let Some((session, counted)) = &mut call.session else { return self.effects = effects };
        f(session, &mut effects);
        let wake = session.next_wake();
        let mut sent = 0;
        let mut ended = false;
        for effect in effects.drain(..) {
            match effect {
                Effect::Send(event) => {
                    call.down.push_back(Down::Event(event));
                    sent += 1;
                }
                Effect::Phase(phase) => drop(counted.set_phase(phase)),
                Effect::End { outcome, .. } => {
                    assert!(counted.end(outcome), "it ends once");
                    *self.counts.entry(outcome.name()).or_default() += 1;
                    call.down.push_back(Down::Closed(FailureCause::Eof));
                    sent += 1;
                    ended = true;
                }
                Effect::Cost(_) | Effect::Fault(_) => {}
            }
        }
        self.effects = effects;
        if ended {
            call.session = None;
        }
        let set = !ended && wake != call.session_wake && wake != Micros::NEVER;
        if set {
            call.session_wake = wake;
        }
        for _ in 0..sent {
            self.set(now + DELAY, What::Down(key));
        }
        if set {
            self.set(wake.max(now), What::Session(key));
        }
        if ended {
            self.forget(key);
        }
    }

    fn kill(&mut self, now: Micros) {
        self.ledger.backend_killed(0, &format!("boot-{}", self.boot), self.clock.unix_us(now));
        self.count("kills");
        self.boot += 1;
        self.read = 0;
        let live: Vec<usize> = self.calls.keys().copied().collect();
        for key in live {
            let call = self.calls.get_mut(&key).expect("listed");
            if call.session.take().is_some() || !call.up.is_empty() {
                *self.counts.entry("cut").or_default() += 1;
                call.up.clear();
                call.down.clear();
                call.down.push_back(Down::Closed(FailureCause::Reset));
                self.set(now + DELAY, What::Down(key));
            }
            self.forget(key);
        }
        self.sessions = sessions(&self.now_us);
        let boot = format!("boot-{}", self.boot);
        self.config = Arc::new(SessionConfig { boot_id: boot, ..SessionConfig::clone(&self.config) });
    }

    fn stop(&mut self, now: Micros) {
        for key in self.calls.keys().copied().collect::<Vec<_>>() {
            self.caller(key, now, |caller, out| caller.stop(now, now, out));
        }
    }

    /// Both ends of every call hear of it.
    fn storm(&mut self, now: Micros) {
        self.count("storms");
        for key in self.calls.keys().copied().collect::<Vec<_>>() {
            self.set(now + DELAY, What::Lost(key, false));
            let Some(call) = self.calls.get_mut(&key) else { continue };
            call.up.clear();
            self.caller(key, now, |caller, out| caller.on_closed(FailureCause::Reset, now, out));
        }
    }

    /// A look at the counters, and the recorder's report.
    fn look(&mut self, now: Micros) {
        let now_us = self.clock.unix_us(now);
        let cut = self.sessions.snapshot();
        let ended: u64 = cut.ended.iter().sum();
        assert!(cut.exact && cut.active >= 0 && cut.active <= CAP as i64 && cut.started == cut.active as u64 + ended, "{cut:?}");
        assert!(cut.phases.iter().sum::<i64>() == cut.active && cut.phases.iter().all(|phase| *phase >= 0), "{cut:?}");
        let live = self.calls.values().filter(|call| call.session.is_some()).count();
        assert_eq!(cut.active, live as i64, "active is not the number of live sessions");
        let mut ends = Vec::new();
        loop {
            let page = self.sessions.ends(self.read, 4_096);
            self.read = page.next;
            if page.ends.is_empty() {
                break;
            }
            ends.extend(page.ends.into_iter().map(|row| EndRecord {
                seq: row.seq,
                session_id: row.session_id,
                client_ref: row.client_ref.clone(),
                outcome: row.outcome.name().to_owned(),
                at_us: row.at_us,
            }));
        }
        let snapshot = SnapshotJson {
            backend_id: "agent".to_owned(),
            boot_id: self.config.boot_id.clone(),
            captured_at_us: now_us,
            exact: cut.exact,
            started: cut.started,
            active: cut.active,
            active_interval: cut.active_interval,
            ended: Outcome::ALL.iter().zip(cut.ended).map(|(outcome, n)| (outcome.name().to_owned(), n)).collect(),
            phases: Phase::ALL.iter().zip(cut.phases).map(|(phase, n)| (phase.name().to_owned(), n)).collect(),
            max_sessions: Some(CAP),
            rejected: cut.rejected,
            late_ends: cut.late_ends,
            live_tasks: live as u64,
            draining: false,
            next_end: self.sessions.next_end(),
            frames_in: 0,
            frames_out: 0,
            cpu_us: 0,
            rss_bytes: 0,
            virtual_cost_us: 0,
            load: LoadJson::default(),
            defects: BTreeMap::new(),
            faults: BTreeMap::new(),
        };
        self.ledger.entries(SOURCE, std::mem::take(&mut self.entries), now_us);
        let sample =
            CounterSample { backend: 0, asked_at_us: now_us, answered_at_us: now_us + 1, snapshot, ends: Some(ends), sessions: None };
        self.ledger.sample(sample);
        let (convergence, dropped) = self.ledger.drain_convergence();
        assert_eq!(dropped, 0);
        for one in convergence {
            self.recorder.record(one.end.scenario, &one.sample);
        }
        if now_us < self.looked + REPORT.as_micros() as u64 {
            return;
        }
        let report = IntervalReport {
            shard: 0,
            from_us: self.looked,
            to_us: now_us,
            active: live as u64,
            speaking: self.calls.values().filter(|call| call.caller.as_ref().is_some_and(Caller::speaking)).count() as u64,
            tasks: live as u64,
            warmup: false,
            scenarios: self.recorder.take(),
        };
        self.looked = now_us;
        self.registry.add(report);
    }

    /// How much the long-lived parts hold, by what they print of themselves; and what the process holds, KiB.
    fn size(&self) -> Size {
        let series = format!("{:?}", self.registry.series()).len();
        Size {
            ledger: format!("{:?}", self.ledger).len(),
            registry: format!("{:?}", self.registry).len() - series,
            calls: self.calls.len(),
            due: self.due.len(),
            rss_kb: agent_server::report::usage::rss_bytes() / 1024,
        }
    }
}

#[derive(Debug)]
struct Size {
    ledger: usize,
    registry: usize,
    calls: usize,
    due: usize,
    rss_kb: u64,
}

#[tokio::test(start_paused = true)]
async fn a_day_passes_and_nothing_grows() {
    let mut world = World::new(Clock::simulated(T0, Duration::from_millis(1)));
    let begun = agent_server::report::usage::process_cpu_us();
    world.run(HOUR * 2).await;
    let early = world.size();
    let mut most = 0;
    for hour in 3..=24 {
        // At the same moment of the hour, after its faults.
        world.run(HOUR * hour).await;
        most = most.max(world.size().ledger);
        if std::env::var_os("SOAK_SHOW").is_some() {
            println!("{hour} h: {:?} {:?}", world.size(), world.counts);
        }
    }
    let late = world.size();
    world.run(DAY + Duration::from_mins(3)).await;
    world.ledger.source_done(SOURCE);
    let verdict = world.ledger.verdict();
    let total = verdict.funnels.total();
    println!("{:?} {total:?}", world.counts);
    println!("{early:?} {late:?}, the ledger never above {most}");
    println!("CPU: {} s", (agent_server::report::usage::process_cpu_us() - begun) / 1_000_000);

    assert_eq!(verdict.judgement, Judgement::Agree, "{:#?} {:?}", verdict.findings, verdict.notes);
    assert_eq!(verdict.irregular, Vec::<String>::new());
    assert!(world.calls.is_empty(), "{} calls are left", world.calls.len());
    for what in ["completed", "cancelled", "timed_out", "rejected", "kills", "storms"] {
        assert!(world.counts.get(what).copied().unwrap_or(0) >= 20, "{what}: {:?}", world.counts);
    }
    assert!(total.established >= 5_000, "{total:?}");
    assert_eq!(total.requested, world.counts["calls"]);

    let grown = |what: &str, early: usize, late: usize| assert!(late <= early + early / 4, "{what} grew: {early:?}, {late:?}");
    let kept = KEPT.0 * total.established as usize + KEPT.1 * world.counts["cut"] as usize;
    grown("the ledger", early.ledger, most.saturating_sub(kept));
    grown("the registry", early.registry, late.registry);
    grown("what is due", early.due, late.due);
    grown("calls", early.calls, late.calls);
    assert!(world.registry.series().points.len() <= MAX_POINTS);
    assert!(late.rss_kb <= early.rss_kb + early.rss_kb / 4 + 8 * 1024, "the process grew: {early:?} {late:?}");
}
