//! Everything that is known of voice faults, until the section of the summary is made of it.

use std::{collections::BTreeMap, fmt::Write as _};

use proto::ids::PlanIndex;

use super::{
    Occurrence, VoiceFault, VoiceNews, VoiceReport,
    hangups::Hangups,
    places::Places,
    section::{VoiceFinding, VoiceRow, VoiceSection, VoiceStatus},
};
use crate::{
    counters::CounterSample,
    ledger::{FailureCause, Finish, LedgerEntry, LedgerEvent, Weather, disturbance::Disturbances},
    plan::{self, EndKind},
};

/// Sessions that are listed with a finding.
const LISTED: usize = 10;

/// Lists are asked for so long before somebody is overdue: as long as it takes until somebody thinks of it again.
const NAMES_BEFORE_US: u64 = 1_200_000;

/// Audio and turns are upset for so long after what struck them is over.
const AFTER_US: u64 = 3_000_000;

/// What the book must know before the run.
#[derive(Debug, Clone, Default)]
pub struct VoiceConfig {
    /// A backend may take so long to notice a hang-up, microseconds.
    pub window_us: u64,
    /// Found, these do not fail the run.
    pub allowed: Vec<VoiceFault>,
    /// Backends whose counters are read.
    pub watched: Vec<bool>,
    /// Unix time at which the run begins, microseconds.
    pub start_us: u64,
}

/// A kind as all callers met it.
#[derive(Debug, Clone, Default)]
struct Sum {
    tested: u64,
    excused: u64,
    sessions: u64,
    size: u64,
    worst_us: u64,
    /// Begin of the first and end of the last, unix microseconds.
    span: Option<(u64, u64)>,
    client_refs: Vec<String>,
}

/// A session on its way.
#[derive(Debug, Clone)]
struct Dial {
    client_ref: String,
    backend: Option<usize>,
    dialled_us: u64,
    accepted: bool,
}

/// What callers and counters tell.
#[derive(Debug, Clone, Default)]
pub struct VoiceBook {
    config: VoiceConfig,
    sums: BTreeMap<VoiceFault, Sum>,
    dials: BTreeMap<PlanIndex, Dial>,
    places: Places,
    hangups: Hangups,
    /// By backend.
    disturbances: BTreeMap<usize, Disturbances>,
    /// Workers that were stopped, by their scenario.
    stopped: BTreeMap<u16, Disturbances>,
}

