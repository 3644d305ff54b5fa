//! Numbers that only grow and fall all the same, under one boot id.

use super::{
    boot::{Boot, Reading},
    reconcile::Faults,
};

impl Boot {
    /// Numbers that fell at the look before and have not come back fell for good: that was no torn snapshot.
    pub(super) fn tell_reset(&mut self, at: &Reading, faults: &mut Faults) {
        let Some((started, ended)) = self.fell_from.take() else { return };
        if at.started >= started && at.ended_sum() >= ended {
            return;
        }
        self.reset = true;
        // A log that began anew with them no longer tells which ends are new.
        self.has_log &= at.next_end >= self.next_seq;
        faults.resets += 1;
        faults.torn = faults.torn.saturating_sub(1);
        if faults.torn == 0 {
            faults.torn_example = None;
        }
        let fell = if at.started < started { ("started", started, at.started) } else { ("ended", ended, at.ended_sum()) };
        let (name, was, is) = fell;
        let words = || format!("backend {} ({}): `{name}` went from {was} down to {is} under one boot id", self.backend, self.backend_id);
        faults.reset_example.get_or_insert_with(words);
    }
}
