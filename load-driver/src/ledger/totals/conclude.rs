//! What the sums come to at the end.

use proto::frame::Outcome;

use super::{Bounds, Look, Totals, bounds, growing::Miss};
use crate::ledger::{
    keeper::Ledger,
    look::Last,
    reconcile::Faults,
    verdict::{BackendVerdict, Confidence, Proof},
};

/// Every source, after windows and settling time.
pub(in crate::ledger) fn conclude(ledger: &mut Ledger, out: &mut Last) {
    let mut late = 0;
    for totals in &ledger.totals {
        let end = End { ledger, totals, out };
        late = late.max(end.judge());
    }
    let faults: &mut Faults = &mut ledger.faults;
    faults.excess_unexplained = faults.excess_unexplained.max(late);
}

struct End<'a> {
    ledger: &'a Ledger,
    totals: &'a Totals,
    out: &'a mut Last,
}

impl End<'_> {
    /// Gives how many were counted too long and are not any more.
    fn judge(self) -> u64 {
        let Self { ledger, totals, out } = self;
        let (book, config) = (&ledger.book, &ledger.config);
        let (label, others) = (totals.config.name.as_str(), totals.config.shows.other_traffic);
        for line in totals.config.shows.cannot_see() {
            if !out.cannot_see.contains(&line) {
                out.cannot_see.push(line);
            }
        }
        out.confidence(if others { Confidence::WithOtherTraffic } else { Confidence::Totals });
        out.unverified.extend(totals.breaks.iter().cloned());
        if totals.watch.gaps > 0 {
            let why = totals.watch.last_gap.as_ref().map_or_else(String::new, |(_, why)| format!(" (the last: {why})"));
            out.notes.push(format!("{label}: {} looks at its counters failed{why}", totals.watch.gaps));
        }
        let (Some(at), Some(base)) = (&totals.last, &totals.base) else {
            let why = totals.watch.last_gap.as_ref().map_or_else(String::new, |(_, why)| format!(": {why}"));
            out.unverified.push(format!("{label}: its counters never answered{why}"));
            return 0;
        };
        let b = bounds(book, totals, at.span, config).with_windows(book, totals, at.span, config);
        let started = totals.since(|counts| counts.started, &at.counts);
        out.backends.push(BackendVerdict {
            backend: totals.config.backend.unwrap_or_default(),
            backend_id: label.to_owned(),
            boot_id: at.counts.boot.clone().unwrap_or_default(),
            proof: Proof::Totals,
            samples: totals.samples,
            gaps: totals.watch.gaps,
            longest_pause_us: totals.watch.longest_pause_us,
            killed: false,
            accepted: b.accepted + totals.written_off,
            started: started.unwrap_or(0),
            active: at.counts.active,
            live: b.live(),
        });
        if totals.written_off > 0 {
            out.notes.push(format!("{label}: {} sessions are written off, because their process was replaced", totals.written_off));
        }
        if totals.broken {
            return 0;
        }
        if let Some(why) = totals.baseless_reason() {
            out.unverified.push(why);
            return 0;
        }
        if let Some(killed) = totals.kills.last()
            && totals.watch.last_gap.as_ref().is_some_and(|(gap, _)| gap > killed)
            && !book.open_towards(totals.config.backend.unwrap_or_default())
        {
            out.notes.push(format!("{label}: the plan killed it, and nobody took its place"));
            if base.moved && !others {
                return 0;
            }
            // What it had proven by then it did not take along.
            out.short += totals.most_short(totals.miss(at, &b).started_short);
            out.miscounted.extend(totals.miscounted_before(Miss::default()));
            End { ledger, totals, out: &mut *out }.outcomes_of_gone(mismatch_of_gone(totals, at, &b));
            return if others { 0 } else { totals.excess.most };
        }
        let last_end = book.last_end_of(totals.config.backend);
        if at.span.from_us <= last_end && last_end > 0 {
            let why = totals.watch.last_gap.as_ref().map_or_else(String::new, |(_, why)| format!(" (the last failed look: {why})"));
            out.unverified.push(format!("{label}: its counters gave nothing after its last session had ended{why}"));
            return 0;
        }
        if b.accepted > 0 && !totals.moved {
            out.unverified.push(format!(
                "{label}: its numbers never moved although {} sessions came and went: are these the right ones, and is what is served fresh?",
                b.accepted
            ));
            return 0;
        }
        if base.moved && !others {
            out.unverified.push(format!(
                "{label}: its counters moved before the first session, so somebody else uses it: `counters.other_traffic: true` allows for that"
            ));
            return 0;
        }
        let late = End { ledger, totals, out: &mut *out }.live(at, &b);
        End { ledger, totals, out }.grown(at, &b);
        late
    }

    /// The number of live sessions.
    fn live(self, at: &Look, b: &Bounds) -> u64 {
        let Self { ledger, totals, out } = self;
        let (label, others, active) = (totals.config.name.as_str(), totals.config.shows.other_traffic, at.counts.active);
        let Some(base) = &totals.base else { return 0 };
        let (low, high) = base.active;
        if others {
            out.notes.push(format!(
                "{label}: others had {low} to {high} sessions there before the run ({} looks); what differs by {} or less is taken for theirs",
                base.looks,
                high - low
            ));
        } else if high > 0 {
            out.confidence(Confidence::WithOtherTraffic);
            out.notes.push(format!(
                "{label}: {high} sessions were counted before the run and are subtracted; for each of them that ends in the run, a ghost would not be seen"
            ));
        }
        if others && base.looks < 3 {
            out.unverified.push(format!("{label}: {} looks before the run do not tell how much others' sessions vary", base.looks));
        }
        let added = if others { 0 } else { totals.since(|counts| counts.started, &at.counts).unwrap_or(0).saturating_sub(b.at_most()) };
        let ghosts = if others {
            totals.excess.lasting(totals.excess_span_us(&ledger.config))
        } else {
            (active.saturating_sub(high).saturating_sub(b.possible as i64).max(0) as u64).saturating_sub(added)
        };
        let (_, ceiling) = totals.of_others();
        let pending = active.saturating_sub(ceiling).saturating_sub(b.live() as i64).saturating_sub((ghosts + added) as i64);
        if pending > 0 && ghosts == 0 {
            let why = if others { "that was not so for long enough" } else { "their detection windows were not over" };
            out.unverified.push(format!("{label}: it still counts {pending} sessions too many, and {why}"));
        }
        out.ghosts += ghosts;
        if others && ghosts > 0 {
            let began = totals.since(|counts| counts.started, &at.counts).map(|started| started.saturating_sub(b.accepted));
            let began = began.map_or_else(String::new, |began| format!("; they began {began} in the run"));
            let text = format!("this is what lasted beyond the {low} to {high} sessions of others and their variation{began}");
            out.ghost_caveats.push(text);
        }
        let never_added = totals.since(|counts| counts.started, &at.counts).map_or(0, |started| b.accepted.saturating_sub(started));
        let (floor, _) = totals.of_others();
        let missing = (floor.saturating_add(b.sure as i64).saturating_sub(active).max(0) as u64).saturating_sub(never_added);
        let short = missing.max(totals.most_short(never_added));
        let (doubles, excess) = too_often(ledger, totals, at, b, short);
        out.doubles += doubles;
        if doubles > 0 && !totals.config.shows.started {
            out.notes.push(format!(
                "{label}: how many sessions began it does not tell, so these ends may be others': `counters.other_traffic: true` allows for that"
            ));
        }
        out.short += short.saturating_sub(doubles);
        out.miscounted.extend(totals.miscounted(&ledger.book, at, b, excess));
        let fewer = totals.fewer.most.max(low.saturating_sub(active).max(0) as u64);
        if !others && low > 0 && fewer > 0 {
            out.unverified.push(format!(
                "{label}: it counted {fewer} sessions fewer than ours and the {low} from before the run: others' ended (`counters.other_traffic: true`), or ours were not counted or subtracted twice"
            ));
        } else if b.accepted > 0 && !totals.stood_out && never_added == 0 && short == 0 {
            let why = if others {
                format!("never stood out of what others' vary, {low} to {high}: more sessions at a time, or a quieter time, would show")
            } else {
                "never moved, though others of its numbers did: live for too short a time to be seen, or not counted".to_owned()
            };
            out.unverified.push(format!("{label}: its number of live sessions {why}"));
        }
        // Sessions that nobody knew of were too many before they were told of.
        if others || ghosts > 0 { 0 } else { totals.excess.most.saturating_sub(added) }
    }

    /// The numbers that only grow.
    fn grown(self, at: &Look, b: &Bounds) {
        let Self { ledger, totals, out } = self;
        let (label, others) = (totals.config.name.as_str(), totals.config.shows.other_traffic);
        if let Some(started) = totals.since(|counts| counts.started, &at.counts) {
            out.lost += b.accepted.saturating_sub(started);
            let beyond = started.saturating_sub(b.attempted);
            if others && beyond > 0 {
                out.notes.push(format!("{label}: others began {beyond} sessions or more in the run"));
            } else if beyond > b.untold {
                out.added += beyond - b.untold;
                out.added_in_sums = true;
            }
        }
        let untold = if others { 0 } else { totals.of_killed_workers(&ledger.book, at, b) };
        if untold > 0 && b.untold == u64::MAX {
            let what = "sessions more than are known: a killed worker that never told of one may have had them";
            out.unverified.push(format!("{label}: it counted {untold} {what}"));
        } else if untold > 0 {
            out.notes.push(format!("{label}: it counted {untold} sessions more than are known; a killed worker may have had them"));
        }
        End { ledger, totals, out: &mut *out }.outcomes(at, b);
        if !at.counts.absent.is_empty() && b.accepted > 0 {
            out.notes.push(format!("{label}: nothing ever stood at {}, which counts as 0", at.counts.absent.join(", ")));
        }
    }

    /// The ends by outcome.
    fn outcomes(self, at: &Look, b: &Bounds) {
        let Self { ledger, totals, out } = self;
        if totals.config.shows.other_traffic {
            return;
        }
        let wrong = mismatch(totals, at, b);
        out.wrong += wrong;
        if wrong > 0 {
            let count = |outcome: &Outcome| {
                let has = totals.since(|counts| counts.outcomes.get(outcome).copied(), &at.counts);
                let (must, may) = (b.must.get(outcome).copied().unwrap_or(0), b.may.get(outcome).copied().unwrap_or(0));
                let due = if must == may { must.to_string() } else { format!("{must} to {may}") };
                has.map(|has| format!("{outcome} {has} where {due} ended so"))
            };
            out.wrong_words.extend(Outcome::ALL.iter().filter_map(count));
        }
        End { ledger, totals, out }.outcomes_of_gone(0);
    }

    /// Those of processes that are gone; the last of them had so many wrong.
    fn outcomes_of_gone(self, last: u64) {
        let Self { totals, out, .. } = self;
        let wrong = totals.wrong_before + last;
        if wrong > 0 && !totals.config.shows.other_traffic {
            out.wrong += wrong;
            out.wrong_words.push(format!("{}: {wrong} in processes that are gone", totals.config.name));
        }
    }
}

