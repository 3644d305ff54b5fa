//! The simulator against arithmetic, against its own promises, and against the frames that it leaves out.

use std::time::Duration;

use super::*;
use crate::{
    profile::{Override, Source, load},
    routing::ALL,
};

mod frames;
mod random;

fn profile(yaml: &str, set: &[&str]) -> Profile {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.yaml");
    std::fs::write(&file, yaml).unwrap();
    let overrides: Vec<Override> = set.iter().map(|text| Override::parse(text).unwrap()).collect();
    load(&Source::File(file), &overrides).unwrap_or_else(|error| panic!("{error}"))
}

fn policy(name: &str) -> Made {
    ALL.iter().copied().find(|policy| policy.name == name).unwrap()
}

fn simulated(yaml: &str, set: &[&str], name: &str) -> Simulated {
    let simulated = simulate(&profile(yaml, set), policy(name)).unwrap();
    assert_eq!(simulated.sessions, simulated.accepted + simulated.refused, "{simulated:?}");
    assert_eq!(simulated.accepted, simulated.finished + simulated.lost + simulated.cut, "{simulated:?}");
    simulated
}

fn count(causes: &std::collections::BTreeMap<String, u64>, cause: &str) -> u64 {
    causes.get(cause).copied().unwrap_or(0)
}

/// Everything that can happen to sessions and backends, at once.
const EVERYTHING: &str = "
server: {max_sessions: 12, cpu_cores: 1, cost: 'virtual:start=5ms,speaking=2ms,thinking=1ms', keepalive_interval: 1s, keepalive_timeout: 1s,
  max_duration: 15s}
backends:
  - {count: 3}
  - {killed: 12s, dead_for: 2s}
  - {joins: 6s}
  - {server: {cpu_cores: 0.5}}
routing: {policy: hybrid, retries: 2, balancers: 2, report_interval: 500ms, report_lag: 300ms}
scenarios:
  calls:
    executor: poisson-arrivals
    rate: 6
    duration: 25s
    session_length: exponential(7s)
    end: [{kind: graceful, weight: 4}, {kind: cancel, weight: 1}, {kind: tcp_rst, weight: 1}, {kind: half_open, weight: 1}]
    conversations:
      - turns:
          - {wait: 'exponential(500ms)', say: {synth: 'uniform(300ms, 900ms)'}, response: 'uniform(500ms, 2s)'}
          - {wait: 300ms, say: {synth: 400ms}, tool: {name: look, takes: 300ms}}
          - {wait: 300ms, say: {synth: 400ms}, barge_in: {after: 200ms, say: {synth: 300ms}}, response: 1s}
          - {wait: 300ms, say: {synth: 400ms}, cancel: {after: 200ms}, response: 1s}
          - {wait: 200ms}
  places:
    executor: ramping-sessions
    stages: [{duration: 5s, target: 20}, {duration: 10s, target: 20}, {duration: 5s, target: 0}]
    session_length: uniform(1s, 4s)
    speaking_ratio: 0.4
    conversations: [{turns: [{say: {synth: 1s}}]}]
  worker:
    executor: constant-sessions
    sessions: 3
    duration: 20s
    end: kill_worker
    kill_at: 9s
    conversations: [{turns: [{wait: 1s}]}]
";

#[test]
fn every_session_is_accounted_for_and_no_cap_is_exceeded_under_every_policy() {
    for made in ALL {
        let simulated = simulated(EVERYTHING, &[], made.name);
        assert!(simulated.most_on_one <= 12, "{}: {simulated:?}", made.name);
        assert_eq!(simulated.cut, 3, "the worker's sessions: {simulated:?}");
        let balance = &simulated.balance;
        assert!(count(&balance.dropped, "kill_backend") > 0, "{balance:?}");
        assert_eq!(balance.dropped.values().sum::<u64>(), simulated.lost);
        assert_eq!(balance.rejected.values().sum::<u64>(), simulated.refused);
        assert_eq!(
            balance.assignments,
            simulated.sessions + balance.retried.values().sum::<u64>() - count(&balance.rejected, "no_backend")
        );
        assert_eq!((balance.counter_error_max, balance.counter_error_min, balance.ghosts_left), (Some(0.0), Some(0.0), 0));
    }
}

