//! What a process balances with: the router that its shards share, and the feed that tells it of the backends.

use std::{io, sync::Arc, time::Duration};

use proto::time::Micros;

use super::{
    Targets,
    routes::{Routes, RoutesConfig},
};
use crate::{
    feed::{Feed, FeedOptions, Hear},
    profile::{Profile, Reach, Routing},
    routing::{self, RouterConfig, UnknownPolicy},
};

/// A profile's `routing`, for one policy.
#[derive(Debug, Clone)]
pub struct BalancerConfig {
    /// How sessions are given out.
    pub routes: RoutesConfig,
    /// Between two reports of a backend, out of band.
    pub report_interval: Duration,
    /// Run time from which balancers know of a backend; those not named are known from the beginning.
    pub joins: Vec<Micros>,
}

/// A policy that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// Not in the list.
    #[error(transparent)]
    Unknown(#[from] UnknownPolicy),
    /// A run has exactly one.
    #[error("a run balances by one policy, not by {0}")]
    NotOne(usize),
}

impl BalancerConfig {
    /// Of a profile whose `routing` names one policy, over so many backends; none without `routing`, and none where sessions go to somebody
    /// else's balancer. `mix` goes into the seed, so that the balancers of two processes do not draw alike.
    pub fn of(profile: &Profile, backends: usize, mix: u64) -> Result<Option<Self>, PolicyError> {
        let fleet = profile.fleet();
        let Some(routing) = profile.routing.as_ref().filter(|_| !matches!(fleet.reach, Reach::Front(_))) else { return Ok(None) };
        let joins = fleet.members.iter().map(|member| member.joins).collect();
        Ok(Some(Self { routes: routes(routing, backends, profile.seed ^ mix)?, report_interval: routing.report_interval.0, joins }))
    }

    /// For the rest of a run of which so much is over.
    #[must_use]
    pub fn from(mut self, run_time: Micros) -> Self {
        for joins in &mut self.joins {
            *joins = Micros(joins.0.saturating_sub(run_time.0));
        }
        self
    }
}

fn routes(routing: &Routing, backends: usize, seed: u64) -> Result<RoutesConfig, PolicyError> {
    let [name] = routing.policy.names() else { return Err(PolicyError::NotOne(routing.policy.names().len())) };
    let policy = routing::find(name)?;
    let router = RouterConfig {
        policy,
        backends,
        balancers: routing.balancers.max(1) as usize,
        share: routing.share,
        staleness: routing.staleness.0,
        error_penalty: routing.error_penalty,
        seed,
    };
    Ok(RoutesConfig { router, source: routing.reports, lag: routing.report_lag.0, retries: routing.retries })
}

/// A balancer at work. Dropping it ends its feed; the router lives as long as sessions that it gave out.
#[derive(Debug)]
pub struct Balancer {
    routes: Arc<Routes>,
    feed: Feed,
}

impl Balancer {
    /// Starts to listen to the backends.
    pub fn start(config: &BalancerConfig, targets: &Arc<Targets>) -> io::Result<Self> {
        let routes = Routes::new(config.routes);
        let options = FeedOptions { source: config.routes.source, report_interval: config.report_interval, joins: config.joins.clone() };
        let hear: Arc<dyn Hear> = Arc::clone(&routes) as _;
        let feed = Feed::start(&options, targets, &routes.clock(), &hear)?;
        Ok(Self { routes, feed })
    }

    /// Until every backend that is to be known from the beginning was heard of, or the time for that is over.
    pub async fn ready(&mut self) {
        self.feed.heard().await;
    }

    /// As [`Self::ready`], on a thread without a runtime.
    pub fn wait_ready(&mut self) {
        self.feed.wait_heard();
    }

    /// What the shards ask.
    pub fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }
}
