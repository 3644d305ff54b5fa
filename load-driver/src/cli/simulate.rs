//! `simulate PROFILE`: the profile in virtual time, under each policy in turn. Standard output depends on profile, seed and policies alone.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use agent_server::fault::Defect;
use clap::Args;
use serde::Serialize;

use super::fail;
use crate::{
    balance::{Comparison, Expectation, METRICS, PolicyRow, SHOWN, table},
    profile::{Loaded, Override, Profile, Source, open},
    report::{Exit, text, text::Style},
    routing::{self, Made},
    run,
    sim::{Axis, Point, SimError, Simulated, Simulation, SweepRow, points, sweep_table},
    system,
};

/// `load-driver simulate PROFILE`.
#[derive(Debug, Clone, Args)]
pub struct SimulateArgs {
    /// A profile: a path, or the name of a shipped one.
    pub profile: String,
    /// Changes a value of the profile: `scenarios.talk.rate=50`. May be repeated.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Seeds the plan. Also `LOAD_DRIVER_SEED`.
    #[arg(long)]
    pub seed: Option<String>,
    /// Only these policies; expectations of others are not judged. Absent: those of the profile, or all where it has no `routing`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Makes the backends count wrongly on purpose, as for `run`. May be repeated.
    #[arg(long = "defect", value_name = "KIND=RATE[:DELAY]")]
    pub defects: Vec<String>,
    /// Runs with each of these values of a key, as for `--set`: `routing.report_lag=0s,10s`. May be repeated: then with every combination.
    /// Expectations are not judged.
    #[arg(long = "sweep", value_name = "PATH=VALUE,...")]
    pub sweep: Vec<String>,
    /// Writes all figures here, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Figures of the table. Absent: the most telling.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub metrics: Vec<String>,
}

/// All runs of a sweep.
#[derive(Debug, Serialize)]
struct Swept<'a> {
    profile: &'a str,
    rows: &'a [SweepRow],
}

/// What went wrong, and how the process says so.
struct Failure(String, Exit);

impl Failure {
    fn usage(error: &impl ToString) -> Self {
        Self(error.to_string(), Exit::InvalidProfile)
    }
}

/// Simulates, prints, judges.
pub fn simulate(args: &SimulateArgs) -> ExitCode {
    match judged(args) {
        Ok(exit) => exit.into(),
        Err(Failure(message, exit)) => fail(&message, exit),
    }
}

fn judged(args: &SimulateArgs) -> Result<Exit, Failure> {
    let metrics = metrics(&args.metrics)?;
    let defects = args.defects.iter().map(|text| defect(text)).collect::<Result<Vec<_>, _>>()?;
    let axes = args.sweep.iter().map(|text| Axis::parse(text)).collect::<Result<Vec<_>, _>>().map_err(|error| Failure::usage(&error))?;
    let points = points(&axes).map_err(|error| Failure::usage(&error))?;
    let overrides = run::overrides(&args.set, None, args.seed.as_deref()).map_err(|error| Failure::usage(&error))?;
    let source = Source::of(&args.profile);
    // All are read before the first is run: a slip in the last value should not cost the time of the others.
    let loaded = points.iter().map(|point| load(&source, &overrides, point)).collect::<Result<Vec<_>, _>>()?;
    if let [only] = loaded.as_slice()
        && axes.is_empty()
    {
        return compare(args, &only.profile, &defects, &metrics);
    }
    let mut rows = Vec::new();
    for (point, loaded) in points.iter().zip(&loaded) {
        for (policy, simulated) in run_all(args, &loaded.profile, &defects)? {
            rows.push(SweepRow { settings: point.settings().to_vec(), policy: policy.name.to_owned(), balance: simulated.balance });
        }
    }
    let name = loaded.first().map_or("", |loaded| loaded.profile.name.as_str());
    // What took its time is told before a file can fail.
    print(&sweep_table(&axes, &rows, &metrics))?;
    write_json(args.json.as_deref(), &Swept { profile: name, rows: &rows })?;
    Ok(Exit::Ok)
}

fn load(source: &Source, overrides: &[Override], point: &Point) -> Result<Loaded, Failure> {
    let mut all = overrides.to_vec();
    all.extend(point.overrides().map_err(|error| Failure::usage(&error))?);
    open(source, &all).map_err(|error| Failure::usage(&error))
}

fn metrics(names: &[String]) -> Result<Vec<&str>, Failure> {
    if names.is_empty() {
        return Ok(SHOWN.to_vec());
    }
    for name in names {
        if METRICS.iter().all(|measure| measure.name != name) {
            let known: Vec<&str> = METRICS.iter().map(|measure| measure.name).collect();
            return Err(Failure::usage(&format!("--metrics: there is no figure `{name}`; there are {}", known.join(", "))));
        }
    }
    Ok(names.iter().map(String::as_str).collect())
}

