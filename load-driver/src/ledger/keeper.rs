//! The ledger as its owner sees it: steps, samples and kills go in, a live view and a verdict come out.

use std::collections::{BTreeMap, VecDeque};

use proto::ids::PlanIndex;

use super::{
    ages::GhostBook,
    book::{Book, BootIndex, MAX_BOOTS},
    boot::{Boot, Reading, Watch},
    by_outcome,
    config::LedgerConfig,
    convergence::{Convergence, ConvergenceSample},
    disturbance::Weather,
    entry::LedgerEntry,
    funnel::Funnels,
    look,
    merge::{BackendKill, Merged, Merger, SourceId},
    others,
    reconcile::{self, Bounds, Faults},
    retries::RetriedRow,
    session::Session,
    totals::Totals,
    truth::DriftSum,
    verdict::{self, Verdict},
};
use crate::{
    counters::{CounterSample, TotalsSample},
    plan::EndKind,
};

/// So many processes may follow each other at a backend without the plan's doing; more are not looked at, and each is a gap.
const MAX_UNPLANNED: u64 = 100;

/// Reconciles what the driver did with what the backends counted. Pure: time comes with the calls.
#[derive(Debug)]
pub struct Ledger {
    pub(super) config: LedgerConfig,
    merger: Merger,
    pub(super) book: Book,
    pub(super) boots: BTreeMap<BootIndex, Boot>,
    pub(super) watches: Vec<Watch>,
    /// Samples that wait until the book knows everything up to their time.
    pub(super) waiting: VecDeque<CounterSample>,
    pub(super) faults: Faults,
    pub(super) convergence: Convergence,
    /// Killed boots for which no agreement was seen yet: backend, boot, time of the kill.
    pub(super) kills: Vec<Kill>,
    /// Sessions that are over and still counted, by name.
    pub(super) ghosts: GhostBook,
    /// From then on every look brings the list of live sessions, where there is one.
    pub(super) names_from_us: Option<u64>,
    /// How far the counts were off before a driver that was killed.
    pub(super) drift_before: DriftSum,
    /// Sources of sums, by their numbers.
    pub(super) totals: Vec<Totals>,
    /// Their looks that wait likewise.
    pub(super) waiting_totals: VecDeque<TotalsSample>,
}

/// A planned kill of a backend process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kill {
    pub(super) backend: usize,
    pub(super) boot: BootIndex,
    pub(super) at_us: u64,
    /// First failed poll after it.
    pub(super) gone_us: Option<u64>,
}

/// For a progress line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveView {
    /// How far the sessions came.
    pub funnels: Funnels,
    /// Live sessions by the counters of all backends, as last read.
    pub counted: i64,
    /// Polls that failed.
    pub gaps: u64,
    /// Faults proven so far; ghosts are proven after the run only.
    pub proven: u64,
    /// Sessions over whose end the backends have not counted within the window: ghosts, unless it comes late.
    pub suspected: u64,
}

impl Ledger {
    /// Before the run.
    pub fn new(config: LedgerConfig) -> Self {
        let watches = config.backends.iter().map(|_| Watch::default()).collect();
        let convergence = Convergence::new(config.start_us, config.dialects.clone());
        let book = Book::new(config.scenarios.clone()).starting_at_upgrade(config.start_at_upgrade.clone());
        let book = if config.front { book.behind_front() } else { book };
        let totals = config.totals.iter().cloned().map(Totals::new).collect();
        Self {
            config,
            merger: Merger::default(),
            book,
            boots: BTreeMap::new(),
            watches,
            waiting: VecDeque::new(),
            faults: Faults::default(),
            convergence,
            kills: Vec::new(),
            ghosts: GhostBook::default(),
            names_from_us: None,
            drift_before: DriftSum::default(),
            totals,
            waiting_totals: VecDeque::new(),
        }
    }

    /// A shard will send steps from `from_us` (unix) on. Every shard must be opened before any sends, or its steps may come too late to be in order.
    pub fn open(&mut self, source: SourceId, from_us: u64) {
        self.merger.open(source, from_us);
    }

    /// Steps of a shard in order of time; nothing older than `complete_to_us` will follow from it.
    pub fn entries(&mut self, source: SourceId, entries: Vec<LedgerEntry>, complete_to_us: u64) {
        self.merger.push(source, entries, complete_to_us);
        self.advance();
    }

