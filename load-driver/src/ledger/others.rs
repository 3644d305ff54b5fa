//! Sessions of other clients on a backend that is not ours alone: how many its counters may hold.
//!
//! What `started` grew by beyond ours is theirs, unless its own list of live sessions says otherwise: a session that was added twice is in no list.

use std::collections::VecDeque;

use super::{
    book::Book,
    boot::{Boot, Reading},
    config::LedgerConfig,
    persistent::Persistent,
    reconcile::Bounds,
};

/// Ends that are kept one by one; the older ones are surely counted.
pub(super) const MAX_RECENT: usize = 1 << 20;

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// Ends that every cut to come has counted.
    ended: u64,
    /// The others, on the backend's clock.
    recent: VecDeque<u64>,
    /// Live ones by the counters that the backend's own lists have not.
    unlisted: Persistent,
}

impl Others {
    /// One ended at this time of the backend's clock.
    pub(super) fn ended(&mut self, at_us: u64) {
        if self.recent.len() >= MAX_RECENT {
            self.recent.pop_front();
            self.ended += 1;
        }
        self.recent.push_back(at_us);
    }

    /// No cut older than this one will be looked at any more.
    fn forget(&mut self, cut_us: u64) {
        let before = self.recent.len();
        self.recent.retain(|at| *at > cut_us);
        self.ended += (before - self.recent.len()) as u64;
    }
}

/// A difference between counters and list must last for so long: neither is written in one step with the other.
pub(super) fn span_us(config: &LedgerConfig) -> u64 {
    config.grace_us.min(config.settle_us / 2)
}

/// Ends that came after this are in the cut or not.
pub(super) fn surely_cut_us(at: &Reading, config: &LedgerConfig) -> u64 {
    at.captured_us.saturating_sub(at.answered_us.saturating_sub(at.asked_us)).saturating_sub(config.grace_us)
}

/// Live sessions of others at a reading, by what was started and what was told of as ended: at least and at most.
pub(super) fn live(boot: &Boot, b: &Bounds, at: &Reading, config: &LedgerConfig) -> (u64, u64) {
    if boot.ours_alone {
        return (0, 0);
    }
    let ours = b.accepted + boot.returned.total();
    let started = at.started.saturating_sub(boot.base.started.0).saturating_sub(ours);
    let cut_us = surely_cut_us(at, config);
    let surely = boot.others.ended + boot.others.recent.iter().filter(|at| **at <= cut_us).count() as u64;
    let all = boot.others.ended + boot.others.recent.len() as u64;
    let began = boot.base.active + started;
    (began.saturating_sub(all), began.saturating_sub(surely))
}

/// As many as the reading's own list leaves room for; none without a list.
pub(super) fn listed(boot: &Boot, book: &Book, at: &Reading, config: &LedgerConfig) -> Option<u64> {
    let rows = at.sessions.as_ref()?;
    // Behind a front one of ours that nobody told of is a further dial of the front's.
    let front = |session_id: &str| book.front && !book.by_id.contains_key(&(boot.index, session_id.to_owned()));
    let theirs = rows.iter().filter(|row| !config.is_ours(&row.client_ref) || front(&row.session_id) && !boot.is_returned(row)).count();
    let cut_us = surely_cut_us(at, config);
    // The list is younger than the cut.
    let gone = boot.others.recent.iter().filter(|at| **at > cut_us).count();
    Some((theirs + gone) as u64)
}

/// Takes a reading in that is judged now; gives how many of others it may hold.
pub(super) fn judge(boot: &mut Boot, book: &Book, b: &Bounds, at: &Reading, config: &LedgerConfig) -> u64 {
    let most = live(boot, b, at, config).1;
    if !boot.ours_alone
        && let Some(listed) = listed(boot, book, at, config)
    {
        boot.others.unlisted.push(at.answered_us, most.saturating_sub(listed), span_us(config));
    }
    boot.others.forget(surely_cut_us(at, config));
    most.saturating_sub(unlisted(boot, at, config))
}

/// Of those that the counters leave room for: lists have not had them for a while.
pub(super) fn unlisted(boot: &Boot, at: &Reading, config: &LedgerConfig) -> u64 {
    if at.sessions.is_some() { boot.others.unlisted.lasting(span_us(config)) } else { 0 }
}
