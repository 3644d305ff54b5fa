//! What a source can prove, and what it cannot.

use proto::frame::Outcome;

use crate::profile::{CounterKind, Counters, Ended, Span};

/// What the readings of a source hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a profile names each place or does not")]
pub struct Shows {
    /// Sessions that ever began.
    pub started: bool,
    /// Sessions that ended.
    pub ended: bool,
    /// Outcomes of which it says how many.
    pub outcomes: Vec<Outcome>,
    /// Refusals.
    pub rejected: bool,
    /// It may name its process.
    pub boot: bool,
    /// Others use the backends.
    pub other_traffic: bool,
    /// A reading may be so old.
    pub max_age: Span,
    /// Between two looks.
    pub interval: Span,
}

impl Shows {
    /// By the profile; of sources other than `agent-server`.
    pub fn of(counters: &Counters) -> Self {
        let outcomes = match &counters.ended {
            Some(Ended::ByOutcome(map)) => Outcome::ALL.into_iter().filter(|outcome| map.contains_key(outcome.name())).collect(),
            _ => Vec::new(),
        };
        Self {
            started: counters.started.is_some(),
            ended: counters.ended.is_some(),
            outcomes,
            rejected: counters.rejected.is_some(),
            boot: counters.boot.is_some() || counters.source == CounterKind::Prometheus,
            other_traffic: counters.other_traffic,
            max_age: counters.max_age,
            interval: counters.interval,
        }
    }

    /// What is proven when all is well, in words.
    pub fn proves(&self) -> Vec<String> {
        let mut all = vec!["ghosts and false capacity, as sums".to_owned()];
        if self.started {
            all.push(if self.other_traffic { "sessions never added" } else { "sessions never added, or added too often" }.to_owned());
        }
        if self.ended {
            all.push(if self.other_traffic { "ends that were not counted" } else { "ends that were not counted, or too often" }.to_owned());
        }
        if self.rejected {
            let what = if self.other_traffic { "refusals that were not counted" } else { "refusals that were not counted, or too often" };
            all.push(what.to_owned());
        }
        if self.outcomes.contains(&Outcome::Completed) && !self.other_traffic {
            all.push("goodbyes counted under another outcome, and other ends as goodbyes".to_owned());
        }
        all
    }

    /// What is not seen, in words.
    pub fn cannot_see(&self) -> Vec<String> {
        let mut all =
            vec!["which sessions: it names none, so that a ghost and a session subtracted twice cancel each other out".to_owned()];
        all.push("how long ghosts had been over, and whether a session came back after its end: both are drift".to_owned());
        if !self.started {
            all.push("sessions that were never added, once they are over, or were added and subtracted twice (no `started`)".to_owned());
        } else if self.other_traffic {
            all.push("sessions added too often: others begin some as well (`other_traffic`)".to_owned());
        }
        if self.outcomes.is_empty() || self.other_traffic {
            let why = if self.outcomes.is_empty() { "no `ended` by outcome" } else { "`other_traffic`" };
            all.push(format!("under which outcome sessions ended ({why})"));
        } else {
            all.push("which of several abrupt outcomes an abrupt end had".to_owned());
        }
        if !self.ended {
            all.push("whether false capacity came of ends subtracted twice (no `ended`)".to_owned());
        }
        if !self.rejected {
            all.push("whether refusals were counted (no `rejected`)".to_owned());
        }
        if !self.boot && !self.started && !self.ended {
            all.push("a restart of the backend (no `boot`, nothing that only grows)".to_owned());
        }
        if self.started || self.ended {
            all.push("whether its numbers are of one instant: each is held against the ledger by itself".to_owned());
        }
        if !self.outcomes.is_empty() && self.outcomes.len() < Outcome::ALL.len() && !self.other_traffic {
            all.push(
                "ends that are missing from `ended`: not every outcome has a place, so they may have had one that is not read".to_owned(),
            );
        }
        let blind = (self.interval.0 + self.max_age.0).as_millis();
        all.push(format!(
            "what lasted less than {blind} ms; of too few live sessions: less than {} ms, or than 2000 ms if they ended soon after",
            blind.max(500)
        ));
        all
    }
}
