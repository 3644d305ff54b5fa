//! File descriptors: how many a run needs, and as many as the system gives.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::plan::{Plan, Protocol};

/// Standard streams, runtimes, WAV files, outputs, pipes to children.
const OVERHEAD: u64 = 128;

/// The limit on open files is too low for the plan.
#[derive(Debug, thiserror::Error)]
pub enum FdError {
    /// Even the hard limit is too low.
    #[error(
        "the run needs about {needed} file descriptors, this process may have {limit}: raise the hard limit (ulimit -Hn, LimitNOFILE), \
         run fewer sessions, or put gRPC sessions on shared connections"
    )]
    TooFew {
        /// By the plan.
        needed: u64,
        /// Hard limit.
        limit: u64,
    },
    /// The system refused.
    #[error("failed to raise the limit of open files to {wanted}: {source}")]
    Raise {
        /// Asked for.
        wanted: u64,
        /// Its answer.
        source: io::Error,
    },
}

/// Raises the soft limit to the hard one and checks that it covers the plan. Returns the limit.
pub fn ensure(needed: u64) -> Result<u64, FdError> {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if limit.current.is_some_and(|soft| soft < hard) {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
            .map_err(|e| FdError::Raise { wanted: hard, source: e.into() })?;
    }
    if needed > hard { Err(FdError::TooFew { needed, limit: hard }) } else { Ok(hard) }
}

/// An upper estimate of the descriptors that the plan needs in this process: sessions that can be open at once, on connections of
/// their own where they have them, plus `shared` pooled connections.
pub fn required(plan: &Plan, shared: u64) -> u64 {
    let own: u64 = plan
        .scenarios
        .iter()
        .map(|scenario| {
            let every = scenario.own_connection || scenario.protocol == Protocol::Websocket;
            let some = scenario.ends.iter().any(|(weight, end)| *weight > 0.0 && end.needs_own_connection());
            if every || some { most_at_once(scenario.lanes.iter().map(|l| (l.start.0, (l.stop + l.grace).0))) } else { 0 }
        })
        .sum();
    own + shared + OVERHEAD
}

/// The most intervals that overlap anywhere.
fn most_at_once(intervals: impl Iterator<Item = (u64, u64)>) -> u64 {
    let mut edges: Vec<(u64, i64)> = intervals.flat_map(|(from, to)| [(from, 1), (to.max(from + 1), -1)]).collect();
    edges.sort_unstable();
    let mut now = 0;
    let mut most = 0;
    for (_, step) in edges {
        now += step;
        most = most.max(now);
    }
    most.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_counted_at_their_peak() {
        assert_eq!(most_at_once([(0, 10), (5, 15), (10, 20)].into_iter()), 2);
        assert_eq!(most_at_once([(3, 3)].into_iter()), 1);
        assert_eq!(most_at_once(std::iter::empty()), 0);
    }

    #[test]
    fn a_need_beyond_the_hard_limit_is_an_error_that_says_both() {
        let limit = ensure(1).expect("one descriptor");
        if limit < u64::MAX {
            let error = ensure(u64::MAX).expect_err("more than there is").to_string();
            assert!(error.contains(&limit.to_string()), "{error}");
        }
    }
}
