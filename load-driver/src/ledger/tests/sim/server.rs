//! A backend: what it counts, and what it strikes itself with.

use std::collections::BTreeMap;

use agent_server::admin::wire::{EndRecord, SessionJson, SnapshotJson};
use proto::frame::Outcome;

use super::{Defect, MS, Op, Work, World, boot_id, reference};
use crate::counters::{CounterSample, Counts};

#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) backend: usize,
    pub(super) boot: u32,
    /// Boot and number of the next end that the driver will ask for.
    pub(super) read: (u32, u64),
    pub(super) started: u64,
    pub(super) active: i64,
    pub(super) ended: BTreeMap<String, u64>,
    pub(super) rejected: u64,
    pub(super) live: BTreeMap<String, String>,
    pub(super) ends: Vec<EndRecord>,
    pub(super) accumulator: f64,
    pub(super) strikes: u64,
    /// As it was when it froze.
    pub(super) frozen: Option<Counts>,
}

impl World {
    pub(super) fn strikes(&self, defect: Defect, server: &mut Server) -> bool {
        let Some((on, rate)) = self.defect else { return false };
        if on != defect || server.backend != self.struck {
            return false;
        }
        if server.strikes == 0 && server.accumulator == 0.0 {
            server.accumulator = 1.0 - rate;
        }
        server.accumulator += rate;
        if server.accumulator < 1.0 - 1e-9 {
            return false;
        }
        server.accumulator -= 1.0;
        server.strikes += 1;
        true
    }

    pub(super) fn apply(&self, server: &mut Server, at_us: u64, op: Op, later: &mut Vec<Work>) {
        match op {
            Op::Boot(boot) => {
                let Server { backend, read, accumulator, strikes, .. } = *server;
                *server = Server { backend, boot, read, accumulator, strikes, ..Server::default() };
            }
            Op::Start(whose) => {
                server.live.insert(whose.id(), whose.reference());
                if !self.strikes(Defect::NeverAdded, server) {
                    server.started += 1;
                    server.active += 1;
                }
            }
            Op::Reject(i) => {
                server.rejected += 1;
                if self.strikes(Defect::DecrementOnReject, server) {
                    count(server, at_us, "", &reference(i), Outcome::Cancelled);
                }
            }
            Op::End(whose, outcome) => {
                let timeout = outcome == Outcome::TimedOut;
                let abrupt = outcome != Outcome::Completed;
                if (abrupt && self.strikes(Defect::Ghost, server)) || (timeout && self.strikes(Defect::ForgetOnTimeout, server)) {
                    return;
                }
                if abrupt && self.strikes(Defect::LateDecrement, server) {
                    later.push((at_us + 5_000 * MS, server.backend, Op::Count(whose, outcome)));
                    return;
                }
                let twice = abrupt && self.strikes(Defect::DoubleDecrement, server);
                let wrong = abrupt && self.strikes(Defect::WrongOutcome, server);
                let outcome = if wrong { Outcome::Completed } else { outcome };
                for _ in 0..=u8::from(twice) {
                    count(server, at_us, &whose.id(), &whose.reference(), outcome);
                }
                server.live.remove(&whose.id());
                if abrupt && self.strikes(Defect::Resurrect, server) {
                    server.live.insert(whose.id(), whose.reference());
                    server.started += 1;
                    server.active += 1;
                }
            }
            Op::Count(whose, outcome) => {
                count(server, at_us, &whose.id(), &whose.reference(), outcome);
                server.live.remove(&whose.id());
            }
        }
    }

    pub(super) fn sample(&self, server: &mut Server, asked: u64, cut: u64, answered: u64) -> CounterSample {
        let active = server.active + self.others as i64;
        let torn = self.strikes(Defect::TornSnapshot, server);
        let session = |(id, client_ref): (&String, &String)| SessionJson {
            session_id: id.clone(),
            client_ref: client_ref.clone(),
            phase: "listening".into(),
            age_ms: 0,
            frames_in: 0,
            frames_out: 0,
        };
        CounterSample {
            backend: server.backend,
            asked_at_us: asked,
            answered_at_us: answered,
            snapshot: SnapshotJson {
                backend_id: (self.ids)(server.backend),
                boot_id: boot_id(server.backend, server.boot),
                captured_at_us: cut,
                exact: true,
                started: server.started + self.others,
                active: active - i64::from(torn),
                active_interval: (active, active),
                ended: server.ended.clone(),
                phases: BTreeMap::from([("listening".to_owned(), active)]),
                max_sessions: None,
                rejected: server.rejected,
                late_ends: 0,
                live_tasks: server.live.len() as u64,
                draining: false,
                next_end: 0,
                frames_in: 0,
                frames_out: 0,
                cpu_us: 0,
                rss_bytes: 0,
                virtual_cost_us: 0,
                load: agent_server::admin::wire::LoadJson::default(),
                defects: BTreeMap::new(),
                faults: BTreeMap::new(),
            },
            ends: None,
            sessions: self.registry.then(|| {
                let others = (0..self.others).map(|n| (format!("o{n}"), format!("other-{n}"))).collect::<Vec<_>>();
                let others = others.iter().map(|(id, client_ref)| session((id, client_ref))).collect::<Vec<_>>();
                server.live.iter().map(session).chain(others).collect()
            }),
        }
    }

    pub(super) fn ends(&self, server: &mut Server) -> (Vec<EndRecord>, u64) {
        let after = if server.read.0 == server.boot { server.read.1 } else { 0 };
        let total = server.ends.len() as u64;
        let oldest = server.ends.len().saturating_sub(self.ring) as u64;
        server.read = (server.boot, total);
        (server.ends.iter().filter(|e| e.seq >= after.max(oldest)).cloned().collect(), total)
    }
}

fn count(server: &mut Server, at_us: u64, session_id: &str, client_ref: &str, outcome: Outcome) {
    server.active -= 1;
    *server.ended.entry(outcome.name().to_owned()).or_default() += 1;
    server.ends.push(EndRecord {
        seq: server.ends.len() as u64,
        session_id: session_id.to_owned(),
        client_ref: client_ref.to_owned(),
        outcome: outcome.name().to_owned(),
        at_us,
    });
}
