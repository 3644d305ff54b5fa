//! The server as a whole: starts its threads, waits for the word to go, drains, stops.
//!
//! Threads: one for each shard ([`crate::shard`]), one for the admin endpoints ([`crate::admin`]), one that measures load
//! ([`crate::report::reporter`]), and the caller's, which accepts connections and waits for signals.
//!
//! Drain (SIGTERM, SIGINT, `POST /drain`, or the parent's end with `--stop-on-stdin-eof`): health goes `NOT_SERVING`; new sessions are refused
//! (`UNAVAILABLE`, close code 1001); HTTP/2 connections get GOAWAY; the port stays open, so that health can be asked. When all sessions have
//! ended, or after the drain timeout, which ends the rest as `drained`, the process exits with 0. A second signal exits at once, with 130.

mod parts;

use std::{
    io::{IsTerminal, Write},
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic_health::{ServingStatus, server::HealthReporter};

pub use self::parts::{Parts, run_shard, wrongs};
pub use crate::config::{ServeArgs, ServerConfig};
use crate::{
    admin, config,
    dialect::{self, HEALTH_NAME},
    listen::{self, Dealer, Inbox, Tls},
    report::{reporter::Reporter, usage::CpuTime},
    runtime::clock::Clock,
    shard::{Shard, Shared},
};

/// For last words to leave after the drain, and for threads to come home.
const FAREWELL: Duration = Duration::from_secs(3);
/// Between looks at what is still open.
const LOOK: Duration = Duration::from_millis(5);
/// By convention: ended by a signal.
const INTERRUPTED: u8 = 130;

/// Serves until told to stop; what `agent-server serve` does. Prints one line of JSON on standard output when ready.
///
/// # Errors
/// When a setting is wrong, a port is taken, or a thread cannot start.
pub fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let config = ServerConfig::resolve(args.with_file()?)?;
    let filter =
        tracing_subscriber::EnvFilter::try_new(&config.log).with_context(|| format!("failed to read the log filter `{}`", config.log))?;
    // A second server in one process keeps the first one's log.
    let colours = std::io::stderr().is_terminal();
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).try_init();
    config::warn_of_shown_tokens(std::env::args());
    let runtime = Builder::new_current_thread().enable_all().build().context("failed to start the main runtime")?;
    runtime.block_on(async {
        // Before the ready line: who reads it may send a signal at once, and that must drain, not kill.
        let signals = Signals::new()?;
        listen::raise_fd_limit(config.max_sessions);
        let server = Server::start(config)?;
        server.announce()?;
        server.serve(signals).await
    })
}

/// A bound session port, with the acceptor of one that speaks TLS.
type Port = (std::net::TcpListener, Option<TlsAcceptor>);

/// A server whose ports are bound and whose threads run.
struct Server {
    shared: Arc<Shared>,
    shards: Arc<[Arc<Shard>]>,
    threads: Vec<JoinHandle<()>>,
    ports: Vec<Port>,
    dealer: Dealer,
    health: HealthReporter,
    address: SocketAddr,
    tls_address: Option<SocketAddr>,
    admin: SocketAddr,
    /// Cancelled when the admin thread and the reporter must go, last of all.
    admin_stop: CancellationToken,
}

