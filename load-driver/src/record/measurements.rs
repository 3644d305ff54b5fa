//! What thresholds may ask for.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::{Counter, Metric, Registry};
use crate::{
    leak::{Leak, LeakBook},
    ledger::{DriftSum, Funnel, Funnels},
    threshold::{Basis, Filter, Gauge, Source},
};

/// The registry and the ledger of one run, seen by thresholds.
#[derive(Debug, Clone, Copy)]
pub struct Measurements<'a> {
    /// Latencies and counters.
    pub registry: &'a Registry,
    /// Sessions.
    pub funnels: &'a Funnels,
    /// Growth of processes, where it is watched.
    pub leaks: Option<&'a LeakBook>,
    /// How far the backends' counts are off, where they are read.
    pub drift: Option<DriftSum>,
}

impl Measurements<'_> {
    fn accepts(&self, filter: &Filter) -> impl Fn(usize) -> bool {
        move |number| self.registry.labels().get(number).map_or(filter.is_empty(), |label| filter.accepts(label))
    }
}

impl Source for Measurements<'_> {
    fn latency(&self, metric: Metric, basis: Basis, filter: &Filter, window: Option<Duration>) -> Option<Histogram<u64>> {
        let (response, service) = match window {
            None => self.registry.latency(metric, self.accepts(filter)),
            Some(window) => self.registry.recent_latency(window, metric, self.accepts(filter)),
        }?;
        Some(match basis {
            Basis::Response => response,
            Basis::Service => service,
        })
    }

    fn counter(&self, counter: Counter, filter: &Filter, window: Option<Duration>) -> u64 {
        match window {
            None => self.registry.counter(counter, self.accepts(filter)),
            Some(window) => self.registry.recent_counter(window, counter, self.accepts(filter)),
        }
    }

    fn sessions(&self, filter: &Filter) -> Funnel {
        let accepts = self.accepts(filter);
        let mut sum = Funnel::default();
        for number in (0..self.registry.labels().len()).filter(|n| accepts(*n)) {
            sum.add(&self.funnels.scenario(number as u16));
        }
        sum
    }

    fn gauge(&self, gauge: Gauge) -> (u64, u64) {
        let (now, peak) = (self.registry.gauges(), self.registry.peaks());
        match gauge {
            Gauge::Active => (now.0, peak.0),
            Gauge::Speaking => (now.1, peak.1),
        }
    }

    fn leak(&self, leak: Leak) -> Option<(f64, u64)> {
        self.leaks?.worst(leak)
    }

    fn drift(&self) -> Option<DriftSum> {
        self.drift
    }

    fn measured(&self) -> Duration {
        self.registry.measured()
    }
}
