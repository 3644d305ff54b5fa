//! Whether two runs can be compared at all, and what else to know of them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Recorded, key, recorded};
use crate::record::Metric;

/// Keys of a profile that say what load is made.
const LOAD: [&str; 3] = ["warmup", "scenarios", "faults"];

/// Why a load cannot be compared with that of a baseline; empty when it can. For both, the resolved profile.
pub fn differences(baseline: &Value, current: &Value) -> Vec<String> {
    const SHOWN: usize = 5;
    let mut found = Vec::new();
    for key in LOAD {
        differ(key, baseline.get(key).unwrap_or(&Value::Null), current.get(key).unwrap_or(&Value::Null), &mut found);
    }
    let more = found.len().saturating_sub(SHOWN);
    found.truncate(SHOWN);
    if more > 0 {
        found.push(format!("{more} more settings of the profile differ"));
    }
    found
}

fn differ(path: &str, a: &Value, b: &Value, found: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys: BTreeSet<&String> = x.keys().chain(y.keys()).collect();
            for key in keys {
                differ(&format!("{path}.{key}"), x.get(key).unwrap_or(&Value::Null), y.get(key).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            for (at, (x, y)) in x.iter().zip(y).enumerate() {
                differ(&format!("{path}.{at}"), x, y, found);
            }
        }
        _ if a == b => {}
        _ => found.push(format!("the profile differs: {path} was {}, and is {}", cut(a), cut(b))),
    }
}

fn cut(value: &Value) -> String {
    const LONGEST: usize = 60;
    if value.is_null() {
        return "absent".to_owned();
    }
    let text = value.to_string();
    if text.chars().count() > LONGEST { text.chars().take(LONGEST).chain("...".chars()).collect() } else { text }
}

/// Why a run cannot be compared with any other; empty when it can.
pub fn unfit(name: &str, run: &Recorded) -> Vec<String> {
    let mut why = Vec::new();
    if run.unfinished {
        why.push(format!("the {name} is not over: there is only a checkpoint"));
    } else if let Some(reason) = &run.summary.stopped_early {
        why.push(format!("the {name} ended early: {reason}"));
    }
    if run.summary.workers_lost > 0 {
        why.push(format!("the {name} lost a worker"));
    }
    let saturation = &run.summary.generator.saturation;
    if saturation.saturated {
        why.push(format!("the generator of the {name} was saturated ({}): its figures are its own", saturation.reasons.join("; ")));
    }
    why.extend(torn(name, run));
    why
}

/// Why the interval log is not that of the summary, if it is not: both count the same samples. One that is not there at all is told of elsewhere.
fn torn(name: &str, run: &Recorded) -> Option<String> {
    if run.intervals.is_empty() {
        return None;
    }
    let counted = |of: &[recorded::Latency], scenario: Option<&str>| -> Vec<(String, u64)> {
        // What the driver does late is not compared.
        let compared = of.iter().filter(|latency| latency.metric != Metric::ScheduleLag.name());
        compared.map(|latency| (key(&latency.metric, scenario), latency.response.map_or(0, |samples| samples.count))).collect()
    };
    let mut all = counted(&run.summary.latencies, None);
    if run.summary.scenarios.len() > 1 {
        // Logs of older versions have no lines by scenario.
        let by_scenario = run.summary.scenarios.iter().flat_map(|scenario| counted(&scenario.latencies, Some(&scenario.name)));
        all.extend(by_scenario.filter(|(tag, _)| run.intervals.samples(tag) > 0));
    }
    all.into_iter().find_map(|(tag, due)| {
        let has = run.intervals.samples(&tag);
        (has != due).then(|| {
            format!(
                "the interval log of the {name} has {has} samples of {tag}, and its summary {due}: a part of the log is missing, or it is of another run"
            )
        })
    })
}

/// What differs and may.
pub(super) fn notes(baseline: &Recorded, current: &Recorded) -> Vec<String> {
    let mut notes = Vec::new();
    let (a, b) = (&baseline.summary, &current.summary);
    let mut differs = |what: &str, was: String, is: String| {
        if was != is {
            notes.push(format!("{what} was {was}, and is {is}"));
        }
    };
    differs("load-driver", a.run.version.clone(), b.run.version.clone());
    differs("the target", a.run.targets.join(", "), b.run.targets.join(", "));
    differs("the seed", a.run.seed.to_string(), b.run.seed.to_string());
    differs("the number of the driver's cores", a.generator.cores.to_string(), b.generator.cores.to_string());
    for key in ["server", "backends", "routing", "driver"] {
        let of = |run: &recorded::Told| run.resolved_profile.get(key).map_or_else(|| "absent".to_owned(), cut);
        differs(&format!("`{key}` of the profile"), of(a), of(b));
    }
    for (name, run) in [("baseline", baseline), ("current run", current)] {
        if run.intervals.is_empty() {
            notes
                .push(format!("the {name} has no interval log (latencies.hlog beside its summary.json): its latencies cannot be compared"));
        }
        if run.intervals.damaged > 0 {
            notes.push(format!("{} lines of the interval log of the {name} cannot be read", run.intervals.damaged));
        }
    }
    notes
}
