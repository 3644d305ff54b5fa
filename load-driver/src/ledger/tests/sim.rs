//! Backends in virtual time, one of them with every defect, a front if wanted, and a driver that tells the ledger what it did.

use std::collections::{BTreeMap, VecDeque};

use agent_server::admin::wire::{EndRecord, SessionJson, SnapshotJson};
use proto::{frame::Outcome, ids::PlanIndex};

use crate::{
    counters::{CounterSample, Counts, Shows, TotalsSample},
    ledger::{
        BackendConfig, FailureCause, Finish, Ledger, LedgerConfig, LedgerEntry, LedgerEvent, SourceId, TotalsConfig, Verdict, Windows,
    },
    plan::{EndKind, Protocol},
};

pub(super) const T0: u64 = 1_700_000_000_000_000;
pub(super) const MS: u64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defect {
    Ghost,
    DoubleDecrement,
    DecrementOnReject,
    LateDecrement,
    TornSnapshot,
    ForgetOnTimeout,
    WrongOutcome,
    NeverAdded,
    Resurrect,
}

/// What a backend that counts rightly says wrongly in its sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    /// No end is in `ended`.
    NoEnds,
    /// One in ten is not.
    FewerEnds,
    /// None of this outcome is.
    NoEndsAs(Outcome),
    /// None is until then.
    EndsLate(u64),
    /// Each is from its start on.
    EndsEarly,
    /// Goodbyes are twice.
    GoodbyesTwice,
    /// Goodbyes are cancellations.
    GoodbyesAsCancelled,
    /// Refusals are failures.
    RefusalsAsEnds,
    /// `rejected` so many times.
    Rejected(u64),
    /// `started` twice.
    StartedTwice,
    /// Less in `active`, always.
    Below(i64),
    /// Nothing moves in this time, and `active` is 0.
    FrozenAtZero(u64, u64),
    /// `active` is 0 for so many of 2500 ms, as long as sessions come.
    ZeroFor(u64),
}

/// How a simulated session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Ends(EndKind),
    ServerTimeout,
    Breaks,
    Rejected,
    /// Never told of acceptance; the backend counted it if so.
    StartTimeout {
        counted: bool,
    },
    /// UNAVAILABLE: the backend's word that it drains, or the front's own, which may say so of a session that a backend has counted.
    Unavailable {
        counted: bool,
    },
}

/// What happens before a session gets to its backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detour {
    None,
    /// Another backend refuses it.
    Refused,
    /// The dial to another backend breaks; that one counted it if so.
    Broken {
        counted: bool,
    },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) start_ms: u64,
    pub(super) life_ms: u64,
    pub(super) fate: Fate,
    pub(super) worker: u32,
    pub(super) shard: u32,
    /// 0 to 999: news under way.
    pub(super) delay_ms: u64,
    /// How long the backend takes to notice an abrupt end.
    pub(super) notice_ms: u64,
    /// Of no account with one backend.
    pub(super) detour: Detour,
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "what varies on its own from test to test")]
pub(super) struct World {
    pub(super) specs: Vec<Spec>,
    pub(super) defect: Option<(Defect, f64)>,
    pub(super) log: bool,
    pub(super) registry: bool,
    /// The log keeps so many ends.
    pub(super) ring: usize,
    pub(super) fresh: bool,
    pub(super) kill_worker: Option<(u32, u64)>,
    /// Time of the kill, and whether a new process comes 500 ms later.
    pub(super) kill_backend: Option<(u64, bool)>,
    /// Polls fail in this time.
    pub(super) blind: Option<(u64, u64)>,
    /// The backend stands still in this time.
    pub(super) stopped: Option<(u64, u64)>,
    /// Others' sessions that live all the time.
    pub(super) others: u64,
    /// So many backends; sessions go to each in turn. Kills strike the first.
    pub(super) backends: usize,
    /// A balancer of somebody else's stands before them, and dials again by itself.
    pub(super) front: bool,
    /// Index of the one with the defect.
    pub(super) struck: usize,
    /// The names of the backends by index; the default tells them apart.
    pub(super) ids: fn(usize) -> String,
    /// The counters are read as sums that hold these.
    pub(super) sums: Option<Shows>,
    /// Of its sums.
    pub(super) lie: Option<Lie>,
}

