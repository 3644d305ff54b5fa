//! What operators and balancers ask, on a port and a thread of their own: it answers when every shard is busy.
//!
//! | request | answer |
//! |---|---|
//! | `GET /snapshot` | [`wire::SnapshotJson`]: the counters, cut at one instant |
//! | `GET /ends?after=SEQ&limit=N` | [`wire::EndsPage`]: ends as counted |
//! | `GET /sessions?after=ID&limit=N` | [`wire::SessionsPage`]: live sessions |
//! | `GET /metrics` | the same and more as `OpenMetrics` text |
//! | `GET /healthz` | 200 while new sessions are taken, 503 while draining |
//! | `POST /drain` | 202; as SIGTERM |
//!
//! Every answer has a header `endpoint-load-metrics`. With an admin token, all but `/healthz` are for those who show it.

mod guard;
pub mod wire;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Context;
use axum::{
    Json, Router,
    extract::{Query, State},
    http::{StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use proto::{frame::Outcome, orca};
use serde::Deserialize;
use tokio::{
    runtime::Builder,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::wire::{EndRecord, EndsPage, LoadJson, SessionJson, SessionsPage, SnapshotJson};
use crate::{
    config::ServerConfig,
    listen::{self, Heard, Io, Peer},
    report::{
        self, reporter,
        usage::{self, CpuTime},
    },
    runtime::{
        clock::Clock,
        wire::{Listen, Wire},
    },
    shard::{Shard, Shared},
    tracker::{Phase, Snapshot},
};

/// Rows of a page, when the request does not say.
const PAGE: usize = 1_000;
/// Connections at once; more wait in the backlog. Sessions must not run out of file descriptors because of those who watch them.
pub const CONNECTIONS_MAX: usize = 256;
/// Longest life of a connection, for one whose peer does not read.
const CONNECTION_LIFE: Duration = Duration::from_mins(10);
/// Bytes of a request's head.
const REQUEST_MAX: usize = 16 * 1024;
/// For requests that are under way when the server stops.
const FAREWELL: Duration = Duration::from_secs(1);

/// Binds the admin port: the one asked for, else the session port + 1, else (when any session port would do) any. Nobody else's machine gets at
/// it unasked: where sessions are taken from anywhere it stays on loopback, unless it asks for a token.
pub fn bind(config: &ServerConfig, sessions: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    let address = config.admin_listen.unwrap_or_else(|| {
        let port = if config.listen.port() == 0 { 0 } else { sessions.port().saturating_add(1) };
        let local = sessions.ip().is_loopback() || config.admin_token.is_some();
        SocketAddr::new(if local { sessions.ip() } else { Ipv4Addr::LOCALHOST.into() }, port)
    });
    if !sessions.ip().is_loopback() && config.admin_listen.is_none() && config.admin_token.is_none() {
        tracing::warn!(
            "the admin endpoints are for this machine alone ({address}): give them --admin-token, or an address by --admin-listen"
        );
    } else if !address.ip().is_loopback() && config.admin_token.is_none() {
        tracing::warn!("whoever reaches {address} can read the counters of this server and drain it: give it --admin-token");
    }
    listen::bind(address)
        .with_context(|| format!("failed to listen on {address} for the admin endpoints: choose a port with --admin-listen"))
}

/// The admin port, and what it speaks TLS with, if it does.
pub type Port = (std::net::TcpListener, Option<TlsAcceptor>);

/// Starts the admin thread; it ends after `stop`.
pub fn start(
    port: Port,
    shared: Arc<Shared>,
    shards: Arc<[Arc<Shard>]>,
    cpu: CpuTime,
    stop: CancellationToken,
) -> anyhow::Result<JoinHandle<()>> {
    let runtime = Builder::new_current_thread().enable_all().build().context("failed to start the admin runtime")?;
    let admin = Admin { shared, shards, cpu };
    let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
        let (listener, tls) = port;
        let served = runtime.block_on(async { serve(tokio::net::TcpListener::from_std(listener)?, tls, admin, stop).await });
        if let Err(error) = served {
            tracing::error!("the admin endpoints are gone: {error}");
        }
    });
    thread.context("failed to start the admin thread")
}

/// Serves the admin endpoints on a port until `stop`, in TLS where there is an acceptor.
pub async fn serve(listener: impl Listen, tls: Option<TlsAcceptor>, admin: Admin, stop: CancellationToken) -> io::Result<()> {
    let (silence, clock) = (admin.shared.config.start_timeout, admin.shared.clock);
    let app = Router::new()
        .route("/snapshot", get(snapshot))
        .route("/ends", get(ends))
        .route("/sessions", get(sessions))
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/drain", post(drain))
        .fallback(nothing)
        .layer(middleware::from_fn_with_state(admin.clone(), guard::guard))
        .layer(middleware::map_response_with_state(admin.clone(), say_load))
        .with_state(admin);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, tls.clone(), app.clone(), (silence, clock), stop.clone()));
                }
                // Out of file descriptors, or a peer that was gone before we looked.
                Err(_) => sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = stop.cancelled() => break,
        }
    }
    // Dropping the set ends what is still there: each was told to stop, and had its time.
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// One connection, and any number of requests. Who says nothing for `silence`, or does not read, holds it for a bounded time.
async fn connection(stream: Wire, tls: Option<TlsAcceptor>, app: Router, (silence, clock): (Duration, Clock), stop: CancellationToken) {
    let io = match tls {
        None => Io::Plain(stream),
        Some(tls) => match timeout(silence, tls.accept(stream)).await {
            Ok(Ok(stream)) => Io::Tls(Box::new(stream)),
            Ok(Err(error)) => return tracing::debug!("TLS handshake on the admin port failed: {error}"),
            Err(_) => return tracing::debug!("admin connection closed: no TLS handshake within {silence:?}"),
        },
    };
    let peer = Peer::new(clock, silence);
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(silence)
            .max_buf_size(REQUEST_MAX)
            .serve_connection(TokioIo::new(Heard::new(io, Arc::clone(&peer))), TowerToHyperService::new(app))
    );
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = given_up(&peer, clock, silence) => return,
        () = stop.cancelled() => {}
        () = sleep(CONNECTION_LIFE) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(FAREWELL, connection).await;
}

