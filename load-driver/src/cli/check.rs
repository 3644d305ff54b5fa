//! `check PROFILE`: validates a profile, prints it as it is understood, and when its sessions begin. Touches no network.

use std::fmt::Write as _;

use super::Printed;
use crate::{
    plan::{Outline, Plan},
    profile::{Override, Source, open},
    run::thresholds,
};

/// The resolved profile as YAML (it can be run as it stands), then the planned arrivals as comments.
pub fn check(source: &Source, overrides: &[Override]) -> Printed {
    let loaded = match open(source, overrides) {
        Ok(loaded) => loaded,
        Err(error) => return Printed::invalid(&error),
    };
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
    for line in Outline(&plan).to_string().lines() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", format!("# {line}").trim_end());
    }
    Printed::ok(text)
}
