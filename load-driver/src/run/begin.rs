//! From a job to a run under way: targets, workers, engine, books.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use agent_server::runtime::clock::Clock;
use proto::time::Micros;
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    time::sleep_until,
};

use super::{
    Job, Outcome, RunError,
    balance::Balancing,
    checkpoint::Checkpoints,
    controller::{Run, Usage, complain, take_look},
    faults::{Timeline, UnderWay},
    finish, kills,
    leftover::{self, Leftover},
    poller::{Look, Poller, unix_now},
    reporters, shards,
    signals::Signals,
    sums,
    targets::{self, TargetSet},
    workers::{Worker, WorkerNews},
};
use crate::{
    engine::{Balancer, BalancerConfig, Engine, EngineEvent, EngineOptions, worker::WorkerCommand},
    leak::LeakBook,
    ledger::{BackendConfig, Ledger, LedgerConfig, LiveView, SourceId, Windows},
    plan::{EndKind, Plan},
    record::{Registry, ScenarioLabel, ShardRecorder},
    report::{Event, Exit},
    system::Sampler,
    threshold::Monitor,
    voice::{VoiceBook, VoiceConfig},
};

/// Events of shards that may wait for the controller.
const EVENTS: usize = 1_024;
/// Between the word to start and the start of the run, so that it reaches every worker in time.
const LEAD: Duration = Duration::from_millis(50);
/// A worker that has not built its plan by then never will.
const READY_TIMEOUT: Duration = Duration::from_mins(1);

/// Sets a run up, lives through it, and tells what came of it.
pub(super) async fn conduct(job: Job) -> Result<Outcome, RunError> {
    let fault = |what: &str, e: &dyn std::fmt::Display| RunError::new(Exit::InternalFault, format!("failed to {what}: {e}"));
    let mut reporters = reporters(&job).map_err(|e| fault("open the files of the run", &e))?;
    let signals = Signals::new().map_err(|e| fault("listen for signals", &e))?;
    let mut set = targets::ready(&job, Clock::start()).await?;
    let leftover = leftover::wait(&job, &mut set, Clock::start()).await;
    sums::learn(&job, &mut set, Clock::start()).await;
    let mut run = begin(&job, set, signals, leftover).await.map_err(|e| fault("start the run", &e))?;
    if complain(&reporters.emit(Event::Started(&run.info))) {
        run.reasons.push(Exit::InternalFault);
    }
    Box::pin(run.live(&mut reporters)).await
}

async fn begin(job: &Job, mut set: TargetSet, signals: Signals, leftover: Leftover) -> anyhow::Result<Run> {
    let prepared = &job.prepared;
    let (plan, profile) = (&prepared.plan, &prepared.profile);
    let options = finish::engine_options(profile, shards(prepared));
    let with_workers: Vec<u16> = plan.scenarios.iter().filter(|s| kills::needs_worker(plan, s)).map(|s| s.number).collect();
    let mut balancer = BalancerConfig::of(profile, set.targets.count(), 0)?
        .map(|config| Balancer::start(&config.from(job.from()), &set.targets))
        .transpose()?;
    let (news_in, mut news) = mpsc::channel(EVENTS);
    let (mut workers, worker_of) = start_workers(job, &set, &with_workers, options, &news_in)?;
    drop(news_in);
    await_ready(&mut news, workers.len()).await?;
    if let Some(balancer) = &mut balancer {
        balancer.ready().await;
    }
    let clock = Clock::with_epoch_unix_us(unix_now(&Clock::start()) + LEAD.as_micros() as u64);
    let start_us = clock.unix_us(Micros::ZERO);

    let mut ledger = Ledger::new(ledger_config(job, &set, start_us));
    if let Some(former) = &job.former {
        ledger = ledger.continuing(&former.state.carried);
    }
    let known = profile.fleet().members.len().max(set.targets.count());
    let kills = kills::planned(plan, &profile.fleet().members, set.members, job.from());
    let mut balancing = Box::new(Balancing::of(job, known, &kills, &set.looks, start_us));
    let own = (0..options.shards).map(|shard| SourceId { worker: 0, shard: shard as u32 });
    let theirs = (1..=with_workers.len()).map(|worker| SourceId { worker: worker as u32, shard: 0 });
    let open: BTreeSet<SourceId> = own.chain(theirs).collect();
    for source in &open {
        ledger.open(*source, start_us);
        balancing.open(*source, start_us);
    }
    let mut usage = BTreeMap::new();
    let mut voice = VoiceBook::new(voice_config(job, &set, start_us));
    for look in std::mem::take(&mut set.looks) {
        if let Look::Sample(sample) = &look {
            voice.sample(sample);
        }
        take_look(look, &mut ledger, &mut usage, &clock);
    }

    for worker in workers.values_mut() {
        worker.tell(&WorkerCommand::Start { epoch_unix_us: start_us });
    }
    let labels: Vec<ScenarioLabel> = plan.scenarios.iter().map(|s| ScenarioLabel::from(&**s)).collect();
    let mut registry = match &job.former {
        None => Registry::new(start_us, labels),
        Some(former) => {
            let (totals, before) = (former.state.totals().map_err(anyhow::Error::msg)?, &former.summary);
            Registry::resume(start_us - former.state.at.0, labels, totals, before.warmup_samples, before.series.clone())
        }
    };
    let monitor = Monitor::new(prepared.thresholds.clone()).from(registry.measured());
    if let Some((window, metrics)) = monitor.windows() {
        registry.keep_recent(window, metrics);
    }
    let poller = Poller::start(std::mem::take(&mut set.sources), profile.counters.interval.0, clock);

    sleep_until(clock.instant(Micros::ZERO).into()).await;
    let (events_in, events) = mpsc::channel(EVENTS);
    let engine = Engine::start(without(plan, &with_workers), options, set.targets.clone(), balancer, clock, events_in)?;
    Ok(Run {
        job: job.clone(),
        info: finish::run_info(job, &set, start_us),
        clock,
        ledger,
        balancing,
        voice,
        registry,
        monitor,
        driver: Usage::default(),
        backends: usage,
        workers_lost: 0,
        checkpoints: Checkpoints::of(profile, plan.stops_at()),
        tasks: BTreeMap::new(),
        leaks: LeakBook::new(plan.warmup.as_secs_f64()),
        leftover,
        balance: None,
        said: BTreeMap::new(),
        stopped_early: None,
        reasons: Vec::new(),
        engine: Some(engine),
        workers,
        worker_of,
        heard: BTreeSet::new(),
        kills,
        timeline: Timeline::new(&plan.faults, &plan.scenarios),
        under_way: UnderWay::default(),
        draining: BTreeSet::new(),
        dead: VecDeque::new(),
        fallen: BTreeSet::new(),
        open,
        events,
        news,
        poller,
        signals,
        sampler: Sampler::new().inspect_err(|e| tracing::warn!("failed to read this process's cost: {e}")).ok(),
        before: LiveView::default(),
        last_lag_p99_ms: None,
        convergence: ShardRecorder::new(plan.scenarios.len()),
        set,
    })
}