impl World {
    pub(super) fn of(specs: Vec<Spec>) -> Self {
        Self {
            specs,
            defect: None,
            log: true,
            registry: true,
            ring: usize::MAX,
            fresh: true,
            kill_worker: None,
            kill_backend: None,
            blind: None,
            stopped: None,
            others: 0,
            backends: 1,
            front: false,
            struck: 0,
            ids: |backend| format!("b{backend}"),
            sums: None,
            lie: None,
        }
    }

    /// Three backends, the second with the defect.
    pub(super) fn of_three(specs: Vec<Spec>, front: bool) -> Self {
        Self { backends: 3, front, struck: 1, fresh: !front, ..Self::of(specs) }
    }
}

type Step = (u64, SourceId, LedgerEntry);

#[derive(Debug, Clone, Copy)]
enum Op {
    Start(Whose),
    End(Whose, Outcome),
    /// A late decrement.
    Count(Whose, Outcome),
    Reject(usize),
    Boot(u32),
}

/// A session as a backend knows it.
#[derive(Debug, Clone, Copy)]
struct Whose {
    index: usize,
    /// It went on elsewhere.
    detour: bool,
}

impl Whose {
    fn id(self) -> String {
        format!("{}{}", if self.detour { "d" } else { "s" }, self.index)
    }
}

/// When, which backend, what.
type Work = (u64, usize, Op);

#[derive(Debug, Default)]
struct Server {
    backend: usize,
    boot: u32,
    /// Boot and number of the next end that the driver will ask for.
    read: (u32, u64),
    started: u64,
    active: i64,
    ended: BTreeMap<String, u64>,
    rejected: u64,
    live: BTreeMap<String, String>,
    ends: Vec<EndRecord>,
    accumulator: f64,
    strikes: u64,
    /// As it was when it froze.
    frozen: Option<Counts>,
}

pub(super) struct Ran {
    pub(super) verdict: Verdict,
    pub(super) strikes: u64,
    pub(super) settled_after_ms: u64,
    /// Goodbyes that the driver told of.
    pub(super) goodbyes: u64,
    /// Retries that the driver told of.
    pub(super) retries: u64,
    pub(super) samples: Vec<crate::ledger::ConvergenceSample>,
    /// What the first backend had by then.
    pub(super) truth: Counts,
}

pub(super) fn reference(index: usize) -> String {
    format!("run-{index}")
}

fn boot_id(backend: usize, boot: u32) -> String {
    if backend == 0 { format!("boot-{boot}") } else { format!("backend-{backend}-boot-{boot}") }
}

fn at(ms: u64) -> u64 {
    T0 + ms * MS
}

impl World {
    /// Driver's steps and the backend's operations, by time.
    fn script(&self) -> (Vec<Step>, Vec<Work>) {
        let (mut steps, mut ops) = (Vec::new(), Vec::new());
        for (i, spec) in self.specs.iter().enumerate() {
            self.session(i, spec, &mut steps, &mut ops);
        }
        if let Some((kill, comes_back)) = self.kill_backend {
            ops.push((at(kill), 0, Op::Boot(if comes_back { 2 } else { 0 })));
        }
        steps.sort_by_key(|(at, _, _)| *at);
        ops.sort_by_key(|(at, _, _)| *at);
        (steps, ops)
    }

