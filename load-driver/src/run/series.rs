//! One run after the other, one for each policy, and the comparison of what came of them.

use std::{collections::BTreeMap, io::Write, path::Path, sync::Arc};

use super::{
    Job, Outcome, Prepared, RunArgs, RunError, baseline, begin, folder_name, lock::Lock, new_run_id, predict::Predictor, prepare, remote,
    signals::Signals,
};
use crate::{
    balance::{Balance, Comparison, Expectation, PolicyRow, PredictionResult, judge},
    compare::Recorded,
    profile::{Policies, Profile, Reach},
    report::{Exit, Style, json::write_whole},
};

/// What a profile asks to be compared.
#[derive(Debug)]
struct Series {
    policies: Vec<String>,
    expectations: Vec<Expectation>,
    predictor: Option<Predictor>,
}

impl Series {
    fn of(profile: &Profile, args: &RunArgs) -> Result<Self, RunError> {
        let invalid = |text: &str, e: String| RunError::new(Exit::InvalidProfile, format!("expectation `{text}`: {e}"));
        let read = |text: &String| Expectation::parse(text).map_err(|e| invalid(text, e));
        let expectations = profile.expectations.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { policies: policies(profile), expectations, predictor: Predictor::of(profile, args)? })
    }

    /// There is more to tell than each run tells of itself.
    fn tells(&self) -> bool {
        self.several() || !self.expectations.is_empty() || self.predictor.is_some()
    }

    /// Asks the simulator for what ran, and judges every policy. What did not run to its end has no figures, and then nothing holds of it.
    async fn predicted(&self, rows: &[PolicyRow]) -> Result<Vec<PredictionResult>, RunError> {
        let Some(predictor) = &self.predictor else { return Ok(Vec::new()) };
        let measured: BTreeMap<String, Balance> = rows.iter().filter_map(|row| Some((row.policy.clone(), row.balance.clone()?))).collect();
        let predicted = predictor.ask(measured.keys().cloned().collect()).await?;
        Ok(judge(&predictor.predictions, &self.policies, &measured, &predicted))
    }

    fn several(&self) -> bool {
        self.policies.len() > 1
    }
}

/// Whoever picks the backend has a name: the policies of the profile, a balancer in front, or the order of the plan.
fn policies(profile: &Profile) -> Vec<String> {
    match &profile.routing {
        _ if matches!(profile.fleet().reach, Reach::Front(_)) => vec!["front".to_owned()],
        Some(routing) => routing.policy.names().to_vec(),
        None => Policies::default().names().to_vec(),
    }
}

/// Runs the profile for each of its policies. Everything lands below `out`.
pub(super) async fn all(args: &RunArgs, run_id: &str) -> Result<Exit, RunError> {
    // Everything is read before anything starts.
    let first = prepared(args, run_id)?;
    let series = Series::of(&first.profile, args)?;
    let baseline = baseline::read(args, &first)?;
    remote::allow(&first, args.allow_remote).await?;
    let (profile, seed) = (first.profile.name.clone(), first.plan.seed);
    let out = args.out.join(format!("{}-{run_id}", folder_name(&profile)));
    // It hears what comes between two runs, and while one cleans up.
    let mut signals = Signals::new().map_err(|e| RunError::new(Exit::InternalFault, format!("failed to listen for signals: {e}")))?;
    let (mut exits, mut rows, mut fault) = (Vec::new(), Vec::new(), None);
    let mut first = Some((first, run_id.to_owned()));
    for policy in &series.policies {
        // Names of sessions hold the run's own name, and a backend that runs already knows them for a while.
        let next = first.take().map_or_else(
            || {
                let run_id = new_run_id();
                prepared(args, &run_id).map(|prepared| (prepared, run_id))
            },
            Ok,
        );
        let outcome = match next {
            Ok((prepared, run_id)) => one(args, prepared, run_id, &series, policy, (&out, baseline.clone())).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(Outcome { exit, interrupted, balance }) => {
                exits.push(exit);
                // Figures of a run that was cut short are its own; against those of whole runs they prove nothing.
                rows.push(PolicyRow { policy: policy.clone(), balance: balance.filter(|_| !interrupted) });
                if interrupted || signals.pending() {
                    exits.push(Exit::Interrupted);
                    break;
                }
            }
            // What was measured so far is told all the same.
            Err(error) => {
                fault = Some(error);
                break;
            }
        }
    }
    if series.tells() {
        let predicted = match series.predicted(&rows).await {
            Ok(predicted) => predicted,
            // The first fault is the one to tell, and the comparison is told all the same.
            Err(error) => {
                fault.get_or_insert(error);
                Vec::new()
            }
        };
        let comparison = Comparison::new(&profile, seed, rows, &series.expectations).with_predictions(predicted);
        exits.extend(tell(&comparison, &out));
    }
    if let Some(fault) = fault {
        return Err(fault);
    }
    let exit = Exit::worst(exits);
    // A reader that went away has seen enough.
    let _ = writeln!(std::io::stdout(), "\nresults in {}", out.display());
    Ok(exit)
}

fn prepared(args: &RunArgs, run_id: &str) -> Result<Prepared, RunError> {
    prepare(args, run_id).map_err(|e| RunError::new(Exit::InvalidProfile, e))
}

/// One run; of several, each has its own folder.
async fn one(
    args: &RunArgs,
    mut prepared: Prepared,
    run_id: String,
    series: &Series,
    policy: &str,
    (out, baseline): (&Path, Option<Arc<Recorded>>),
) -> Result<Outcome, RunError> {
    let mut out = out.to_owned();
    if series.several() {
        out.push(folder_name(policy));
        // Each run is of one policy, and says so: what is expected of all of them is no part of it.
        if let Some(routing) = &mut prepared.profile.routing {
            routing.policy = Policies::One(policy.to_owned());
        }
        prepared.profile.expectations.clear();
        prepared.profile.predictions.0.clear();
        // A reader that went away has seen enough.
        let _ = writeln!(std::io::stdout(), "\npolicy {policy}");
    }
    let profile = &prepared.profile;
    super::descriptors(&prepared, profile.fleet().doors())?;
    std::fs::create_dir_all(&out)
        .map_err(|e| RunError::new(Exit::InvalidProfile, format!("failed to make the folder {}: {e}", out.display())))?;
    let _lock = Lock::take(&out).map_err(|e| RunError::new(Exit::InternalFault, format!("{}: {e}", out.display())))?;
    let job = Job { args: args.clone(), prepared: Arc::new(prepared), run_id, out, baseline, former: None };
    Box::pin(begin::conduct(job)).await
}

/// Prints the comparison and writes it; what it means for the exit code.
fn tell(comparison: &Comparison, out: &Path) -> Vec<Exit> {
    use std::io::IsTerminal;
    let style = Style::detect(std::io::stdout().is_terminal(), std::env::var_os("NO_COLOR").as_deref());
    // A reader that went away has seen enough.
    let _ = writeln!(std::io::stdout(), "\n{}", comparison.render(style).trim_end());
    let mut exits = Vec::new();
    if !comparison.met() {
        exits.push(Exit::ThresholdFailed);
    }
    let path = out.join("comparison.json");
    let written = serde_json::to_string_pretty(comparison)
        .map_err(std::io::Error::other)
        .and_then(|text| std::fs::create_dir_all(out).and_then(|()| write_whole(&path, (text + "\n").as_bytes())));
    if let Err(error) = written {
        tracing::error!("failed to write {}: {error}", path.display());
        exits.push(Exit::InternalFault);
    }
    exits
}
