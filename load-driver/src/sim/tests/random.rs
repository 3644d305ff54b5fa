//! Profiles that nobody would write, under every policy: nobody is lost from the books.

use std::fmt::Write as _;

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

/// One of these texts.
fn text(of: &[&'static str]) -> impl Strategy<Value = &'static str> + use<> {
    select(of.to_vec())
}

/// Of all backends: those with a cap have it first.
fn settings() -> impl Strategy<Value = String> {
    let costs = [
        "start=0",
        "start=30ms",
        "start=2s,speaking=1ms",
        "speaking=20ms,thinking=20ms,idle=20ms",
        "start=1ms,speaking=400us,thinking=200us,tool=100us,idle=50us",
    ];
    (
        (text(&costs), text(&["0.001", "0.3", "1", "64"]), select(vec![None, Some(1), Some(2), Some(7)])),
        (text(&["10ms", "100ms", "2s"]), text(&["200ms", "1s", "10s"]), text(&["0", "0.005", "1"]), text(&["1us", "700ms", "4s", "30s"])),
    )
        .prop_map(|((cost, cores, max), (min, window, floor, longest))| {
            let max = max.map_or_else(String::new, |max| format!("max_sessions: {max}, "));
            format!(
                "server: {{{max}cost: 'virtual:{cost}', cpu_cores: {cores}, report_min_interval: {min}, report_window: {window}, \
                 report_cost_floor: {floor}, max_duration: {longest}, keepalive_interval: 1s, keepalive_timeout: 500ms}}\n"
            )
        })
}

fn backend() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => text(&["{}", "{count: 3}", "{server: {cpu_cores: 0.1}}", "{server: {report_window: 1s}}, {server: {report_scaler: 1, report_target: 0.2}}"]).prop_map(str::to_owned),
        2 => (1..4_000u32, text(&["0s", "1us", "300ms", "1h"])).prop_map(|(at, dead)| format!("{{killed: {at}ms, dead_for: {dead}}}")),
        1 => (1..400u32).prop_map(|at| format!("{{joins: {at}ms}}")),
        1 => (1..400u32, 1..3_000u32).prop_map(|(at, later)| format!("{{joins: {at}ms, killed: {}ms}}", at + later)),
    ]
}

fn routing() -> impl Strategy<Value = String> {
    (
        text(&["out_of_band", "in_band"]),
        (text(&["20ms", "100ms", "1s"]), text(&["0s", "1us", "150ms", "900ms"])),
        select(vec![1, 2, 50]),
        any::<bool>(),
        select(vec![0, 1, 10]),
    )
        .prop_map(|(reports, (interval, lag), balancers, share, retries)| {
            // Stale as soon as the next is due, where that may be.
            format!(
                "routing: {{policy: all, reports: {reports}, report_interval: {interval}, report_lag: {lag}, staleness: 1s, \
                 balancers: {balancers}, share: {share}, retries: {retries}}}\n"
            )
        })
}

fn scenario() -> impl Strategy<Value = String> {
    let when = prop_oneof![
        (1..12u32).prop_map(|sessions| format!("executor: constant-sessions, sessions: {sessions}, duration: 4s")),
        (1..30u32).prop_map(|rate| format!("executor: poisson-arrivals, rate: {rate}, duration: 4s")),
        (1..200u32).prop_map(|rate| format!("executor: constant-arrival-rate, rate: {rate}, duration: 500ms")),
        (1..12u32).prop_map(|to| format!(
            "executor: ramping-sessions, startSessions: 3, stages: [{{duration: 2s, target: {to}}}, {{duration: 2s, target: 0}}]"
        )),
    ];
    let end = prop_oneof![
        3 => text(&["end: graceful", "end: cancel", "end: tcp_rst", "end: half_open",
            "end: [{kind: graceful, weight: 1}, {kind: half_open, weight: 1}, {kind: tcp_fin, weight: 1}]"]).prop_map(str::to_owned),
        1 => (1..4_000u32, text(&["kill_worker", "kill_backend"])).prop_map(|(at, kind)| format!("end: {kind}, kill_at: {at}ms")),
    ];
    let turns = text(&[
        "{wait: 0s}",
        "{wait: 200ms, say: {synth: 300ms}, response: 400ms}",
        "{wait: 0s, say: {synth: 20ms}, response: 20ms}, {say: {synth: 1s}, barge_in: {after: 100ms, say: {synth: 1s}}, response: 2s}",
        "{wait: 'exponential(300ms)', say: {synth: 200ms}, tool: {name: look, takes: 'pareto(10ms, 0.8)'}}, {say: {synth: 300ms}, \
         cancel: {after: 1ms}, response: 1s}",
    ]);
    let length =
        text(&["", "session_length: 0s, ", "session_length: 700ms, ", "session_length: 100h, ", "session_length: 'pareto(1ms, 0.2)', "]);
    (when, end, length, text(&["", "backend: 0, "]), text(&["10s", "50ms", "1us"]), text(&["0s", "1s"]), turns).prop_map(
        |(when, end, length, pin, patience, grace, turns)| {
            format!(
                "{{{when}, {end}, {length}{pin}start_timeout: {patience}, gracefulStop: {grace}, protocol: grpc, \
                 conversations: [{{turns: [{turns}]}}]}}"
            )
        },
    )
}

