//! A restart told apart from a loss: a process that begins anew counts from zero, and every connection to the one before it broke.
//!
//! | what is seen | it is |
//! |---|---|
//! | the plan killed the process | a restart, known |
//! | the process goes by another name | a restart, known |
//! | a number that only grows fell, and sessions from before live on over their connections | no restart: a finding |
//! | it fell under one name of the process | no restart, or several processes that answer in turn: a finding |
//! | without a name, all of them fell to what began since the look before | a restart, most likely |
//! | without a name, they fell to more than that | no restart: a finding; with sessions of others: a restart, perhaps |
//!
//! Behind a sum none of this can be told: its parts begin anew one by one.

use super::{Base, Folded, Look, Totals, bounds, conclude::mismatch_of_gone};
use crate::{
    counters::Counts,
    ledger::{book::Book, config::LedgerConfig, reconcile::Faults, session::Session},
};

/// Reasons that are kept.
const MAX_BREAKS: usize = 8;

/// What a fall of numbers that only grow means.
enum Fall {
    /// Nothing was lost but what a process takes with it. In words, what tells so, and how surely; none where the plan knows of it.
    Restart(Option<(String, &'static str)>),
    /// Something was lost in a process that lives on.
    Reset(String),
}

/// Which number that only grows went down, in words.
fn falls(was: &Counts, is: &Counts) -> String {
    let all = [("started", was.started, is.started), ("ended", was.ended, is.ended), ("rejected", was.rejected, is.rejected)];
    let fell = all.iter().find_map(|(name, was, is)| Some((name, (*was)?, (*is)?)).filter(|(_, was, is)| is < was));
    fell.map_or_else(
        || "a number that only grows went down".to_owned(),
        |(name, was, is)| format!("`{name}`, which only grows, went from {was} down to {is}"),
    )
}

impl Totals {
    pub(super) fn look_for_restart(&mut self, look: &Look, book: &Book, config: &LedgerConfig, faults: &mut Faults) {
        let Some(last) = &self.last else { return };
        let killed = self.kills.iter().any(|at| *at <= look.asked_us);
        let (was, is) = (&last.counts, &look.counts);
        let renamed = is.is_renamed(was);
        if !(killed || renamed || is.runs_backwards(was)) {
            return;
        }
        let label = self.config.name.clone();
        if self.config.backend.is_none() {
            self.broken = true;
            self.unproven(format!("{label}: one of the processes behind the sum began anew, and what it had counted is lost in it"));
            return;
        }
        let fall = if killed {
            Fall::Restart(None)
        } else if renamed {
            Fall::Restart(Some(("another process answers".to_owned(), "")))
        } else {
            self.judge_fall(last, look, book, config)
        };
        match fall {
            Fall::Reset(why) => {
                self.reset = true;
                faults.resets += 1;
                faults.reset_example.get_or_insert_with(|| format!("{label}: {why}"));
            }
            Fall::Restart(why) => {
                if let Some((why, surely)) = why {
                    let what = "what it had counted before that cannot be checked any more";
                    self.unproven(format!("{label}: {why}, so the backend was started anew{surely}: {what}"));
                }
                self.begin_anew(look, book, config);
            }
        }
    }

    /// Numbers that only grow fell, and nobody knows of another process.
    fn judge_fall(&self, last: &Look, look: &Look, book: &Book, config: &LedgerConfig) -> Fall {
        let (was, is) = (&last.counts, &look.counts);
        let fell = falls(was, is);
        let lives_on = self.lives_on(last, look, book, config);
        if lives_on > 0 {
            return Fall::Reset(format!("{fell}, while {lives_on} sessions from before went on over their connections"));
        }
        if was.boot.is_some() && is.boot.is_some() {
            return Fall::Reset(format!("{fell} in one and the same process, unless several processes answer there in turn"));
        }
        let grown = [is.started, is.ended, is.rejected].into_iter().flatten().max().unwrap_or(0);
        // Whatever was dialled since may be in them, under any of the numbers.
        let since = book.dials().filter(|s| self.covers(s) && s.attempted.is_some_and(|a| a.at_us >= last.span.from_us)).count() as u64;
        if grown <= since {
            return Fall::Restart(Some((fell, " (most likely: it counts no more than what began since)")));
        }
        if self.config.shows.other_traffic {
            return Fall::Restart(Some((fell, " (perhaps: others' sessions leave it open)")));
        }
        Fall::Reset(format!("{fell}; a process that begins anew would have counted {since} at most by then"))
    }

    /// Sessions that were there before the last look and for a while after this one, as the driver knows: a restart would have broken their
    /// connections.
    fn lives_on(&self, last: &Look, look: &Look, book: &Book, config: &LedgerConfig) -> u64 {
        if self.watch.disturbances.within(last.span.from_us, look.span.to_us) {
            return 0;
        }
        let until_us = look.span.to_us.saturating_add(config.grace_us);
        let lives = |s: &&Session| {
            let before = s.accepted.as_ref().is_some_and(|accepted| accepted.at_us < last.span.from_us);
            before && self.covers(s) && !s.through_front() && s.lives_until_us() > until_us
        };
        book.sessions.values().filter(lives).count() as u64
    }

    fn unproven(&mut self, why: String) {
        if self.breaks.len() < MAX_BREAKS {
            self.breaks.push(why);
        }
    }

    /// With a base of nothing. What the process before had counted is written off.
    fn begin_anew(&mut self, look: &Look, book: &Book, config: &LedgerConfig) {
        let Some(last) = &self.last else { return };
        let (all, last_from_us) = (bounds(book, self, last.span, config), last.span.from_us);
        self.kills.retain(|at| *at > look.asked_us);
        self.written_off += all.accepted;
        self.wrong_before += mismatch_of_gone(self, last, &all);
        self.epoch = Some((last_from_us, look.span.to_us));
        self.base = Some(Base { looks: 1, ..Base::default() });
        self.folded = Folded::default();
        for lasting in [&mut self.short, &mut self.excess, &mut self.fewer, &mut self.missing].into_iter().chain(&mut self.firmly) {
            lasting.recent.clear();
        }
        self.average.restart();
        self.ghosts = (0, 0);
        // It took them along.
        self.untimed.clear();
        self.forget_growth(book);
        self.reset = false;
        self.watch.drift.restart(look.asked_us);
    }
}