#[test]
fn one_seed_gives_one_result_to_the_last_bit_and_another_seed_another() {
    let text = |seed: &str, name| format!("{:?}", simulated(EVERYTHING, &[seed], name));
    for made in ALL {
        assert_eq!(text("seed=1", made.name), text("seed=1", made.name));
        assert_ne!(text("seed=1", made.name), text("seed=2", made.name));
    }
    assert_ne!(text("seed=1", "random"), text("seed=1", "hybrid"));
}

/// Sessions of silence, so that only their number matters.
const SILENT: &str = "
server: {cpu_cores: 1, cost: 'virtual:idle=20us'}
backends: [{count: 5}]
routing: {policy: round_robin}
scenarios:
  calls:
    executor: constant-arrival-rate
    rate: 10
    duration: 60s
    gracefulStop: 60s
    session_length: 8s
    conversations: [{turns: [{wait: 1s}]}]
";

#[test]
fn sessions_at_once_are_their_rate_times_their_length() {
    let simulated = simulated(SILENT, &[], "round_robin");
    assert_eq!((simulated.sessions, simulated.finished, simulated.most_on_one), (600, 600, 17));
    // 600 sessions of 8 s, whenever: the mean over time and backends follows from the sum alone.
    let expected = 600.0 * 8.0 / 5.0 / (simulated.ended_at.0 as f64 / 1e6);
    let seen = simulated.balance.sessions.unwrap().mean;
    assert!((seen / expected - 1.0).abs() < 0.01, "{seen} against {expected}");
    // A thousandth of a core each.
    let utilization = simulated.balance.utilization.unwrap().mean;
    assert!((utilization / (expected * 0.001) - 1.0).abs() < 0.03, "{utilization}");
}

#[test]
fn startups_wait_in_line_as_queueing_theory_says() {
    // Poisson arrivals at one server of constant service: half of its time it is busy.
    let yaml = "
server: {cpu_cores: 1, cost: 'virtual:start=10ms'}
routing: {policy: round_robin}
scenarios:
  calls: {executor: poisson-arrivals, rate: 50, duration: 1000s, session_length: 100ms, conversations: [{turns: [{wait: 1s}]}]}
";
    let simulated = simulated(yaml, &[], "round_robin");
    let balance = &simulated.balance;
    assert!((balance.utilization.unwrap().mean - 0.5).abs() < 0.01, "{}", balance.utilization.unwrap().mean);
    // Erlang: P(W <= t) = (1 - rho) * sum over k <= t/D of e^(rate (t - kD)) (-rate (t - kD))^k / k!
    let (rate, service) = (50.0_f64, 0.010_f64);
    let waits_at_most = |t: f64| {
        let term = |k: i32| {
            let x = rate * (t - f64::from(k) * service);
            x.exp() * (-x).powi(k) / (1..=k).map(f64::from).product::<f64>()
        };
        0.5 * (0..=(t / service) as i32).map(term).sum::<f64>()
    };
    let quantile = |q: f64| (0..20_000).map(|n| f64::from(n) * 1e-5).find(|t| waits_at_most(*t) >= q).unwrap();
    // What is not the line: the service itself, the dial, and the way back.
    let network = (session::REACH + session::ONE_WAY) as f64 / 1_000.0;
    for (q, seen) in [(0.95, balance.startup_p95_ms), (0.99, balance.startup_p99_ms)] {
        let expected = (quantile(q) + service) * 1_000.0 + network;
        let seen = seen.unwrap();
        assert!((seen / expected - 1.0).abs() < 0.05, "p{q}: {seen} ms against {expected} ms");
    }
}