    #[expect(clippy::too_many_lines, reason = "one life, from its schedule to its end")]
    fn session(&self, i: usize, spec: &Spec, steps: &mut Vec<Step>, ops: &mut Vec<Work>) {
        let source = SourceId { worker: spec.worker, shard: spec.shard };
        let home = i % self.backends;
        let worker_dies = self.kill_worker.filter(|(worker, _)| *worker == spec.worker).map(|(_, ms)| at(ms));
        let (scheduled, news) = (at(spec.start_ms) + i as u64, 1 + spec.delay_ms * MS / 2);
        let detour = if self.backends > 1 { spec.detour } else { Detour::None };
        let begin = if detour == Detour::None { scheduled } else { self.unstopped(scheduled + news) + news };
        let counted = self.unstopped(begin + news);
        let accepted = counted + news;
        let backend_dies = self.kill_backend.map(|(ms, _)| at(ms));
        // Nothing happens to a backend while it is dead: sessions begin before the kill with time to spare, or after its return.
        let on_dead = home == 0 && backend_dies.is_some_and(|dies| counted < dies);
        let cut = [worker_dies, backend_dies.filter(|_| on_dead)].into_iter().flatten().min().unwrap_or(u64::MAX);
        if worker_dies.is_some_and(|dies| scheduled >= dies) {
            return;
        }
        let mut tell = |at_us: u64, event: LedgerEvent| {
            if at_us < worker_dies.unwrap_or(u64::MAX) {
                steps.push((at_us, source, LedgerEntry { index: PlanIndex(i as u64), at_us, event }));
            }
        };
        let mut serve_at = |at_us: u64, backend: usize, op: Op| {
            let at_us = self.unstopped(at_us);
            if !(on_dead && backend == home && backend_dies.is_some_and(|dies| at_us >= dies)) {
                ops.push((at_us, backend, op));
            }
        };
        let over = accepted + spec.life_ms * MS + 1;
        let end = if worker_dies.is_some_and(|dies| dies == cut && cut <= over) {
            EndKind::KillWorker
        } else if let Fate::Ends(kind) = spec.fate {
            kind
        } else {
            EndKind::Graceful
        };
        let protocol = if i.is_multiple_of(2) { Protocol::Grpc } else { Protocol::Websocket };
        let dial = |backend: usize| LedgerEvent::Attempted { backend: (!self.front).then_some(backend), report_age_us: None };
        tell(scheduled, LedgerEvent::Scheduled { scenario: 0, protocol, end, client_ref: reference(i) });
        let elsewhere = (home + 1) % self.backends;
        let cause = match detour {
            Detour::None => None,
            Detour::Refused => {
                serve_at(scheduled + news, elsewhere, Op::Reject(i));
                Some(FailureCause::Rejected)
            }
            Detour::Broken { counted } => {
                if counted {
                    let whose = Whose { index: i, detour: true };
                    serve_at(scheduled + news, elsewhere, Op::Start(whose));
                    serve_at(scheduled + news + 1 + spec.notice_ms * MS, elsewhere, Op::End(whose, Outcome::Cancelled));
                }
                Some(FailureCause::Reset)
            }
        };
        if let Some(cause) = cause.filter(|_| !self.front) {
            tell(scheduled, dial(elsewhere));
            tell(begin, LedgerEvent::Retried { cause });
        }
        if worker_dies.is_some_and(|dies| begin >= dies) {
            if self.front {
                tell(scheduled, dial(home));
            }
            return;
        }
        // A front dials again by itself: the driver hears nothing of it.
        tell(if self.front { scheduled } else { begin }, dial(home));
        let mut serve = |at_us: u64, op: Op| serve_at(at_us, home, op);
        let whose = Whose { index: i, detour: false };
        match spec.fate {
            Fate::Rejected => {
                serve(counted, Op::Reject(i));
                return tell(accepted, LedgerEvent::Failed { cause: FailureCause::Rejected });
            }
            Fate::StartTimeout { counted: started } => {
                if started {
                    serve(counted, Op::Start(whose));
                    serve(counted + spec.notice_ms * MS + 1, Op::End(whose, Outcome::Cancelled));
                }
                return tell(counted + 1, LedgerEvent::Failed { cause: FailureCause::StartTimeout });
            }
            Fate::Unavailable { counted: started } => {
                if started && self.front {
                    serve(counted, Op::Start(whose));
                    serve(counted + spec.notice_ms * MS + 1, Op::End(whose, Outcome::Cancelled));
                }
                return tell(counted + 1, LedgerEvent::Failed { cause: FailureCause::Draining });
            }
            Fate::Ends(_) | Fate::ServerTimeout | Fate::Breaks => {}
        }
        serve(counted, Op::Start(whose));
        let boot_id = boot_id(home, if home > 0 || self.kill_backend.is_none() || on_dead { 1 } else { 2 });
        let backend_id = (self.ids)(home);
        if cut <= accepted || cut <= over {
            // The kill decides; what the worker had told by then is told.
            if accepted < cut {
                tell(accepted, LedgerEvent::Accepted { session_id: format!("s{i}"), backend_id, boot_id });
            }
            if worker_dies == Some(cut) {
                serve(cut.max(counted) + spec.notice_ms * MS, Op::End(whose, Outcome::Cancelled));
            } else {
                let lost = cut + 1 + spec.delay_ms * MS;
                if accepted < cut {
                    tell(lost, LedgerEvent::Ended { finish: Finish::Lost(FailureCause::Reset) });
                } else {
                    tell(lost, LedgerEvent::Failed { cause: FailureCause::Reset });
                }
            }
            return;
        }
        tell(accepted, LedgerEvent::Accepted { session_id: format!("s{i}"), backend_id, boot_id });
        match spec.fate {
            Fate::Ends(EndKind::Graceful) => {
                tell(over, LedgerEvent::Forced { kind: EndKind::Graceful });
                serve(over + news, Op::End(whose, Outcome::Completed));
                tell(self.unstopped(over + news) + news, LedgerEvent::Ended { finish: Finish::Goodbye(Outcome::Completed) });
            }
            Fate::ServerTimeout => {
                serve(over, Op::End(whose, Outcome::TimedOut));
                tell(self.unstopped(over) + 2 * news, LedgerEvent::Ended { finish: Finish::ByServer(Outcome::TimedOut) });
            }
            Fate::Breaks => {
                serve(over + news, Op::End(whose, Outcome::Cancelled));
                tell(over, LedgerEvent::Ended { finish: Finish::Lost(FailureCause::Eof) });
            }
            Fate::Ends(kind) => {
                tell(over, LedgerEvent::Forced { kind });
                let outcome = if kind == EndKind::HalfOpen { Outcome::TimedOut } else { Outcome::Cancelled };
                serve(over + spec.notice_ms * MS + 1, Op::End(whose, outcome));
                tell(over + 1, LedgerEvent::Ended { finish: Finish::Forced(kind) });
            }
            Fate::Rejected | Fate::StartTimeout { .. } | Fate::Unavailable { .. } => {}
        }
    }

