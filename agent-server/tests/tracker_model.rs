//! The sessions against a naive model: any order of admissions, moves, ends and drops leaves the same counts.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use agent_server::tracker::{LiveSession, Outcome, Phase, SessionEnder, Sessions, Snapshot};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    Admit,
    Move(usize, Phase),
    End(usize, Outcome),
    EndByEnder(usize, Outcome),
    Drop(usize),
    FrameIn(usize),
    FrameOut(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let phase = proptest::sample::select(&Phase::ALL[..]);
    let outcome = proptest::sample::select(&Outcome::ALL[..]);
    let op = prop_oneof![
        3 => Just(Op::Admit),
        4 => (any::<usize>(), phase).prop_map(|(i, phase)| Op::Move(i, phase)),
        2 => (any::<usize>(), outcome.clone()).prop_map(|(i, outcome)| Op::End(i, outcome)),
        1 => (any::<usize>(), outcome).prop_map(|(i, outcome)| Op::EndByEnder(i, outcome)),
        1 => any::<usize>().prop_map(Op::Drop),
        1 => any::<usize>().prop_map(Op::FrameIn),
        1 => any::<usize>().prop_map(Op::FrameOut),
    ];
    prop::collection::vec(op, 1..200)
}

/// Nothing but what it was told.
#[derive(Debug, Default)]
struct Model {
    sessions: Vec<Told>,
    rejected: u64,
    late_ends: u64,
    /// Session number (0 for the first) and outcome, as they ended.
    log: Vec<(usize, Outcome)>,
}

#[derive(Debug)]
struct Told {
    phase: Phase,
    ended: Option<Outcome>,
    frames: (u64, u64),
}

impl Model {
    fn active(&self) -> u64 {
        self.sessions.iter().filter(|told| told.ended.is_none()).count() as u64
    }

    fn end(&mut self, i: usize, outcome: Outcome) -> bool {
        let first = self.sessions[i].ended.is_none();
        if first {
            self.sessions[i].ended = Some(outcome);
            self.log.push((i, outcome));
        } else {
            self.late_ends += 1;
        }
        first
    }

    fn snapshot(&self) -> Snapshot {
        let active = self.active() as i64;
        Snapshot {
            started: self.sessions.len() as u64,
            ended: Outcome::ALL.map(|outcome| self.sessions.iter().filter(|told| told.ended == Some(outcome)).count() as u64),
            phases: Phase::ALL.map(|phase| self.sessions.iter().filter(|told| told.ended.is_none() && told.phase == phase).count() as i64),
            active,
            active_interval: (active, active),
            exact: true,
            late_ends: self.late_ends,
            rejected: self.rejected,
        }
    }
}

/// The real thing beside the model.
struct Pair {
    sessions: Arc<Sessions>,
    live: Vec<Option<LiveSession>>,
    enders: Vec<SessionEnder>,
    model: Model,
}

impl Pair {
    fn new(max: Option<u64>) -> Self {
        let clock = AtomicU64::new(1_000);
        let sessions = Sessions::new(4, max, Box::new(move || clock.fetch_add(1, Ordering::Relaxed)));
        Self { sessions, live: Vec::new(), enders: Vec::new(), model: Model::default() }
    }

    fn apply(&mut self, op: &Op) {
        let count = self.live.len();
        match *op {
            Op::Admit => self.admit(),
            Op::Move(..) | Op::End(..) | Op::EndByEnder(..) | Op::Drop(_) | Op::FrameIn(_) | Op::FrameOut(_) if count == 0 => {}
            Op::Move(i, phase) => {
                let i = i % count;
                if let Some(live) = &mut self.live[i] {
                    let told = &mut self.model.sessions[i];
                    assert_eq!(live.set_phase(phase), told.ended.is_none());
                    told.phase = phase;
                }
            }
            Op::End(i, outcome) => {
                if let Some(live) = &self.live[i % count] {
                    assert_eq!(live.end(outcome), self.model.end(i % count, outcome));
                }
            }
            Op::EndByEnder(i, outcome) => assert_eq!(self.enders[i % count].end(outcome), self.model.end(i % count, outcome)),
            Op::Drop(i) => {
                if self.live[i % count].take().is_some() && self.model.sessions[i % count].ended.is_none() {
                    self.model.end(i % count, Outcome::Cancelled);
                }
            }
            Op::FrameIn(i) => {
                if let Some(live) = &mut self.live[i % count] {
                    live.frame_in();
                    self.model.sessions[i % count].frames.0 += 1;
                }
            }
            Op::FrameOut(i) => {
                if let Some(live) = &mut self.live[i % count] {
                    live.frame_out();
                    self.model.sessions[i % count].frames.1 += 1;
                }
            }
        }
    }

