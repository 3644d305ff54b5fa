//! A soak in virtual time: whatever the ledger keeps follows the sessions that live, not those that lived.

use std::collections::VecDeque;

use agent_server::admin::wire::EndRecord;
use proto::{frame::Outcome, ids::PlanIndex};

use super::{idle_sample, names};
use crate::{
    ledger::{
        BackendConfig, DefectName, FailureCause, Finish, Judgement, Ledger, LedgerConfig, LedgerEntry, LedgerEvent, SourceId, Verdict,
    },
    plan::{EndKind, Protocol},
};

const SOURCE: SourceId = SourceId { worker: 0, shard: 0 };
const SECOND: u64 = 1_000_000;

/// One backend, and a driver that begins `RATE` sessions a second, each for ten seconds.
struct Soak {
    ledger: Ledger,
    now: u64,
    next: u64,
    /// Begin of each session that lives.
    live: VecDeque<(u64, u64)>,
    boot: u32,
    started: u64,
    ended: u64,
    ends: Vec<EndRecord>,
    seq: u64,
}

const RATE: u64 = 3;
const LIFE: u64 = 10 * SECOND;

impl Soak {
    fn new(fresh: bool) -> Self {
        let mut ledger = Ledger::new(LedgerConfig::new("run", 0, vec![BackendConfig { watched: true, fresh }]));
        ledger.open(SOURCE, 0);
        let mut soak =
            Self { ledger, now: SECOND, next: 0, live: VecDeque::new(), boot: 0, started: 0, ended: 0, ends: Vec::new(), seq: 0 };
        soak.look();
        soak
    }

    fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }

    fn entry(index: u64, at_us: u64, event: LedgerEvent) -> LedgerEntry {
        LedgerEntry { index: PlanIndex(index), at_us, event }
    }

    fn end(&mut self, index: u64, at_us: u64) {
        let (session_id, client_ref) = (format!("s{}-{index}", self.boot), format!("run-{index}"));
        self.ends.push(EndRecord { seq: self.seq, session_id, client_ref, outcome: "completed".into(), at_us });
        self.seq += 1;
        self.ended += 1;
    }

    fn look(&mut self) {
        let mut sample = idle_sample(self.now, &self.boot_id());
        let active = self.started as i64 - self.ended as i64;
        let at = &mut sample.snapshot;
        (at.started, at.active, at.active_interval, at.next_end) = (self.started, active, (active, active), self.seq);
        at.ended = [("completed".to_owned(), self.ended)].into();
        at.phases = [("listening".to_owned(), active)].into();
        sample.ends = Some(std::mem::take(&mut self.ends));
        self.ledger.sample(sample);
    }

    /// One second. `doubt`: a dial of it comes to nothing, nobody knows how far.
    fn second(&mut self, doubt: bool, begin: bool) {
        let from = self.now;
        let mut entries = Vec::new();
        for n in 0..if begin { RATE } else { 0 } {
            let (index, at) = (self.next, from + n * SECOND / RATE);
            self.next += 1;
            let scheduled = LedgerEvent::Scheduled {
                scenario: 0,
                protocol: Protocol::Grpc,
                end: EndKind::Graceful,
                client_ref: format!("run-{index}"),
            };
            entries.push(Self::entry(index, at, scheduled));
            entries.push(Self::entry(index, at, LedgerEvent::Attempted { backend: Some(0), report_age_us: None }));
            if doubt && n == 0 {
                entries.push(Self::entry(index, at + 10, LedgerEvent::Retried { cause: FailureCause::StartTimeout }));
                entries.push(Self::entry(index, at + 20, LedgerEvent::Attempted { backend: Some(0), report_age_us: None }));
            }
            if doubt && n == 1 {
                entries.push(Self::entry(index, at + 10, LedgerEvent::Failed { cause: FailureCause::StartTimeout }));
                continue;
            }
            let session_id = format!("s{}-{index}", self.boot);
            entries.push(Self::entry(
                index,
                at + 30,
                LedgerEvent::Accepted { session_id, backend_id: "b".into(), boot_id: self.boot_id() },
            ));
            self.started += 1;
            self.live.push_back((index, at));
        }
        self.now += SECOND;
        while let Some((index, began)) = self.live.front().copied().filter(|(_, began)| began + LIFE < self.now) {
            self.live.pop_front();
            let at = began + LIFE;
            self.end(index, at);
            entries.push(Self::entry(index, at, LedgerEvent::Ended { finish: Finish::Goodbye(Outcome::Completed) }));
        }
        entries.sort_by_key(|entry| entry.at_us);
        self.ledger.entries(SOURCE, entries, self.now);
        self.look();
        self.ledger.drain_convergence();
    }

    /// `kill -9`, and a new process in its place; the driver sees each connection break a moment later.
    fn kill(&mut self) {
        self.ledger.backend_killed(0, &self.boot_id(), self.now);
        let lost =
            |(index, _): (u64, u64)| Self::entry(index, self.now + 5, LedgerEvent::Ended { finish: Finish::Lost(FailureCause::Reset) });
        let entries = std::mem::take(&mut self.live).into_iter().map(lost).collect();
        self.now += 10;
        self.ledger.entries(SOURCE, entries, self.now);
        (self.boot, self.started, self.ended, self.seq) = (self.boot + 1, 0, 0, 0);
        self.ends.clear();
    }

    fn finish(mut self) -> Verdict {
        for _ in 0..45 {
            self.second(false, false);
        }
        self.ledger.source_done(SOURCE);
        self.look();
        self.ledger.verdict()
    }

    /// Everything whose size could follow the sessions that lived.
    fn sizes(&self) -> [usize; 5] {
        let book = &self.ledger.book;
        [book.sessions.len(), book.strays.all().count(), book.by_ref.len(), book.by_id.len(), book.folded_names.len()]
    }
}