    /// What would happen while the backend stands still happens at once when it goes on, in the same order.
    fn unstopped(&self, at_us: u64) -> u64 {
        let stop = self.stopped.filter(|(from, to)| (at(*from)..at(*to)).contains(&at_us));
        stop.map_or(at_us, |(from, to)| at(to) + (at_us - at(from)) * 997 / (at(to) - at(from)))
    }

    fn strikes(&self, defect: Defect, server: &mut Server) -> bool {
        let Some((on, rate)) = self.defect else { return false };
        if on != defect || server.backend != self.struck {
            return false;
        }
        if server.strikes == 0 && server.accumulator == 0.0 {
            server.accumulator = 1.0 - rate;
        }
        server.accumulator += rate;
        if server.accumulator < 1.0 - 1e-9 {
            return false;
        }
        server.accumulator -= 1.0;
        server.strikes += 1;
        true
    }

    fn apply(&self, server: &mut Server, at_us: u64, op: Op, later: &mut Vec<Work>) {
        match op {
            Op::Boot(boot) => {
                let Server { backend, read, accumulator, strikes, .. } = *server;
                *server = Server { backend, boot, read, accumulator, strikes, ..Server::default() };
            }
            Op::Start(whose) => {
                server.live.insert(whose.id(), reference(whose.index));
                if !self.strikes(Defect::NeverAdded, server) {
                    server.started += 1;
                    server.active += 1;
                }
            }
            Op::Reject(i) => {
                server.rejected += 1;
                if self.strikes(Defect::DecrementOnReject, server) {
                    count(server, at_us, "", &reference(i), Outcome::Cancelled);
                }
            }
            Op::End(whose, outcome) => {
                let timeout = outcome == Outcome::TimedOut;
                let abrupt = outcome != Outcome::Completed;
                if (abrupt && self.strikes(Defect::Ghost, server)) || (timeout && self.strikes(Defect::ForgetOnTimeout, server)) {
                    return;
                }
                if abrupt && self.strikes(Defect::LateDecrement, server) {
                    later.push((at_us + 5_000 * MS, server.backend, Op::Count(whose, outcome)));
                    return;
                }
                let twice = abrupt && self.strikes(Defect::DoubleDecrement, server);
                let wrong = abrupt && self.strikes(Defect::WrongOutcome, server);
                let outcome = if wrong { Outcome::Completed } else { outcome };
                for _ in 0..=u8::from(twice) {
                    count(server, at_us, &whose.id(), &reference(whose.index), outcome);
                }
                server.live.remove(&whose.id());
                if abrupt && self.strikes(Defect::Resurrect, server) {
                    server.live.insert(whose.id(), reference(whose.index));
                    server.started += 1;
                    server.active += 1;
                }
            }
            Op::Count(whose, outcome) => {
                count(server, at_us, &whose.id(), &reference(whose.index), outcome);
                server.live.remove(&whose.id());
            }
        }
    }