impl Server {
    fn start(config: ServerConfig) -> anyhow::Result<Self> {
        let clock = Clock::start();
        let wrongs = wrongs(&config)?;
        let cpu = CpuTime::open(config.report.cpu).context("failed to find the CPU time for load reports")?;
        let listener = listen::bind(config.listen)
            .with_context(|| format!("failed to listen on {}: is another server there? choose a port with --listen", config.listen))?;
        let address = listener.local_addr()?;
        let mut ports = vec![(listener, None)];
        let tls_listener = match config.tls.as_ref().and_then(|tls| tls.listen) {
            None => None,
            Some(listen) => {
                let failed = || format!("failed to listen on {listen} for TLS: choose a port with --tls-listen");
                Some(listen::bind(listen).with_context(failed)?)
            }
        };
        let tls_address = tls_listener.as_ref().map(std::net::TcpListener::local_addr).transpose()?;
        let admin_listener = admin::bind(&config, address)?;
        let admin = admin_listener.local_addr()?;
        let addresses: Vec<_> = std::iter::once(admin).chain(tls_address).map(|address| address.ip()).collect();
        let tls = config.tls.as_ref().map(|tls| Tls::load(tls, &addresses)).transpose()?;
        if let (Some(listener), Some(tls)) = (tls_listener, &tls) {
            ports.push((listener, Some(tls.acceptor(listen::SESSIONS))));
        }
        let admin_tls = tls.as_ref().filter(|_| config.tls.as_ref().is_some_and(|tls| tls.admin)).map(|tls| tls.acceptor(listen::ADMIN));
        let backend_id = config.backend_id.clone().unwrap_or_else(|| format!("agent-{}", address.port()));
        let boot_id = format!("{:016x}{:08x}", clock.unix_us(clock.now()), std::process::id());

        let Parts { shared, shards, health, dealer, inboxes } = Parts::new(clock, config, wrongs, backend_id, boot_id);
        let reporter = Reporter::new(Arc::clone(&shared), cpu.clone());
        let mut threads = Vec::new();
        for (index, (shard, inbox)) in shards.iter().zip(inboxes).enumerate() {
            threads.push(start_shard(index, Arc::clone(shard), inbox, &health)?);
        }
        let admin_stop = CancellationToken::new();
        threads.push(reporter.start(admin_stop.clone())?);
        threads.push(admin::start((admin_listener, admin_tls), Arc::clone(&shared), Arc::clone(&shards), cpu, admin_stop.clone())?);
        Ok(Self { shared, shards, threads, ports, dealer, health, address, tls_address, admin, admin_stop })
    }

    /// Tells the parent, or the person, where we are.
    fn announce(&self) -> anyhow::Result<()> {
        let mut line = serde_json::json!({
            "event": "listening",
            "address": self.address.to_string(),
            "admin": self.admin.to_string(),
            "backend_id": self.shared.backend_id,
            "boot_id": self.shared.boot_id,
            "pid": std::process::id(),
        });
        if self.shared.config.tls.as_ref().is_some_and(|tls| tls.admin) {
            line["admin_tls"] = true.into();
        }
        if let Some(address) = self.tls_address {
            line["tls_address"] = address.to_string().into();
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).context("failed to write the ready line to standard output")?;
        tracing::info!(address = %self.address, admin = %self.admin, shards = self.shards.len(), "listening");
        Ok(())
    }

    async fn serve(self, mut signals: Signals) -> anyhow::Result<ExitCode> {
        self.health.set_service_status(HEALTH_NAME, ServingStatus::Serving).await;
        let Self { shared, shards, threads, ports, dealer, health, admin_stop, .. } = self;
        let accepting = ports.into_iter().map(|(port, tls)| {
            let (dealer, admission, stop) = (dealer.clone(), Arc::clone(&shared.admission), shared.stop.clone());
            async move { listen::accept(tokio::net::TcpListener::from_std(port)?, tls, dealer, admission, stop).await }
        });
        let mut accept = tokio::spawn(try_join_all(accepting.collect::<Vec<_>>()));
        let patience = tokio::select! {
            patience = signals.told_to_go(&shared) => patience,
            failed = &mut accept => {
                failed.context("the listener died")?.context("failed to accept connections")?;
                Duration::ZERO
            }
        };
        tokio::select! {
            () = drain(&shared, &shards, &health, patience) => {}
            name = signals.next() => {
                tracing::warn!("{name} again: exiting at once");
                return Ok(ExitCode::from(INTERRUPTED));
            }
        }
        for (kind, strikes) in shared.defects.strikes() {
            tracing::warn!("THIS SERVER COUNTED WRONGLY ON PURPOSE: {kind} struck {strikes} times");
        }
        for (kind, strikes) in shared.faults.strikes() {
            tracing::warn!("THIS SERVER MISBEHAVED ON PURPOSE: {kind} struck {strikes} times");
        }
        shared.stop.cancel();
        let _ = timeout(FAREWELL, accept).await;
        admin_stop.cancel();
        join(threads).await?;
        tracing::info!("stopped");
        Ok(ExitCode::SUCCESS)
    }
}

