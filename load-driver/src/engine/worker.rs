//! The engine as a process of its own: a job on standard input, events on standard output.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufWriter, Write},
    net::SocketAddr,
    sync::Arc,
    thread,
};

use agent_server::runtime::clock::Clock;
use anyhow::Context;
use proto::time::Micros;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::{Balancer, BalancerConfig, Engine, EngineEvent, EngineHandle, EngineOptions, Targets, wire};
use crate::plan::{Connection, Plan, Resumed};

/// Events that may wait for the pipe.
const EVENTS: usize = 256;

/// The first line on a worker's standard input, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerJob {
    /// What the plan is built from: the resolved profile as JSON. Opaque here, and text: a tree would sort its scenarios by name, and
    /// their numbers go by their order.
    pub profile: String,
    /// Of the run, the same in every worker.
    pub run_id: String,
    /// This worker.
    pub worker: usize,
    /// Of so many.
    pub workers: usize,
    /// Only these scenarios, by number; none takes all.
    pub scenarios: Option<Vec<u16>>,
    /// `host:port` or URLs of the backends, in order, secrets and all.
    pub targets: Vec<String>,
    /// Where each is reached instead of its own address; empty: there.
    #[serde(default)]
    pub through: Vec<SocketAddr>,
    /// How they are reached. The profile's own may be masked.
    #[serde(default)]
    pub connection: Connection,
    /// What of it was given on the command line ([`Connection::private`]), which nothing that is stored holds: to be masked here as well.
    #[serde(default)]
    pub private: BTreeSet<String>,
    /// It goes on where another driver was killed.
    #[serde(default)]
    pub resumed: Option<Resumed>,
    /// How to run.
    pub options: EngineOptions,
}

/// Further lines on a worker's standard input, as JSON. The end of the input ends the worker at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerCommand {
    /// The answer to [`EngineEvent::Ready`]: the run starts at this unix time, microseconds, now or soon.
    Start {
        /// Epoch of the run's clock.
        epoch_unix_us: u64,
    },
    /// As [`EngineHandle::stop`].
    Stop {
        /// Run time.
        deadline: Micros,
    },
    /// As [`EngineHandle::abort`].
    Abort,
    /// A backend has moved.
    Target {
        /// Which.
        index: usize,
        /// `host:port` or a URL.
        authority: String,
    },
}

/// What a job comes to.
#[derive(Debug, Clone)]
pub struct Work {
    /// The whole plan.
    pub plan: Plan,
    /// How sessions are given to targets; none deals them out in turn.
    pub balancer: Option<BalancerConfig>,
}

impl From<Plan> for Work {
    fn from(plan: Plan) -> Self {
        Self { plan, balancer: None }
    }
}

/// The worker's part of the whole plan: its scenarios, its share of the lanes.
pub fn part(mut plan: Plan, job: &WorkerJob) -> Plan {
    plan.run_id.clone_from(&job.run_id);
    if let Some(wanted) = &job.scenarios {
        for scenario in plan.scenarios.iter_mut().filter(|scenario| !wanted.contains(&scenario.number)) {
            Arc::make_mut(scenario).lanes.clear();
        }
    }
    plan.split(job.worker, job.workers)
}

/// Runs the job on `input`, writes events to `output`, and returns when the input ends. `build` makes the whole plan of the job, and says how it is
/// balanced: the worker listens to the backends by itself before it is ready.
///
/// Ledger entries leave with the tick in which they were made, so that a kill loses one tick's at most. After the last `Done` the
/// worker stays, with its silent sockets, until the input ends.
pub fn run_worker(
    mut input: impl BufRead,
    output: impl Write + Send + 'static,
    build: impl FnOnce(&WorkerJob) -> anyhow::Result<Work>,
) -> anyhow::Result<()> {
    let (events, queue) = mpsc::channel(EVENTS);
    let writer = thread::Builder::new().name("events".to_owned()).spawn(move || write_all(output, queue))?;
    let result = prepare(&mut input, build).and_then(|prepared| obey(&mut input, prepared, &events));
    if let Err(error) = &result {
        // The writer may be gone with the driver; then there is nobody to tell.
        let _ = events.blocking_send(EngineEvent::Fatal { message: format!("{error:#}") });
    }
    drop(events);
    match writer.join() {
        Ok(written) => result.and(written),
        Err(_) => result.and(Err(anyhow::anyhow!("the thread that writes events panicked"))),
    }
}

/// A worker that could start.
struct Prepared {
    plan: Plan,
    options: EngineOptions,
    targets: Arc<Targets>,
    balancer: Option<Balancer>,
}

fn prepare(input: &mut impl BufRead, build: impl FnOnce(&WorkerJob) -> anyhow::Result<Work>) -> anyhow::Result<Prepared> {
    let mut line = String::new();
    input.read_line(&mut line).context("failed to read the worker's job")?;
    let mut job: WorkerJob = serde_json::from_str(&line).context("failed to parse the worker's job")?;
    job.connection.private = std::mem::take(&mut job.private);
    let work = build(&job).context("failed to build the worker's plan")?;
    let targets = Arc::new(Targets::resolve_with(&job.targets, &job.connection)?);
    targets.go_through(&job.through);
    let start = |config| Balancer::start(&config, &targets).context("failed to listen to the backends");
    let mut balancer = work.balancer.map(start).transpose()?;
    if let Some(balancer) = &mut balancer {
        balancer.wait_ready();
    }
    Ok(Prepared { plan: part(work.plan, &job), options: job.options, targets, balancer })
}

/// Until the input ends.
fn obey(input: &mut impl BufRead, prepared: Prepared, events: &mpsc::Sender<EngineEvent>) -> anyhow::Result<()> {
    let Prepared { plan, options, targets, balancer } = prepared;
    events.blocking_send(EngineEvent::Ready).context("failed to tell that the worker is ready")?;
    let mut waiting = Some((plan, balancer));
    let mut running: Option<EngineHandle> = None;
    let mut line = String::new();
    while input.read_line(&mut line).context("failed to read the worker's commands")? > 0 {
        let command = serde_json::from_str(&line).with_context(|| format!("failed to parse the worker's command `{}`", line.trim()))?;
        match (command, &running) {
            (WorkerCommand::Start { epoch_unix_us }, _) => {
                let (plan, balancer) = waiting.take().context("the worker was told to start twice")?;
                let clock = Clock::with_epoch_unix_us(epoch_unix_us);
                thread::sleep(clock.until(Micros::ZERO));
                let started = Engine::start(plan, options, Arc::clone(&targets), balancer, clock, events.clone());
                running = Some(started.context("failed to start shards")?);
            }
            (WorkerCommand::Target { index, authority }, _) => targets.replace(index, &authority)?,
            (WorkerCommand::Stop { deadline }, Some(handle)) => handle.stop(deadline),
            (WorkerCommand::Abort, Some(handle)) => handle.abort(),
            (WorkerCommand::Stop { .. } | WorkerCommand::Abort, None) => {
                anyhow::bail!("the worker was told to stop before it was to start")
            }
        }
        line.clear();
    }
    Ok(())
}

fn write_all(output: impl Write, mut queue: mpsc::Receiver<EngineEvent>) -> anyhow::Result<()> {
    let mut output = BufWriter::new(output);
    while let Some(event) = queue.blocking_recv() {
        wire::write_event(&mut output, event)?;
        // What is buffered would die with the process.
        if queue.is_empty() {
            output.flush()?;
        }
    }
    output.flush()?;
    Ok(())
}
