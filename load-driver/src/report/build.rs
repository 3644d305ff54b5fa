//! Makes the parts of a summary from what was recorded.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::behaviour::Behaviour;
use super::summary::{
    CountersSection, CountersStatus, ExitSection, GeneratorHealth, Invariant, LatencyRow, Quantiles, RunInfo, SCHEMA_VERSION,
    ScenarioSummary, Summary,
};
use crate::{
    ledger::{FailureCause, Funnel, Funnels, funnel::cause_name},
    record::{Counter, Metric, Registry, ScenarioLabel, histogram},
    report::Exit,
    system::{ProcessTrack, SaturationLimits, judge},
};

/// Every session is in one place.
pub const FUNNEL: &str = "funnel_adds_up";
/// Every step in the ledger fits its session.
pub const STEPS: &str = "ledger_steps_fit";
/// The backends' counters are right.
pub const COUNTERS: &str = "counters_agree";
/// The driver was not the bottleneck.
pub const GENERATOR: &str = "generator_not_saturated";
/// No worker was lost.
pub const WORKERS: &str = "no_worker_lost";
/// The target did something of what it is there for.
pub const WORKS: &str = "target_works";
/// Every session is over.
pub const OVER: &str = "all_sessions_over";

impl Quantiles {
    /// None without samples.
    pub fn of(samples: &Histogram<u64>) -> Option<Self> {
        let ms = |us: u64| us as f64 / 1_000.0;
        let at = |q| histogram::quantile(samples, q).map(ms);
        Some(Self {
            count: samples.len(),
            min_ms: ms(histogram::min(samples)?),
            // To the nanosecond: more digits would only be noise of the sum.
            mean_ms: (histogram::mean(samples)? * 1_000.0).round() / 1_000_000.0,
            p50_ms: at(0.5)?,
            p90_ms: at(0.9)?,
            p95_ms: at(0.95)?,
            p99_ms: at(0.99)?,
            p999_ms: at(0.999)?,
            max_ms: ms(histogram::max(samples)?),
        })
    }
}

/// Every metric of the scenarios that `of` accepts.
pub fn latencies(registry: &Registry, of: impl Fn(usize) -> bool) -> Vec<LatencyRow> {
    let row = |metric: Metric| {
        let pair = registry.latency(metric, &of);
        let (response, service) = pair.as_ref().map_or((None, None), |(r, s)| (Quantiles::of(r), Quantiles::of(s)));
        // The service time is part of the response time: what clamps it clamps that too.
        let clamped = pair.as_ref().map_or(0, |(r, s)| histogram::clamped(r).max(histogram::clamped(s)));
        LatencyRow { metric: metric.name().to_owned(), response, service, clamped }
    };
    Metric::ALL.into_iter().map(row).collect()
}

/// Every counter of the scenarios that `of` accepts, by name; gaps in numbers only where there are numbers.
pub fn counts(registry: &Registry, of: impl Fn(usize) -> bool) -> BTreeMap<String, u64> {
    let numbered = registry.counter(Counter::AudioNumbered, &of) > 0;
    let all = Counter::ALL.into_iter().filter(|counter| *counter != Counter::SequenceGaps || numbered);
    all.map(|counter| (counter.name().to_owned(), registry.counter(counter, &of))).collect()
}

fn scenarios(registry: &Registry, funnels: &Funnels) -> Vec<ScenarioSummary> {
    let labels = registry.labels().iter().enumerate();
    let one = |number: usize, label: &ScenarioLabel| ScenarioSummary {
        name: label.name.clone(),
        protocol: label.protocol,
        dialect: label.dialect,
        funnel: funnels.scenario(number as u16),
        latencies: latencies(registry, |n| n == number).into_iter().filter(|row| row.response.is_some()).collect(),
        counts: counts(registry, |n| n == number).into_iter().filter(|(_, count)| *count > 0).collect(),
        behaviour: Behaviour::new(registry, |n| n == number),
        errors: funnels.errors(Some(number as u16)),
    };
    labels.map(|(number, label)| one(number, label)).collect()
}

/// What all scenarios speak.
fn dialect(registry: &Registry) -> &'static str {
    let mut spoken = registry.labels().iter().map(|label| label.dialect);
    match spoken.next() {
        Some(first) if spoken.all(|other| other == first) => first.name(),
        Some(_) => "mixed",
        None => "",
    }
}

/// The driver on itself.
pub fn generator(registry: &Registry, driver: &ProcessTrack, limits: SaturationLimits) -> GeneratorHealth {
    let lag = registry.latency(Metric::ScheduleLag, |_| true).map(|(response, _)| response);
    GeneratorHealth {
        saturation: judge(lag.as_ref(), driver, limits),
        schedule_lag_p99_ms: lag.as_ref().and_then(|lag| histogram::quantile(lag, 0.99)).map(|us| us as f64 / 1_000.0),
        schedule_lag_limit_ms: limits.lag_p99_ms,
        cores: limits.cores,
        cpu_mean_cores: driver.mean_cores(),
        cpu_busiest_cores: driver.busiest_cores(),
        send_drops: registry.counter(Counter::SendDrops, |_| true),
    }
}