/// Refuses new sessions, lets the others end for as long as `patience`, ends the rest.
pub async fn drain(shared: &Shared, shards: &[Arc<Shard>], health: &HealthReporter, patience: Duration) {
    for name in ["", HEALTH_NAME] {
        health.set_service_status(name, ServingStatus::NotServing).await;
    }
    shared.begin_drain();
    let live = || shards.iter().map(|s| s.live()).sum::<u64>();
    let streams = || shards.iter().map(|s| s.started()).sum::<u64>();
    tracing::info!(live = live(), patience_s = patience.as_secs_f64(), "draining");
    let gone = timeout(patience, async {
        while streams() > 0 {
            sleep(LOOK).await;
        }
    });
    if gone.await.is_err() && live() > 0 {
        tracing::warn!(live = live(), "drain timeout: ending the remaining sessions as drained");
    }
    for shard in shards {
        shard.drain_all();
    }
    let _ = timeout(FAREWELL, async {
        while streams() > 0 {
            sleep(LOOK).await;
        }
    })
    .await;
}

/// Threads end once `stop` is cancelled; one that does not is named and left behind.
async fn join(threads: Vec<JoinHandle<()>>) -> anyhow::Result<()> {
    let all = async {
        while !threads.iter().all(JoinHandle::is_finished) {
            sleep(LOOK).await;
        }
    };
    if timeout(FAREWELL, all).await.is_err() {
        let late: Vec<_> = threads.iter().filter(|t| !t.is_finished()).filter_map(|t| t.thread().name()).collect();
        tracing::warn!("left behind: {}", late.join(", "));
        return Ok(());
    }
    for thread in threads {
        let name = thread.thread().name().unwrap_or("thread").to_owned();
        ensure!(thread.join().is_ok(), "{name} panicked: this is a bug of the server");
    }
    Ok(())
}

/// One shard's thread and runtime.
fn start_shard(index: usize, shard: Arc<Shard>, inbox: Inbox, health: &HealthReporter) -> anyhow::Result<JoinHandle<()>> {
    let grpc = dialect::routes(&shard, health).context("failed to build the gRPC services")?;
    let runtime = Builder::new_current_thread().enable_all().build().context("failed to start a shard's runtime")?;
    let thread = std::thread::Builder::new().name(format!("shard-{index}"));
    thread.spawn(move || runtime.block_on(parts::run_shard(index, shard, grpc, inbox))).context("failed to start a shard's thread")
}

/// What may tell a server to go.
#[derive(Debug)]
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let watch = |kind, name| signal(kind).with_context(|| format!("failed to watch for {name}"));
        Ok(Self { term: watch(SignalKind::terminate(), "SIGTERM")?, int: watch(SignalKind::interrupt(), "SIGINT")? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }

    /// Waits for the first word to go; how long sessions may still take.
    async fn told_to_go(&mut self, shared: &Arc<Shared>) -> Duration {
        let orphaned = CancellationToken::new();
        if shared.config.stop_on_stdin_eof {
            watch_stdin(orphaned.clone());
        }
        tokio::select! {
            name = self.next() => tracing::info!("{name}"),
            () = shared.drain_asked.cancelled() => tracing::info!("drain asked for by the admin endpoint"),
            () = shared.stop.cancelled() => return Duration::ZERO,
            () = orphaned.cancelled() => {
                tracing::info!("standard input closed: the parent is gone");
                return Duration::ZERO;
            }
        }
        shared.config.drain_timeout
    }
}

/// Reads standard input to its end. The thread lives as long as the process: nothing can wake it from its read.
fn watch_stdin(closed: CancellationToken) {
    let thread = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        closed.cancel();
    });
    if let Err(error) = thread {
        tracing::warn!("failed to watch standard input: {error}");
    }
}
