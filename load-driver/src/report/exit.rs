//! What the process says to its caller when it ends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::Lines;

/// Why a run ended as it did, worst first. Several may hold: the first one names the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// A fault of this program.
    InternalFault,
    /// The profile or the command line is not valid.
    InvalidProfile,
    /// The target cannot be used: nobody listens, it is no agent, every session failed, or not one turn was answered.
    TargetUnusable,
    /// The backend's counters and the ledger tell different stories.
    CountersDisagree,
    /// The driver was the bottleneck: its latencies are its own.
    GeneratorSaturated,
    /// A worker was lost.
    Degraded,
    /// A threshold was broken or had no data, a voice fault was found, or the run is worse than its baseline.
    ThresholdFailed,
    /// Stopped from outside before the end.
    Interrupted,
    /// All is well.
    Ok,
}

/// The one table: precedence from top to bottom, code, text for `--help`.
pub const TABLE: [(Exit, u8, &str); 9] = [
    (Exit::InternalFault, 109, "internal fault of load-driver"),
    (Exit::InvalidProfile, 104, "invalid profile or usage"),
    (Exit::TargetUnusable, 106, "target unusable: nobody listens, it is no agent, every session failed, or no turn was answered"),
    (Exit::CountersDisagree, 98, "the backend's counters disagree with the ledger, or could not be proven"),
    (Exit::GeneratorSaturated, 97, "the generator was saturated: its figures are not the target's"),
    (Exit::Degraded, 96, "degraded: a worker was lost"),
    (
        Exit::ThresholdFailed,
        99,
        "a threshold failed or had no data, a voice fault was found that the profile does not allow (voice_faults), or a figure is worse than the baseline's or could not be told (--baseline, compare)",
    ),
    (Exit::Interrupted, 105, "interrupted before the end"),
    (Exit::Ok, 0, "all is well"),
];

impl Exit {
    /// The worst of what holds; [`Exit::Ok`] when nothing does.
    pub fn worst(reasons: impl IntoIterator<Item = Self>) -> Self {
        reasons.into_iter().min().unwrap_or(Self::Ok)
    }

    fn row(self) -> (Self, u8, &'static str) {
        TABLE[self as usize]
    }

    /// For the process.
    pub fn code(self) -> u8 {
        self.row().1
    }

    /// In words.
    pub fn text(self) -> &'static str {
        self.row().2
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Section of `--help`.
pub fn help() -> String {
    let mut out = Lines::default();
    out.line(format_args!("Exit codes (when several hold, the one further up):"));
    for (_, code, text) in TABLE {
        out.line(format_args!("  {code:>3}  {text}"));
    }
    out.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_of_the_enum() {
        assert!(TABLE.iter().enumerate().all(|(n, row)| row.0 as usize == n));
        assert_eq!(TABLE.map(|row| row.1), [109, 104, 106, 98, 97, 96, 99, 105, 0]);
    }

    /// k6 2804: inconsistent exit codes. Every pair, in both orders, gives the one further up.
    #[test]
    fn every_pair_has_one_answer() {
        for (n, worse) in TABLE.iter().enumerate() {
            for better in &TABLE[n..] {
                assert_eq!(Exit::worst([worse.0, better.0]).code(), worse.1);
                assert_eq!(Exit::worst([better.0, worse.0]).code(), worse.1);
            }
        }
        assert_eq!(Exit::worst([]), Exit::Ok);
        assert_eq!(Exit::worst(TABLE.map(|row| row.0)).code(), 109);
    }

    #[test]
    fn help_names_every_code() {
        let help = help();
        assert!(TABLE.iter().all(|(_, code, text)| help.contains(&format!("{code:>3}  {text}"))));
    }
}
