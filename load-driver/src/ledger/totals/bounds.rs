//! How many sessions a reading may show, by the book.

use std::collections::BTreeMap;

use proto::frame::Outcome;

use super::{Totals, untold_from_us};
use crate::{
    ledger::{
        book::Book,
        config::LedgerConfig,
        entry::{FailureCause, Finish},
        merge::WorkerLoss,
        reconcile,
        session::{How, Session},
    },
    plan::EndKind,
};

/// See [`firm_spans`].
pub(super) const FIRM: usize = 2;

/// Between two moments of the driver's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from_us: u64,
    pub(super) to_us: u64,
}

/// How a session stands towards the numbers of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    /// Surely in what only grows.
    accepted: bool,
    /// It was with this process and no earlier one.
    certain: bool,
}

impl Standing {
    /// None of one that cannot be in them.
    fn of(session: &Session, totals: &Totals, span: Span, config: &LedgerConfig) -> Option<Self> {
        let epoch = totals.epoch;
        let attempt = session.attempted.filter(|attempt| attempt.at_us <= span.to_us)?;
        if session.accepted.is_none() && !session.in_doubt() {
            return None;
        }
        let began_us = session.accepted.as_ref().map_or(attempt.at_us, |accepted| accepted.at_us);
        if epoch.is_some_and(|(before_us, _)| began_us <= before_us) {
            return None;
        }
        // Of one that began between two looks it is not known which of both processes had it.
        let certain = epoch.is_none_or(|(_, after_us)| began_us >= after_us);
        let accepted = certain && reconcile::surely_counted(session, &totals.watch, config, span.from_us);
        Some(Self { accepted, certain })
    }
}

/// Sessions of the book, as a reading may show them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Live all the time, and accepted for a while.
    pub(super) sure: u64,
    /// Of those: for so long after, one number for each of [`firm_spans`].
    pub(super) firm: [u64; FIRM],
    /// Surely live at the time of the look, whatever the backend hears late, and whose end nobody but the driver makes: to be counted, on average. Only in a
    /// calm network.
    pub(super) due_live: u64,
    /// Live at some moment, or over so recently that the backend need not know.
    pub(super) possible: u64,
    /// Of the possible: over, within the window.
    pub(super) pending: u64,
    /// Accepted before.
    pub(super) accepted: u64,
    /// At most in what only grows,
    pub(super) attempted: u64,
    /// but for so many more that killed workers may have begun and never told of. `u64::MAX` where nothing limits it.
    pub(super) untold: u64,
    /// Accepted before, and over for longer than their windows.
    pub(super) ended: u64,
    /// Sessions that can only have ended so,
    pub(super) must: BTreeMap<Outcome, u64>,
    /// and of those the ones that are in `ended`.
    pub(super) due: BTreeMap<Outcome, u64>,
    /// Sessions that may have.
    pub(super) may: BTreeMap<Outcome, u64>,
}

impl Bounds {
    /// Those that have not ended, as far as anybody knows.
    pub(super) fn live(&self) -> u64 {
        self.possible - self.pending
    }

    /// At most in what only grows, with those of which nobody told.
    pub(super) fn at_most(&self) -> u64 {
        self.attempted.saturating_add(self.untold)
    }

    /// One session more, as far as what only grows is concerned.
    pub(super) fn count(&mut self, session: &Session, totals: &Totals, span: Span, config: &LedgerConfig) {
        let Some(Standing { accepted, certain }) = Standing::of(session, totals, span, config) else { return };
        self.attempted += 1;
        self.accepted += u64::from(accepted);
        let over = |(end_us, _): (u64, _)| {
            let watched_us = totals.watch.watched_us(end_us, span.from_us);
            end_us < span.from_us && watched_us > reconcile::window_us(session, config).saturating_add(news_us(config))
        };
        let ended = accepted && session.ending().is_some_and(over);
        self.ended += u64::from(ended);
        let ends = may_end_as(session, config);
        for outcome in ends {
            *self.may.entry(*outcome).or_default() += 1;
        }
        if let ([only], true, true) = (ends, certain, session.over.is_some()) {
            *self.must.entry(*only).or_default() += 1;
            *self.due.entry(*only).or_default() += u64::from(ended);
        }
    }