    fn sample(&self, server: &mut Server, asked: u64, cut: u64, answered: u64) -> CounterSample {
        let active = server.active + self.others as i64;
        let torn = self.strikes(Defect::TornSnapshot, server);
        let session = |(id, client_ref): (&String, &String)| SessionJson {
            session_id: id.clone(),
            client_ref: client_ref.clone(),
            phase: "listening".into(),
            age_ms: 0,
            frames_in: 0,
            frames_out: 0,
        };
        CounterSample {
            backend: server.backend,
            asked_at_us: asked,
            answered_at_us: answered,
            snapshot: SnapshotJson {
                backend_id: (self.ids)(server.backend),
                boot_id: boot_id(server.backend, server.boot),
                captured_at_us: cut,
                exact: true,
                started: server.started + self.others,
                active: active - i64::from(torn),
                active_interval: (active, active),
                ended: server.ended.clone(),
                phases: BTreeMap::from([("listening".to_owned(), active)]),
                max_sessions: None,
                rejected: server.rejected,
                late_ends: 0,
                live_tasks: server.live.len() as u64,
                draining: false,
                next_end: 0,
                frames_in: 0,
                frames_out: 0,
                cpu_us: 0,
                rss_bytes: 0,
                virtual_cost_us: 0,
                load: agent_server::admin::wire::LoadJson::default(),
                defects: BTreeMap::new(),
                faults: BTreeMap::new(),
            },
            ends: None,
            sessions: self.registry.then(|| server.live.iter().map(session).collect()),
        }
    }

    fn ends(&self, server: &mut Server) -> (Vec<EndRecord>, u64) {
        let after = if server.read.0 == server.boot { server.read.1 } else { 0 };
        let total = server.ends.len() as u64;
        let oldest = server.ends.len().saturating_sub(self.ring) as u64;
        server.read = (server.boot, total);
        (server.ends.iter().filter(|e| e.seq >= after.max(oldest)).cloned().collect(), total)
    }