/// Ends that were counted beyond all sessions: those that were subtracted twice, and those of which nothing else tells, where `short` is what the
/// count of live sessions lacks.
fn too_often(ledger: &Ledger, totals: &Totals, at: &Look, b: &Bounds, short: u64) -> (u64, u64) {
    let over = totals.miss(at, b).ended_over;
    // Where the driver was refused as often, it may be refusals that were subtracted, and sums do not tell. If they were not subtracted, they were
    // counted as ends all the same.
    let refused = ledger.book.tally.refusals(totals.config.backend).possible;
    if refused >= over { (0, over.saturating_sub(short)) } else { (over, 0) }
}

/// Of a process that is gone: ends that it told of, and that its last numbers have under no such outcome, but for ends that they lack altogether.
pub(super) fn mismatch_of_gone(totals: &Totals, at: &Look, b: &Bounds) -> u64 {
    let has = |outcome: &Outcome| totals.since(|counts| counts.outcomes.get(outcome).copied(), &at.counts);
    let short = |outcome| Some(b.due.get(outcome).copied().unwrap_or(0).saturating_sub(has(outcome)?));
    let short: u64 = totals.config.shows.outcomes.iter().filter_map(short).sum();
    let ended =
        totals.since(|counts| counts.ended, &at.counts).unwrap_or_else(|| totals.config.shows.outcomes.iter().filter_map(has).sum());
    short.saturating_sub(b.ended.saturating_sub(ended))
}