prop_compose! {
    fn any_profile()(
        seed in any::<u16>(), server in settings(), backends in vec(backend(), 1..4), routing in routing(), scenarios in vec(scenario(), 1..3),
    ) -> String {
        let mut yaml = format!("seed: {seed}\n{server}backends: [{}]\n{routing}scenarios:\n", backends.join(", "));
        for (n, scenario) in scenarios.iter().enumerate() {
            let _ = writeln!(yaml, "  s{n}: {scenario}");
        }
        yaml
    }
}

fn parsed(yaml: &str) -> Option<Profile> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.yaml");
    std::fs::write(&file, yaml).unwrap();
    load(&Source::File(file), &[]).ok()
}

/// What must hold of any run.
fn balanced(s: &Simulated, yaml: &str) {
    let b = &s.balance;
    assert_eq!(s.sessions, s.accepted + s.refused, "{s:?}");
    assert_eq!(s.accepted, s.finished + s.lost + s.cut, "{s:?}");
    assert_eq!(b.dropped.values().sum::<u64>(), s.lost, "{s:?}");
    // Those that the end of the run or of the worker cut short are nobody's refusals.
    assert!(b.rejected.values().sum::<u64>() <= s.refused, "{s:?}");
    assert_eq!(b.assigned.iter().sum::<u64>(), b.assignments);
    let no_backend = count(&b.rejected, "no_backend");
    let sent = s.sessions + b.retried.values().sum::<u64>() - no_backend;
    // Whom the plan names is nobody's decision.
    if yaml.contains(", backend: ") {
        assert!(b.assignments <= sent, "{s:?}");
    } else {
        assert_eq!(b.assignments, sent, "{s:?}");
    }
    assert_eq!((b.counter_error_max.unwrap_or(0.0), b.counter_error_min.unwrap_or(0.0), b.ghosts_left), (0.0, 0.0, 0), "{s:?}");
    let rate = |rate: Option<f64>| rate.is_none_or(|rate| (0.0..=1.0).contains(&rate));
    assert!(rate(b.overload_rate) && rate(b.avoidable_rate) && b.avoidable_rate <= b.overload_rate, "{s:?}");
    // Decisions of which nothing is known yet are left out.
    assert!(b.overload_rate.is_none() || b.assignments > 0, "{s:?}");
    for spread in [b.sessions, b.utilization].into_iter().flatten() {
        assert!(spread.mean.is_finite() && spread.cv.is_finite() && (0.0..=1.0).contains(&spread.jain), "{s:?}");
        assert!(spread.mean <= spread.peak * (1.0 + 1e-9), "{s:?}");
    }
    // Of all backends or of none.
    if yaml.contains("server: {max_sessions") {
        assert!(b.sessions.is_none_or(|spread| spread.peak <= 1.0), "{s:?}");
    }
    if let Some(spread) = b.utilization {
        assert!(spread.peak <= 1.0, "{s:?}");
    }
    assert!(b.startup_p50_ms <= b.startup_p95_ms && b.startup_p95_ms <= b.startup_p99_ms, "{s:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn nobody_is_lost_from_the_books_whatever_the_profile_and_the_policy(yaml in any_profile()) {
        let Some(profile) = parsed(&yaml) else { return Err(TestCaseError::reject("not a profile")) };
        let simulation = Simulation::new(&profile, &[]).unwrap();
        for made in ALL {
            let once = simulation.run(*made);
            balanced(&once, &yaml);
            prop_assert_eq!(format!("{once:?}"), format!("{:?}", simulation.run(*made)));
        }
    }
}
