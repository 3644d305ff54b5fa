//! The server's and the driver's own code over a seeded network in virtual time: docs/testing.md says what is simulated and what is not.
//!
//! `SIM_SEEDS=10000` runs so many seeds, `SIM_FROM=n` begins with another than the first, `SIM_THREADS=n` runs so many at once, `SEED=n` runs
//! one and shows it.
#![allow(unreachable_pub, reason = "one program of several files")]

mod backend;
mod draw;
mod driver;
mod net;
mod world;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use load_driver::ledger::{DefectName, Judgement};

use self::{draw::Draw, world::Ran};

/// Of an ordinary test run.
const SEEDS: u64 = 400;
/// A failing run tells of so many.
const TOLD: usize = 20;

fn number(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().expect("a number"))
}

/// Runs a seed; a panic is an error as well.
fn run(draw: &Draw, honest: bool) -> Result<Ran, String> {
    catch_unwind(AssertUnwindSafe(|| world::run(draw, honest))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}

/// Gives each seed of a range to one of several threads.
fn for_each(seeds: std::ops::Range<u64>, then: impl Fn(u64) + Sync) {
    let threads = number("SIM_THREADS").unwrap_or_else(|| thread::available_parallelism().map_or(1, |n| n.get() as u64));
    let next = AtomicU64::new(seeds.start);
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    then(seed);
                }
            });
        }
    });
}

fn command(test: &str, seed: u64) -> String {
    format!("SEED={seed} cargo test -p load-driver --test simulation {test} -- --nocapture")
}

#[derive(Debug, Default)]
struct Sum {
    seeds: u64,
    virtual_time: Duration,
    sessions: usize,
    accepted: u64,
    failed: u64,
    counts: [u64; 3],
}

#[test]
fn seeds() {
    if let Some(seed) = number("SEED") {
        let draw = Draw::of(seed, &[]);
        println!("{draw:#?}");
        match run(&draw, true) {
            Ok(ran) => return println!("{ran:#?}"),
            Err(wrong) => panic!("{wrong}"),
        }
    }
    let from = number("SIM_FROM").unwrap_or(0);
    let (sum, wrong) = (Mutex::new(Sum::default()), Mutex::new(Vec::new()));
    for_each(from..from + number("SIM_SEEDS").unwrap_or(SEEDS), |seed| match run(&Draw::of(seed, &[]), true) {
        Ok(ran) => {
            let total = ran.verdict.funnels.total();
            let mut sum = sum.lock().expect("no panic");
            sum.seeds += 1;
            sum.virtual_time += ran.took;
            sum.sessions += ran.sessions;
            sum.accepted += total.established;
            sum.failed += total.requested - total.established;
            sum.counts.iter_mut().zip(ran.counts).for_each(|(sum, n)| *sum += n);
        }
        Err(why) => wrong.lock().expect("no panic").push((seed, why)),
    });
    println!("{:?} (counts: dials, segments, resets)", sum.lock().expect("no panic"));
    let mut wrong = wrong.into_inner().expect("no panic");
    wrong.sort();
    let told: Vec<String> = wrong.iter().take(TOLD).map(|(seed, why)| format!("{}\n{why}\n", command("seeds", *seed))).collect();
    assert!(wrong.is_empty(), "{} seeds failed:\n{}", wrong.len(), told.join("\n"));
}

/// As whoever replays one does it: in a process of its own.
#[test]
fn a_seed_replays() {
    let replay = |seed: u64| {
        let this = std::env::current_exe().expect("this test");
        let replayed = Command::new(this).args(["seeds", "--exact", "--nocapture"]).env("SEED", seed.to_string()).output().expect("runs");
        let text = String::from_utf8_lossy(&replayed.stdout).into_owned();
        assert!(replayed.status.success() && text.contains("digest: "), "seed {seed}: {text}");
        text.lines().filter(|line| !line.contains("finished in")).map(str::to_owned).collect::<Vec<_>>()
    };
    for seed in 0..10 {
        assert_eq!(replay(seed), replay(seed), "two runs of seed {seed} differ");
    }
}

/// Defects that simulations can show, and what the ledger may call each. A backend that forgets only timeouts is a backend that forgets.
const PLANTED: [(&str, &[DefectName]); 5] = [
    ("--defect=decrement_on_reject=1", &[DefectName::DecrementOnReject]),
    ("--defect=ghost=1", &[DefectName::Ghost, DefectName::ForgetOnTimeout]),
    ("--defect=double_decrement=1", &[DefectName::DoubleDecrement]),
    ("--defect=forget_on_timeout=1", &[DefectName::ForgetOnTimeout, DefectName::Ghost]),
    ("--defect=late_decrement=1:60s", &[DefectName::LateDecrement, DefectName::Ghost]),
];

#[test]
fn planted_defects_are_found_and_named() {
    let seeds = number("SIM_PLANTED").unwrap_or(30);
    for (defect, names) in PLANTED {
        let wrong = Mutex::new(Vec::new());
        let found = Mutex::new(Vec::new());
        let only = number("SEED");
        let range = only.map_or(0..seeds, |seed| seed..seed + 1);
        for_each(range, |seed| {
            let draw = Draw::of(seed, &[defect]);
            let why = match run(&draw, false) {
                Err(why) => Some(why),
                Ok(ran) => {
                    if ran.verdict.judgement == Judgement::Disagree {
                        found.lock().expect("no panic").push(seed);
                    }
                    judged(&ran, names)
                }
            };
            if let Some(why) = why {
                wrong.lock().expect("no panic").push((seed, why));
            }
        });
        let mut found = found.into_inner().expect("no panic");
        found.sort_unstable();
        println!("{defect}: found by {} of {seeds} seeds, first by {:?}", found.len(), found.first());
        let wrong = wrong.into_inner().expect("no panic");
        let told: Vec<String> =
            wrong.iter().take(TOLD).map(|(seed, why)| format!("{defect} {}\n{why}\n", command("planted", *seed))).collect();
        assert!(wrong.is_empty(), "{defect}: {} seeds failed:\n{}", wrong.len(), told.join("\n"));
        assert!(only.is_some() || !found.is_empty(), "{defect}: no seed found it");
    }
}

/// What is wrong with the judgement of a backend that counts wrongly: it passes although the defect struck where it could be seen, or
/// another defect is blamed.
fn judged(ran: &Ran, names: &[DefectName]) -> Option<String> {
    let verdict = &ran.verdict;
    if ran.strikes == 0 {
        return (verdict.judgement != Judgement::Agree).then(|| format!("nothing struck: {:#?}", verdict.findings));
    }
    if verdict.judgement == Judgement::Agree && ran.seen > 0 {
        return Some(format!("a wrong pass: {} strikes", ran.seen));
    }
    let others: Vec<_> = verdict.findings.iter().filter(|finding| !names.contains(&finding.name)).collect();
    (!others.is_empty()).then(|| format!("blamed: {others:#?}"))
}