#[test]
fn answers_wait_for_a_cpu_that_is_behind() {
    let yaml = "
server: {cpu_cores: 1, think: 100ms, endpoint_silence: 200ms, cost: 'virtual:start=CORE'}
routing: {policy: round_robin}
scenarios:
  calls: {executor: constant-arrival-rate, rate: 40, duration: 5s,
    conversations: [{turns: [{wait: 0s, say: {synth: 200ms}, response: 100ms}]}]}
";
    let ended = |cost: &str| {
        let yaml = yaml.replace("CORE", cost);
        simulated(&yaml, &[], "round_robin")
    };
    let (idle, busy) = (ended("0"), ended("50ms"));
    let first = idle.balance.first_stream_p99_ms.unwrap();
    // 200 starts of 50 ms each are 10 s of work, of which 5 s are done when the last arrives.
    assert!((busy.balance.startup_p99_ms.unwrap() - 5_000.0).abs() < 100.0, "{:?}", busy.balance);
    assert!(busy.balance.first_stream_p99_ms.unwrap() > first + 4_900.0);
    // The last is accepted when all is done; its turn is over when it would be on an idle backend.
    let late = busy.ended_at.since(idle.ended_at);
    assert!((late.as_secs_f64() - 5.0).abs() < 0.1, "{late:?}");
}

const ABRUPT: &str = "
server: {max_duration: 20s}
backends: [{count: 2}]
routing: {policy: round_robin}
scenarios:
  calls:
    executor: constant-arrival-rate
    rate: 20
    duration: 20s
    session_length: 2s
    end: cancel
    conversations: [{turns: [{wait: 1s}]}]
";

#[test]
fn defects_show_with_the_right_sign_and_size() {
    let wrong = |defect: &str, more: &[&str]| {
        let defect = format!("server.defect=[{defect}]");
        simulated(ABRUPT, &[&[defect.as_str()], more].concat(), "round_robin").balance
    };
    let bounds = |balance: &Balance| (balance.counter_error_min.unwrap(), balance.counter_error_max.unwrap(), balance.ghosts_left);
    // 400 ends on two backends; each is struck for its first, and then for every tenth.
    assert_eq!(bounds(&wrong("ghost=0.1", &[])), (0.0, 20.0, 40));
    assert_eq!(bounds(&wrong("ghost=0.1", &["scenarios.calls.end=graceful"])), (0.0, 0.0, 0));
    assert_eq!(bounds(&wrong("double_decrement=0.1", &[])), (-20.0, 0.0, 0));
    let forgotten = ["scenarios.calls.session_length=60s", "server.max_duration=2s", "scenarios.calls.expect=timed_out"];
    assert_eq!(bounds(&wrong("forget_on_timeout=0.5", &forgotten)), (0.0, 100.0, 200));
    // Ten ends a second and backend, all counted 3 s late.
    let late = wrong("'late_decrement=1:3s'", &[]);
    assert_eq!((late.counter_error_min, late.ghosts_left, late.late_ends), (Some(0.0), 0, 400));
    assert!((29.0..=31.0).contains(&late.counter_error_max.unwrap()), "{late:?}");
    // False capacity: one more gets in for each that is refused.
    let pinned = "scenarios.calls.backend=0";
    let honest = simulated(ABRUPT, &[pinned, "server.max_sessions=5"], "round_robin");
    let flooded = simulated(ABRUPT, &[pinned, "server.max_sessions=5", "server.defect=['decrement_on_reject=1']"], "round_robin");
    assert_eq!(honest.most_on_one, 5);
    assert!(flooded.most_on_one > 15 && flooded.balance.counter_error_min < Some(-10.0), "{flooded:?}");
    // Ghosts hold their places: in the end nobody gets in.
    let starved = simulated(ABRUPT, &[pinned, "server.max_sessions=30", "server.defect=['ghost=1']"], "round_robin");
    assert_eq!((starved.accepted, count(&starved.balance.rejected, "rejected")), (30, 370));
}

#[test]
fn a_defect_on_the_command_line_comes_on_top() {
    let defects = ["ghost=0.1".parse().unwrap()];
    let balance = Simulation::new(&profile(ABRUPT, &[]), &defects).unwrap().run(policy("round_robin")).balance;
    assert_eq!(balance.ghosts_left, 40);
}