    /// The same, with those that are live or may be.
    pub(super) fn with_windows(mut self, book: &Book, totals: &Totals, span: Span, config: &LedgerConfig) -> Self {
        let news_us = news_us(config);
        // A backend may have ended a session of which the driver cannot hear.
        let lateness = totals.watch.disturbances.lateness_us(span.from_us, span.to_us);
        let late_us = lateness.unwrap_or(0);
        let calm = lateness == Some(0);
        for session in covered(book, totals) {
            let Some(Standing { accepted, .. }) = Standing::of(session, totals, span, config) else { continue };
            let long_ago = session.accepted.as_ref().is_some_and(|a| a.at_us.saturating_add(news_us) <= span.from_us);
            let heard = lateness.is_some() && !session.was_deaf(span.to_us, config.grace_us);
            let lived_us = session.lives_until_us().saturating_sub(late_us);
            if long_ago && accepted && heard && lived_us.saturating_sub(news_us) > span.to_us {
                self.sure += 1;
                for (firm, (after_us, _)) in self.firm.iter_mut().zip(firm_spans(config)) {
                    *firm += u64::from(lived_us.saturating_sub(after_us) > span.to_us);
                }
            }
            // Of an end of its own the backend knows before the driver does.
            let known_us = if session.forced.is_some() { lived_us } else { lived_us.saturating_sub(config.grace_us) };
            let open = session.deaf.is_none() && !session.through_front();
            self.due_live += u64::from(calm && long_ago && accepted && open && known_us > span.to_us);
            match session.ending() {
                Some((end_us, _)) if end_us < span.from_us => {
                    if totals.watch.watched_us(end_us, span.from_us) <= reconcile::window_us(session, config) {
                        self.possible += 1;
                        self.pending += 1;
                    }
                }
                _ => self.possible += 1,
            }
        }
        self
    }
}

/// As long as a number may take to follow what was said on the wire.
pub(super) const fn news_us(config: &LedgerConfig) -> u64 {
    config.grace_us / 4
}

/// The longer a session is known to have lived on after a look, the sooner it is certain that it was missing there, and not over: so long after, and
/// missing for so long.
pub(super) const fn firm_spans(config: &LedgerConfig) -> [(u64, u64); FIRM] {
    let half_us = u64::midpoint(config.grace_us, news_us(config));
    [(config.grace_us, news_us(config)), (half_us, half_us)]
}

/// What killed workers may have begun by then, and never told of.
fn untold(book: &Book, totals: &Totals, span: Span) -> u64 {
    let gone = |loss: &&WorkerLoss| totals.epoch.is_none_or(|(before_us, _)| loss.at_us > before_us);
    let losses = book.losses().iter().filter(gone).filter(|loss| untold_from_us(loss) <= span.to_us);
    losses.fold(0, |sum: u64, loss| sum.saturating_add(book.tally.untold(loss).unwrap_or(u64::MAX)))
}

fn covered<'a>(book: &'a Book, totals: &'a Totals) -> impl Iterator<Item = &'a Session> {
    book.dials().filter(|session| totals.covers(session))
}

/// What only grows, by the book, at a reading.
pub(super) fn bounds(book: &Book, totals: &Totals, span: Span, config: &LedgerConfig) -> Bounds {
    let folded = &totals.folded;
    let mut b = Bounds {
        accepted: folded.accepted,
        attempted: folded.attempted,
        untold: untold(book, totals, span),
        // Nothing is folded before its window is over.
        ended: folded.accepted,
        must: folded.must.clone(),
        due: folded.due.clone(),
        may: folded.may.clone(),
        ..Bounds::default()
    };
    for session in covered(book, totals) {
        b.count(session, totals, span, config);
    }
    b
}

/// Outcomes under which a backend may have counted the session. Without a record nobody knows what came first: whatever ended abruptly may have
/// met with a timeout, a drain or a fault of the backend's own, but nobody said goodbye.
fn may_end_as(session: &Session, config: &LedgerConfig) -> &'static [Outcome] {
    const ABRUPT: &[Outcome] = &[Outcome::Failed, Outcome::Cancelled, Outcome::TimedOut, Outcome::Drained];
    match session.over.map(|over| over.how) {
        Some(How::Finished(Finish::Goodbye(outcome) | Finish::ByServer(outcome))) => match outcome {
            Outcome::Completed if config.goodbye_may_be_late(session.scenario) => &[Outcome::Completed, Outcome::TimedOut],
            Outcome::Completed => &[Outcome::Completed],
            Outcome::Failed => &[Outcome::Failed],
            Outcome::Cancelled => &[Outcome::Cancelled],
            Outcome::TimedOut => &[Outcome::TimedOut],
            Outcome::Drained => &[Outcome::Drained],
        },
        Some(How::Finished(Finish::Forced(EndKind::Cancel | EndKind::TcpFin | EndKind::TcpRst | EndKind::HalfOpen))) => ABRUPT,
        // A killed worker may have said it and not told; nobody else who said none got one.
        Some(How::Finished(Finish::Lost(cause))) if cause != FailureCause::WorkerLost && session.forced.is_none() => ABRUPT,
        _ => &Outcome::ALL,
    }
}
