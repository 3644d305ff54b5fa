//! Sessions after the hang-up, by the backend's list of its sessions: one that still moves is a ghost; one that is only counted is a matter for
//! the ledger.

use std::collections::{BTreeMap, HashSet, VecDeque};

use agent_server::admin::wire::{EndRecord, SessionJson};
use proto::ids::PlanIndex;

use crate::ledger::disturbance::Disturbances;

/// Hang-ups that are watched at once; more are not judged.
const MAX_WATCHED: usize = 65_536;

/// Ends that are remembered for hang-ups of which the driver's own word comes later.
const RECENT: usize = 8_192;

/// From one look to the next: a longer pause is time in which a backend, or the machine, did not come to anything, and is not held against it.
const PAUSE_US: u64 = 500_000;

#[derive(Debug, Clone)]
struct HungUp {
    index: PlanIndex,
    at_us: u64,
    /// How long its backend had been watched at the first look after it.
    watched_us: Option<u64>,
    /// As first listed after the window: phase and frames sent.
    seen: Option<(String, u64, u64)>,
    moved: bool,
}

/// Sessions that hung up and are not known to have ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Hangups {
    /// By the driver's name of the session.
    waiting: BTreeMap<String, HungUp>,
    /// By backend: the last look, and how long it was watched in all.
    watched: BTreeMap<usize, (u64, u64)>,
    /// Ended last, in that order.
    recent: VecDeque<String>,
    recent_names: HashSet<String>,
    /// Ended within the window, or were watched beyond it.
    pub(super) judged: u64,
    /// Moved after the window.
    pub(super) ghosts: u64,
    /// The longest of them that ended, from the hang-up, microseconds.
    pub(super) longest_us: u64,
    /// Ended late, and were not seen to move.
    pub(super) still: u64,
    pub(super) client_refs: Vec<String>,
}

impl Hangups {
    /// The driver hung up in a way that the backend must see at once.
    pub(super) fn hung_up(&mut self, index: PlanIndex, client_ref: &str, backend: usize, at_us: u64) {
        let watched_us = self.watched.get(&backend).map(|(_, watched_us)| *watched_us);
        if self.recent_names.contains(client_ref) {
            self.judged += 1;
        } else if self.waiting.len() < MAX_WATCHED {
            self.waiting.insert(client_ref.to_owned(), HungUp { index, at_us, watched_us, seen: None, moved: false });
        }
    }

    /// The lists of sessions should be asked for: somebody is late.
    pub(super) fn overdue(&self, now_us: u64, window_us: u64) -> bool {
        self.waiting.values().any(|one| one.at_us + window_us <= now_us)
    }

    /// Ends that a backend counted.
    pub(super) fn ends(&mut self, ends: &[EndRecord], answered_us: u64, window_us: u64, disturbances: &Disturbances, listed: usize) {
        for end in ends {
            let Some(one) = self.waiting.remove(&end.client_ref) else {
                self.remember(&end.client_ref);
                continue;
            };
            self.judged += 1;
            if one.moved {
                self.longest_us = self.longest_us.max(answered_us.saturating_sub(one.at_us));
                self.ghost(&end.client_ref, listed);
            } else if answered_us > one.at_us + 2 * window_us + disturbances.unseen_us([].into_iter(), one.at_us, answered_us) {
                self.still += 1;
            }
        }
    }

    /// A backend was looked at.
    pub(super) fn looked(&mut self, backend: usize, asked_us: u64, answered_us: u64) {
        let (last_us, watched_us) = self.watched.entry(backend).or_insert((answered_us, 0));
        let since = asked_us.saturating_sub(*last_us);
        if since <= PAUSE_US && answered_us.saturating_sub(asked_us) <= PAUSE_US {
            *watched_us += since;
        }
        *last_us = answered_us;
    }

    /// A list of live sessions that was asked for at this time. Gives those that were seen to live on, each once.
    pub(super) fn live(
        &mut self,
        backend: usize,
        sessions: &[SessionJson],
        asked_us: u64,
        window_us: u64,
        disturbances: &Disturbances,
    ) -> Vec<PlanIndex> {
        let watched_us = self.watched.get(&backend).map_or(0, |(_, watched_us)| *watched_us);
        let mut moved = Vec::new();
        for row in sessions {
            let Some(one) = self.waiting.get_mut(&row.client_ref).filter(|one| one.at_us + window_us < asked_us) else { continue };
            // A hang-up may be on its way for as long as the run itself keeps it from coming through.
            let unseen_us = disturbances.unseen_us([].into_iter(), one.at_us, asked_us);
            if watched_us.saturating_sub(one.watched_us.unwrap_or_default()) < window_us.saturating_add(unseen_us) {
                continue;
            }
            let now = (row.phase.clone(), row.frames_in, row.frames_out);
            let before = one.seen.get_or_insert_with(|| now.clone());
            if *before != now && !one.moved {
                one.moved = true;
                moved.push(one.index);
            }
        }
        moved
    }

    /// Nothing more will come.
    pub(super) fn close(&mut self, now_us: u64, listed: usize) {
        for (client_ref, one) in std::mem::take(&mut self.waiting) {
            if one.moved {
                self.judged += 1;
                self.longest_us = self.longest_us.max(now_us.saturating_sub(one.at_us));
                self.ghost(&client_ref, listed);
            } else if one.seen.is_some() {
                self.judged += 1;
                self.still += 1;
            }
        }
    }

    fn remember(&mut self, client_ref: &str) {
        if self.recent.len() == RECENT
            && let Some(oldest) = self.recent.pop_front()
        {
            self.recent_names.remove(&oldest);
        }
        if self.recent_names.insert(client_ref.to_owned()) {
            self.recent.push_back(client_ref.to_owned());
        }
    }

    fn ghost(&mut self, client_ref: &str, listed: usize) {
        self.ghosts += 1;
        if self.client_refs.len() < listed {
            self.client_refs.push(client_ref.to_owned());
        }
    }
}
