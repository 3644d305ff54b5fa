//! Sums from one document or several, as one source.

use std::{future::Future, pin::Pin, time::Duration};

use agent_server::runtime::clock::Clock;

use super::{
    CounterError, CounterSource, Counts, Fetch, PollResult,
    counts::read,
    sample::{Observation, TotalsSample},
    secrets::Secrets,
};
use crate::profile::Counters;

/// Reads each part and adds up what is there.
pub struct GatheredSource {
    number: usize,
    parts: Vec<Box<dyn Fetch>>,
    counters: Counters,
    secrets: Secrets,
    clock: Clock,
    timeout: Duration,
}

impl std::fmt::Debug for GatheredSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatheredSource").field("number", &self.number).field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}

impl GatheredSource {
    /// `timeout` bounds a whole poll.
    pub(super) fn new(number: usize, parts: Vec<Box<dyn Fetch>>, counters: &Counters, clock: Clock, timeout: Duration) -> Self {
        let secrets = Secrets::of(&counters.connection, &counters.url.0);
        Self { number, parts, counters: counters.clone(), secrets, clock, timeout }
    }

    async fn gather(&mut self) -> PollResult {
        let asked_at_us = self.now_us();
        // At the same time: the sum is to be of one moment as far as that can be had.
        let fetched = futures_util::future::join_all(self.parts.iter_mut().map(|part| part.fetch())).await;
        let answered_at_us = self.now_us();
        let mut sum: Option<Counts> = None;
        for (document, part) in fetched.into_iter().zip(&self.parts) {
            let wrong = |reason| CounterError::Unreadable { address: part.shown(), reason };
            let counts = read(&*document?, &self.counters).map_err(wrong)?;
            match &mut sum {
                None => sum = Some(counts),
                Some(sum) => sum.add(counts),
            }
        }
        let counts = sum.ok_or_else(|| CounterError::Unusable("nothing is read".to_owned()))?;
        let max_age_us = self.counters.max_age.micros();
        if let Some(age_us) = counts.time_us.map(|at| asked_at_us.saturating_sub(at))
            && age_us > max_age_us + STALE_US
        {
            return Err(CounterError::Unusable(format!(
                "the counters are {} s old by their own time: is a cache before them, or does a clock differ? `counters.max_age` allows for it",
                age_us / 1_000_000
            )));
        }
        Ok(Observation::Totals(TotalsSample { source: self.number, asked_at_us, answered_at_us, counts }))
    }

    fn now_us(&self) -> u64 {
        self.clock.unix_us(self.clock.now())
    }
}

/// Readings that are older by their own word, beyond what the profile allows for, are none.
const STALE_US: u64 = 1_000_000;

impl CounterSource for GatheredSource {
    fn poll(&mut self, _registry: bool) -> Pin<Box<dyn Future<Output = PollResult> + Send + '_>> {
        Box::pin(async move {
            let limit = self.timeout;
            let seen = match tokio::time::timeout(limit, self.gather()).await {
                Ok(result) => result,
                Err(_) => Err(CounterError::Timeout { address: "the source of the counters".to_owned(), ms: limit.as_millis() as u64 }),
            };
            self.secrets.clean(seen)
        })
    }
}
