//! What `run` is asked on the command line, and what comes of it before anything starts.

use std::{collections::BTreeSet, path::PathBuf};

use agent_server::fault::{Defect, Fault};
use clap::Args;

use super::{
    baseline::Matters,
    reach::{self, ReachArgs, ReachError},
};
use crate::{
    plan::Plan,
    profile::{Loaded, Override, Profile, ProfileError, Scenario, Source, open},
    record::ScenarioLabel,
    threshold::{Measure, Spec, Threshold},
};

/// `load-driver run PROFILE`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// A profile: a path, or the name of a shipped one.
    pub profile: String,
    /// Changes a value of the profile: `scenarios.talk.sessions=50`. May be repeated.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Runs against what runs already: `host:port` or a URL (`ws://`, `wss://` for WebSocket, `http://`, `https://` for gRPC), several with
    /// commas between them; or `embedded`. Also `LOAD_DRIVER_TARGET`.
    #[arg(long, value_name = "ADDRESSES")]
    pub target: Option<String>,
    /// Seeds the plan. Also `LOAD_DRIVER_SEED`.
    #[arg(long)]
    pub seed: Option<String>,
    /// Makes the embedded backends count wrongly on purpose, in this share of the cases that the kind is about: `ghost`,
    /// `double_decrement`, `decrement_on_reject`, `late_decrement`, `torn_snapshot`, `forget_on_timeout`, `resurrect`. May be repeated.
    #[arg(long = "defect", value_name = "KIND=RATE[:DELAY]")]
    pub defects: Vec<String>,
    /// Makes the embedded backends misbehave on purpose as real voice backends do, in this share of their sessions: `stale_audio_after_barge_in`,
    /// `output_gaps`, `ghost_after_hangup`, `silent_session`, `no_turn_end`, `double_response`, `vad_drop`, `cross_talk`, `truncate_edge`,
    /// `pool_leak`, `admission_race`. May be repeated.
    #[arg(long = "fault", value_name = "KIND[=RATE[:TIME]]")]
    pub faults: Vec<String>,
    /// Lets more than a modest load (20 sessions at once, or begun within a second) go to targets that are neither this machine nor in a private
    /// network. Only for services whose owners agree.
    #[arg(long)]
    pub allow_remote: bool,
    /// How the backends are reached.
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Compares with an earlier run of the same load, and fails when this one is worse: its folder of results, or the `summary.json` in it.
    #[arg(long, value_name = "DIR")]
    pub baseline: Option<PathBuf>,
    /// What is worse.
    #[command(flatten)]
    pub matters: Matters,
    /// Folder of the results.
    #[arg(long, value_name = "DIR", env = "LOAD_DRIVER_OUT", default_value = "results")]
    pub out: PathBuf,
}

impl RunArgs {
    /// Flags of the embedded backends.
    pub(super) fn server_flags(&self) -> Vec<String> {
        let pairs = self.defects.iter().map(|defect| ("--defect", defect)).chain(self.faults.iter().map(|fault| ("--fault", fault)));
        pairs.flat_map(|(flag, value)| [flag.to_owned(), value.clone()]).collect()
    }
}

/// What is wrong with a command or a profile before anything starts.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// How the backends are reached.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// The plan.
    #[error("failed to plan the run: {0}")]
    Plan(String),
    /// A defect or a fault.
    #[error("--{flag} {text}: {reason}")]
    OnPurpose {
        /// Which of both.
        flag: &'static str,
        /// As given.
        text: String,
        /// Why not.
        reason: String,
    },
}

/// A run that can start.
#[derive(Debug)]
pub struct Prepared {
    /// Resolved.
    pub profile: Profile,
    /// Of all sessions.
    pub plan: Plan,
    /// In the order of the profile.
    pub thresholds: Vec<Threshold>,
}

/// Overrides of a command line: environment first, flags over it.
pub fn overrides(set: &[String], target: Option<&str>, seed: Option<&str>) -> Result<Vec<Override>, ProfileError> {
    let mut all = Override::from_env(std::env::vars());
    all.extend(seed.map(|value| Override::seed(value, "--seed")));
    all.extend(target.map(|value| Override::target(value, "--target")));
    for text in set {
        all.push(Override::parse(text)?);
    }
    Ok(all)
}