    /// The shard is done.
    pub fn source_done(&mut self, source: SourceId) {
        self.merger.close(source);
        self.advance();
    }

    /// The shard did nothing between these two moments. Tell it before its steps up to the second of them are complete.
    pub fn stood_still(&mut self, source: SourceId, from_us: u64, to_us: u64) {
        if to_us.saturating_sub(from_us) >= self.config.standstill_us {
            self.book.stood_still(source, from_us, to_us);
        }
    }

    /// A worker process is gone, by the plan's kill or not: its sessions end here, what it was dialling is in doubt.
    pub fn worker_lost(&mut self, worker: u32, at_us: u64, planned: bool) {
        self.merger.lose(worker, at_us, planned);
        self.advance();
    }

    /// The plan kills this backend process now. Call it before the signal is sent, so that nothing that follows from it can be older.
    pub fn backend_killed(&mut self, backend: usize, boot_id: &str, at_us: u64) {
        let boot = self.book.boot(boot_id);
        self.merger.kill(BackendKill { boot, at_us, backend });
        if let Some(state) = self.boots.get_mut(&boot) {
            state.killed_us = Some(at_us);
        }
        self.kills.push(Kill { backend, boot, at_us, gone_us: None });
        for totals in self.totals.iter_mut().filter(|totals| totals.config.backend.is_none_or(|at| at == backend)) {
            totals.killed(at_us);
        }
        self.advance();
    }

    /// A fault of the network on the way to this backend began at this time. Call it before anything that may follow from it; again is no harm.
    pub fn network_fault(&mut self, backend: usize, fault: u16, from_us: u64, weather: Weather) {
        if let Some(watch) = self.watches.get_mut(backend).filter(|watch| !watch.disturbances.lasts(fault)) {
            watch.disturbances.begin(fault, from_us, weather);
        }
        for totals in self.totals.iter_mut().filter(|totals| totals.config.backend.is_none_or(|at| at == backend)) {
            // Behind one sum a fault may strike several backends, and is one all the same.
            if !totals.watch.disturbances.lasts(fault) {
                totals.watch.disturbances.begin(fault, from_us, weather);
            }
        }
    }

    /// When what a fault did to connections is over, that was over itself at this time. See [`Self::network_calm`].
    pub fn calm_at(&self, at_us: u64, keepalive: bool) -> u64 {
        at_us.saturating_add(if keepalive { self.config.windows.of(EndKind::HalfOpen) } else { self.config.grace_us })
    }

    /// It was over at this time. Where packets were lost for good, the peer finds what became of the connection by its keepalive only.
    pub fn network_calm(&mut self, backend: usize, fault: u16, at_us: u64, keepalive: bool) {
        let to_us = self.calm_at(at_us, keepalive);
        if let Some(watch) = self.watches.get_mut(backend) {
            watch.disturbances.end(fault, to_us);
        }
        for totals in self.totals.iter_mut().filter(|totals| totals.config.backend.is_none_or(|at| at == backend)) {
            totals.watch.disturbances.end(fault, to_us);
        }
    }

    /// A look at a backend's counters. The first one of each target should be taken before its first session.
    pub fn sample(&mut self, sample: CounterSample) {
        if sample.backend < self.watches.len() {
            self.book.learn(sample.backend, &sample.snapshot.backend_id);
            self.waiting.push_back(sample);
            self.advance();
        }
    }

    /// A look at sums. The first one of each source must be taken before the first session.
    pub fn totals(&mut self, sample: TotalsSample) {
        if sample.source < self.totals.len() {
            self.waiting_totals.push_back(sample);
            self.advance();
        }
    }

    /// A source of sums gave none in a look that ended at this time.
    pub fn totals_gap(&mut self, source: usize, at_us: u64, reason: impl Into<String>) {
        let Some(totals) = self.totals.get_mut(source) else { return };
        totals.watch.gaps += 1;
        totals.watch.last_gap = Some((at_us, reason.into()));
    }

    /// A backend did not answer a poll that ended at this time.
    pub fn gap(&mut self, backend: usize, at_us: u64, reason: impl Into<String>) {
        let Some(watch) = self.watches.get_mut(backend) else { return };
        watch.gaps += 1;
        watch.last_gap = Some((at_us, reason.into()));
        for kill in self.kills.iter_mut().filter(|kill| kill.backend == backend && kill.at_us <= at_us) {
            kill.gone_us.get_or_insert(at_us);
        }
    }