    pub(super) fn run(&self) -> Ran {
        let (steps, ops) = self.script();
        let mut config = LedgerConfig::new("run", T0, vec![BackendConfig { watched: true, fresh: self.fresh }; self.backends]);
        if let Some(shows) = &self.sums {
            config.backends.iter_mut().for_each(|backend| backend.watched = false);
            let one =
                |backend| TotalsConfig { name: format!("backend {backend}"), backend: Some(backend), age_us: 0, shows: shows.clone() };
            config.totals = (0..self.backends).map(one).collect();
        }
        config.front = self.front;
        config.windows = Windows::default().with(EndKind::HalfOpen, 4_000 * MS);
        config.settle_us = 8_000 * MS;
        let mut ledger = Ledger::new(config);
        let sources: std::collections::BTreeSet<SourceId> =
            (0..3).flat_map(|worker| (0..2).map(move |shard| SourceId { worker, shard })).collect();
        for source in &sources {
            ledger.open(*source, T0);
        }
        let mut servers: Vec<Server> = (0..self.backends).map(|backend| Server { backend, boot: 1, ..Server::default() }).collect();
        let (mut ops, mut told) = (VecDeque::from(ops), BTreeMap::<SourceId, usize>::new());
        let last = steps.iter().map(|(at, _, _)| *at).chain(ops.iter().map(|(at, _, _)| *at)).max().unwrap_or(T0).max(at(1));
        if self.sums.is_some() {
            for backend in 0..self.backends {
                self.poll(&mut ledger, backend, &mut servers, &mut ops, (at(0) - 300 * MS, false));
            }
        }
        let (mut worker_lost, mut backend_killed, mut goodbyes, mut retries) = (false, false, 0, 0);
        for tick in 0..4_000 {
            // Every 50 ms the world moves on, every 100 ms shards tell, every 250 ms the counters are read.
            let now = at(tick * 50);
            if let Some((ms, _)) = self.kill_backend.filter(|(ms, _)| !backend_killed && at(*ms) <= now) {
                backend_killed = true;
                ledger.backend_killed(0, "boot-1", at(ms));
            }
            self.serve_until(&mut servers, &mut ops, now);
            if tick % 2 == 0 && now <= last + 200 * MS {
                for source in sources.iter().filter(|s| !(worker_lost && self.kill_worker.is_some_and(|(w, _)| w == s.worker))) {
                    // A doomed worker tells nothing in its last moments.
                    let doomed = self.kill_worker.filter(|(w, _)| *w == source.worker).map_or(u64::MAX, |(_, ms)| at(ms) - 130 * MS);
                    let to = now.min(doomed);
                    let mine: Vec<&LedgerEntry> = steps.iter().filter(|(at, s, _)| s == source && *at < to).map(|(_, _, e)| e).collect();
                    let from = told.insert(*source, mine.len()).unwrap_or(0);
                    let goodbye = |e: &&&LedgerEntry| matches!(e.event, LedgerEvent::Ended { finish: Finish::Goodbye(_) });
                    goodbyes += mine[from..].iter().filter(goodbye).count() as u64;
                    retries += mine[from..].iter().filter(|e| matches!(e.event, LedgerEvent::Retried { .. })).count() as u64;
                    ledger.entries(*source, mine[from..].iter().map(|e| (*e).clone()).collect(), to);
                }
            }
            if let Some((worker, ms)) = self.kill_worker.filter(|(_, ms)| !worker_lost && at(*ms) <= now) {
                worker_lost = true;
                ledger.worker_lost(worker, at(ms), true);
            }
            let over = now > last + 200 * MS;
            if over {
                for source in &sources {
                    ledger.source_done(*source);
                }
                ledger.names_are_asked(now);
            }
            if tick % 5 == 0 {
                let names = over || ledger.wants_names(now);
                // One after the other: a poll serves what happens until it is over.
                for backend in 0..self.backends {
                    self.poll(&mut ledger, backend, &mut servers, &mut ops, (now + backend as u64 * 16 * MS, names));
                }
            }
            if ledger.settled(now) {
                let verdict = ledger.verdict();
                let settled_after_ms = now.saturating_sub(last) / MS;
                let strikes = servers.iter().map(|server| server.strikes).sum();
                let samples = ledger.drain_convergence().0;
                let all = Shows { started: true, ended: true, outcomes: Outcome::ALL.to_vec(), rejected: true, ..Shows::default() };
                let truth = self.sums_of(&servers[0], servers[0].active, &all);
                return Ran { verdict, strikes, settled_after_ms, goodbyes, retries, samples, truth };
            }
        }
        panic!("the ledger never settled: {:#?}", ledger.live());
    }

    fn serve_until(&self, servers: &mut [Server], ops: &mut VecDeque<Work>, now: u64) {
        while ops.front().is_some_and(|(at, _, _)| *at <= now) {
            let mut later = Vec::new();
            if let Some((at_us, backend, op)) = ops.pop_front() {
                // A process takes along what it had yet to count.
                if matches!(op, Op::Boot(_)) {
                    ops.retain(|(_, of, op)| *of != backend || !matches!(op, Op::Count(..)));
                }
                self.apply(&mut servers[backend], at_us, op, &mut later);
            }
            for work in later {
                let place = ops.partition_point(|other| other.0 <= work.0);
                ops.insert(place, work);
            }
        }
    }

    /// A look at this time, with or without names.
    fn poll(&self, ledger: &mut Ledger, backend: usize, servers: &mut [Server], ops: &mut VecDeque<Work>, (now, names): (u64, bool)) {
        let within = |span: Option<(u64, u64)>| span.is_some_and(|(from, to)| (at(from)..at(to)).contains(&now));
        let dead = backend == 0 && self.kill_backend.is_some_and(|(ms, back)| now + 20 * MS >= at(ms) && (!back || now < at(ms + 500)));
        if within(self.blind) || dead {
            return match self.sums {
                None => ledger.gap(backend, now, "refused"),
                Some(_) => ledger.totals_gap(backend, now, "refused"),
            };
        }
        if within(self.stopped) {
            return;
        }
        // The cut lies within the poll. Ends go on after it: before its time is taken, and before the log is read.
        let cut = now + 7 * MS;
        self.serve_until(servers, ops, cut);
        let mut sample = self.sample(&mut servers[backend], now, cut + 3 * MS, now + 19 * MS);
        if let Some(shows) = &self.sums {
            // Not of one instant.
            let active = servers[backend].active + self.others as i64;
            self.serve_until(servers, ops, cut + 8 * MS);
            let honest = self.sums_of(&servers[backend], active, shows);
            let counts = self.lied(&mut servers[backend], honest, now.saturating_sub(T0) / MS);
            return ledger.totals(TotalsSample { source: backend, asked_at_us: now, answered_at_us: now + 19 * MS, counts });
        }
        self.serve_until(servers, ops, cut + 8 * MS);
        let (ends, next_end) = self.ends(&mut servers[backend]);
        sample.ends = self.log.then_some(ends);
        sample.snapshot.next_end = next_end;
        sample.sessions = sample.sessions.filter(|_| names);
        ledger.sample(sample);
    }
}