/// Sessions that were counted under an outcome that they cannot have had, beyond what missing and additional ends explain.
pub(super) fn mismatch(totals: &Totals, at: &Look, b: &Bounds) -> u64 {
    let (mut surplus, mut shortage, mut ended) = (0_u64, 0_u64, 0_u64);
    for outcome in &totals.config.shows.outcomes {
        let Some(has) = totals.since(|counts| counts.outcomes.get(outcome).copied(), &at.counts) else { continue };
        ended = ended.saturating_add(has);
        surplus += has.saturating_sub(b.may.get(outcome).copied().unwrap_or(0));
        shortage += b.must.get(outcome).copied().unwrap_or(0).saturating_sub(has);
    }
    // Too few ends are ghosts or lost sessions, too many are ends counted twice; both are told of elsewhere.
    let missing = if totals.config.shows.outcomes.len() == Outcome::ALL.len() {
        let began = totals.since(|counts| counts.started, &at.counts).unwrap_or(0).min(b.attempted);
        began.max(b.accepted).saturating_sub(ended)
    } else {
        let active = at.counts.active.saturating_sub(totals.base.as_ref().map_or(0, |base| base.active.1));
        let lost = totals.since(|counts| counts.started, &at.counts).map_or(0, |started| b.accepted.saturating_sub(started));
        active.max(0) as u64 + lost
    };
    let beyond = ended.saturating_sub(b.attempted).max(b.untold);
    surplus.saturating_sub(beyond).max(shortage.saturating_sub(missing))
}
