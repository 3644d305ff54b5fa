//! What is known of one backend.

use std::collections::VecDeque;

use agent_server::admin::wire::SnapshotJson;

use super::NEWS_US;
use crate::balance::Sight;

/// Utilization is that of at least so long.
const TRAIL_US: u64 = 1_000_000;

/// What an honest counter may say in a look that is under way.
#[derive(Debug)]
struct Window {
    look: u64,
    least: u64,
    most: u64,
    answered: bool,
}

/// One backend.
#[derive(Debug, Default)]
pub(super) struct Member {
    /// As it names itself.
    pub(super) id: String,
    boot_id: String,
    /// From then on it is in the fleet, unix time.
    joins_us: u64,
    /// It has told of itself and was not killed since.
    runs: bool,
    /// Accepted and not over.
    pub(super) live: u64,
    /// Dialled and not answered.
    pub(super) dialling: u64,
    /// Times of the last ends.
    recent: VecDeque<u64>,
    windows: Vec<Window>,
    error: f64,
    max: Option<f64>,
    target: Option<f64>,
    rate: Option<f64>,
    utilization: Option<f64>,
    /// The backend's clock and the CPU time that it had used; the first is [`TRAIL_US`] older than the last, once there is such.
    used: VecDeque<(u64, u64)>,
}

impl Member {
    /// One that is in the fleet from this unix time on.
    pub(super) fn new(joins_us: u64) -> Self {
        Self { joins_us, ..Self::default() }
    }

    pub(super) fn up(&self, at_us: u64) -> bool {
        self.runs && at_us >= self.joins_us
    }

    /// By the truth: the driver's own sessions, those that it has just sent there included, and the utilization of the last look.
    pub(super) fn overloaded(&self) -> bool {
        let busy = self.utilization.zip(self.target).is_some_and(|(utilization, target)| utilization >= target);
        busy || self.max.is_some_and(|max| (self.live + self.dialling) as f64 >= max)
    }

    pub(super) fn sight(&self, at_us: u64) -> Sight {
        let sessions = self.live as f64;
        Sight {
            sessions,
            reported: sessions + self.error,
            max_sessions: self.max,
            utilization: self.utilization.unwrap_or(f64::NAN),
            rate: self.rate,
            up: self.up(at_us),
        }
    }

    /// A session is dialled: it may be counted in a look that is under way.
    pub(super) fn dialled(&mut self) {
        self.windows.iter_mut().filter(|window| !window.answered).for_each(|window| window.most += 1);
    }

    /// A live session is over.
    pub(super) fn ended(&mut self, at_us: u64) {
        self.live = self.live.saturating_sub(1);
        self.forget(at_us);
        self.recent.push_back(at_us);
        // The backend may have known before the driver did.
        self.windows.iter_mut().for_each(|window| window.least = window.least.saturating_sub(1));
    }

    fn forget(&mut self, at_us: u64) {
        while self.recent.front().is_some_and(|ended| ended + NEWS_US < at_us) {
            self.recent.pop_front();
        }
    }

    /// Its counters are asked for, while so many sessions are on their way to nobody knows whom.
    pub(super) fn asked(&mut self, look: u64, at_us: u64, unplaced: u64) {
        self.forget(at_us);
        let most = self.live + self.dialling + self.recent.len() as u64 + unplaced;
        self.windows.push(Window { look, least: self.live, most, answered: false });
    }

    /// They have said so; false when that is of a process that was killed since.
    pub(super) fn answered(&mut self, snapshot: &SnapshotJson) -> bool {
        if self.boot_id != snapshot.boot_id {
            self.boot_id.clone_from(&snapshot.boot_id);
            self.id.clone_from(&snapshot.backend_id);
            (self.runs, self.utilization, self.error) = (true, None, 0.0);
            self.used.clear();
        } else if !self.runs {
            return false;
        }
        // Answers of one backend come in the order of the questions.
        if let Some(window) = self.windows.iter_mut().find(|window| !window.answered) {
            window.answered = true;
        }
        self.max = snapshot.max_sessions.map(|max| max as f64);
        self.target = target(snapshot);
        self.rate = (snapshot.load.cores > 0.0).then_some(snapshot.load.rate);
        self.read_usage(snapshot);
        true
    }

    /// What was counted in a look, once all that can explain it is known.
    pub(super) fn settled(&mut self, look: u64, counted: i64) {
        let Some(at) = self.windows.iter().position(|window| window.look == look) else { return };
        let Window { least, most, .. } = self.windows.remove(at);
        let counted = counted as f64;
        self.error = counted - counted.clamp(least.min(most) as f64, most as f64);
    }

    /// It was killed; only another process of it can be up again.
    pub(super) fn killed(&mut self) {
        (self.runs, self.utilization, self.error) = (false, None, 0.0);
        self.recent.clear();
        self.windows.clear();
        self.used.clear();
    }

    fn read_usage(&mut self, snapshot: &SnapshotJson) {
        let (now_us, used_us) = (snapshot.captured_at_us, snapshot.load.used_us);
        if snapshot.load.cores <= 0.0 {
            return;
        }
        self.used.push_back((now_us, used_us));
        while self.used.get(1).is_some_and(|(at_us, _)| at_us + TRAIL_US <= now_us) {
            self.used.pop_front();
        }
        let Some((from_us, before_us)) = self.used.front() else { return };
        let span_us = now_us.saturating_sub(*from_us);
        if span_us >= TRAIL_US {
            self.utilization = Some(used_us.saturating_sub(*before_us) as f64 / span_us as f64 / snapshot.load.cores);
        }
    }
}

/// The utilization that a backend aims at, when it says anything of its load.
pub(super) fn target(snapshot: &SnapshotJson) -> Option<f64> {
    (snapshot.load.cores > 0.0 && snapshot.load.target > 0.0).then_some(snapshot.load.target)
}