impl World {
    fn lied(&self, server: &mut Server, mut counts: Counts, at_ms: u64) -> Counts {
        let none = |counts: &mut Counts| {
            counts.ended = counts.ended.map(|_| 0);
            counts.outcomes.values_mut().for_each(|n| *n = 0);
        };
        let ended_as = |outcome: Outcome| server.ended.get(outcome.name()).copied().unwrap_or(0);
        let mut change = |outcome: Outcome, by: &dyn Fn(u64) -> u64| {
            if let Some(n) = counts.outcomes.get_mut(&outcome) {
                let was = *n;
                *n = by(was);
                counts.ended = counts.ended.map(|ended| ended - was + *n);
            }
        };
        match self.lie {
            None => {}
            Some(Lie::NoEnds) => none(&mut counts),
            Some(Lie::FewerEnds) => counts.ended = counts.ended.map(|n| n * 9 / 10),
            Some(Lie::NoEndsAs(outcome)) => change(outcome, &|_| 0),
            Some(Lie::EndsLate(until_ms)) => {
                if at_ms < until_ms {
                    none(&mut counts);
                }
            }
            Some(Lie::EndsEarly) => counts.ended = Some(server.started + self.others),
            Some(Lie::GoodbyesTwice) => change(Outcome::Completed, &|n| 2 * n),
            Some(Lie::GoodbyesAsCancelled) => {
                let goodbyes = ended_as(Outcome::Completed);
                change(Outcome::Completed, &|_| 0);
                change(Outcome::Cancelled, &|n| n + goodbyes);
            }
            Some(Lie::RefusalsAsEnds) => change(Outcome::Failed, &|n| n + server.rejected),
            Some(Lie::Rejected(times)) => counts.rejected = counts.rejected.map(|n| n * times),
            Some(Lie::StartedTwice) => counts.started = counts.started.map(|n| 2 * n),
            Some(Lie::Below(by)) => counts.active -= by,
            Some(Lie::FrozenAtZero(from_ms, to_ms)) => {
                if (from_ms..to_ms).contains(&at_ms) {
                    let frozen = server.frozen.get_or_insert(counts).clone();
                    counts = Counts { active: 0, ..frozen };
                }
            }
            Some(Lie::ZeroFor(ms)) => {
                if at_ms % 2_500 < ms {
                    counts.active = 0;
                }
            }
        }
        counts
    }

    fn sums_of(&self, server: &Server, active: i64, shows: &Shows) -> Counts {
        let ended = |outcome: &Outcome| (*outcome, server.ended.get(outcome.name()).copied().unwrap_or(0));
        Counts {
            active,
            started: shows.started.then_some(server.started + self.others),
            ended: shows.ended.then(|| server.ended.values().sum()),
            outcomes: shows.outcomes.iter().map(ended).collect(),
            rejected: shows.rejected.then_some(server.rejected),
            boot: shows.boot.then(|| server.boot.to_string()),
            ..Counts::default()
        }
    }
}

fn count(server: &mut Server, at_us: u64, session_id: &str, client_ref: &str, outcome: Outcome) {
    server.active -= 1;
    *server.ended.entry(outcome.name().to_owned()).or_default() += 1;
    server.ends.push(EndRecord {
        seq: server.ends.len() as u64,
        session_id: session_id.to_owned(),
        client_ref: client_ref.to_owned(),
        outcome: outcome.name().to_owned(),
        at_us,
    });
}
