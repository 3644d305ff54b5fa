//! Sums of one moment, and how they are found in a document by their places.

use std::collections::BTreeMap;

use proto::frame::Outcome;

use serde::{Deserialize, Serialize};

use crate::profile::{Counters, Ended};

/// Names that are listed in a message.
const LISTED: usize = 12;

/// Above this a double no longer holds every whole number.
const MOST: f64 = 9_007_199_254_740_992.0;
/// From here to twice that is what 64 bits without a sign make of a number below zero.
const WRAPPED: f64 = 9_223_372_036_854_775_808.0;
/// A clock that is set moves the start of a process by so much, seconds, when it is told from the boot of its machine.
const SET_S: f64 = 2.0;

/// Sums as a source gave them. What is absent it does not give.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Live sessions.
    pub active: i64,
    /// Sessions that ever began.
    pub started: Option<u64>,
    /// Sessions that ended.
    pub ended: Option<u64>,
    /// Of those: by outcome, as far as the profile names places.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Refusals.
    pub rejected: Option<u64>,
    /// Names the process.
    pub boot: Option<String>,
    /// Unix time at which they were read, as the source says, microseconds.
    pub time_us: Option<u64>,
    /// Places that were not there and count as 0.
    pub absent: Vec<String>,
}

/// What stands at a place.
#[derive(Debug, Clone, PartialEq)]
pub enum Number {
    /// Nothing.
    Absent,
    /// Nothing yet, of a kind that comes with its first event: it counts as 0.
    NotYet,
    /// This.
    Is(f64),
}

/// A document in which sums have places.
pub trait Document: Send {
    /// The number at a place; else what is there instead.
    fn number(&self, place: &str) -> Result<Number, String>;

    /// What stands at a place, as a text; none where there is nothing.
    fn text(&self, place: &str) -> Result<Option<String>, String>;

    /// What names the process where no place does.
    fn process(&self) -> Option<String> {
        None
    }

    /// When what stands at these places was read, where the document says so.
    fn time_us(&self, _places: &[&str]) -> Option<u64> {
        None
    }

    /// What it has, for whoever looks for something else, likelier names first.
    fn known(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The sums of a document at the places that the profile names.
pub(super) fn read(document: &dyn Document, counters: &Counters) -> Result<Counts, String> {
    let mut counts = Counts::default();
    let mut look = Look { document, absent_is_zero: counters.absent_is_zero, absent: &mut counts.absent };
    let active = counters.active.as_deref().ok_or("the profile names no place of the live sessions")?;
    counts.active = look.whole("active", active)?;
    counts.started = counters.started.as_deref().map(|place| look.counter("started", place)).transpose()?;
    counts.rejected = counters.rejected.as_deref().map(|place| look.counter("rejected", place)).transpose()?;
    match &counters.ended {
        None => {}
        Some(Ended::Total(place)) => counts.ended = Some(look.counter("ended", place)?),
        Some(Ended::ByOutcome(map)) => {
            for (name, place) in map {
                let count = look.counter(&format!("ended.{name}"), place)?;
                if let Some(outcome) = Outcome::ALL.into_iter().find(|outcome| outcome.name() == name) {
                    counts.outcomes.insert(outcome, count);
                }
            }
            counts.ended = Some(counts.outcomes.values().fold(0, |sum, n| sum.saturating_add(*n)));
        }
    }
    counts.boot = match &counters.boot {
        Some(place) => Some(document.text(place)?.ok_or_else(|| missing("boot", place, document))?),
        None => document.process(),
    };
    let places: Vec<&str> = counters.places().into_iter().map(|(_, place)| place).collect();
    counts.time_us = match &counters.time {
        Some(place) => Some(unix_us(match document.number(place)? {
            Number::Is(value) => value,
            Number::Absent | Number::NotYet => return Err(missing("time", place, document)),
        })?),
        None => document.time_us(&places),
    };
    Ok(counts)
}

struct Look<'a> {
    document: &'a dyn Document,
    absent_is_zero: bool,
    absent: &'a mut Vec<String>,
}

impl Look<'_> {
    fn counter(&mut self, key: &str, place: &str) -> Result<u64, String> {
        let value = self.whole(key, place)?;
        u64::try_from(value).map_err(|_| format!("`{key}` at `{place}` is {value}: a number that only grows is not below zero"))
    }

    fn whole(&mut self, key: &str, place: &str) -> Result<i64, String> {
        let value = match self.document.number(place).map_err(|why| format!("`{key}` at `{place}`: {why}"))? {
            Number::Is(value) => value,
            // A gauge that is not there is more likely a wrong name than no session.
            Number::NotYet if key != "active" || self.absent_is_zero => return Ok(self.zero(place)),
            Number::Absent if self.absent_is_zero => return Ok(self.zero(place)),
            Number::Absent | Number::NotYet => return Err(missing(key, place, self.document)),
        };
        let wrong = |why: &str| Err(format!("`{key}` at `{place}` is {value}: {why}"));
        match value {
            // It has no sign and went below zero. How far, so large a number does not tell.
            _ if key == "active" && (WRAPPED..=2.0 * WRAPPED).contains(&value) => Ok(-((2.0 * WRAPPED - value) as i64).max(1)),
            _ if value.is_nan() || value.is_infinite() => wrong("no number of sessions"),
            _ if value.fract() != 0.0 => wrong("a number of sessions is whole; is it an average?"),
            _ if value.abs() >= MOST => wrong("too large to be exact"),
            _ => Ok(value as i64),
        }
    }

