//! What is said of a session when it is over: what was found, and what it would have shown.

use std::time::Duration;

use proto::time::Micros;

use super::Watch;
use crate::{
    ledger::Finish,
    voice::{Found, Verdict, VoiceFault},
};

/// Missed turns without any sign after which a session is silent.
const SILENT_TURNS: u32 = 2;
/// Responses of a session without an end, where an onset may have ended each: one may be a stall that it woke from.
const UNENDED: u32 = 2;
/// A backend that answers a close so soon was listening before it.
const AT_ONCE: Duration = Duration::from_millis(300);
/// A driver that came this much too late itself in a silence does not judge it, microseconds.
const STALLED_US: u64 = 500_000;

impl Watch {
    /// Turns that got no sign are lost if the backend never spoke of them, not even too late. Those at the end of the session nobody can know.
    fn judge_drops(&mut self, now: Micros) {
        let Some(drops) = self.drops.take() else { return };
        let awake = self.stall_us.saturating_sub(self.stall_first_us) < STALLED_US;
        let unknown = self.quiet.turns + u32::from(self.open);
        let asked = self.turns.saturating_sub(drops.asked).saturating_sub(unknown);
        let lost = u64::from(asked).saturating_sub(self.heard.since(drops.before));
        if lost > 0 && self.shows() && (self.terms.in_order || awake) {
            self.found(VoiceFault::VadDrop, drops.turns.min(u32::try_from(lost).unwrap_or(u32::MAX)), 0, (drops.since, now));
        } else if lost > 0 {
            self.between = false;
        }
    }

    pub(super) fn confirm_unended(&mut self, now: Micros) {
        match self.unended.take() {
            None => {}
            Some((_, asked)) if self.doubtful => {
                let since = if self.doubts.0 == 0 { asked } else { self.doubts.1 };
                self.doubts = (self.doubts.0 + 1, since);
            }
            Some((_, asked)) => self.found(VoiceFault::NoTurnEnd, 1, 0, (asked, now)),
        }
    }

    /// Ends that an onset may have been: none of a session came otherwise, or nothing is known. One that was not heard of to the last is none to
    /// judge by either.
    fn judge_ends(&mut self, now: Micros) {
        let (doubts, since) = self.doubts;
        if doubts >= UNENDED && !self.ended {
            self.found(VoiceFault::NoTurnEnd, doubts, 0, (since, now));
        } else if doubts > 0 || self.unended.is_some() || self.unclear {
            self.untested(VoiceFault::NoTurnEnd);
        }
    }

    fn judge_holes(&mut self) {
        let holes = std::mem::replace(&mut self.holes, Found::new(VoiceFault::OutputGaps));
        if holes.size() >= holes.kind.least() {
            self.verdict.tested.insert(holes.kind);
            self.verdict.found.push(holes);
        }
    }

    /// Nothing is known of it, unless it was found.
    fn untested(&mut self, kind: VoiceFault) {
        if self.verdict.found.iter().all(|found| found.kind != kind) {
            self.verdict.tested.remove(kind);
        }
    }

    /// What this session would have shown. One that ends with a turn that was not heard, or not answered yet, may have fallen silent in it.
    fn put_to_the_test(&mut self, now: Micros) {
        let listened = self.left.unwrap_or(now);
        self.double_passed(listened);
        self.stale_passed(listened);
        if !self.shows() {
            return;
        }
        if self.edge_survived && !self.edge {
            self.verdict.tested.insert(VoiceFault::TruncateEdge);
        }
        if self.quiet.turns > 0 || self.open {
            return;
        }
        if self.over >= SILENT_TURNS {
            self.verdict.tested.insert(VoiceFault::SilentSession);
        }
        if self.between && self.unheard.turns == 0 {
            self.verdict.tested.insert(VoiceFault::VadDrop);
        }
    }

    /// The session is over; none when there is nothing to say.
    pub(in super::super) fn close(&mut self, finish: Finish, now: Micros) -> Option<Verdict> {
        let said_goodbye = matches!(finish, Finish::Goodbye(_));
        // Where the goodbye is a close, what a starved backend had still to say dies with it: only one that answers at once was listening.
        let at_once = self.left.is_some_and(|left| now.since(left) <= AT_ONCE);
        let alive = said_goodbye && (self.terms.in_order || at_once) || matches!(finish, Finish::Forced(_)) && self.quiet.alive;
        let awake = self.stall_us.saturating_sub(self.quiet.stall_us) < STALLED_US;
        let punctual = self.stall_us.saturating_sub(self.stall_first_us) < STALLED_US;
        if said_goodbye && (self.terms.in_order || at_once && punctual) {
            self.confirm_unended(now);
        }
        self.judge_ends(now);
        self.judge_drops(now);
        self.judge_holes();
        self.put_to_the_test(now);
        if self.quiet.turns >= SILENT_TURNS && alive && awake && self.shows() {
            let kind = if self.edge { VoiceFault::TruncateEdge } else { VoiceFault::SilentSession };
            self.found(kind, 1, now.since(self.quiet.since).as_micros() as u64, (self.quiet.since, now));
        }
        let mut verdict = std::mem::take(&mut self.verdict);
        for found in &verdict.found {
            let told = match found.kind {
                VoiceFault::StaleAudioAfterBargeIn => self.terms.tells_old,
                VoiceFault::DoubleResponse => self.shows(),
                _ => true,
            };
            if !told {
                verdict.by_time.insert(found.kind);
            }
        }
        (!self.excused && verdict != Verdict::default()).then_some(verdict)
    }
}
