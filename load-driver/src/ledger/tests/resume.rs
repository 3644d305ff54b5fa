//! What a checkpoint keeps of the backends.

use proto::ids::PlanIndex;

use super::idle_sample;
use crate::{
    ledger::{BackendConfig, Finish, Ledger, LedgerConfig, LedgerEntry, LedgerEvent, SourceId},
    plan::{EndKind, Protocol},
};

const START: u64 = 1_700_000_000_000_000;

#[test]
fn a_backend_has_a_stand_before_any_look_is_judged() {
    let mut ledger = Ledger::new(LedgerConfig::new("run", START, vec![BackendConfig { watched: true, fresh: false }]));
    ledger.open(SourceId { worker: 0, shard: 0 }, START);
    assert!(ledger.stands().is_empty());
    // The last one before the first session counts, and none after that.
    for (at_us, started) in [(START - 900_000, 5), (START - 100_000, 6), (START + 50_000, 9)] {
        let mut sample = idle_sample(at_us, "boot-1");
        (sample.snapshot.started, sample.snapshot.active, sample.snapshot.active_interval) = (started, 2, (2, 2));
        ledger.sample(sample);
    }
    let stands = ledger.stands();
    let [stand] = stands.as_slice() else { panic!("{stands:?}") };
    assert_eq!((stand.boot_id.as_str(), stand.base_started, stand.base_active, stand.accepted, stand.overdue), ("boot-1", 6, 2, 0, 0));
}

#[test]
fn ends_that_no_look_has_settled_yet_are_in_a_checkpoint() {
    let mut ledger = Ledger::new(LedgerConfig::new("run", START, vec![BackendConfig { watched: true, fresh: true }]));
    let source = SourceId { worker: 0, shard: 0 };
    ledger.open(source, START);
    let steps = |n: u64| {
        let at_us = START + n * 1_000;
        [
            LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Grpc, end: EndKind::Cancel, client_ref: format!("run-{n}") },
            LedgerEvent::Attempted { backend: Some(0), report_age_us: None },
            LedgerEvent::Accepted { session_id: format!("s{n}"), backend_id: "b0".to_owned(), boot_id: "boot-1".to_owned() },
            LedgerEvent::Forced { kind: EndKind::Cancel },
            LedgerEvent::Ended { finish: Finish::Forced(EndKind::Cancel) },
        ]
        .map(|event| LedgerEntry { index: PlanIndex(n), at_us, event })
    };
    ledger.entries(source, (0..7).flat_map(steps).collect(), START + 1_000_000);
    let killed = |rows: Vec<crate::ledger::ConvergenceRow>| {
        rows.iter().filter(|row| row.killed > 0).map(|row| (row.killed, row.detected)).collect::<Vec<_>>()
    };
    assert_eq!(killed(ledger.convergence()), [(7, 0)]);
    let next = Ledger::new(LedgerConfig::new("run", START, Vec::new())).continuing(&ledger.carried());
    assert_eq!(killed(next.convergence()), [(7, 0)]);
}