    fn zero(&mut self, place: &str) -> i64 {
        self.absent.push(place.to_owned());
        0
    }
}

fn missing(key: &str, place: &str, document: &dyn Document) -> String {
    let known = document.known();
    let near = crate::profile::nearest(place, known.iter().map(String::as_str)).map(|near| format!("; did you mean `{near}`?"));
    let few = known.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    let has = || if few.is_empty() { "; there is nothing".to_owned() } else { format!("; there are {few}") };
    format!(
        "nothing is at `{place}`, where `{key}` is to be{} (where it comes with the first session: `counters.absent_is_zero: true`)",
        near.unwrap_or_else(has)
    )
}

/// Unix time in seconds, milliseconds or microseconds, whichever it can be.
fn unix_us(value: f64) -> Result<u64, String> {
    let us = match value {
        _ if !value.is_finite() || value < 1e8 => return Err(format!("`time` is {value}, which is no unix time")),
        _ if value < 1e11 => value * 1e6,
        _ if value < 1e14 => value * 1e3,
        _ if value < 1e17 => value,
        _ => return Err(format!("`time` is {value}, which is no unix time")),
    };
    Ok(us as u64)
}

/// Both are the start of one process in unix seconds, or of one and the same of several.
fn is_same_start(one: &str, other: &str) -> bool {
    let start = |text: &str| text.parse::<f64>().ok().filter(|at| (1e8..1e11).contains(at));
    let same =
        |(one, other): (&str, &str)| one == other || start(one).zip(start(other)).is_some_and(|(one, other)| (one - other).abs() <= SET_S);
    one.split('+').count() == other.split('+').count() && one.split('+').zip(other.split('+')).all(same)
}

impl Counts {
    /// These and those of another backend.
    pub fn add(&mut self, other: Self) {
        let both = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        self.active = self.active.saturating_add(other.active);
        self.started = both(self.started, other.started);
        self.ended = both(self.ended, other.ended);
        self.rejected = both(self.rejected, other.rejected);
        for (outcome, count) in other.outcomes {
            let sum = self.outcomes.entry(outcome).or_default();
            *sum = sum.saturating_add(count);
        }
        self.boot = match (self.boot.take(), other.boot) {
            (Some(own), Some(other)) => Some(own + "+" + &other),
            _ => None,
        };
        self.time_us = match (self.time_us, other.time_us) {
            (Some(own), Some(other)) => Some(own.min(other)),
            (own, other) => own.or(other),
        };
        self.absent.extend(other.absent);
    }

    /// A number that only grows is lower than it was.
    pub fn runs_backwards(&self, before: &Self) -> bool {
        let fell = |now: Option<u64>, was: Option<u64>| now.is_some_and(|now| was.is_some_and(|was| now < was));
        let outcome = |outcome: &Outcome| fell(self.outcomes.get(outcome).copied(), before.outcomes.get(outcome).copied());
        fell(self.started, before.started)
            || fell(self.ended, before.ended)
            || fell(self.rejected, before.rejected)
            || Outcome::ALL.iter().any(outcome)
    }

    /// It goes by another name than it did: another process. A start that moved by a moment is the same one's while nothing fell that only grows.
    pub fn is_renamed(&self, before: &Self) -> bool {
        let (Some(is), Some(was)) = (&self.boot, &before.boot) else { return false };
        is != was && (self.runs_backwards(before) || !is_same_start(is, was))
    }

    /// The numbers are the same as before.
    pub fn stands_still(&self, before: &Self) -> bool {
        (self.active, self.started, self.ended, self.rejected) == (before.active, before.started, before.ended, before.rejected)
            && self.outcomes == before.outcomes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that is set moves the time since boot from which clients tell when their process began.
    #[test]
    fn a_start_that_moves_by_a_moment_is_the_same_process() {
        let counts = |boot: &str, started| Counts { boot: Some(boot.to_owned()), started: Some(started), ..Counts::default() };
        let was = counts("1700000000.25", 40);
        for (boot, started, renamed) in [
            ("1700000000.25", 41, false),
            ("1700000001.25", 41, false),
            ("1700000001.25", 3, true),
            ("1700000009.25", 41, true),
            ("a-2", 41, true),
        ] {
            assert_eq!(counts(boot, started).is_renamed(&was), renamed, "{boot} {started}");
        }
        assert!(!counts("1700000000+1700000008", 4).is_renamed(&counts("1700000001+1700000008", 4)));
        assert!(counts("1700000000+1700000099", 4).is_renamed(&counts("1700000001+1700000008", 4)));
        assert!(counts("boot-2", 4).is_renamed(&counts("boot-1", 4)), "no time");
    }
}