/// Reads and checks everything that can be checked without a network.
pub fn prepare(args: &RunArgs, run_id: &str) -> Result<Prepared, UsageError> {
    let overrides = overrides(&args.set, args.target.as_deref(), args.seed.as_deref())?;
    let mut loaded = open(&Source::of(&args.profile), &overrides)?;
    loaded.check_live()?;
    args.reach.apply(&mut loaded.profile.connection)?;
    reach::ready(&loaded)?;
    let thresholds = thresholds(&loaded)?;
    let wrong = args.defects.iter().map(|text| ("defect", text, text.parse::<Defect>().map(drop).map_err(|e| e.to_string())));
    let wrong = wrong.chain(args.faults.iter().map(|text| ("fault", text, text.parse::<Fault>().map(drop).map_err(|e| e.to_string()))));
    for (flag, text, parsed) in wrong {
        let error = |reason: String| UsageError::OnPurpose { flag, text: text.clone(), reason };
        parsed.map_err(error)?;
        if !loaded.profile.is_embedded() {
            return Err(error(format!("{flag}s are for embedded backends; start agent-server itself with this flag")));
        }
    }
    check_caps(args, &loaded.profile)?;
    let plan = Plan::build(&loaded.profile, run_id).map_err(|e| UsageError::Plan(e.to_string()))?;
    Ok(Prepared { profile: loaded.profile, plan, thresholds })
}

/// A fault that is about the cap of sessions means nothing to backends without one.
fn check_caps(args: &RunArgs, profile: &Profile) -> Result<(), UsageError> {
    let needy = |text: &&String| text.parse::<Fault>().is_ok_and(|fault| fault.kind.needs_cap());
    let Some(text) = args.faults.iter().find(needy) else { return Ok(()) };
    if profile.fleet().members.iter().all(|member| member.server.contains_key("max_sessions")) {
        return Ok(());
    }
    let reason = "it is about the cap of sessions, and there is none: add --set server.max_sessions=N".to_owned();
    Err(UsageError::OnPurpose { flag: "fault", text: text.clone(), reason })
}

/// The thresholds of a profile, parsed.
pub fn thresholds(loaded: &Loaded) -> Result<Vec<Threshold>, ProfileError> {
    let names: Vec<&str> = loaded.profile.scenarios.iter().map(|(name, _)| name).collect();
    let mut all = Vec::new();
    for (key, conditions) in loaded.profile.thresholds.iter() {
        for (n, one) in conditions.iter().enumerate() {
            let spec = Spec {
                threshold: one.threshold.clone(),
                abort_on_fail: one.abort_on_fail,
                delay_abort_eval: one.delay_abort_eval.map(|span| span.0).unwrap_or_default(),
                window: one.window.map(|span| span.0),
                min_samples: one.min_samples.unwrap_or_default(),
                allow_no_data: one.allow_no_data,
            };
            let parsed = Threshold::parse(key, &spec, &names);
            let path = ["thresholds", key, &n.to_string(), "threshold"];
            let parsed = parsed
                .map_err(|e| loaded.document.error_in(if e.text == key { &path[..2] } else { &path }, &e.text, e.position, e.message))?;
            if let Some(message) = untold(&parsed, &loaded.profile).filter(|_| !one.allow_no_data) {
                let help = "drop it (--set thresholds.NAME=null), or filter by a scenario that has it".to_owned();
                return Err(loaded.document.error(&path[..2], message, Some(help)));
            }
            all.push(parsed);
        }
    }
    Ok(all)
}

/// Why a threshold can never have data: no dialect of its scenarios tells of that.
fn untold(threshold: &Threshold, profile: &Profile) -> Option<String> {
    let Measure::Latency(metric, _) = threshold.key.measure else { return None };
    let label = |name: &str, scenario: &Scenario| ScenarioLabel {
        name: name.to_owned(),
        protocol: scenario.protocol(),
        dialect: scenario.dialect,
        expect: scenario.expect,
    };
    let scenarios = profile.scenarios.iter().map(|(name, scenario)| label(name, scenario));
    let dialects: BTreeSet<&str> = scenarios
        .filter(|label| threshold.key.filter.accepts(label))
        .map(|label| if metric.is_told_in(label.dialect) { "" } else { label.dialect.name() })
        .collect();
    let untold = !dialects.is_empty() && !dialects.contains("");
    untold.then(|| format!("`{}` can have no data: {} tells nothing of it", metric.name(), Vec::from_iter(dialects).join(", ")))
}
