//! What every shard, the listener and the admin endpoints share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use proto::frame::ErrorCode;
use tokio_util::sync::CancellationToken;

use crate::{
    admin,
    config::ServerConfig,
    fault::{Defects, Faults},
    listen::{self, Admission},
    processor::Processor,
    report::reporter::Board,
    runtime::clock::Clock,
    session::SessionConfig,
    tracker::Sessions,
};

/// What goes wrong on purpose.
#[derive(Debug)]
pub struct Wrongs {
    /// In the counts.
    pub defects: Arc<Defects>,
    /// In the sessions.
    pub faults: Arc<Faults>,
}

/// One server process.
#[derive(Debug)]
pub struct Shared {
    /// The server's time, from its start.
    pub clock: Clock,
    /// Settings.
    pub config: ServerConfig,
    /// What sessions need of them.
    pub session: Arc<SessionConfig>,
    /// Counts sessions.
    pub sessions: Arc<Sessions>,
    /// Stands between them and their counts; honest when no defect is switched on.
    pub defects: Arc<Defects>,
    /// What goes wrong in sessions; nothing when no fault is switched on.
    pub faults: Arc<Faults>,
    /// Stable name.
    pub backend_id: String,
    /// New with every process.
    pub boot_id: String,
    draining: AtomicBool,
    /// Does the work of `--cost virtual:`; none where the cost is burnt, or there is none.
    processor: Option<Mutex<Processor>>,
    /// Cancelled when an operator asks for the drain.
    pub drain_asked: CancellationToken,
    /// Cancelled when the drain begins: connections say goodbye.
    pub drain: CancellationToken,
    /// Cancelled when connections must go.
    pub stop: CancellationToken,
    /// Streams that were refused for what they sent before a session began, by code; bounded by the number of codes.
    pub refused: Mutex<BTreeMap<ErrorCode, u64>>,
    /// The latest report of load.
    pub board: Board,
    /// The connections that are open.
    pub admission: Arc<Admission>,
}

impl Shared {
    /// Nothing is served yet.
    pub fn new(
        clock: Clock,
        config: ServerConfig,
        sessions: Arc<Sessions>,
        wrongs: Wrongs,
        backend_id: String,
        boot_id: String,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock,
            session: Arc::new(config.session(&backend_id, &boot_id)),
            processor: config.cost.is_virtual().then(|| Mutex::new(Processor::new(config.report.cores, clock.now()))),
            board: Board::new(&config.report),
            admission: Admission::new(
                config.max_connections,
                config.max_connections_per_ip,
                listen::files_for_connections(admin::CONNECTIONS_MAX),
            ),
            config,
            sessions,
            defects: wrongs.defects,
            faults: wrongs.faults,
            backend_id,
            boot_id,
            draining: AtomicBool::new(false),
            drain_asked: CancellationToken::new(),
            drain: CancellationToken::new(),
            stop: CancellationToken::new(),
            refused: Mutex::new(BTreeMap::new()),
        })
    }

    /// No new session is taken.
    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Adds accounted cost to the line, microseconds.
    pub fn charge_virtual(&self, cost_us: u64) {
        if let Some(processor) = &self.processor {
            processor.lock().charge(cost_us as f64, self.clock.now());
        }
    }

    /// How long work that comes now waits for the processor; none where there is no processor to wait for.
    pub fn virtual_delay(&self) -> Option<Duration> {
        Some(self.advanced(self.processor.as_ref()?).delay())
    }

    /// Accounted cost that is done by now, microseconds: what a CPU clock would show. What still waits is only charged.
    pub fn virtual_used_us(&self) -> u64 {
        self.processor.as_ref().map_or(0, |processor| self.advanced(processor).used_us())
    }

    fn advanced<'a>(&self, processor: &'a Mutex<Processor>) -> MutexGuard<'a, Processor> {
        let mut processor = processor.lock();
        processor.advance(self.clock.now(), 0.0);
        processor
    }

    /// A session that asked now would be refused.
    pub fn refusing(&self) -> bool {
        self.draining() || self.sessions.full()
    }

    /// A stream was refused before a session began.
    pub fn count_refusal(&self, code: ErrorCode) {
        *self.refused.lock().entry(code).or_default() += 1;
    }

    /// Takes no more sessions and tells connections.
    pub fn begin_drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.drain.cancel();
    }
}

/// Sums of one shard; only its own thread adds.
#[derive(Debug, Default)]
pub struct Counters {
    /// Events dropped because the client does not read.
    pub dropped: AtomicU64,
    /// Synthetic cost that was only accounted, microseconds.
    pub virtual_cost_us: AtomicU64,
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections that were given up because the peer went silent.
    pub silent: AtomicU64,
    /// Streams that were given up because the client did not read the end of its session.
    pub unread: AtomicU64,
}