/// The part of the plan that runs in this process.
fn without(plan: &Plan, scenarios: &[u16]) -> Plan {
    let mut plan = plan.clone();
    for scenario in plan.scenarios.iter_mut().filter(|s| scenarios.contains(&s.number)) {
        Arc::make_mut(scenario).lanes.clear();
    }
    plan
}

fn ledger_config(job: &Job, set: &TargetSet, start_us: u64) -> LedgerConfig {
    let profile = &job.prepared.profile;
    let fresh = profile.is_embedded();
    let watched = set.watched();
    let backends = (0..set.members).map(|index| BackendConfig { watched: watched.contains(&index), fresh }).collect();
    let counters = &profile.counters;
    let mut windows = Windows::default();
    for kind in EndKind::ALL {
        let span = if kind == EndKind::HalfOpen { counters.half_open_window } else { counters.window };
        windows = windows.with(kind, span.micros());
    }
    LedgerConfig {
        windows,
        totals: set.totals.clone(),
        front: set.front,
        scenarios: job.prepared.plan.scenarios.iter().map(|scenario| scenario.expect).collect(),
        dialects: job.prepared.plan.scenarios.iter().map(|scenario| scenario.service.dialect).collect(),
        start_at_upgrade: job.prepared.plan.scenarios.iter().map(|scenario| scenario.service.dialect.starts_at_upgrade()).collect(),
        says_ready: job.prepared.plan.scenarios.iter().map(|scenario| scenario.service.says_ready()).collect(),
        settle_us: counters.settle.micros(),
        poll_interval_us: counters.interval.micros(),
        ..LedgerConfig::new(job.run_id.clone(), start_us, backends).with_lag_limit(profile.driver.max_schedule_lag.micros())
    }
}

fn voice_config(job: &Job, set: &TargetSet, start_us: u64) -> VoiceConfig {
    let profile = &job.prepared.profile;
    let watched = set.watched();
    VoiceConfig {
        window_us: profile.counters.window.micros(),
        allowed: profile.voice_faults.allow.clone(),
        watched: (0..set.members).map(|index| watched.contains(&index)).collect(),
        start_us,
    }
}

type Workers = (BTreeMap<u32, Worker>, BTreeMap<u16, u32>);

/// One worker for each scenario that a kill takes its process from.
fn start_workers(
    job: &Job,
    set: &TargetSet,
    scenarios: &[u16],
    options: EngineOptions,
    news: &Sender<WorkerNews>,
) -> anyhow::Result<Workers> {
    let program = std::env::current_exe()?;
    let (mut workers, mut worker_of) = (BTreeMap::new(), BTreeMap::new());
    for (n, scenario) in scenarios.iter().enumerate() {
        let number = n as u32 + 1;
        let work = crate::engine::worker::WorkerJob {
            profile: serde_json::to_string(&job.prepared.profile)?,
            run_id: job.run_id.clone(),
            worker: 0,
            workers: 1,
            scenarios: Some(vec![*scenario]),
            targets: set.targets.given(),
            through: set.ground.relay.as_ref().map(|relay| relay.addresses().to_vec()).unwrap_or_default(),
            connection: job.prepared.profile.connection.clone(),
            private: job.prepared.profile.connection.private.clone(),
            resumed: job.resumed(),
            options: EngineOptions { shards: 1, ..options },
        };
        workers.insert(number, Worker::start(number, &program, &work, news.clone())?);
        worker_of.insert(*scenario, number);
    }
    Ok((workers, worker_of))
}

/// Until every worker has its plan.
async fn await_ready(news: &mut Receiver<WorkerNews>, workers: usize) -> anyhow::Result<()> {
    for _ in 0..workers {
        match tokio::time::timeout(READY_TIMEOUT, news.recv()).await {
            Ok(Some(WorkerNews::Event { event: EngineEvent::Ready, .. })) => {}
            Ok(Some(WorkerNews::Event { worker, event: EngineEvent::Fatal { message } })) => anyhow::bail!("worker {worker}: {message}"),
            Ok(other) => anyhow::bail!("a worker said {other:?} before the run began"),
            Err(_) => anyhow::bail!("a worker had no plan after {READY_TIMEOUT:?}"),
        }
    }
    Ok(())
}