    /// Takes the convergence samples since the last call, and how many were dropped because nobody called.
    pub fn drain_convergence(&mut self) -> (Vec<ConvergenceSample>, u64) {
        self.convergence.drain()
    }

    /// The backend's list of sessions shows that it goes on with this one although its peer is gone.
    pub fn lives_on(&mut self, index: PlanIndex) {
        if let Some(session) = self.book.sessions.get_mut(&index) {
            session.lives_on = true;
        }
    }

    /// The only backend that goes by this name, as far as its snapshots told.
    pub fn backend_of(&self, backend_id: &str) -> Option<usize> {
        self.book.ids.find(backend_id)
    }

    /// Dials that came to nothing and were made again, by cause and backend, up to the last step that every shard has told.
    pub fn retried(&self) -> Vec<RetriedRow> {
        self.book.retries().rows()
    }

    /// How far the sessions came, up to the last step that every shard has told.
    pub fn funnels(&self) -> &Funnels {
        self.book.funnels()
    }

    /// Where things stand.
    pub fn live(&self) -> LiveView {
        let faults = &self.faults;
        let records = &faults.records;
        let current = || self.watches.iter().filter_map(|watch| self.boots.get(watch.boots.last()?));
        LiveView {
            funnels: self.funnels().clone(),
            counted: self.totals.iter().map(Totals::active).sum::<i64>()
                + current().filter_map(|boot| Some(boot.waiting.as_ref().or(boot.last.as_ref())?.active.0)).sum::<i64>(),
            gaps: self.watches.iter().chain(self.totals.iter().map(|totals| &totals.watch)).map(|watch| watch.gaps).sum(),
            proven: records.doubles.total + records.empties + records.unknown.total + faults.torn + faults.negative + faults.late.total,
            suspected: self.totals.iter().map(Totals::suspected).sum::<u64>()
                + current().filter_map(|boot| Some(self.bounds(boot, boot.waiting.as_ref()?).overdue)).sum::<u64>(),
        }
    }

    /// No need to wait longer: either every watched backend agrees with the book in its last two samples, or windows and settling time are over.
    pub fn settled(&self, now_us: u64) -> bool {
        if !self.merger.drained() {
            return false;
        }
        let targets = || self.config.backends.iter().enumerate().filter(|(_, b)| b.watched).map(|(backend, _)| backend);
        let (book, config) = (&self.book, &self.config);
        // What waits may yet say otherwise.
        let totals_agree = self.waiting_totals.is_empty() && self.totals.iter().all(|totals| totals.agrees(book, config));
        targets().all(|backend| self.agrees(backend)) && totals_agree
            || targets().all(|backend| now_us >= self.deadline_us(backend))
                && self.totals.iter().all(|totals| now_us >= totals.deadline_us(book, config))
    }

    /// Everything that waits is judged; call it once, when the run is over and settled.
    pub fn verdict(&mut self) -> Verdict {
        self.merger.close_all();
        self.advance();
        while let Some(sample) = self.waiting.pop_front() {
            self.take(sample);
        }
        while let Some(sample) = self.waiting_totals.pop_front() {
            self.take_totals(sample);
        }
        let boots: Vec<BootIndex> = self.boots.keys().copied().collect();
        for index in boots {
            self.judge_waiting(index);
            if let Some(at_us) = self.boots.get(&index).and_then(|boot| boot.killed_us) {
                self.process_gone(index, at_us);
            }
        }
        verdict::reach(self)
    }

    pub(super) fn irregular(&self) -> u64 {
        self.merger.irregular()
    }

    pub(super) fn bounds(&self, boot: &Boot, at: &Reading) -> Bounds {
        self.watches.get(boot.backend).map_or_else(Bounds::default, |watch| reconcile::bounds(&self.book, boot, watch, &self.config, at))
    }

    /// After this nothing more can come of a backend: the last end, the longest window, the settling time.
    pub(super) fn deadline_us(&self, backend: usize) -> u64 {
        let watch = self.watches.get(backend);
        let windows = self.book.dials().filter(|s| s.may_be_at(backend)).filter_map(|s| {
            let (end_us, _) = s.ending()?;
            let unseen =
                watch.map_or(0, |w| w.last_answer_us.map_or(0, |to| to.saturating_sub(end_us) - w.watched_us(end_us, to.max(end_us))));
            s.record.is_none().then(|| end_us + unseen + reconcile::window_us(s, &self.config))
        });
        windows
            .max()
            .unwrap_or(0)
            .max(self.book.last_window_us(backend))
            .max(self.book.last_end_us(backend))
            .saturating_add(self.config.settle_us)
    }

