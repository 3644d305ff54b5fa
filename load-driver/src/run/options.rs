//! What `run` is asked on the command line, and what comes of it before anything starts.

use std::path::PathBuf;

use agent_server::fault::{Defect, Fault};
use clap::Args;

use super::{
    baseline::Matters,
    reach::{self, ReachArgs, ReachError},
};
use crate::{
    plan::Plan,
    profile::{Loaded, Override, Profile, ProfileError, Source, open},
    threshold::{Spec, Threshold},
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
    /// `double_decrement`, `decrement_on_reject`, `late_decrement`, `torn_snapshot`, `forget_on_timeout`. May be repeated.
    #[arg(long = "defect", value_name = "KIND=RATE[:DELAY]")]
    pub defects: Vec<String>,
    /// Makes the embedded backends misbehave on purpose as real voice backends do, in this share of their sessions: `stale_audio_after_barge_in`,
    /// `output_gaps`, `ghost_after_hangup`, `silent_session`, `no_turn_end`, `double_response`, `vad_drop`, `cross_talk`, `truncate_edge`,
    /// `pool_leak`, `admission_race`. May be repeated.
    #[arg(long = "fault", value_name = "KIND[=RATE[:TIME]]")]
    pub faults: Vec<String>,
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
    let plan = Plan::build(&loaded.profile, run_id).map_err(|e| UsageError::Plan(e.to_string()))?;
    Ok(Prepared { profile: loaded.profile, plan, thresholds })
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
            all.push(
                parsed.map_err(|e| {
                    loaded.document.error_in(if e.text == key { &path[..2] } else { &path }, &e.text, e.position, e.message)
                })?,
            );
        }
    }
    Ok(all)
}