impl VoiceBook {
    /// Before the run.
    pub fn new(config: VoiceConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Callers whose sessions are over.
    pub fn news(&mut self, news: VoiceNews) {
        for (kind, sessions) in news.tested {
            self.sums.entry(kind).or_default().tested += sessions;
        }
        for report in news.reports {
            for mut found in report.found.iter().cloned() {
                found.occurrences.retain(|one| !self.disturbed(&report, found.kind, one));
                let sum = self.sums.entry(found.kind).or_default();
                if found.size() < found.kind.least() {
                    sum.excused += 1;
                    sum.tested = sum.tested.saturating_sub(1);
                    continue;
                }
                sum.sessions += 1;
                sum.size += u64::from(found.size());
                for one in &found.occurrences {
                    sum.worst_us = sum.worst_us.max(one.worst_us);
                    let (from_us, to_us) = sum.span.unwrap_or((one.from_us, one.to_us));
                    sum.span = Some((from_us.min(one.from_us), to_us.max(one.to_us)));
                }
                if sum.client_refs.len() < LISTED {
                    sum.client_refs.push(report.client_ref.clone());
                }
            }
        }
    }

    /// A fault of the run that began then strikes this backend, or somebody on the way to it. Once is enough, and must be before the first word of
    /// whom it strikes.
    pub fn disturb(&mut self, backend: usize, fault: u16, from_us: u64, weather: Weather) {
        begin(self.disturbances.entry(backend).or_default(), fault, from_us, weather);
    }

    /// A fault of the run stops the worker of this scenario.
    pub fn disturb_worker(&mut self, scenario: u16, fault: u16, from_us: u64) {
        begin(self.stopped.entry(scenario).or_default(), fault, from_us, Weather::Lost);
    }

    /// It is over, and so is what it did to connections at this time (which may be to come).
    pub fn calm(&mut self, fault: u16, to_us: u64) {
        for disturbances in self.disturbances.values_mut().chain(self.stopped.values_mut()) {
            disturbances.end(fault, to_us.saturating_add(AFTER_US));
        }
    }

    /// Something struck the session, or its backend, that can make an honest agent look so. Behind a front any backend may have been it.
    fn disturbed(&self, report: &VoiceReport, kind: VoiceFault, one: &Occurrence) -> bool {
        let by_time = report.by_time.has(kind);
        let makes = |disturbances: &Disturbances| {
            disturbances.weathers(one.from_us, one.to_us.saturating_add(1)).any(|weather| kind.made_by(weather, by_time))
        };
        let backend = match report.backend {
            Some(backend) => self.disturbances.get(&backend).is_some_and(makes),
            None => self.disturbances.values().any(makes),
        };
        backend || self.stopped.get(&plan::scenario_of(report.index)).is_some_and(makes)
    }

    /// Steps of sessions, as the ledger gets them.
    pub fn entries(&mut self, entries: &[LedgerEntry]) {
        for entry in entries {
            self.entry(entry);
        }
    }

    fn entry(&mut self, entry: &LedgerEntry) {
        let (index, at_us) = (entry.index, entry.at_us);
        match &entry.event {
            LedgerEvent::Scheduled { client_ref, .. } => {
                let dial = Dial { client_ref: client_ref.clone(), backend: None, dialled_us: at_us, accepted: false };
                self.dials.insert(index, dial);
            }
            LedgerEvent::Attempted { backend, .. } => {
                if let Some(dial) = self.dials.get_mut(&index) {
                    (dial.backend, dial.dialled_us) = (*backend, at_us);
                }
            }
            LedgerEvent::Accepted { .. } => {
                if let Some(dial) = self.dials.get_mut(&index) {
                    dial.accepted = true;
                }
            }
            LedgerEvent::Retried { cause } => self.refused(index, *cause, at_us),
            LedgerEvent::Failed { cause } => {
                self.refused(index, *cause, at_us);
                self.dials.remove(&index);
            }
            LedgerEvent::Forced { .. } | LedgerEvent::Deaf { .. } | LedgerEvent::Raced => {}
            LedgerEvent::Ended { finish } => {
                let Some(dial) = self.dials.remove(&index) else { return };
                let watched = dial.backend.is_some_and(|backend| self.config.watched.get(backend) == Some(&true));
                if let Finish::Forced(EndKind::Cancel | EndKind::TcpFin | EndKind::TcpRst) = finish
                    && watched
                    && dial.accepted
                {
                    self.hangups.hung_up(index, &dial.client_ref, dial.backend.unwrap_or_default(), at_us);
                }
            }
        }
    }

    fn refused(&mut self, index: PlanIndex, cause: FailureCause, at_us: u64) {
        // A refused handshake does not say which of both it is; the counters do.
        if matches!(cause, FailureCause::Rejected | FailureCause::Draining)
            && let Some(dial) = self.dials.get(&index)
            && let Some(backend) = dial.backend
        {
            self.places.refused(backend, dial.dialled_us, at_us, &dial.client_ref);
        }
    }

    /// A look at a backend's counters. Gives the sessions that were seen to live on after their hang-up.
    pub fn sample(&mut self, sample: &CounterSample) -> Vec<PlanIndex> {
        self.places.sample(sample.backend, sample.asked_at_us, sample.answered_at_us, &sample.snapshot);
        // The list is read after the ends: who is in both has ended since.
        let sessions = sample.sessions.as_deref().unwrap_or_default();
        self.hangups.looked(sample.backend, sample.asked_at_us, sample.answered_at_us);
        let calm = Disturbances::default();
        let disturbances = self.disturbances.get(&sample.backend).unwrap_or(&calm);
        let moved = self.hangups.live(sample.backend, sessions, sample.asked_at_us, self.config.window_us, disturbances);
        let ends = sample.ends.as_deref().unwrap_or_default();
        self.hangups.ends(ends, sample.answered_at_us, self.config.window_us, disturbances, LISTED);
        moved
    }

    /// The backends should be asked for their lists of sessions.
    pub fn wants_names(&self, now_us: u64) -> bool {
        // A little before somebody is overdue: it takes two lists to see a session move.
        self.hangups.overdue(now_us + NAMES_BEFORE_US, self.config.window_us)
    }

    /// The run is over.
    pub fn close(&mut self, now_us: u64) -> VoiceSection {
        self.hangups.close(now_us, LISTED);
        let refused = self.places.judge(LISTED);
        let mut section = VoiceSection::default();
        for kind in VoiceFault::ALL {
            let mut excused = 0;
            let (tested, finding) = match kind {
                VoiceFault::GhostAfterHangup => (self.hangups.judged, self.ghosts()),
                VoiceFault::PoolLeak => {
                    let finding = refused.example.map(|(most, max)| {
                        let detail = format!(
                            "{} of {} refusals came although there was room: at the first no more than {most} of {max} sessions can have been live",
                            refused.wrong, refused.judged
                        );
                        finding(kind, refused.wrong, refused.wrong, detail, &refused.client_refs)
                    });
                    (refused.judged, finding)
                }
                VoiceFault::AdmissionRace => {
                    let (over, max) = (self.places.over, self.places.over_max);
                    let detail = format!("an exact snapshot showed {} live sessions, and the cap is {max}", max + over);
                    (self.places.looks, (over > 0).then(|| finding(kind, 0, over, detail, &[])))
                }
                _ => self.sums.get(&kind).map_or((0, None), |sum| {
                    excused = sum.excused;
                    (sum.tested, sum.finding(kind, self.config.start_us))
                }),
            };
            let status = match (&finding, tested) {
                (Some(_), _) => VoiceStatus::Found,
                (None, 0) => VoiceStatus::NotJudged,
                (None, _) => VoiceStatus::Clean,
            };
            let reason = match status {
                VoiceStatus::NotJudged if excused > 0 => {
                    format!("faults of this run struck each of the {excused} sessions that showed it; {}", kind.needs())
                }
                VoiceStatus::NotJudged => kind.needs().to_owned(),
                VoiceStatus::Clean | VoiceStatus::Found => String::new(),
            };
            section.kinds.push(VoiceRow { kind, status, tested, excused, reason });
            section.findings.extend(finding.map(|one| VoiceFinding { allowed: self.config.allowed.contains(&kind), ..one }));
        }
        section
    }

    fn ghosts(&self) -> Option<VoiceFinding> {
        let h = &self.hangups;
        let mut detail = format!(
            "{} sessions went through their phases more than {} ms after the hang-up, the longest for {} ms",
            h.ghosts,
            self.config.window_us / 1_000,
            h.longest_us / 1_000
        );
        if h.still > 0 {
            let _ = write!(detail, "; {} more ended late and were not seen to move: those may be late or missing counts instead", h.still);
        }
        (h.ghosts > 0).then(|| finding(VoiceFault::GhostAfterHangup, h.ghosts, h.ghosts, detail, &h.client_refs))
    }
}

fn begin(disturbances: &mut Disturbances, fault: u16, from_us: u64, weather: Weather) {
    if !disturbances.lasts(fault) {
        disturbances.begin(fault, from_us, weather);
    }
}

fn finding(kind: VoiceFault, sessions: u64, size: u64, detail: String, refs: &[String]) -> VoiceFinding {
    VoiceFinding { kind, sessions, size, detail, allowed: false, session_refs: refs.to_vec() }
}

impl Sum {
    fn finding(&self, kind: VoiceFault, start_us: u64) -> Option<VoiceFinding> {
        let (size, worst) = (self.size, self.worst_us / 1_000);
        let seconds = |at_us: u64| at_us.saturating_sub(start_us) as f64 / 1e6;
        let when = self
            .span
            .map(|(from_us, to_us)| format!(", from {:.0} s to {:.0} s of the run", seconds(from_us), seconds(to_us)))
            .unwrap_or_default();
        let sessions = format!("in {} of {} sessions", self.sessions, self.tested.max(self.sessions));
        let detail = match kind {
            VoiceFault::StaleAudioAfterBargeIn => {
                format!("audio of {size} interrupted responses went on after their end, for up to {worst} ms, {sessions}")
            }
            VoiceFault::OutputGaps => format!("{size} holes of 100 ms or more in the agent's audio, up to {worst} ms, {sessions}"),
            VoiceFault::SilentSession => format!("{size} sessions were alive and never answered again, for up to {worst} ms"),
            VoiceFault::TruncateEdge => {
                format!("{size} sessions never answered again after an interruption at 0 ms or beyond the audio, for up to {worst} ms")
            }
            VoiceFault::NoTurnEnd => format!("{size} responses were played out and their end never came, {sessions}"),
            VoiceFault::DoubleResponse => format!("{size} responses followed one to the same turn, {sessions}"),
            VoiceFault::VadDrop => format!("{size} turns were not heard, and the next one was, {sessions}"),
            VoiceFault::CrossTalk => format!("{size} sessions heard a response that answers nobody in them"),
            VoiceFault::GhostAfterHangup | VoiceFault::PoolLeak | VoiceFault::AdmissionRace => String::new(),
        };
        (self.sessions > 0).then(|| finding(kind, self.sessions, size, detail + &when, &self.client_refs))
    }
}
