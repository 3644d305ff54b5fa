//! The recorder of one shard: no lock, no sharing, emptied each second.

use hdrhistogram::Histogram;

use super::{Counter, Metric, Sample, histogram};
use crate::engine::ScenarioInterval;

/// Takes samples and counts of one shard between two calls of [`Self::take`].
///
/// A histogram exists only for a (scenario, metric) that has samples in the current interval. `take` hands it over instead of copying
/// it, and its successor is made at the next sample with the size of the last one: one allocation per metric and second, spread over the
/// second rather than in one pause at its end.
#[derive(Debug, Default)]
pub struct ShardRecorder {
    scenarios: Vec<Scenario>,
}

#[derive(Debug, Default)]
struct Scenario {
    latencies: [Latency; Metric::ALL.len()],
    counts: [u64; Counter::ALL.len()],
    clamped: u64,
}

#[derive(Debug, Default)]
struct Latency {
    response: Basis,
    service: Basis,
}

/// One metric from one base. Zeros are counted beside the histogram: `schedule_lag`, recorded for every frame, has a service time of zero.
#[derive(Debug, Default)]
struct Basis {
    histogram: Option<Histogram<u64>>,
    zeros: u64,
    room: u64,
}

impl ShardRecorder {
    /// For scenarios `0..scenarios`.
    pub fn new(scenarios: usize) -> Self {
        Self { scenarios: (0..scenarios).map(|_| Scenario::default()).collect() }
    }

    /// Takes one latency: response from the intended, service from the actual time. An end before its beginning counts as zero.
    #[inline]
    pub fn record(&mut self, scenario: u16, sample: &Sample) {
        let scenario = self.scenario(scenario);
        let latency = &mut scenario.latencies[sample.metric as usize];
        let response = latency.response.record(sample.to.0.saturating_sub(sample.intended.0));
        let service = latency.service.record(sample.to.0.saturating_sub(sample.actual.0));
        scenario.clamped += u64::from(response || service);
    }

    /// Adds to a counter.
    #[inline]
    pub fn count(&mut self, scenario: u16, counter: Counter, by: u64) {
        let cell = &mut self.scenario(scenario).counts[counter as usize];
        *cell = cell.saturating_add(by);
    }

    /// Everything since the last call, per scenario that had anything; the recorder is empty afterwards.
    pub fn take(&mut self) -> Vec<ScenarioInterval> {
        self.scenarios.iter_mut().enumerate().filter_map(|(number, scenario)| scenario.take(number as u16)).collect()
    }

    #[inline]
    fn scenario(&mut self, number: u16) -> &mut Scenario {
        let number = usize::from(number);
        // More scenarios than announced is a fault of the caller, but no reason to lose what was measured.
        if number >= self.scenarios.len() {
            self.scenarios.resize_with(number + 1, Scenario::default);
        }
        &mut self.scenarios[number]
    }
}

impl Scenario {
    fn take(&mut self, number: u16) -> Option<ScenarioInterval> {
        let latencies: Vec<_> = Metric::ALL
            .into_iter()
            .filter_map(|metric| {
                let latency = &mut self.latencies[metric as usize];
                // Both bases have a sample or neither has: `record` feeds both.
                Some((metric, latency.response.take()?, latency.service.take()?))
            })
            .collect();
        let counts = std::mem::take(&mut self.counts);
        let counts: Vec<_> = Counter::ALL.into_iter().map(|c| (c, counts[c as usize])).filter(|(_, n)| *n > 0).collect();
        let clamped = std::mem::take(&mut self.clamped);
        (!latencies.is_empty() || !counts.is_empty()).then_some(ScenarioInterval { scenario: number, latencies, counts, clamped })
    }
}

impl Basis {
    #[inline]
    fn record(&mut self, value_us: u64) -> bool {
        if value_us == 0 {
            self.zeros += 1;
            return false;
        }
        let room = self.room;
        histogram::record(self.histogram.get_or_insert_with(|| histogram::sized(room)), value_us)
    }

