//! Places of a backend with a cap, by its counters: refused although there is room, admitted although there is none.

use std::collections::{BTreeMap, VecDeque};

use agent_server::admin::wire::SnapshotJson;

/// Exact readings of one boot that are kept; older ones are forgotten, and refusals from before them are not judged.
const MAX_READINGS: usize = 40_000;
/// Refusals that are kept.
const MAX_REFUSALS: usize = 65_536;

/// An exact cut, between two moments of the driver's clock.
#[derive(Debug, Clone, Copy)]
struct Reading {
    asked_us: u64,
    answered_us: u64,
    active: u64,
    started: u64,
}

#[derive(Debug, Clone, Default)]
struct Boot {
    max: u64,
    readings: VecDeque<Reading>,
    /// From here on it refuses everybody because it goes away.
    drained_us: Option<u64>,
}

/// A dial that was refused for want of room.
#[derive(Debug, Clone)]
struct Refusal {
    backend: usize,
    dialled_us: u64,
    refused_us: u64,
    client_ref: String,
}

/// What the counters say of places.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    boots: BTreeMap<(usize, String), Boot>,
    refusals: Vec<Refusal>,
    /// Exact looks at a backend that was full.
    pub(super) looks: u64,
    /// Most sessions over the cap in one of them.
    pub(super) over: u64,
    /// Of so many.
    pub(super) over_max: u64,
}

/// Refusals that were held against counters.
#[derive(Debug, Clone, Default)]
pub(super) struct Refused {
    pub(super) judged: u64,
    pub(super) wrong: u64,
    pub(super) client_refs: Vec<String>,
    /// Most sessions that can have been live at the first of the wrong ones, and the cap.
    pub(super) example: Option<(u64, u64)>,
}

impl Places {
    /// A look at a backend.
    pub(super) fn sample(&mut self, backend: usize, asked_us: u64, answered_us: u64, at: &SnapshotJson) {
        let Some(max) = at.max_sessions.filter(|_| at.exact && at.active >= 0) else { return };
        let active = at.active.unsigned_abs();
        // Below the cap nobody is one too many.
        self.looks += u64::from(active >= max);
        if active > max && active - max > self.over {
            (self.over, self.over_max) = (active - max, max);
        }
        let boot = self.boots.entry((backend, at.boot_id.clone())).or_default();
        boot.max = max;
        if at.draining {
            boot.drained_us.get_or_insert(asked_us);
        }
        if boot.readings.len() == MAX_READINGS {
            boot.readings.pop_front();
        }
        boot.readings.push_back(Reading { asked_us, answered_us, active, started: at.started });
    }

    /// A dial was refused for want of room.
    pub(super) fn refused(&mut self, backend: usize, dialled_us: u64, refused_us: u64, client_ref: &str) {
        if self.refusals.len() < MAX_REFUSALS {
            self.refusals.push(Refusal { backend, dialled_us, refused_us, client_ref: client_ref.to_owned() });
        }
    }

    /// Every refusal against the looks before and after it: between them no more can have been live than were at the first, and all that started
    /// since.
    pub(super) fn judge(&self, listed: usize) -> Refused {
        let mut out = Refused::default();
        for refusal in &self.refusals {
            let mut boots = self.boots.iter().filter(|((backend, _), _)| *backend == refusal.backend);
            let Some((boot, most)) = boots.find_map(|(_, boot)| Some((boot, boot.most_live(refusal)?))) else { continue };
            out.judged += 1;
            if most < boot.max {
                out.wrong += 1;
                out.example.get_or_insert((most, boot.max));
                if out.client_refs.len() < listed {
                    out.client_refs.push(refusal.client_ref.clone());
                }
            }
        }
        out
    }
}

impl Boot {
    /// Most sessions that can have been live while the dial was made and refused; none when there was no look before or after it.
    fn most_live(&self, refusal: &Refusal) -> Option<u64> {
        let before = self.readings.partition_point(|reading| reading.answered_us < refusal.dialled_us).checked_sub(1)?;
        let after = self.readings.partition_point(|reading| reading.asked_us <= refusal.refused_us);
        let (before, after) = (self.readings.get(before)?, self.readings.get(after)?);
        if self.drained_us.is_some_and(|at| at <= after.asked_us) {
            return None;
        }
        Some(before.active + after.started.saturating_sub(before.started))
    }
}
