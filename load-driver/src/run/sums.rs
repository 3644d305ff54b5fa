//! Sources of sums: opened and looked at for the first time; then watched until it is known how much they vary by themselves.

use agent_server::runtime::clock::Clock;
use tokio::time::{Instant, sleep_until};

use super::{
    Job, RunError,
    poller::{self, Look, POLL_TIMEOUT, Watched, Whose},
    targets::TargetSet,
};
use crate::{
    counters::{self, Shows},
    ledger::TotalsConfig,
    profile::{CounterKind, Site},
    report::Exit,
};

/// Every backend by a source of its own, or all by one. A source that gives nothing at first is an error: nothing would be proven.
pub(super) async fn watch(job: &Job, set: &mut TargetSet, sites: &[Site], clock: Clock) -> Result<(), RunError> {
    let counters = &job.prepared.profile.counters;
    let kind = counters.source.name();
    let unusable = |what: &str, reason: &dyn std::fmt::Display| {
        RunError::new(Exit::TargetUnusable, format!("failed to read the counters of {what} (source `{kind}`): {reason}"))
    };
    if counters.is_one_for_all() && sites.len() > 1 && !counters.sum {
        let reason = format!("one reading for {} backends: put {{host}} or {{index}} into it, or set `counters.sum: true`", sites.len());
        return Err(unusable("the backends", &reason));
    }
    if counters.url.0.len() > 1 && counters.url.0.len() != sites.len() {
        return Err(unusable("the backends", &format!("{} URLs are listed for {} backends", counters.url.0.len(), sites.len())));
    }
    let groups: Vec<(Option<usize>, &[Site])> =
        if counters.sum { vec![(None, sites)] } else { sites.iter().map(|site| (Some(site.index), std::slice::from_ref(site))).collect() };
    for (number, (backend, sites)) in groups.into_iter().enumerate() {
        let name = backend.map_or_else(|| "all backends".to_owned(), |backend| format!("backend {backend}"));
        let mut source =
            counters::of(counters, number, sites, clock, POLL_TIMEOUT.max(counters.interval.0)).map_err(|error| unusable(&name, &error))?;
        let whose = Whose::Totals(number);
        match poller::look(&mut source, whose, false, clock).await {
            Look::Blind { reason, .. } | Look::Gap { reason, .. } => return Err(unusable(&name, &reason)),
            look => set.looks.push(look),
        }
        // A report is sent on its own time, and may rest until the look: of the last interval, and made a little before.
        let rests_us = if counters.source == CounterKind::Orca { 2 * counters.interval.micros() } else { 0 };
        let age_us = counters.max_age.micros() + rests_us;
        set.totals.push(TotalsConfig { name: format!("{name} ({kind})"), backend, age_us, shows: Shows::of(counters) });
        set.sources.push(Watched { whose, source: Box::new(source) });
    }
    Ok(())
}

/// How much the sums vary while nobody of this run is there.
pub(super) async fn learn(job: &Job, set: &mut TargetSet, clock: Clock) {
    let counters = &job.prepared.profile.counters;
    if set.totals.is_empty() {
        return;
    }
    let until = Instant::now() + counters.baseline().0;
    let mut next = Instant::now() + counters.interval.0;
    while next < until {
        sleep_until(next).await;
        next += counters.interval.0;
        for at in 0..set.sources.len() {
            let Some(watched) = set.sources.get_mut(at) else { continue };
            let look = poller::look(&mut *watched.source, watched.whose, false, clock).await;
            set.looks.push(look);
        }
    }
}
