mod policies;
mod random;
mod report;
mod router;
mod table;

use std::time::Duration;

use proto::time::Micros;

use super::*;

pub(super) fn config(policy: &str, backends: usize) -> RouterConfig {
    RouterConfig {
        policy: find(policy).unwrap(),
        backends,
        balancers: 1,
        share: false,
        staleness: Duration::from_secs(30),
        error_penalty: 1.0,
        seed: 7,
    }
}

pub(super) fn router(policy: &str, backends: usize) -> Router {
    Router::new(config(policy, backends))
}

/// A report that came as it was made.
pub(super) fn hear(router: &mut Router, backend: usize, report: Report) {
    let at = report.at;
    router.report(backend, report, at);
}

/// How many sessions each backend gets of so many that never end, all at one moment.
pub(super) fn deal(router: &mut Router, backends: usize, sessions: u64, now: Micros) -> Vec<u64> {
    let mut counts = vec![0; backends];
    for session in 0..sessions {
        counts[router.grant(session, None, now).unwrap().backend] += 1;
    }
    counts
}

/// As [`deal`], of sessions that end at once.
pub(super) fn deal_short(router: &mut Router, backends: usize, sessions: u64, now: Micros) -> Vec<u64> {
    let mut counts = vec![0; backends];
    for session in 0..sessions {
        let grant = router.grant(session, None, now).unwrap();
        counts[grant.backend] += 1;
        router.ended(grant);
    }
    counts
}

#[track_caller]
pub(super) fn near(got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= tolerance, "{got}, not {want} ± {tolerance}");
}