/// Ends when the peer let what it asked for lie for `limit`, or sent nothing for so long: whoever watches asks more often.
async fn given_up(peer: &Peer, clock: Clock, limit: Duration) {
    while let Ok(again) = peer.check(limit) {
        sleep_until(Instant::from_std(clock.instant(again))).await;
    }
}

/// What the endpoints tell of.
#[derive(Debug, Clone)]
pub struct Admin {
    /// What all shards share.
    pub shared: Arc<Shared>,
    /// All of them.
    pub shards: Arc<[Arc<Shard>]>,
    /// Of the process.
    pub cpu: CpuTime,
}

/// Every answer says the load.
async fn say_load(State(admin): State<Admin>, mut response: Response) -> Response {
    response.headers_mut().insert(orca::TEXT_HEADER, admin.shared.board.latest().text.clone());
    response
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EndsQuery {
    after: u64,
    limit: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SessionsQuery {
    after: String,
    limit: Option<usize>,
}

async fn snapshot(State(admin): State<Admin>) -> Json<SnapshotJson> {
    Json(admin.snapshot())
}

async fn ends(State(admin): State<Admin>, Query(query): Query<EndsQuery>) -> Json<EndsPage> {
    let page = admin.shared.sessions.ends(query.after, query.limit.unwrap_or(PAGE));
    let ends = page.ends.into_iter().map(|row| EndRecord {
        seq: row.seq,
        session_id: row.session_id,
        client_ref: row.client_ref,
        outcome: row.outcome.name().to_owned(),
        at_us: row.at_us,
    });
    Json(EndsPage { boot_id: admin.shared.boot_id.clone(), oldest: page.oldest, next: page.next, ends: ends.collect() })
}

async fn sessions(State(admin): State<Admin>, Query(query): Query<SessionsQuery>) -> Response {
    let now_us = admin.shared.sessions.unix_us();
    match admin.shared.sessions.listing(&query.after, query.limit.unwrap_or(PAGE)) {
        Err(bad) => (StatusCode::BAD_REQUEST, format!("{bad}\n")).into_response(),
        Ok(page) => {
            let sessions = page.sessions.into_iter().map(|row| SessionJson {
                session_id: row.session_id,
                client_ref: row.client_ref.to_string(),
                phase: row.phase.name().to_owned(),
                age_ms: now_us.saturating_sub(row.started_us) / 1_000,
                frames_in: row.frames_in,
                frames_out: row.frames_out,
            });
            let page =
                SessionsPage { boot_id: admin.shared.boot_id.clone(), total: page.total, sessions: sessions.collect(), next: page.next };
            Json(page).into_response()
        }
    }
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let text = report::prometheus::text(admin.snapshot(), admin.extra());
    ([(header::CONTENT_TYPE, report::prometheus::CONTENT_TYPE)], text).into_response()
}

async fn healthz(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    if admin.shared.draining() { (StatusCode::SERVICE_UNAVAILABLE, "draining\n") } else { (StatusCode::OK, "serving\n") }
}

async fn drain(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    admin.shared.drain_asked.cancel();
    (StatusCode::ACCEPTED, "draining\n")
}

async fn nothing() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "there are /snapshot, /ends, /sessions, /metrics, /healthz, and POST /drain\n")
}

