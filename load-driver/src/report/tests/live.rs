//! What is shown while a run goes on.

use indicatif::ProgressDrawTarget;

use super::*;

fn tick(second: u64, stage: Stage) -> Tick {
    let scenario = ScenarioTick { target: 100.0, actual: 98.0, active: 98, progress: 0.25, ..ScenarioTick::default() };
    Tick {
        at: std::time::Duration::from_secs(second),
        planned: std::time::Duration::from_secs(30),
        stage,
        scenarios: vec![
            ScenarioTick { name: "talk".into(), ..scenario.clone() },
            ScenarioTick { name: "listen".into(), unit: LoadUnit::PerSecond, target: 12.5, actual: 12.0, failed: 2, ..scenario },
        ],
        active: 1_196,
        speaking: 60,
        lag_p99_ms: Some(0.7),
        cpu_cores: Some(0.51),
    }
}

#[test]
fn plain_lines_without_a_terminal() {
    let shared = Shared::default();
    let mut live = Live::new(LiveMode::Lines { out: Box::new(shared.clone()), every: std::time::Duration::from_secs(5) });
    live.event(Event::Started(&run_info())).unwrap();
    for second in 0..8 {
        live.event(Event::Tick(&tick(second, if second < 7 { Stage::Running } else { Stage::Stopping }))).unwrap();
    }
    let shown = String::from_utf8(shared.0.lock().unwrap().clone()).unwrap();
    assert!(!shown.contains('\x1b') && !shown.contains('\r'));
    insta::assert_snapshot!(shown, @r"
    0ms of 30s running: 1,196 active, 60 speaking, lag p99 0.70 ms, cpu 0.51 cores
      talk: 98/100 sessions
      listen: 12.0/12.5 sessions/s, 98 active, 2 failed
    5s of 30s running: 1,196 active, 60 speaking, lag p99 0.70 ms, cpu 0.51 cores
      talk: 98/100 sessions
      listen: 12.0/12.5 sessions/s, 98 active, 2 failed
    7s of 30s stopping: 1,196 active, 60 speaking, lag p99 0.70 ms, cpu 0.51 cores
      talk: 98/100 sessions
      listen: 12.0/12.5 sessions/s, 98 active, 2 failed
    ");
}

#[test]
fn bars_take_ticks_and_end() {
    let mut live = Live::new(LiveMode::Bars(ProgressDrawTarget::hidden()));
    live.event(Event::Started(&run_info())).unwrap();
    live.event(Event::Tick(&tick(3, Stage::Running))).unwrap();
    let Shown { scenarios, run } = bars(&live);
    assert_eq!(
        scenarios,
        [("talk  ".into(), "98/100 sessions".into(), 250), ("listen".into(), "12.0/12.5 sessions/s, 98 active, 2 failed".into(), 250)]
    );
    assert!(run.starts_with("3s of 30s running: 1,196 active"));
    live.event(Event::Finished(&empty())).unwrap();
}

struct Shown {
    scenarios: Vec<(String, String, u64)>,
    run: String,
}

fn bars(live: &Live) -> Shown {
    let (scenarios, run) = live.bars();
    Shown { scenarios: scenarios.iter().map(|b| (b.prefix(), b.message(), b.position())).collect(), run: run.message() }
}
