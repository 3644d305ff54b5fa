//! How the run goes, second by second, for people who watch.

use std::time::Duration;

use proto::time::Micros;

use crate::{
    ledger::LiveView,
    plan::{Plan, ScenarioPlan},
    report::{LoadUnit, ScenarioTick, Stage, Tick},
};

/// What a tick is made of, beside the plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now<'a> {
    /// Run time, of the plan's rest where a run goes on.
    pub(super) at: Micros,
    /// What the run had used up when its rest began.
    pub(super) from: Micros,
    /// What the run does.
    pub(super) stage: Stage,
    /// Of the ledger.
    pub(super) live: &'a LiveView,
    /// Of the ledger, a second ago.
    pub(super) before: &'a LiveView,
    /// Users who speak.
    pub(super) speaking: u64,
    /// Of the last second.
    pub lag_p99_ms: Option<f64>,
    /// Of this process.
    pub(super) cpu_cores: Option<f64>,
}

/// The run now.
pub(super) fn tick(plan: &Plan, now: Now<'_>) -> Tick {
    Tick {
        at: Duration::from_micros(now.from.0 + now.at.0),
        planned: Duration::from_micros(now.from.0 + plan.stops_at().0),
        stage: now.stage,
        scenarios: plan.scenarios.iter().map(|scenario| of(scenario, now)).collect(),
        active: now.live.funnels.total().live,
        speaking: now.speaking,
        lag_p99_ms: now.lag_p99_ms,
        cpu_cores: now.cpu_cores,
    }
}

fn of(scenario: &ScenarioPlan, now: Now<'_>) -> ScenarioTick {
    let second = Micros(now.at.0.saturating_sub(1_000_000));
    let (live, before) = (now.live.funnels.scenario(scenario.number), now.before.funnels.scenario(scenario.number));
    let outlook = scenario.outlook();
    let closed = scenario.lanes.iter().any(|lane| lane.repeat);
    let planned = if closed {
        scenario.lanes.iter().filter(|lane| lane.start <= now.at && now.at < lane.stop).count()
    } else {
        scenario.lanes.iter().filter(|lane| second < lane.start && lane.start <= now.at).count()
    };
    let span = (outlook.to - outlook.from).as_secs_f64();
    ScenarioTick {
        name: scenario.name.clone(),
        unit: if closed { LoadUnit::Sessions } else { LoadUnit::PerSecond },
        target: planned as f64,
        actual: if closed { live.live as f64 } else { live.requested.saturating_sub(before.requested) as f64 },
        active: live.live,
        failed: live.sessions_failed(),
        progress: if span > 0.0 { ((now.at - outlook.from).as_secs_f64() / span).min(1.0) } else { 0.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::Resumed,
        profile::{Source, open_text},
    };

    /// As the run's opening says how long it takes.
    #[test]
    fn a_run_that_goes_on_counts_from_its_begin() {
        let text = "scenarios: {talk: {executor: constant-sessions, sessions: 1, duration: 40s, conversations: [{turns: [{wait: 1s}]}]}}";
        let loaded = open_text(&Source::Shipped("test".into()), "test", text, &[]).unwrap_or_else(|e| panic!("{e}"));
        let plan = Plan::build(&loaded.profile, "00000000").unwrap_or_else(|e| panic!("{e}"));
        let from = Micros::from_millis(13_000);
        let plan = plan.resumed(Resumed { from, segment: 1 });
        let live = LiveView::default();
        let stage = Stage::Running;
        let at = Micros::from_millis(2_000);
        let now = Now { at, from, stage, live: &live, before: &live, speaking: 0, lag_p99_ms: None, cpu_cores: None };
        let tick = tick(&plan, now);
        assert_eq!((tick.at, tick.planned), (Duration::from_secs(15), Duration::from_secs(40)));
    }
}
