//! `check PROFILE`: validates a profile, prints it as it is understood, and when its sessions begin. Touches no network.

use std::fmt::Write as _;

use super::Printed;
use crate::{
    counters::Shows,
    plan::{Outline, Plan},
    profile::{CounterKind, Counters, Loaded, Override, Source, open},
    run::{ReachArgs, reach, remote, thresholds},
};

/// The resolved profile as YAML (it can be run as it stands), then the planned arrivals as comments.
pub fn check(source: &Source, overrides: &[Override]) -> Printed {
    check_with(source, overrides, &ReachArgs::default())
}

/// As [`check`], with flags about the connection.
pub fn check_with(source: &Source, overrides: &[Override], flags: &ReachArgs) -> Printed {
    let mut loaded = match open(source, overrides) {
        Ok(loaded) => loaded,
        Err(error) => return Printed::invalid(&error),
    };
    if let Err(error) = flags.apply(&mut loaded.profile.connection) {
        return Printed::invalid(&error);
    }
    if let Err(error) = reach::ready(&loaded) {
        return Printed::invalid(&error);
    }
    if let Err(error) = thresholds(&loaded) {
        return Printed::invalid(&error);
    }
    let plan = match Plan::build(&loaded.profile, "00000000") {
        Ok(plan) => plan,
        Err(error) => return Printed::invalid(&error),
    };
    let mut text = match serde_yaml::to_string(&loaded.profile) {
        Ok(yaml) => yaml,
        Err(error) => return Printed::invalid(&error),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    for line in summary(&loaded, &plan).lines() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", format!("# {line}").trim_end());
    }
    Printed::ok(text)
}

/// What the source of the counters can prove, and what it cannot.
fn counters_in_words(counters: &Counters) -> Vec<String> {
    if counters.source == CounterKind::AgentServer {
        return vec![format!(
            "counters: agent-server, every {}: proves each session's count and end by its name, where the backend lists its ends",
            counters.interval
        )];
    }
    let shows = Shows::of(counters);
    let per = if counters.sum { "all backends together" } else { "each backend" };
    let mut lines =
        vec![format!("counters: {}, {per}, every {}; proves {}", counters.source.name(), counters.interval, shows.proves().join("; "))];
    lines.extend(shows.cannot_see().into_iter().map(|line| format!("counters cannot see: {line}")));
    for ([map, name], value) in counters.connection.shown().values() {
        if value.contains("${") {
            lines.push(format!("counters.connection.{map}.{name}: {value}, from the environment at each look"));
        }
    }
    lines
}

/// Who serves the sessions and when they begin, for people.
fn summary(loaded: &Loaded, plan: &Plan) -> String {
    let profile = &loaded.profile;
    let mut text = format!("backends: {}\n", profile.fleet());
    for line in reach::describe(loaded) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    for line in remote::asks(profile, plan) {
        _ = writeln!(text, "{line}");
    }
    if loaded.check_live().is_err() {
        text.push_str("these are too many for `run`: `simulate` takes them\n");
    }
    for line in counters_in_words(&profile.counters) {
        _ = writeln!(text, "{line}");
    }
    match &profile.routing {
        Some(routing) => _ = writeln!(text, "routing: {routing}"),
        None if profile.choices().is_ok_and(|backends| backends > 1) => {
            text.push_str("routing: none, sessions take the backends in turn\n");
        }
        None => {}
    }
    if !profile.expectations.is_empty() {
        _ = writeln!(text, "expectations of the comparison: {}", profile.expectations.len());
    }
    if !profile.predictions.is_empty() {
        _ = writeln!(text, "figures beside the simulator's prediction: {}", profile.predictions.iter().count());
    }
    _ = write!(text, "\n{}", Outline(plan));
    text
}