    fn take(&mut self) -> Option<Histogram<u64>> {
        let zeros = std::mem::take(&mut self.zeros);
        if zeros == 0 && self.histogram.is_none() {
            return None;
        }
        let mut taken = self.histogram.take().unwrap_or_else(histogram::empty);
        if zeros > 0 {
            // Zero is within the range of every histogram.
            taken.saturating_record_n(0, zeros);
        }
        self.room = taken.max();
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use proto::time::Micros;

    use super::*;

    fn sample(metric: Metric, intended: u64, actual: u64, to: u64) -> Sample {
        Sample { metric, intended: Micros(intended), actual: Micros(actual), to: Micros(to) }
    }

    #[test]
    fn discriminants_follow_the_tables() {
        assert!(Metric::ALL.iter().enumerate().all(|(n, m)| *m as usize == n));
        assert!(Counter::ALL.iter().enumerate().all(|(n, c)| *c as usize == n));
    }

    /// oha 211, wrk2 81, vegeta 223: both times are kept, side by side.
    #[test]
    fn both_bases_are_kept() {
        let mut recorder = ShardRecorder::new(1);
        recorder.record(0, &sample(Metric::TurnResponse, 1_000, 1_400, 2_000));
        let taken = recorder.take();
        let (metric, response, service) = &taken[0].latencies[0];
        assert_eq!((*metric, response.max(), service.max()), (Metric::TurnResponse, 1_000, 600));
    }

    #[test]
    fn an_interval_holds_only_what_happened_in_it() {
        let mut recorder = ShardRecorder::new(3);
        recorder.record(1, &sample(Metric::ScheduleLag, 10, 15, 15));
        recorder.count(1, Counter::FramesSent, 2);
        recorder.count(1, Counter::FramesSent, 3);
        let taken = recorder.take();
        assert_eq!(taken.len(), 1, "scenarios without anything are left out");
        assert_eq!(taken[0].scenario, 1);
        assert_eq!(taken[0].counts, [(Counter::FramesSent, 5)]);
        let (_, response, service) = &taken[0].latencies[0];
        assert_eq!((response.len(), response.max(), service.len(), service.max()), (1, 5, 1, 0));
        assert!(recorder.take().is_empty(), "taking empties");
        recorder.record(1, &sample(Metric::ScheduleLag, 10, 12, 12));
        assert_eq!(recorder.take()[0].latencies[0].1.max(), 2, "nothing of the last interval is left");
    }

    /// `HdrHistogram_rust` 135/72.
    #[test]
    fn clamped_samples_are_counted_once_each() {
        let mut recorder = ShardRecorder::new(1);
        recorder.record(0, &sample(Metric::Connect, 0, 0, u64::MAX));
        recorder.record(0, &sample(Metric::Connect, 0, u64::MAX - 5, u64::MAX));
        recorder.record(0, &sample(Metric::Connect, 0, 0, 5));
        let taken = recorder.take();
        assert_eq!(taken[0].clamped, 2);
        assert_eq!(histogram::clamped(&taken[0].latencies[0].1), 2);
        assert_eq!(histogram::clamped(&taken[0].latencies[0].2), 1);
    }

    #[test]
    fn time_that_runs_backwards_is_zero_and_an_unannounced_scenario_is_kept() {
        let mut recorder = ShardRecorder::new(0);
        recorder.record(4, &sample(Metric::BargeInStop, 20, 20, 10));
        let taken = recorder.take();
        assert_eq!((taken[0].scenario, taken[0].latencies[0].1.max(), taken[0].latencies[0].1.len()), (4, 0, 1));
    }

    /// k6 763: a recorder's memory does not grow with the number of samples.
    #[test]
    fn memory_is_flat() {
        let mut recorder = ShardRecorder::new(1);
        let mut bins = Vec::new();
        for _ in 0..5 {
            for n in 0..10_000 {
                recorder.record(0, &sample(Metric::FrameRtt, 0, 0, n % 900 + 1));
            }
            bins.push(recorder.take()[0].latencies[0].1.distinct_values());
        }
        assert!(bins.iter().all(|b| *b == bins[0]), "{bins:?}");
    }
}
