//! What a checkpoint keeps of the backends.

use super::idle_sample;
use crate::ledger::{BackendConfig, Ledger, LedgerConfig, SourceId};

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
