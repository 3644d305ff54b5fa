//! Totals that outlive their process: taken out at a checkpoint, put back when the run is resumed.

use std::time::Duration;

use super::{Counter, Registry, ScenarioLabel, Series, add_pair, empty_pair};
use crate::engine::{IntervalReport, ScenarioInterval};

impl Registry {
    /// All totals so far as one report; [`Self::resume`] takes it back.
    pub fn totals(&self) -> IntervalReport {
        let scenario = |(number, totals): (usize, &super::Totals)| ScenarioInterval {
            scenario: number as u16,
            latencies: totals
                .latencies
                .iter()
                .map(|(metric, (response, service))| {
                    let mut pair = empty_pair();
                    add_pair(&mut pair, response, service);
                    (*metric, pair.0, pair.1)
                })
                .collect(),
            counts: Counter::ALL.into_iter().map(|counter| (counter, totals.counts[counter as usize])).filter(|(_, n)| *n > 0).collect(),
            clamped: totals.clamped,
        };
        IntervalReport {
            shard: 0,
            from_us: 0,
            to_us: self.measured().as_micros() as u64,
            active: self.peaks.0,
            speaking: self.peaks.1,
            tasks: 0,
            warmup: false,
            scenarios: self.totals.iter().enumerate().map(scenario).collect(),
        }
    }

    /// Goes on where others ended: `start_us` is the unix time at which the run would have begun had nothing come between.
    pub fn resume(start_us: u64, labels: Vec<ScenarioLabel>, totals: IntervalReport, warmup_samples: u64, series: Series) -> Self {
        let mut registry = Self::new(start_us, labels);
        registry.measured_before = Duration::from_micros(totals.to_us);
        registry.peaks = (totals.active, totals.speaking);
        registry.warmup_samples = warmup_samples;
        registry.series = series;
        for interval in totals.scenarios {
            registry.count(0, interval);
        }
        registry
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        engine::{EngineEvent, wire},
        plan::{Dialect, Protocol},
        record::{Counter, Metric, Registry, Sample, ScenarioLabel, ShardRecorder},
    };
    use proto::time::Micros;

    fn labels() -> Vec<ScenarioLabel> {
        vec![ScenarioLabel { name: "talk".into(), protocol: Protocol::Grpc, dialect: Dialect::Native, expect: None }]
    }

    fn report(second: u64, latencies: &[u64]) -> crate::engine::IntervalReport {
        let mut recorder = ShardRecorder::new(1);
        for us in latencies {
            recorder.record(0, &Sample { metric: Metric::TurnResponse, intended: Micros(0), actual: Micros(10), to: Micros(*us) });
        }
        recorder.count(0, Counter::Turns, latencies.len() as u64);
        crate::engine::IntervalReport {
            shard: 0,
            from_us: second * 1_000_000,
            to_us: (second + 1) * 1_000_000,
            active: 3,
            speaking: 1,
            tasks: 0,
            warmup: false,
            scenarios: recorder.take(),
        }
    }

    #[test]
    fn two_segments_are_as_good_as_one() {
        let (first, second): (Vec<u64>, Vec<u64>) = ((1_000..1_400).collect(), (900_000..900_700).collect());
        let mut whole = Registry::new(0, labels());
        whole.add(report(0, &first));
        whole.add(report(1, &second));
        let mut before = Registry::new(0, labels());
        before.add(report(0, &first));
        before.finish();
        // Through the bytes that the checkpoint holds.
        let mut bytes = Vec::new();
        wire::write_event(&mut bytes, EngineEvent::Interval(before.totals())).unwrap();
        let Some(EngineEvent::Interval(totals)) = wire::read_event(&mut bytes.as_slice()).unwrap() else { panic!("an interval") };
        let mut after = Registry::resume(0, labels(), totals, before.warmup_samples(), before.series().clone());
        after.add(report(1, &second));
        for registry in [&mut whole, &mut after] {
            registry.finish();
        }
        assert_eq!(whole.latency(Metric::TurnResponse, |_| true), after.latency(Metric::TurnResponse, |_| true));
        assert_eq!(whole.counter(Counter::Turns, |_| true), after.counter(Counter::Turns, |_| true));
        assert_eq!((whole.series(), whole.peaks(), whole.measured()), (after.series(), after.peaks(), after.measured()));
    }
}