    fn admit(&mut self) {
        let full = self.sessions.max_sessions().is_some_and(|max| self.model.active() >= max);
        match self.sessions.admit(&format!("c-{}", self.live.len())) {
            Ok(live) => {
                assert!(!full, "the cap holds");
                assert_eq!(live.number(), self.live.len() as u64 + 1);
                self.enders.push(live.ender());
                self.live.push(Some(live));
                self.model.sessions.push(Told { phase: Phase::Listening, ended: None, frames: (0, 0) });
            }
            Err(error) => {
                assert_eq!((full, Some(error.max)), (true, self.sessions.max_sessions()));
                self.model.rejected += 1;
            }
        }
    }

    /// Every live session in order of admission, page by page.
    fn check_listing(&self, limit: usize) {
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.sessions.listing(&after, limit).unwrap();
            assert_eq!(page.total, self.model.active());
            assert!(page.sessions.len() <= limit);
            seen.extend(page.sessions);
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        assert!(seen.is_sorted_by_key(|row| row.session_id.clone()));
        let listed: Vec<_> = seen.iter().map(|row| (row.client_ref.to_string(), row.phase, (row.frames_in, row.frames_out))).collect();
        let told = self.model.sessions.iter().enumerate().filter(|(_, told)| told.ended.is_none());
        assert_eq!(listed, told.map(|(i, told)| (format!("c-{i}"), told.phase, told.frames)).collect::<Vec<_>>());
    }

    fn check_ends(&self, limit: usize) {
        let mut seen = Vec::new();
        let mut after = 0;
        loop {
            let page = self.sessions.ends(after, limit);
            if page.ends.is_empty() {
                break;
            }
            after = page.next;
            seen.extend(page.ends);
        }
        assert_eq!(after, self.sessions.next_end());
        assert!(seen.iter().zip(0..).all(|(row, seq)| row.seq == seq));
        let logged: Vec<_> = seen.iter().map(|row| (row.client_ref.clone(), row.outcome)).collect();
        assert_eq!(logged, self.model.log.iter().map(|&(i, outcome)| (format!("c-{i}"), outcome)).collect::<Vec<_>>());
    }
}

proptest! {
    // A failing case is printed in full; there is no library root here to keep it beside.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_operations_leaves_the_counts_of_the_model(
        ops in ops(),
        max in prop::option::of(0..8_u64),
        limit in 1..20_usize,
    ) {
        let mut pair = Pair::new(max);
        for op in &ops {
            pair.apply(op);
            prop_assert_eq!(pair.sessions.snapshot(), pair.model.snapshot(), "after {:?}", op);
        }
        pair.check_listing(limit);
        pair.check_ends(limit);
        let frames = pair.sessions.frames();
        let sums = pair.model.sessions.iter().fold((0, 0), |sum, told| (sum.0 + told.frames.0, sum.1 + told.frames.1));
        prop_assert_eq!((frames.received, frames.sent), sums, "frames of ended sessions stay in the totals");
        pair.live.clear();
        prop_assert_eq!(pair.sessions.snapshot().active, 0);
        prop_assert_eq!(pair.sessions.listed(), 0);
    }
}

#[test]
fn sessions_of_many_threads_are_listed_in_one_order() {
    let sessions = Sessions::new(4, None, Box::new(|| 7));
    let live: Vec<LiveSession> = (0..8)
        .map(|_| {
            let sessions = Arc::clone(&sessions);
            std::thread::spawn(move || (0..50).map(|_| sessions.admit("c").unwrap()).collect::<Vec<_>>())
        })
        .collect::<Vec<_>>()
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    let page = sessions.listing("", 1_000).unwrap();
    assert_eq!((page.total, page.sessions.len(), page.next), (400, 400, None));
    let mut ids: Vec<String> = live.iter().map(LiveSession::id).collect();
    ids.sort_unstable();
    assert_eq!(page.sessions.iter().map(|row| row.session_id.clone()).collect::<Vec<_>>(), ids);
    assert!(page.sessions.iter().all(|row| row.started_us == 7));
}
