//! Faults that the kernel makes in the network namespace of a backend. What needs root, a tool or a module that is not here must say so: these tests
//! then hold it to that, and print it.

mod run_support;

use std::{fs, io::Write, process::Command};

use run_support::{Done, Run, eventually};
use rustix::process::Signal;

const PROFILE: &str = "
name: namespaces
target: {embedded: {backends: 2}}
server: {keepalive_interval: 1s, keepalive_timeout: 3s}
counters: {window: 2s, half_open_window: 6s, settle: 15s}
driver: {shards: 2, max_schedule_lag: 30s, connect_timeout: 2s}
defaults:
  executor: constant-sessions
  sessions: 6
  duration: 5s
  gracefulStop: 6s
  session_length: uniform(1s, 3s)
  conversations: [{turns: [{wait: 100ms}]}]
scenarios:
  grpc: {protocol: grpc}
  websocket: {protocol: websocket}
faults:
";

/// The fault was made, or it was skipped for a reason that holds here, which is printed.
fn made(done: &Done, kind: &str) -> bool {
    let row = done.fault(kind);
    let Some(why) = row["skipped"].as_str() else {
        assert!(row["began_s"].is_number(), "{row}");
        return true;
    };
    assert!(done.stdout.contains(why) && done.stderr.contains(why), "it is said in the report and in the log:\n{}", done.shown());
    let root = rustix::process::geteuid().is_root();
    let there = |tool: &str| {
        Command::new("sh").args(["-c", &format!("PATH=$PATH:/usr/sbin:/sbin command -v {tool}")]).output().is_ok_and(|o| o.status.success())
    };
    let holds = match why {
        "needs root" => !root,
        "ip is not installed: apt install iproute2" => !there("ip"),
        "nft is not installed: apt install nftables" => !there("nft"),
        "the kernel has no sch_netem" => kind == "netem",
        other => other.contains("can be made here") || other.contains("destroys no sockets") || other.contains("the kernel has no"),
    };
    assert!(holds, "{why}");
    skipped(&format!("{kind}: {why}"));
    false
}

/// Past the harness, which keeps what a test that passes prints.
fn skipped(why: &str) {
    writeln!(std::io::stderr(), "SKIPPED: {why}").expect("written");
}

/// Namespaces of a process.
fn left(pid: u32) -> Vec<String> {
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(&format!("-{pid}-"))).collect()
}

fn links(pid: u32) -> usize {
    fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|one| one.file_name().to_string_lossy().starts_with(&format!("ld{pid}x")))
        .count()
}

#[test]
fn every_kind_is_made_or_says_why_not_and_the_counters_agree() {
    let faults = "  - {at: 500ms, kind: tbf, bytes_per_s: 20000, duration: 1s, target: {backend: 1}}
  - {at: 1500ms, kind: netem, delay: 20ms, loss: 0.01, duration: 300ms, target: {backend: 1}}
  - {at: 1800ms, kind: socket_kill, target: {backend: 1}}
  - {at: 3s, kind: nft_drop, duration: 2s, target: {backend: 1}}
";
    let going = Run::of(&format!("{PROFILE}{faults}")).begin();
    let pid = going.pid();
    let done = going.finish();
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    for kind in ["tbf", "netem", "nft_drop", "socket_kill"] {
        if made(&done, kind) {
            assert!(done.fault(kind)["struck"].as_u64() > Some(0) || kind == "tbf", "{}", done.fault(kind));
        }
    }
    if made(&done, "socket_kill") {
        assert!(done.count("/funnel/failed") > 0, "{}", done.shown());
    }
    assert!(done.count("/funnel/completed") > 5, "{}", done.shown());
    assert_eq!((left(pid), links(pid)), (Vec::new(), 0));
}

#[test]
fn ghosts_are_found_behind_dropped_packets() {
    let faults = "  - {at: 1s, kind: nft_drop, duration: 3s, target: {backend: 1}}\n";
    let done =
        Run::of(&format!("{PROFILE}{faults}")).with("--defect").with("ghost=0.5").with("--set").with("defaults.end=tcp_rst").finish();
    made(&done, "nft_drop");
    assert_eq!(done.at("/counters/status"), "disagree", "{}", done.shown());
    let ghosts: u64 = done.findings().iter().filter(|(name, _)| ["ghost", "forget_on_timeout"].contains(name)).map(|(_, size)| size).sum();
    assert_eq!(ghosts, done.strikes("ghost"), "{}", done.shown());
}

/// This process ignores SIGHUP, and whatever it starts.
fn hang_up_is_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 != 0)
}

/// A backend in a namespace is killed and comes back there; Ctrl-C ends the run with nothing left; a killed driver's namespaces are removed by the next run.
#[test]
fn namespaces_are_removed_whatever_ends_the_run() {
    let faults = "  - {at: 500ms, kind: kill_backend, dead_for: 200ms, target: {backend: 1}}
  - {at: 3s, kind: nft_drop, duration: 1h, target: {backend: 1}}
";
    let start = || {
        let going = Run::of(&format!("{PROFILE}{faults}")).begin();
        let pid = going.pid();
        eventually("a namespace, or the word that there is none", || {
            let there = left(pid).iter().any(|name| name.ends_with("-1"));
            (there || going.stderr().contains("will be skipped")).then_some(())
        });
        (going, pid)
    };
    let (going, pid) = start();
    if left(pid).is_empty() {
        skipped("no namespace can be made here");
        return;
    }
    assert_eq!(left(pid).len(), 1, "only the one that the fault strikes");
    going.signal(Signal::INT);
    let done = going.finish();
    assert!(done.code().is_some(), "{}", done.shown());
    assert_eq!((left(pid), links(pid)), (Vec::new(), 0));
    if hang_up_is_ignored() {
        skipped("whoever runs this test has SIGHUP ignored, as nohup does, and so has the driver");
    } else {
        // As when the terminal goes away.
        let (going, pid) = start();
        assert_eq!(left(pid).len(), 1);
        going.signal(Signal::HUP);
        let done = going.finish();
        assert_eq!(done.at("/stopped_early"), "interrupted", "{}", done.shown());
        assert_eq!((left(pid), links(pid)), (Vec::new(), 0));
    }

    let (going, killed) = start();
    going.signal(Signal::KILL);
    drop(going);
    assert_eq!(left(killed).len(), 1);
    let done = Run::of(&format!("{PROFILE}{faults}")).finish();
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    assert!(done.stderr.contains("which a killed run had left"), "{}", done.shown());
    assert_eq!((left(killed), links(killed)), (Vec::new(), 0));
    assert!(made(&done, "nft_drop"));
}