/// What only the controller knows.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// What was run.
    pub run: RunInfo,
    /// Parts of a run that was resumed.
    pub segments: Vec<super::summary::SegmentRow>,
    /// Seconds from the start to the last session's end.
    pub duration_s: f64,
    /// Why it ended early.
    pub stopped_early: Option<String>,
    /// From the monitor.
    pub thresholds: Vec<crate::threshold::ThresholdResult>,
    /// From the ledger: steps that make no sense.
    pub irregular: Vec<String>,
    /// From the ledger.
    pub counters: CountersSection,
    /// From the callers and the counters.
    pub voice: crate::voice::VoiceSection,
    /// From the ledger.
    pub convergence: Vec<super::summary::ConvergenceRow>,
    /// From the timeline.
    pub faults: Vec<super::summary::FaultRow>,
    /// From [`generator`].
    pub generator: GeneratorHealth,
    /// Driver, workers and backends.
    pub costs: Vec<super::summary::ProcessCost>,
    /// Of driver, workers and backends.
    pub leaks: Vec<crate::leak::LeakRow>,
    /// Workers that were lost other than by the plan.
    pub workers_lost: u64,
    /// What was said with the first failure of each cause, by its name.
    pub said: BTreeMap<String, String>,
    /// Quality of balance.
    pub balance: Option<crate::balance::Balance>,
    /// With every default and override in it.
    pub resolved_profile: serde_json::Value,
}

/// The summary of a run that is over; `reasons` are those that the summary's own contents do not tell (such as an interruption).
pub fn summary(registry: &Registry, funnels: &Funnels, mut known: Known, reasons: &[Exit]) -> Summary {
    for cost in &mut known.costs {
        dialect(registry).clone_into(&mut cost.dialect);
    }
    let errors = funnels.errors(None);
    if let Some(dials) = errors.get(&cause_name(FailureCause::TooManyFiles)).filter(|dials| **dials > 0) {
        known.generator.saturation.out_of_files(*dials);
    }
    let mut summary = Summary {
        schema_version: SCHEMA_VERSION,
        unfinished: false,
        invariants: invariants(registry, funnels, &known),
        segments: known.segments,
        run: known.run,
        duration_s: known.duration_s,
        measured_s: registry.measured().as_secs_f64(),
        warmup_samples: registry.warmup_samples(),
        stopped_early: known.stopped_early,
        exit: ExitSection { code: Exit::Ok.code(), reason: Exit::Ok, reasons: Vec::new() },
        thresholds: known.thresholds,
        counters: known.counters,
        voice: known.voice,
        funnel: funnels.total(),
        latencies: latencies(registry, |_| true),
        counts: counts(registry, |_| true),
        behaviour: Behaviour::new(registry, |_| true),
        scenarios: scenarios(registry, funnels),
        convergence: known.convergence,
        faults: known.faults,
        errors,
        error_messages: known.said,
        generator: known.generator,
        costs: known.costs,
        leaks: known.leaks,
        workers_lost: known.workers_lost,
        balance: known.balance,
        comparison: None,
        series: registry.series().clone(),
        resolved_profile: known.resolved_profile,
    };
    summary.conclude(reasons);
    summary
}

fn invariants(registry: &Registry, funnels: &Funnels, known: &Known) -> Vec<Invariant> {
    let invariant = |name: &str, holds: Option<bool>, detail: String| Invariant { name: name.to_owned(), holds, detail };
    let total = funnels.total();
    let contradictions = total.contradictions();
    let unusable = unusable(registry, funnels);
    let open = total.waiting + total.dialling + total.live;
    let cut_short = known.stopped_early.is_some() || known.workers_lost > 0;
    let counters = match known.counters.status {
        CountersStatus::Agree => Some(known.counters.findings.is_empty()),
        CountersStatus::Disagree | CountersStatus::Unverified => Some(false),
        CountersStatus::NotChecked => None,
    };
    let findings: Vec<String> = known.counters.findings.iter().map(|f| format!("{} ({}): {}", f.name, f.size, f.evidence)).collect();
    let saturation = &known.generator.saturation;
    vec![
        invariant(FUNNEL, Some(contradictions.is_empty()), contradictions.join("; ")),
        invariant(STEPS, Some(known.irregular.is_empty()), known.irregular.join("; ")),
        // A run that was cut short may leave sessions open; one that ended by itself may not.
        invariant(OVER, (open == 0 || !cut_short).then_some(open == 0), format!("{open} sessions were not over at the end")),
        invariant(COUNTERS, counters, if findings.is_empty() { known.counters.basis.clone() } else { findings.join("; ") }),
        invariant(GENERATOR, Some(!saturation.saturated), saturation.reasons.join("; ")),
        invariant(WORKERS, Some(known.workers_lost == 0), format!("{} workers were lost", known.workers_lost)),
        invariant(WORKS, (unusable.is_some() || total.established > 0).then_some(unusable.is_none()), unusable.unwrap_or_default()),
    ]
}

/// Why nothing was tested, whatever else holds: nothing that was tried came to be, and neither the plan nor the user wanted that.
fn unusable(registry: &Registry, funnels: &Funnels) -> Option<String> {
    let total = funnels.total();
    if total.requested > 0 && total.established == 0 && total.sessions_failed() > 0 {
        return Some("no session was accepted".to_owned());
    }
    // What is meant to show refusals or timeouts shows them.
    let judged = |number: usize| registry.labels().get(number).is_some_and(|label| label.expect.is_none());
    let mut sessions = Funnel::default();
    (0..registry.labels().len()).filter(|number| judged(*number)).for_each(|number| sessions.add(&funnels.scenario(number as u16)));
    if sessions.established > 0 && sessions.failed == sessions.established {
        return Some(format!("every session that was accepted failed: {}", sessions.failed));
    }
    let n = |counter| registry.counter(counter, judged);
    let (turns, answered, missed) = (n(Counter::Turns), n(Counter::TurnsAnswered), n(Counter::TurnsMissed));
    // Turns that the plan, or the end of the run, cut are nobody's fault.
    let due = missed > 0 || turns > 0 && sessions.failed > 0;
    (due && answered == 0).then(|| format!("{turns} turns were due, and not one was answered"))
}