const KILL: &str = "
server: {max_sessions: 100}
backends: [{count: 3}, {killed: 20s, dead_for: 2s}]
routing: {policy: remaining_capacity, report_interval: 500ms, retries: 1}
scenarios:
  calls:
    executor: constant-arrival-rate
    rate: 20
    duration: 60s
    session_length: 10s
    conversations: [{turns: [{wait: 1s}]}]
";

#[test]
fn a_kill_takes_its_sessions_and_balance_comes_back() {
    let simulated = simulated(KILL, &[], "remaining_capacity");
    // 200 at once on four backends: some 50 are lost.
    let lost = count(&simulated.balance.dropped, "kill_backend");
    assert!((45..=55).contains(&lost) && lost == simulated.lost, "{simulated:?}");
    assert_eq!(simulated.refused, 0, "who is refused by the dead one tries another");
    // It comes back empty: a quarter of the places fills at 20 a second.
    let recovery = simulated.balance.recovery_s.unwrap();
    assert!((2.0..12.0).contains(&recovery), "{recovery}");
    assert_eq!(simulated.balance.unrecovered, 0);
}

#[test]
fn a_planned_kill_of_a_backend_cuts_what_waits_for_it() {
    let yaml = "
backends: [{count: 2}]
scenarios:
  victims: {executor: constant-sessions, sessions: 5, duration: 10s, end: kill_backend, kill_at: 4s, backend: 1,
    conversations: [{turns: [{wait: 1s}]}]}
";
    let simulated = simulated(yaml, &[], "round_robin");
    assert_eq!((simulated.cut, simulated.lost), (5, 0));
    assert!(simulated.balance.dropped.is_empty());
    // They begin again a second later, and are ended in order at the end of their lanes.
    assert_eq!((simulated.sessions, simulated.finished), (10, 5));
}

#[test]
fn a_backend_that_joins_gets_nothing_before() {
    let yaml = KILL.replace("{killed: 20s, dead_for: 2s}", "{joins: 30s}");
    let simulated = simulated(&yaml, &[], "remaining_capacity");
    let assigned = &simulated.balance.assigned;
    assert_eq!(assigned.iter().sum::<u64>(), 1_200);
    // From 30 s on it gets all until it has as many as the others, then a quarter.
    assert!((150..=300).contains(&assigned[3]), "{assigned:?}");
    assert!(simulated.balance.recovery_s.is_some_and(|seconds| seconds < 15.0), "{:?}", simulated.balance);
}

#[test]
fn silent_peers_are_counted_until_the_keepalive_finds_them() {
    let one = |end: &str| {
        let yaml = format!(
            "
server: {{keepalive_interval: 3s, keepalive_timeout: 2s}}
routing: {{policy: round_robin}}
scenarios:
  calls: {{executor: constant-arrival-rate, rate: 1, duration: 1s, session_length: 4s, end: {end}, conversations: [{{turns: [{{wait: 1s}}]}}]}}
"
        );
        simulated(&yaml, &[], "round_robin").ended_at
    };
    assert_eq!(one("half_open").since(one("tcp_fin")), Duration::from_secs(5));
}

#[test]
fn a_deadline_drops_sessions_unless_it_is_what_is_wanted() {
    let long = ["server.max_duration=1500ms"];
    let dropped = simulated(ABRUPT, &long, "round_robin");
    assert_eq!((dropped.lost, count(&dropped.balance.dropped, "ended_timed_out")), (400, 400));
    let wanted = simulated(ABRUPT, &[long[0], "scenarios.calls.expect=timed_out"], "round_robin");
    assert_eq!((wanted.lost, wanted.finished, wanted.balance.dropped.len()), (0, 400, 0));
}

#[test]
fn patience_ends_before_a_start_that_takes_too_long() {
    let yaml = "
server: {cpu_cores: 1, cost: 'virtual:start=1s'}
routing: {policy: round_robin}
scenarios:
  calls: {executor: constant-arrival-rate, rate: 2, duration: 10s, session_length: 1s, start_timeout: 3s, conversations: [{turns: [{wait: 1s}]}]}
";
    let simulated = simulated(yaml, &[], "round_robin");
    // The line grows by half a second of work for each arrival. The fifth would be accepted after 3 s and the network's time: too late.
    assert_eq!((simulated.accepted, count(&simulated.balance.rejected, "start_timeout")), (4, 16));
}

