//! The balancer of a process: its shards ask it where sessions go, its feed tells it how the backends are.
//!
//! One lock, the last in the order of locks: nothing else is ever locked, sent or awaited under it. Time is read under it, so that the router's
//! time only goes forward, whoever asks.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use agent_server::runtime::clock::Clock;
use parking_lot::Mutex;
use proto::{orca::OrcaLoadReport, time::Micros};
use tokio::sync::watch;

use crate::{
    feed::Hear,
    profile::ReportSource,
    routing::{Grant, Report, Router, RouterConfig},
};

/// A report may lack a session that was sent to its backend up to so long before the report came: the session was on its way still, or
/// the report was. Taken for older than it is, a report leaves such a session debited once more until the next report; taken for newer,
/// it would set the session free before the backend has it, and the same place would be given away twice.
pub const GUARD: Duration = Duration::from_millis(20);

/// Reports that may wait for the end of their lag; more are dropped, and counted.
const MAX_LATE: usize = 65_536;

/// How a process balances.
#[derive(Debug, Clone, Copy)]
pub struct RoutesConfig {
    /// What picks.
    pub router: RouterConfig,
    /// Where reports come from; those from elsewhere are not heard.
    pub source: ReportSource,
    /// Reports are heard so much later than they came.
    pub lag: Duration,
    /// Other backends that a refused session tries.
    pub retries: u32,
}

/// One router, shared. Before the engine starts it is always run time 0.
pub struct Routes {
    state: Mutex<State>,
    clock: watch::Sender<Option<Clock>>,
    config: RoutesConfig,
    /// Reports that found no room to wait.
    dropped: AtomicU64,
}

struct State {
    router: Router,
    /// In order of time: the lag is the same for all.
    late: VecDeque<Late>,
    /// Backends that came up and were not heard since.
    news: Vec<bool>,
}

/// A report that is not heard yet.
struct Late {
    due: Micros,
    backend: usize,
    report: Report,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Routes {
    /// Every backend is up and unheard of.
    pub fn new(config: RoutesConfig) -> Arc<Self> {
        let state = State { router: Router::new(config.router), late: VecDeque::new(), news: vec![true; config.router.backends] };
        Arc::new(Self { state: Mutex::new(state), clock: watch::Sender::new(None), config, dropped: AtomicU64::new(0) })
    }

    /// The run's clock.
    pub(super) fn begin(&self, clock: Clock) {
        self.clock.send_replace(Some(clock));
    }

    /// The run's clock, once it is known.
    pub(super) fn clock(&self) -> watch::Receiver<Option<Clock>> {
        self.clock.subscribe()
    }

    /// Asks something of the router, at the run time of now, after it has heard what is due.
    pub fn with<T>(&self, ask: impl FnOnce(&mut Router, Micros) -> T) -> T {
        self.at_now(|state, now| ask(&mut state.router, now))
    }

    fn at_now<T>(&self, ask: impl FnOnce(&mut State, Micros) -> T) -> T {
        let mut state = self.state.lock();
        let now = self.clock.borrow().map_or(Micros::ZERO, |clock| clock.now());
        while let Some(late) = state.late.pop_front_if(|late| late.due <= now) {
            state.router.report(late.backend, late.report, now);
        }
        ask(&mut state, now)
    }

    /// A backend for session number `session`, but not `not`; none when none may be picked. What it gives must be held as long as the
    /// session lasts: when it is dropped, the router hears that the session is over.
    pub(super) fn grant(self: &Arc<Self>, session: u64, not: Option<usize>) -> Option<Granted> {
        let (grant, at) = self.with(|router, now| router.grant(session, not, now).map(|grant| (grant, now)))?;
        Some(Granted { routes: Arc::clone(self), grant, at, accepted: false })
    }

    /// Other backends that a refused session tries.
    pub(super) fn retries(&self) -> u32 {
        self.config.retries
    }

    /// A session's own stream carried a report of its backend, made before `before` if that is known.
    pub(super) fn hear_in_band(&self, backend: usize, report: &OrcaLoadReport, before: Option<Micros>) {
        if self.config.source == ReportSource::InBand {
            self.hear(backend, report, before.unwrap_or(Micros::NEVER));
        }
    }

    fn hear(&self, backend: usize, report: &OrcaLoadReport, before: Micros) {
        let lag = self.config.lag;
        self.at_now(|state, now| {
            let Some(news) = state.news.get_mut(backend) else { return };
            let made = Micros(now.0.saturating_sub(GUARD.as_micros() as u64)).min(Micros(before.0.saturating_sub(1)));
            let report = Report::from_orca(report, made);
            // That a backend is up is known from this very report: it cannot be known later than that.
            if std::mem::take(news) || lag.is_zero() {
                state.router.report(backend, report, now);
            } else if state.late.len() < MAX_LATE {
                state.late.push_back(Late { due: now + lag, backend, report });
            } else {
                let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
                tracing::debug!(backend, dropped, "too many load reports wait for the end of their lag");
            }
        });
    }

    fn set_up(&self, backend: usize, up: bool) {
        self.at_now(|state, _| {
            let Some(news) = state.news.get_mut(backend) else { return };
            *news |= !up;
            // What a process said that is gone is no news of the next.
            if !up {
                state.late.retain(|late| late.backend != backend);
            }
            state.router.set_up(backend, up);
        });
    }
}

impl Hear for Routes {
    fn up(&self, backend: usize) {
        self.set_up(backend, true);
    }

    fn down(&self, backend: usize) {
        self.set_up(backend, false);
    }

    fn report(&self, backend: usize, report: &OrcaLoadReport) {
        if self.config.source == ReportSource::OutOfBand {
            self.hear(backend, report, Micros::NEVER);
        }
    }
}

/// A backend for a session, for as long as the session lasts. The router hears of its end exactly once, whichever way it comes.
#[derive(Debug)]
pub(super) struct Granted {
    routes: Arc<Routes>,
    grant: Grant,
    at: Micros,
    accepted: bool,
}

impl Granted {
    /// Which backend.
    pub(super) fn backend(&self) -> usize {
        self.grant.backend
    }

    /// Age of the report that the choice rests on, microseconds.
    pub(super) fn report_age_us(&self) -> Option<u64> {
        self.grant.report_age.map(|age| u64::try_from(age.as_micros()).unwrap_or(u64::MAX))
    }

    /// When it was given, while the backend has not accepted the session: what it reports until then is without it.
    pub(super) fn pending_since(&self) -> Option<Micros> {
        (!self.accepted).then_some(self.at)
    }

    /// The backend has accepted the session.
    pub(super) fn accepted(&mut self) {
        if !std::mem::replace(&mut self.accepted, true) {
            self.routes.with(|router, now| router.accepted(self.grant, now.since(self.at)));
        }
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        let (grant, accepted) = (self.grant, self.accepted);
        self.routes.with(|router, _| if accepted { router.ended(grant) } else { router.failed(grant) });
    }
}