impl Admin {
    fn sum(&self, f: impl Fn(&Shard) -> u64) -> u64 {
        self.shards.iter().map(|shard| f(shard)).sum()
    }

    fn snapshot(&self) -> SnapshotJson {
        let shared = &self.shared;
        // A torn snapshot must tear over time in which sessions go on; this thread may wait.
        let cut = shared.defects.snapshot(&shared.sessions, std::thread::sleep);
        let captured_at_us = shared.sessions.unix_us();
        let frames = shared.sessions.frames();
        // What the machine spends has no place where time is simulated: not even the number of its digits, which a message's length would tell.
        let (cpu_us, rss_bytes) =
            if shared.clock.simulated_tick().is_none() { (usage::process_cpu_us(), usage::rss_bytes()) } else { (0, 0) };
        SnapshotJson {
            backend_id: shared.backend_id.clone(),
            boot_id: shared.boot_id.clone(),
            captured_at_us,
            exact: cut.exact,
            started: cut.started,
            active: cut.active,
            active_interval: cut.active_interval,
            ended: Outcome::ALL.iter().zip(cut.ended).map(|(outcome, n)| (outcome.name().to_owned(), n)).collect(),
            phases: Phase::ALL.iter().zip(cut.phases).map(|(phase, n)| (phase.name().to_owned(), n)).collect(),
            max_sessions: shared.sessions.max_sessions(),
            rejected: cut.rejected,
            late_ends: cut.late_ends,
            live_tasks: self.sum(Shard::live),
            draining: shared.draining(),
            next_end: shared.sessions.next_end(),
            frames_in: frames.received,
            frames_out: frames.sent,
            cpu_us,
            rss_bytes,
            virtual_cost_us: self.sum(|s| s.counters.virtual_cost_us.load(Relaxed)),
            load: self.load(&cut),
            defects: shared.defects.strikes(),
            faults: shared.faults.strikes(),
        }
    }

    /// The window's figures as they were last published, and what can be read anew as of now.
    fn load(&self, cut: &Snapshot) -> LoadJson {
        let published = self.shared.board.latest();
        let (load, config) = (&published.load, &self.shared.config.report);
        LoadJson {
            used_us: self.cpu.used_us(&self.shared).unwrap_or(published.used_us),
            cores: config.cores,
            target: config.capacity.target,
            speaking: reporter::speaking(cut),
            sessions: load.sessions,
            utilization: load.utilization,
            virtual_qps: load.capacity.virtual_qps,
            cost: load.capacity.cost,
            rate: load.rate(),
            effective_capacity: load.effective_capacity(),
        }
    }

    fn extra(&self) -> report::prometheus::Extra {
        report::prometheus::Extra {
            connections: self.sum(|s| s.counters.connections.load(Relaxed)),
            open: self.shared.admission.open() as u64,
            turned_away: self.shared.admission.refused(),
            silent: self.sum(|s| s.counters.silent.load(Relaxed)),
            unread: self.sum(|s| s.counters.unread.load(Relaxed)),
            dropped: self.sum(|s| s.counters.dropped.load(Relaxed)),
            refused: self.shared.refused.lock().clone(),
        }
    }
}
