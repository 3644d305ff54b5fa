//! `load-driver simulate` as a user has it: what it prints, what it writes, and how it ends.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

/// Small enough to be simulated in a moment without optimisation.
const SMALL: &str = "
server: {max_sessions: 40, cost: 'virtual:start=5ms,speaking=2ms'}
backends: [{count: 2, server: {cpu_cores: 1}}, {count: 2, server: {cpu_cores: 0.25}}]
routing: {policy: [round_robin, hybrid], report_interval: 500ms}
scenarios:
  calls: {executor: poisson-arrivals, rate: 4, duration: 20s, session_length: 5s,
    conversations: [{turns: [{wait: 300ms, say: {synth: 400ms}, response: 600ms}]}]}
expectations: ['hybrid.overload_rate < round_robin.overload_rate']
";

struct Folder(TempDir);

impl Folder {
    fn of(profile: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("p.yaml"), profile).expect("written");
        Self(folder)
    }

    fn simulate(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_load-driver"));
        command.current_dir(self.0.path()).env_remove("LOAD_DRIVER_SEED").arg("simulate").arg("./p.yaml").args(arguments);
        command.output().expect("it runs")
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.0.path().join(name)).expect("written")).expect("JSON")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn predictions_are_for_runs() {
    let with = format!("{SMALL}predictions: {{startup_p99_ms: 0, recovery_s: 0}}\n");
    let (plain, with) = (Folder::of(SMALL), Folder::of(&with));
    let (one, other) = (plain.simulate(&["--json", "a.json"]), with.simulate(&["--json", "a.json"]));
    assert_eq!((one.status.code(), other.status.code()), (Some(0), Some(0)), "{}", text(&other.stderr));
    assert_eq!(one.stdout, other.stdout);
    assert_eq!(plain.json("a.json"), with.json("a.json"));
}

#[test]
fn faults_are_left_out_and_that_is_said() {
    let with = format!("{SMALL}faults: [{{at: 5s, kind: tcp_rst, fraction: 0.5}}]\n");
    let (plain, with) = (Folder::of(SMALL), Folder::of(&with));
    let (one, other) = (plain.simulate(&[]), with.simulate(&[]));
    assert_eq!((one.status.code(), other.status.code()), (Some(0), Some(0)), "{}", text(&other.stderr));
    assert!(!text(&one.stderr).contains("faults") && text(&other.stderr).contains("makes no faults"), "{}", text(&other.stderr));
    assert_eq!(one.stdout, other.stdout);
}

#[test]
fn a_second_run_prints_the_same_bytes_and_another_seed_others() {
    let folder = Folder::of(SMALL);
    let first = folder.simulate(&["--json", "a.json"]);
    let second = folder.simulate(&["--json", "b.json"]);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    assert_eq!(first.stdout, second.stdout);
    assert_eq!(folder.json("a.json"), folder.json("b.json"));
    assert_ne!(folder.simulate(&["--seed", "7"]).stdout, first.stdout);
    let shown = text(&first.stdout);
    assert!(shown.contains("round_robin") && shown.contains("✓ hybrid.overload_rate < round_robin.overload_rate"), "{shown}");
    let rows = folder.json("a.json");
    assert_eq!(rows["policies"].as_array().map(Vec::len), Some(2));
    assert!(text(&first.stderr).contains("events/s"), "how fast it was is no result");
}

#[test]
fn an_expectation_that_fails_is_exit_code_99() {
    let folder = Folder::of(&SMALL.replace("hybrid.overload_rate < round", "hybrid.overload_rate > round"));
    let output = folder.simulate(&[]);
    assert_eq!(output.status.code(), Some(99), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("fails"));
    let metrics = folder.simulate(&["--metrics", "herd"]);
    assert_eq!(metrics.status.code(), Some(99));
    assert!(text(&metrics.stdout).contains("fails: hybrid.overload_rate"), "{}", text(&metrics.stdout));
    // Of a policy that did not run nothing is expected, and that is said.
    let one = folder.simulate(&["--policy", "random"]);
    assert_eq!(one.status.code(), Some(0));
    assert!(text(&one.stderr).contains("not judged"), "{}", text(&one.stderr));
}

#[test]
fn a_sweep_is_one_table_of_every_combination() {
    let folder = Folder::of(SMALL);
    let output = folder.simulate(&[
        "--sweep",
        "routing.report_lag=0s,2s",
        "--sweep",
        "backends.0.count=1,3",
        "--policy",
        "hybrid",
        "--metrics",
        "overload_rate,herd",
        "--json",
        "s.json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["report_lag", "count", "policy", "overload", "herd"]);
    let keys: Vec<&[&str]> = lines[1..].iter().map(|line| &line[..3]).collect();
    assert_eq!(keys, [["0s", "1", "hybrid"], ["0s", "3", "hybrid"], ["2s", "1", "hybrid"], ["2s", "3", "hybrid"]]);
    // Seven backends or five: what was set is what was run.
    let assigned: Vec<usize> = folder.json("s.json")["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["balance"]["assigned"].as_array().expect("list").len())
        .collect();
    assert_eq!(assigned, [3, 5, 3, 5]);
}

#[test]
fn without_routing_every_policy_is_compared() {
    let folder = Folder::of(
        &SMALL
            .replace("routing: {policy: [round_robin, hybrid], report_interval: 500ms}", "")
            .replace("expectations: ['hybrid.overload_rate < round_robin.overload_rate']", ""),
    );
    let shown = text(&folder.simulate(&[]).stdout);
    for policy in load_driver::routing::ALL {
        assert!(shown.contains(policy.name), "{} in {shown}", policy.name);
    }
}

#[test]
fn what_is_wrong_is_said_before_anything_runs() {
    let folder = Folder::of(SMALL);
    for (arguments, said) in [
        (["--policy", "hybird"], "no policy `hybird`"),
        (["--metrics", "speed"], "no figure `speed`"),
        (["--defect", "ghost"], "has no rate"),
        (["--sweep", "routing.report_lag"], "KEY=VALUE"),
        (["--sweep", "routing.report_lag=0s,soon"], "soon"),
        (["--set", "backends={dns: 'localhost:1'}"], "settings"),
    ] {
        let output = folder.simulate(&arguments);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(104), 0), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
}

#[test]
fn defects_make_ghosts() {
    let folder = Folder::of(SMALL);
    let ghosts = |more: &[&str]| {
        let output = folder.simulate(&[&["--set", "scenarios.calls.end=cancel", "--json", "d.json"], more].concat());
        assert!(output.status.code().is_some_and(|code| code == 0 || code == 99), "{}", text(&output.stderr));
        folder.json("d.json")["policies"][0]["balance"]["ghosts_left"].as_u64()
    };
    assert_eq!(ghosts(&[]), Some(0));
    assert!(ghosts(&["--defect", "ghost=0.2"]) > Some(5));
}

#[test]
fn a_file_that_cannot_be_written_costs_no_figures() {
    let folder = Folder::of(SMALL);
    for arguments in [&[][..], &["--sweep", "routing.balancers=1,2"]] {
        let output = folder.simulate(&[&["--json", "nowhere/a.json", "--policy", "random"], arguments].concat());
        assert_eq!(output.status.code(), Some(109), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("random"), "{}", text(&output.stdout));
        assert!(text(&output.stderr).contains("failed to write nowhere/a.json"), "{}", text(&output.stderr));
    }
}