#[test]
fn hours_with_kills_and_doubts_keep_no_more_than_the_last_one() {
    const HOURS: u64 = 2;
    let mut soak = Soak::new(true);
    let mut most = [0; 5];
    for second in 1..=HOURS * 3_600 {
        soak.second(second.is_multiple_of(60), true);
        if second.is_multiple_of(600) {
            soak.kill();
        }
        if second > 3_600 {
            most = std::array::from_fn(|n| most[n].max(soak.sizes()[n]));
        }
    }
    let [sessions, strays, by_ref, by_id, names_kept] = most;
    // Live ones, those that wait for two looks, and half an hour of doubts.
    let live = (RATE * LIFE / SECOND) as usize;
    assert!(sessions <= 3 * live + 40 && by_ref <= 3 * live + 40 && by_id <= 3 * live && strays <= 40, "{most:?}");
    assert!(names_kept <= (RATE * 3_600) as usize + 3 * live, "{most:?}");
    let verdict = soak.finish();
    assert_eq!(names(&verdict), [], "{:#?}", verdict.notes);
    assert_eq!(verdict.judgement, Judgement::Agree);
    assert_eq!(verdict.irregular, Vec::<String>::new());
    let (total, killed) = (verdict.funnels.total(), verdict.convergence.iter().map(|row| row.killed).sum::<u64>());
    assert_eq!(total.requested, HOURS * 3_600 * RATE);
    assert_eq!((killed, total.contradictions()), (total.established, vec![]), "folded or not, each is in one row");
    assert!(verdict.notes.iter().any(|note| note.contains("were forgotten")), "{:?}", verdict.notes);
}

#[test]
fn a_second_decrement_after_everything_is_forgotten_is_no_pass() {
    for fresh in [true, false] {
        for (after_s, name) in [(60, DefectName::DoubleDecrement), (4_000, DefectName::UnknownSessions)] {
            let mut soak = Soak::new(fresh);
            for _ in 0..after_s {
                soak.second(false, true);
            }
            let now = soak.now;
            soak.end(0, now);
            for _ in 0..10 {
                soak.second(false, true);
            }
            let verdict = soak.finish();
            assert!(verdict.finding(name).is_some(), "after {after_s} s: {:#?}", verdict.findings);
            assert_eq!(verdict.judgement, Judgement::Disagree);
        }
    }
}