fn defect(text: &str) -> Result<Defect, Failure> {
    text.parse().map_err(|error| Failure::usage(&format!("--defect {text}: {error}")))
}

/// One table of policies, and whether what was expected of them holds.
fn compare(args: &SimulateArgs, profile: &Profile, defects: &[Defect], metrics: &[&str]) -> Result<Exit, Failure> {
    let ran = run_all(args, profile, defects)?;
    let known = |name: &str| ran.iter().any(|(policy, _)| policy.name == name);
    let parsed =
        profile.expectations.iter().map(|text| Expectation::parse(text).map_err(|error| Failure::usage(&format!("`{text}`: {error}"))));
    let expectations = parsed.collect::<Result<Vec<_>, _>>()?;
    let judged: Vec<Expectation> = expectations.iter().filter(|one| one.policies().iter().all(|name| known(name))).cloned().collect();
    let row =
        |(policy, simulated): &(Made, Simulated)| PolicyRow { policy: policy.name.to_owned(), balance: Some(simulated.balance.clone()) };
    let comparison = Comparison::new(&profile.name, profile.seed, ran.iter().map(row).collect(), &judged);
    let mut out = String::new();
    if args.metrics.is_empty() {
        out.push_str(&comparison.render(style()));
    } else {
        let rows: Vec<_> = ran.iter().map(|(policy, simulated)| (policy.name.to_owned(), simulated.balance.clone())).collect();
        out.push_str(&table(&rows, metrics));
        for one in comparison.expectations.iter().filter(|one| !one.met()) {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  fails: {}", one.text);
        }
    }
    print(&out)?;
    write_json(args.json.as_deref(), &comparison)?;
    let left_out = expectations.len() - judged.len();
    if left_out > 0 {
        note(&format!("{left_out} expectations are of policies that were not run: they are not judged"));
    }
    Ok(if comparison.met() { Exit::Ok } else { Exit::ThresholdFailed })
}

fn run_all(args: &SimulateArgs, profile: &Profile, defects: &[Defect]) -> Result<Vec<(Made, Simulated)>, Failure> {
    let policies = policies(args, profile)?;
    if !profile.faults.is_empty() {
        note("the simulator makes no faults: `faults` of the profile are left out");
    }
    let simulation = Simulation::new(profile, defects).map_err(|SimError(error)| Failure::usage(&error))?;
    let one = |policy: Made| {
        let from = system::own_cpu_us();
        let simulated = simulation.run(policy);
        speed(policy.name, &simulated, (system::own_cpu_us() - from) as f64 / 1e6);
        (policy, simulated)
    };
    Ok(policies.into_iter().map(one).collect())
}

fn policies(args: &SimulateArgs, profile: &Profile) -> Result<Vec<Made>, Failure> {
    let names = match &profile.routing {
        _ if !args.policy.is_empty() => args.policy.clone(),
        Some(routing) => routing.policy.names().to_vec(),
        None => return Ok(routing::ALL.to_vec()),
    };
    names.iter().map(|name| routing::find(name).map_err(|error| Failure::usage(&error))).collect()
}

/// How fast it was, by the CPU's clock: on stderr, for it differs from run to run.
fn speed(policy: &str, simulated: &Simulated, seconds: f64) {
    let rate = |n: u64| text::count((n as f64 / seconds.max(1e-6)) as u64);
    note(&format!(
        "{policy}: {} sessions, {} events in {} of CPU: {} sessions/s, {} events/s, {} at once; memory {} at most",
        text::count(simulated.sessions),
        text::count(simulated.events),
        text::seconds(seconds),
        rate(simulated.sessions),
        rate(simulated.events),
        text::count(simulated.most_open),
        system::peak_rss_bytes().map_or_else(|| "unknown".to_owned(), |bytes| text::bytes(bytes as f64)),
    ));
}

fn note(text: &str) {
    // When even stderr is gone, nobody wants to know.
    let _ = writeln!(io::stderr(), "{text}");
}

fn style() -> Style {
    Style::detect(io::stdout().is_terminal(), std::env::var_os("NO_COLOR").as_deref())
}

/// A reader that went away has seen enough.
fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure(format!("failed to print: {error}"), Exit::InternalFault)),
        _ => Ok(()),
    }
}

fn write_json(path: Option<&Path>, value: &impl Serialize) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let error = |error: &dyn std::fmt::Display| Failure(format!("failed to write {}: {error}", path.display()), Exit::InternalFault);
    let text = serde_json::to_string_pretty(value).map_err(|e| error(&e))?;
    std::fs::write(path, text + "\n").map_err(|e| error(&e))
}