    fn agrees(&self, backend: usize) -> bool {
        let Some(watch) = self.watches.get(backend) else { return false };
        let Some(boot) = watch.boots.last().and_then(|index| self.boots.get(index)) else { return false };
        if boot.killed_us.is_some() {
            // A successor that has taken sessions already is to be looked at.
            let unseen = |s: &Session| s.accepted.as_ref().is_some_and(|accepted| !self.boots.contains_key(&accepted.boot));
            if self.book.sessions.values().any(|s| s.backend() == Some(backend) && unseen(s)) {
                return false;
            }
            return self.kills.iter().any(|kill| kill.boot == boot.index && kill.gone_us.is_some()) && !self.book.open_towards(backend);
        }
        let (book, config) = (&self.book, &self.config);
        let quiet_from = book.last_end_us(backend);
        let agrees = |at: &Reading| {
            let b = self.bounds(boot, at);
            let foreign = others::live(boot, &b, at, config);
            let listed = others::listed(boot, book, at, config).unwrap_or(u64::MAX);
            let live = b.live() + foreign.0.min(listed);
            let all_logged = !boot.has_log || b.pending <= b.doubtful;
            at.asked_us > quiet_from
                && at.open() <= foreign.1
                && at.active.0 <= live as i64
                && at.active.1 >= b.sure as i64
                && b.overdue == 0
                && all_logged
                && look::doubtful_rows(self, boot, at).is_empty()
                // Among others' sessions only a list shows who came back, or was never told of.
                && (boot.ours_alone || self.names_from_us.is_none_or(|from_us| at.asked_us > from_us))
        };
        let two = [&boot.waiting, &boot.last].into_iter().all(|at| at.as_ref().is_some_and(agrees));
        let told = |at: &Reading| {
            // Without a log the numbers by outcome are all that tells of these.
            let over = |s: &Session| s.over.is_some_and(|over| over.at_us < at.asked_us);
            boot.complete_log() || by_outcome::untold(boot, book, at, config, over).is_empty()
        };
        let two = two && boot.logged.agrees() && boot.waiting.as_ref().is_some_and(told);
        two && boot.extras.is_empty() && self.waiting.iter().all(|sample| sample.backend != backend)
    }

    fn advance(&mut self) {
        for merged in self.merger.ready() {
            match merged {
                Merged::Entry(source, entry) => self.book.apply(source, entry),
                Merged::WorkerLost(loss) => self.book.worker_lost(loss),
                Merged::BackendKilled(kill) => self.book.backend_killed(kill.backend, kill.boot, kill.at_us),
            }
        }
        let horizon = self.merger.horizon_us();
        let grace_us = self.config.grace_us;
        let ready = |sample: &CounterSample| sample.answered_at_us.saturating_add(grace_us) < horizon;
        while self.waiting.front().is_some_and(ready) {
            if let Some(sample) = self.waiting.pop_front() {
                self.take(sample);
            }
        }
        let ready = |sample: &TotalsSample| sample.answered_at_us.saturating_add(grace_us) < horizon;
        while self.waiting_totals.front().is_some_and(ready) {
            if let Some(sample) = self.waiting_totals.pop_front() {
                self.take_totals(sample);
            }
        }
    }

    fn take_totals(&mut self, sample: TotalsSample) {
        let Some(totals) = self.totals.get_mut(sample.source) else { return };
        totals.take(sample, &mut self.book, &self.config, &mut self.faults);
        for index in totals.sweep(&self.book, &self.config, &mut self.convergence) {
            self.book.fold(index);
        }
        self.sweep(false);
    }

