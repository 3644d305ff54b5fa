//! `run --baseline`: the run against an earlier one.

use std::sync::Arc;

use clap::Args;

use super::{Job, Prepared, RunArgs, RunError};
use crate::{
    compare::{self, Options, Recorded, recorded::Intervals},
    report::{Exit, Summary},
};

/// What difference matters; of `run --baseline` and `compare`.
#[derive(Debug, Clone, Copy, Args)]
pub struct Matters {
    /// Relative difference from the baseline that matters: `5%` or `0.05`.
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = tolerance)]
    pub tolerance: f64,
    /// Difference of a latency that matters at least, whatever the tolerance says of it.
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = floor)]
    pub floor: f64,
}

impl From<Matters> for Options {
    fn from(matters: Matters) -> Self {
        Self { tolerance: matters.tolerance, floor_ms: matters.floor, ..Self::default() }
    }
}

fn tolerance(text: &str) -> Result<f64, String> {
    let (number, by) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    match number.trim().parse::<f64>() {
        Ok(value) if (0.0..=10.0).contains(&(value / by)) => Ok(value / by),
        Ok(_) => Err("must be from 0 to 1000%".to_owned()),
        Err(_) => Err("must be a share such as 5% or 0.05".to_owned()),
    }
}

fn floor(text: &str) -> Result<f64, String> {
    proto::time::parse_duration(text).map(|span| span.as_secs_f64() * 1_000.0).map_err(|error| error.to_string())
}

/// Reads the baseline, and refuses before anything starts what could not be compared after all was done.
pub(super) fn read(args: &RunArgs, prepared: &Prepared) -> Result<Option<Arc<Recorded>>, RunError> {
    let Some(path) = &args.baseline else { return Ok(None) };
    let invalid = |why: String| RunError::new(Exit::InvalidProfile, format!("--baseline {}: {why}", path.display()));
    if prepared.profile.routing.as_ref().is_some_and(|routing| routing.policy.names().len() > 1) {
        return Err(invalid("the profile compares several policies; pick one with --set routing.policy=NAME".to_owned()));
    }
    let recorded = Recorded::read(path).map_err(|error| invalid(error.to_string()))?;
    let profile = serde_json::to_value(&prepared.profile).unwrap_or_default();
    let mut why = compare::differences(&recorded.summary.resolved_profile, &profile);
    why.extend(compare::unfit("baseline", &recorded));
    if recorded.intervals.is_empty() {
        why.push("there is no interval log: latencies.hlog must lie beside summary.json".to_owned());
    }
    if !why.is_empty() {
        return Err(invalid(format!("nothing could be compared with it:\n  {}", why.join("\n  "))));
    }
    Ok(Some(Arc::new(recorded)))
}

/// Adds the comparison to the summary of a run that is over, and its verdict with it. `known` as for [`Summary::conclude`].
pub(super) fn judge(job: &Job, summary: &mut Summary, known: &[Exit]) {
    let Some(baseline) = &job.baseline else { return };
    let told = serde_json::to_value(&*summary).and_then(serde_json::from_value);
    let intervals = Intervals::of(&job.out);
    let current = match (told, intervals) {
        (Ok(told), Ok(intervals)) => Recorded { summary: told, intervals, unfinished: false },
        (told, intervals) => {
            // What was asked for and could not be done is no pass: nothing is comparable with nothing.
            let why = told.err().map(|e| e.to_string()).or_else(|| intervals.err().map(|e| e.to_string())).unwrap_or_default();
            tracing::error!("failed to read this run's results back: {why}");
            Recorded::default()
        }
    };
    summary.comparison = Some(compare::compare(baseline, &current, job.args.matters.into()));
    summary.conclude(known);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_read_as_people_write_it() {
        let near = |text: &str, value: f64| tolerance(text).is_ok_and(|read| (read - value).abs() < 1e-12);
        assert!(near("5%", 0.05) && near("0.05", 0.05) && near("0", 0.0) && near("2.5 %", 0.025));
        for bad in ["", "five", "-1%", "2000%", "nan", "inf"] {
            assert!(tolerance(bad).is_err(), "{bad}");
        }
        assert!(floor("2ms").is_ok_and(|ms| (ms - 2.0).abs() < 1e-12) && floor("2").is_err() && floor("soon").is_err());
    }
}
