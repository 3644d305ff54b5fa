//! How far sessions came: requested, attempted, established, and how those ended.

use std::collections::BTreeMap;

use proto::frame::Outcome;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    entry::{FailureCause, Finish},
    session::{How, Session},
};
use crate::plan::{EndKind, Expect};

/// Sessions by how far they came. The whole run counts, warm-up included: it must add up with the ledger.
///
/// `requested = not_attempted + attempted + waiting`, `attempted = not_established + established + dialling`,
/// `established = completed + interrupted + failed + live`. After a run `waiting`, `dialling` and `live` are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Funnel {
    /// Their time came.
    pub requested: u64,
    /// The driver dialled.
    pub attempted: u64,
    /// The backend accepted.
    pub established: u64,
    /// Of the established: ended in order.
    pub completed: u64,
    /// Of the established: cut by the plan, by the end of the run or by a drain, or timed out as the scenario is meant to show.
    pub interrupted: u64,
    /// Of the established: broke.
    pub failed: u64,
    /// Requested, given up before a dial.
    pub not_attempted: u64,
    /// Attempted, given up or refused before acceptance.
    pub not_established: u64,
    /// Of `not_attempted` and `not_established`: because the run stopped, or the plan killed their worker or backend.
    pub aborted: u64,
    /// Of `not_attempted` and `not_established`: refused by the backend, or by the driver's own balancer that had none to pick, as the scenario is
    /// meant to show.
    pub refused_as_planned: u64,
    /// Of `interrupted`: the plan killed their backend, although they were to end otherwise. Neither a failure nor a good end.
    pub dropped: u64,
    /// Requested, not yet attempted.
    pub waiting: u64,
    /// Attempted, not yet answered.
    pub dialling: u64,
    /// Established, not yet over.
    pub live: u64,
}

impl Funnel {
    /// Sessions that went wrong: broken ones and those that never came to be, without those that were aborted or meant to be refused.
    pub fn sessions_failed(&self) -> u64 {
        (self.failed + self.not_attempted + self.not_established).saturating_sub(self.aborted + self.refused_as_planned)
    }

    /// What does not add up, in words; empty when all does.
    pub fn contradictions(&self) -> Vec<String> {
        let sums = [
            ("requested", self.requested, "attempted + not attempted + waiting", self.attempted + self.not_attempted + self.waiting),
            (
                "attempted",
                self.attempted,
                "established + not established + dialling",
                self.established + self.not_established + self.dialling,
            ),
            (
                "established",
                self.established,
                "completed + interrupted + failed + live",
                self.completed + self.interrupted + self.failed + self.live,
            ),
        ];
        let mut found: Vec<String> = sums
            .into_iter()
            .filter(|(_, whole, _, parts)| whole != parts)
            .map(|(name, whole, sum, parts)| format!("{name} is {whole}, but {sum} is {parts}"))
            .collect();
        if self.aborted + self.refused_as_planned > self.not_attempted + self.not_established {
            found.push("more sessions aborted or refused than were given up".to_owned());
        }
        if self.dropped > self.interrupted {
            found.push("more sessions dropped than were interrupted".to_owned());
        }
        found
    }

    /// Sum.
    pub fn add(&mut self, other: &Self) {
        let Self {
            requested,
            attempted,
            established,
            completed,
            interrupted,
            failed,
            not_attempted,
            not_established,
            aborted,
            refused_as_planned,
            dropped,
            waiting,
            dialling,
            live,
        } = other;
        self.requested += requested;
        self.attempted += attempted;
        self.established += established;
        self.completed += completed;
        self.interrupted += interrupted;
        self.failed += failed;
        self.not_attempted += not_attempted;
        self.not_established += not_established;
        self.aborted += aborted;
        self.refused_as_planned += refused_as_planned;
        self.dropped += dropped;
        self.waiting += waiting;
        self.dialling += dialling;
        self.live += live;
    }

    /// One session more, or fewer, at this place.
    fn step(&mut self, place: Place, by: fn(&mut u64)) {
        by(&mut self.requested);
        match place {
            Place::Waiting => by(&mut self.waiting),
            Place::NotAttempted => by(&mut self.not_attempted),
            _ => by(&mut self.attempted),
        }
        match place {
            Place::Waiting | Place::NotAttempted => {}
            Place::Dialling => by(&mut self.dialling),
            Place::NotEstablished => by(&mut self.not_established),
            Place::Live | Place::Completed | Place::Interrupted | Place::Failed => by(&mut self.established),
        }
        match place {
            Place::Waiting | Place::NotAttempted | Place::Dialling | Place::NotEstablished => {}
            Place::Live => by(&mut self.live),
            Place::Completed => by(&mut self.completed),
            Place::Interrupted => by(&mut self.interrupted),
            Place::Failed => by(&mut self.failed),
        }
    }
}

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Waiting,
    NotAttempted,
    Dialling,
    NotEstablished,
    Live,
    Completed,
    Interrupted,
    Failed,
}

/// Why a session that did not come to a good end is no failure, or under which name it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Blame {
    None,
    Aborted,
    RefusedAsPlanned,
    Dropped,
    Error(String),
}

/// Where a session stands, and what is to blame for that. A function of the session alone: what is counted can be taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    place: Place,
    blame: Blame,
}