/// A fleet that is just large enough.
const TIGHT: &str = "
server: {max_sessions: 500, cpu_cores: 1, cost: 'virtual:speaking=400us,idle=100us', report_window: 2s, report_cost_floor: 0.005}
backends: [{count: 10}]
routing: {policy: hybrid, report_interval: 1s}
scenarios:
  calls:
    executor: poisson-arrivals
    rate: 60
    duration: 60s
    session_length: exponential(12s)
    conversations: [{turns: [{wait: 'exponential(1s)', say: {synth: 'uniform(500ms, 1500ms)'}, response: 1s}]}]
";

#[test]
fn reports_age_with_their_lag() {
    let age = |lag: &str| simulated(TIGHT, &[lag], "hybrid").balance.report_age_p50_ms.unwrap();
    let (fresh, late) = (age("routing.report_lag=0s"), age("routing.report_lag=3s"));
    assert!((400.0..=620.0).contains(&fresh), "{fresh}: half an interval, and the guard");
    assert!((late - fresh - 3_000.0).abs() < 50.0, "{late} after {fresh}");
}

#[test]
fn in_band_reports_come_with_the_sessions() {
    let balance = simulated(TIGHT, &["routing.reports=in_band"], "hybrid").balance;
    // Six starts and six ends a second on each backend.
    assert!(balance.report_age_p50_ms.unwrap() < 400.0, "{balance:?}");
}

#[test]
fn balancers_that_each_spend_the_rate_give_away_what_is_not_there() {
    let with = |balancers: u32, share: bool| {
        let set = [format!("routing.balancers={balancers}"), format!("routing.share={share}")];
        simulated(TIGHT, &[&set[0], &set[1]], "hybrid").balance
    };
    assert_eq!(with(1, false), with(1, true), "alone there is nobody to share with");
    let (spend, share) = (with(8, false), with(8, true));
    // Eight that know nothing of each other see the same backend free, eight times.
    assert!(spend.herd > 2 * share.herd, "{} against {}", spend.herd, share.herd);
    assert!(spend.avoidable_rate.unwrap() > 1.5 * share.avoidable_rate.unwrap(), "{spend:?}\n{share:?}");
}

#[test]
fn sessions_are_dealt_over_balancers() {
    // Each of four takes its backends in turn, from its own begin: were all sessions with one of them, the shares would be even.
    let assigned = |balancers: u32| {
        let set = [format!("routing.balancers={balancers}"), "backends.0.count=5".to_owned()];
        simulated(SILENT, &[&set[0], &set[1]], "round_robin").balance.herd
    };
    assert!(assigned(4) > assigned(1), "{} {}", assigned(4), assigned(1));
}

#[test]
fn lag_misleads_who_reads_reports_and_nobody_else() {
    let balance = |lag: &str, name| simulated(TIGHT, &[lag], name).balance;
    let (fresh, late) = (balance("routing.report_lag=0s", "least_cpu"), balance("routing.report_lag=5s", "least_cpu"));
    assert!(late.sessions.unwrap().cv > 1.5 * fresh.sessions.unwrap().cv, "{late:?}\n{fresh:?}");
    assert!(late.overload_rate.unwrap() > 2.0 * fresh.overload_rate.unwrap());
    let blind = |lag: &str| Balance { report_age_p50_ms: None, report_age_p99_ms: None, ..balance(lag, "round_robin") };
    assert_eq!(blind("routing.report_lag=5s"), blind("routing.report_lag=0s"));
}

#[test]
fn a_name_that_is_not_resolved_has_no_backends_to_simulate() {
    let yaml = SILENT
        .replace("backends: [{count: 5}]", "backends: {dns: 'localhost:7000'}")
        .replace("server: {cpu_cores: 1, cost: 'virtual:idle=20us'}", "");
    let error = simulate(&profile(&yaml, &[]), policy("random")).unwrap_err().to_string();
    assert!(error.contains("`backends`"), "{error}");
}