    fn take(&mut self, sample: CounterSample) {
        let Some(watch) = self.watches.get_mut(sample.backend) else { return };
        let index = self.book.boot(&sample.snapshot.boot_id);
        if !self.boots.contains_key(&index) && (watch.unplanned >= MAX_UNPLANNED || index >= MAX_BOOTS) {
            watch.gaps += 1;
            watch.last_gap = Some((sample.answered_at_us, "too many processes have answered there in turn".to_owned()));
            return;
        }
        watch.answered(sample.answered_at_us, &self.config);
        let before = watch.boots.last().copied().filter(|before| *before != index);
        if !self.boots.contains_key(&index) {
            if let Some(before) = watch.boots.last().and_then(|before| self.boots.get_mut(before)) {
                before.replaced = before.killed_us.is_none();
                watch.unplanned += u64::from(before.replaced);
            }
            let mut boot = Boot::new(index, watch.boots.is_empty(), &sample, &self.config, &self.book);
            boot.killed_us = self.kills.iter().find(|kill| kill.boot == index).map(|kill| kill.at_us);
            watch.boots.push(index);
            self.boots.insert(index, boot);
        }
        // Nothing more comes of a process that another one has replaced.
        if let Some(before) = before {
            self.judge_waiting(before);
            let killed_us = self.boots.get(&before).and_then(|boot| boot.killed_us);
            self.process_gone(before, killed_us.unwrap_or(sample.asked_at_us));
        }
        let Some(boot) = self.boots.get_mut(&index) else { return };
        if let Some(before) = boot.take(sample, &mut self.book, &self.config, &mut self.faults.records) {
            self.judge(index, before);
        }
        self.sweep(false);
    }

    fn judge_waiting(&mut self, index: BootIndex) {
        if let Some(at) = self.boots.get_mut(&index).and_then(|boot| boot.waiting.take()) {
            self.judge(index, at);
        }
    }

    fn judge(&mut self, index: BootIndex, at: Reading) {
        let Some(boot) = self.boots.get_mut(&index) else { return };
        let Some(watch) = self.watches.get(boot.backend) else { return };
        let (asked_us, answered_us, active) = (at.asked_us, at.answered_us, at.active);
        let (b, off) = reconcile::judge(&self.book, boot, watch, &self.config, at, &mut self.faults);
        let judged = boot.last.as_ref().is_some_and(|last| last.asked_us == asked_us) && boot.odd.samples == 0;
        let (backend, logged) = (boot.backend, boot.complete_log());
        if let Some(off) = off {
            self.keep_drift(index, answered_us, off, b.overdue);
        }
        if !judged {
            return;
        }
        if !logged && active.0 <= b.live() as i64 {
            self.totals_agree(index, asked_us, answered_us);
        }
        self.kills_agree(backend, index, answered_us);
    }

    /// Without names the first sample that agrees tells of every end before it.
    fn totals_agree(&mut self, boot: BootIndex, asked_us: u64, answered_us: u64) {
        let over = |s: &Session| s.accepted.as_ref().is_some_and(|a| a.boot == boot) && s.over.is_some_and(|o| o.at_us < asked_us);
        for session in self.book.sessions.values_mut().filter(|s| s.record.is_none() && over(s)) {
            session.agreed_us.get_or_insert(answered_us);
        }
    }

    /// A new boot agrees: what the old one held is gone, and the backend's counters are right again.
    fn kills_agree(&mut self, backend: usize, boot: BootIndex, answered_us: u64) {
        let healed = |kill: &Kill| kill.backend == backend && kill.boot != boot && kill.at_us <= answered_us;
        let (healed, rest): (Vec<Kill>, Vec<Kill>) = std::mem::take(&mut self.kills).into_iter().partition(healed);
        self.kills = rest;
        for kill in healed {
            self.kill_converged(kill.boot, answered_us);
        }
    }

    pub(super) fn kill_converged(&mut self, boot: BootIndex, agreed_us: u64) {
        let killed = |s: &Session| {
            s.accepted.as_ref().is_some_and(|a| a.boot == boot) && s.record.is_none() && s.end_kind() == Some(EndKind::KillBackend)
        };
        // They stay in the book: the driver may see their connections break much later.
        for session in self.book.sessions.values_mut().filter(|s| s.agreed_us.is_none() && killed(s)) {
            session.agreed_us = Some(agreed_us);
            if let (Some(end), Some(over)) = (reconcile::row(session), session.over) {
                self.convergence.detected(end, over.at_us, agreed_us);
            }
        }
    }

    pub(super) fn sweep(&mut self, last: bool) {
        let out = (&mut self.faults, &mut self.convergence);
        let totals = &self.totals;
        let in_sums = |session: &Session| totals.iter().any(|totals| totals.covers(session));
        reconcile::sweep(&mut self.book, (&self.boots, &self.watches, &in_sums), &self.config, last, out);
    }
}