impl Standing {
    pub(super) fn of(session: &Session, expect: Option<Expect>) -> Self {
        let (place, blame) = match session.over.map(|over| over.how) {
            None if session.attempted.is_none() => (Place::Waiting, Blame::None),
            None if session.accepted.is_none() => (Place::Dialling, Blame::None),
            None => (Place::Live, Blame::None),
            Some(How::Failed(cause)) => {
                let place = if session.attempted.is_some() { Place::NotEstablished } else { Place::NotAttempted };
                let blame = match cause {
                    // It never was the target's to answer for.
                    _ if session.dial_cut => Blame::Aborted,
                    FailureCause::Aborted => Blame::Aborted,
                    FailureCause::NoBackend if expect == Some(Expect::Rejected) => Blame::RefusedAsPlanned,
                    FailureCause::Rejected if place == Place::NotEstablished && expect == Some(Expect::Rejected) => Blame::RefusedAsPlanned,
                    cause => Blame::Error(cause_name(cause)),
                };
                (place, blame)
            }
            // It was to end otherwise, and had no chance to.
            Some(How::Finished(Finish::Forced(EndKind::KillBackend))) if session.planned != EndKind::KillBackend => {
                (Place::Interrupted, Blame::Dropped)
            }
            // A goodbye is no cut: what goes wrong with it is a failure.
            Some(How::Finished(finish)) => ended(finish, session.forced.is_some_and(|(kind, _)| kind != EndKind::Graceful), expect),
        };
        Self { place, blame }
    }
}

fn ended(finish: Finish, cut: bool, expect: Option<Expect>) -> (Place, Blame) {
    match finish {
        Finish::Goodbye(Outcome::Completed) | Finish::ByServer(Outcome::Completed) => (Place::Completed, Blame::None),
        Finish::Goodbye(Outcome::Drained)
        | Finish::ByServer(Outcome::Drained)
        | Finish::Lost(FailureCause::Aborted)
        | Finish::Forced(_) => (Place::Interrupted, Blame::None),
        // The plan cut it, however it looked from here.
        Finish::Lost(_) | Finish::ByServer(_) | Finish::Goodbye(_) if cut => (Place::Interrupted, Blame::None),
        Finish::ByServer(Outcome::TimedOut) if expect == Some(Expect::TimedOut) => (Place::Interrupted, Blame::None),
        Finish::Goodbye(outcome) | Finish::ByServer(outcome) => (Place::Failed, Blame::Error(format!("ended_{}", outcome.name()))),
        Finish::Lost(cause) => (Place::Failed, Blame::Error(cause_name(cause))),
    }
}

/// The funnels of a run by scenario, and its errors by cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Funnels {
    scenarios: BTreeMap<u16, Counted>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counted {
    funnel: Funnel,
    errors: BTreeMap<String, u64>,
}

impl Funnels {
    /// One session more that stands so.
    pub(super) fn enter(&mut self, scenario: u16, standing: Standing) {
        self.step(scenario, standing, |n| *n += 1);
    }

    /// One session fewer that stands so; it was entered before.
    pub(super) fn leave(&mut self, scenario: u16, standing: Standing) {
        self.step(scenario, standing, |n| *n = n.saturating_sub(1));
    }

    fn step(&mut self, scenario: u16, standing: Standing, by: fn(&mut u64)) {
        let counted = self.scenarios.entry(scenario).or_default();
        counted.funnel.step(standing.place, by);
        match standing.blame {
            Blame::None => {}
            Blame::Aborted => by(&mut counted.funnel.aborted),
            Blame::RefusedAsPlanned => by(&mut counted.funnel.refused_as_planned),
            Blame::Dropped => by(&mut counted.funnel.dropped),
            Blame::Error(name) => {
                by(counted.errors.entry(name).or_default());
                counted.errors.retain(|_, n| *n > 0);
            }
        }
    }

    /// The driver was killed: what was under way is over, cut by no fault of the target's. How many sessions that were.
    pub fn write_off(&mut self) -> u64 {
        let mut lost = 0;
        for Counted { funnel, .. } in self.scenarios.values_mut() {
            let [waiting, dialling, live] = [&mut funnel.waiting, &mut funnel.dialling, &mut funnel.live].map(std::mem::take);
            funnel.not_attempted += waiting;
            funnel.not_established += dialling;
            funnel.aborted += waiting + dialling;
            funnel.interrupted += live;
            lost += waiting + dialling + live;
        }
        lost
    }

    /// One scenario's.
    pub fn scenario(&self, number: u16) -> Funnel {
        self.scenarios.get(&number).map(|counted| counted.funnel).unwrap_or_default()
    }

    /// All scenarios' sum.
    pub fn total(&self) -> Funnel {
        let mut sum = Funnel::default();
        for counted in self.scenarios.values() {
            sum.add(&counted.funnel);
        }
        sum
    }

    /// Errors by cause, all scenarios or one. Their sum is [`Funnel::sessions_failed`].
    pub fn errors(&self, scenario: Option<u16>) -> BTreeMap<String, u64> {
        let mut sum = BTreeMap::new();
        for (_, counted) in self.scenarios.iter().filter(|(number, _)| scenario.is_none_or(|wanted| wanted == **number)) {
            for (cause, count) in &counted.errors {
                *sum.entry(cause.clone()).or_default() += count;
            }
        }
        sum
    }
}

/// As in files and tables: the name of the variant, an error's code after a colon.
pub fn cause_name(cause: FailureCause) -> String {
    let name = match cause {
        FailureCause::ServerError(code) => return format!("server_error:{}", snake(&format!("{code:?}"))),
        other => format!("{other:?}"),
    };
    snake(&name)
}

fn snake(camel: &str) -> String {
    let mut out = String::with_capacity(camel.len() + 4);
    for c in camel.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}
