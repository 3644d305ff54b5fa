//! How far sessions came: requested, attempted, established, and how those ended.

use std::collections::BTreeMap;

use proto::{frame::Outcome, ids::PlanIndex};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ScenarioLabel;
use crate::ledger::{FailureCause, Finish, LedgerEntry, LedgerEvent};

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
    /// Of the established: cut by the plan, by the end of the run or by a drain. Their samples are kept.
    pub interrupted: u64,
    /// Of the established: broke.
    pub failed: u64,
    /// Requested, given up before a dial.
    pub not_attempted: u64,
    /// Attempted, given up or refused before acceptance.
    pub not_established: u64,
    /// Of `not_attempted` and `not_established`: because the run stopped.
    pub aborted: u64,
    /// Of `not_established`: refused, as the scenario is meant to show.
    pub refused_as_planned: u64,
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
        self.waiting += waiting;
        self.dialling += dialling;
        self.live += live;
    }
}

/// Folds ledger entries into a funnel per scenario and errors by cause. Memory grows with live sessions only.
#[derive(Debug)]
pub struct Funnels {
    labels: Vec<ScenarioLabel>,
    scenarios: Vec<Funnel>,
    errors: Vec<BTreeMap<String, u64>>,
    open: BTreeMap<PlanIndex, Open>,
    strays: u64,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    scenario: usize,
    stage: Stage,
    forced: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Dialling,
    Live,
}

impl Funnels {
    /// For these scenarios, in the order of the plan.
    pub fn new(labels: Vec<ScenarioLabel>) -> Self {
        Self {
            scenarios: vec![Funnel::default(); labels.len()],
            errors: vec![BTreeMap::new(); labels.len()],
            labels,
            open: BTreeMap::new(),
            strays: 0,
        }
    }

    /// Takes one step of one session. A step that does not fit the session's state is counted as a stray and changes nothing.
    pub fn apply(&mut self, entry: &LedgerEntry) {
        if self.try_apply(entry).is_none() {
            self.strays += 1;
        }
    }

    fn try_apply(&mut self, entry: &LedgerEntry) -> Option<()> {
        if let LedgerEvent::Scheduled { scenario, .. } = &entry.event {
            let scenario = usize::from(*scenario);
            let funnel = self.scenarios.get_mut(scenario)?;
            if self.open.contains_key(&entry.index) {
                return None;
            }
            funnel.requested += 1;
            funnel.waiting += 1;
            self.open.insert(entry.index, Open { scenario, stage: Stage::Waiting, forced: false });
            return Some(());
        }
        let open = self.open.get_mut(&entry.index)?;
        let funnel = self.scenarios.get_mut(open.scenario)?;
        match (&entry.event, open.stage) {
            (LedgerEvent::Attempted { .. }, Stage::Waiting) => {
                open.stage = Stage::Dialling;
                funnel.waiting -= 1;
                funnel.dialling += 1;
                funnel.attempted += 1;
            }
            (LedgerEvent::Accepted { .. }, Stage::Dialling) => {
                open.stage = Stage::Live;
                funnel.dialling -= 1;
                funnel.live += 1;
                funnel.established += 1;
            }
            // A worker or backend may be killed while it still dials.
            (LedgerEvent::Forced { .. }, _) => open.forced = true,
            (LedgerEvent::Ended { finish }, Stage::Live) => {
                let (verdict, error) = judge(*finish, open.forced);
                funnel.live -= 1;
                match verdict {
                    Verdict::Completed => funnel.completed += 1,
                    Verdict::Interrupted => funnel.interrupted += 1,
                    Verdict::Failed => funnel.failed += 1,
                }
                self.finish(entry.index, error);
            }
            (LedgerEvent::Failed { cause }, Stage::Waiting | Stage::Dialling) => {
                let attempted = open.stage == Stage::Dialling;
                if attempted {
                    funnel.dialling -= 1;
                    funnel.not_established += 1;
                } else {
                    funnel.waiting -= 1;
                    funnel.not_attempted += 1;
                }
                let planned = attempted && *cause == FailureCause::Rejected && self.labels[open.scenario].expect_rejected;
                // A planned kill of the worker that took a dialling session along is no error of the target.
                let aborted = *cause == FailureCause::Aborted || (*cause == FailureCause::WorkerLost && open.forced);
                funnel.refused_as_planned += u64::from(planned);
                funnel.aborted += u64::from(aborted);
                self.finish(entry.index, (!planned && !aborted).then(|| cause_name(*cause)));
            }
            _ => return None,
        }
        Some(())
    }

    fn finish(&mut self, index: PlanIndex, error: Option<String>) {
        if let (Some(open), Some(error)) = (self.open.remove(&index), error) {
            *self.errors[open.scenario].entry(error).or_default() += 1;
        }
    }

    /// One scenario's.
    pub fn scenario(&self, number: usize) -> Funnel {
        self.scenarios.get(number).copied().unwrap_or_default()
    }

    /// All scenarios' sum.
    pub fn total(&self) -> Funnel {
        self.scenarios.iter().fold(Funnel::default(), |mut sum, funnel| {
            sum.add(funnel);
            sum
        })
    }

    /// Errors by cause, all scenarios or one.
    pub fn errors(&self, scenario: Option<usize>) -> BTreeMap<String, u64> {
        let mut sum = BTreeMap::new();
        for (number, errors) in self.errors.iter().enumerate() {
            if scenario.is_none_or(|wanted| wanted == number) {
                for (cause, count) in errors {
                    *sum.entry(cause.clone()).or_default() += count;
                }
            }
        }
        sum
    }

    /// Steps that did not fit their session: a fault of this program when not 0.
    pub fn strays(&self) -> u64 {
        self.strays
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Completed,
    Interrupted,
    Failed,
}

fn judge(finish: Finish, forced: bool) -> (Verdict, Option<String>) {
    match finish {
        Finish::Goodbye(Outcome::Completed) | Finish::ByServer(Outcome::Completed) => (Verdict::Completed, None),
        Finish::Goodbye(Outcome::Drained) | Finish::ByServer(Outcome::Drained) | Finish::Lost(FailureCause::Aborted) => {
            (Verdict::Interrupted, None)
        }
        // The plan cut it, however it looked from here.
        Finish::Forced(_) => (Verdict::Interrupted, None),
        Finish::Lost(_) | Finish::ByServer(_) | Finish::Goodbye(_) if forced => (Verdict::Interrupted, None),
        Finish::Goodbye(outcome) | Finish::ByServer(outcome) => (Verdict::Failed, Some(format!("ended_{}", outcome.name()))),
        Finish::Lost(cause) => (Verdict::Failed, Some(cause_name(cause))),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proto::frame::ErrorCode;

    use super::*;
    use crate::plan::{EndKind, Protocol};

    fn label(expect_rejected: bool) -> ScenarioLabel {
        ScenarioLabel { name: "talk".into(), protocol: Protocol::Grpc, expect_rejected }
    }

    fn step(funnels: &mut Funnels, index: u64, event: LedgerEvent) {
        funnels.apply(&LedgerEntry { index: PlanIndex(index), at_us: 0, event });
    }

    fn scheduled() -> LedgerEvent {
        LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Grpc, end: EndKind::Graceful, client_ref: String::new() }
    }

    fn accepted() -> LedgerEvent {
        LedgerEvent::Accepted { session_id: "s".into(), backend_id: "b".into(), boot_id: "x".into() }
    }

    fn establish(funnels: &mut Funnels, index: u64) {
        step(funnels, index, scheduled());
        step(funnels, index, LedgerEvent::Attempted { backend: 0 });
        step(funnels, index, accepted());
    }

    /// k6 885, artillery 1265, k6 333/652: what was asked, tried and got is shown and adds up.
    #[test]
    fn each_session_lands_in_one_place() {
        let mut funnels = Funnels::new(vec![label(false)]);
        let finishes = [
            Finish::Goodbye(Outcome::Completed),
            Finish::Forced(EndKind::TcpRst),
            Finish::ByServer(Outcome::Drained),
            Finish::Lost(FailureCause::Reset),
            Finish::Lost(FailureCause::ServerError(ErrorCode::BadAudio)),
            Finish::ByServer(Outcome::TimedOut),
        ];
        for (n, finish) in finishes.into_iter().enumerate() {
            establish(&mut funnels, n as u64);
            step(&mut funnels, n as u64, LedgerEvent::Ended { finish });
        }
        step(&mut funnels, 10, scheduled());
        step(&mut funnels, 10, LedgerEvent::Failed { cause: FailureCause::TooManyFiles });
        step(&mut funnels, 11, scheduled());
        step(&mut funnels, 11, LedgerEvent::Attempted { backend: 0 });
        step(&mut funnels, 11, LedgerEvent::Failed { cause: FailureCause::ConnectionRefused });
        step(&mut funnels, 12, scheduled());
        step(&mut funnels, 12, LedgerEvent::Failed { cause: FailureCause::Aborted });
        establish(&mut funnels, 13);
        let total = funnels.total();
        assert_eq!((total.requested, total.attempted, total.established), (10, 8, 7));
        assert_eq!((total.completed, total.interrupted, total.failed, total.live), (1, 2, 3, 1));
        assert_eq!((total.not_attempted, total.not_established, total.aborted), (2, 1, 1));
        assert_eq!(total.sessions_failed(), 5);
        assert!(total.contradictions().is_empty());
        let errors: Vec<_> = funnels.errors(None).into_iter().collect();
        let expected = ["connection_refused", "ended_timed_out", "reset", "server_error:bad_audio", "too_many_files"];
        assert_eq!(errors, expected.map(|e| (e.to_owned(), 1)));
    }

    #[test]
    fn a_forced_end_that_looks_like_a_loss_is_an_interruption() {
        let mut funnels = Funnels::new(vec![label(false)]);
        establish(&mut funnels, 1);
        step(&mut funnels, 1, LedgerEvent::Forced { kind: EndKind::KillBackend });
        step(&mut funnels, 1, LedgerEvent::Ended { finish: Finish::Lost(FailureCause::Eof) });
        assert_eq!((funnels.total().interrupted, funnels.total().failed), (1, 0));
        assert!(funnels.errors(None).is_empty());
    }

    #[test]
    fn refusals_are_errors_unless_the_scenario_is_for_them() {
        for expect_rejected in [false, true] {
            let mut funnels = Funnels::new(vec![label(expect_rejected)]);
            step(&mut funnels, 1, scheduled());
            step(&mut funnels, 1, LedgerEvent::Attempted { backend: 0 });
            step(&mut funnels, 1, LedgerEvent::Failed { cause: FailureCause::Rejected });
            assert_eq!(funnels.total().sessions_failed(), u64::from(!expect_rejected));
            assert_eq!(funnels.errors(None).is_empty(), expect_rejected);
        }
    }

    #[test]
    fn contradictions_are_named() {
        let wrong = Funnel { requested: 3, attempted: 2, ..Funnel::default() };
        let found = wrong.contradictions();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], "requested is 3, but attempted + not attempted + waiting is 2");
    }

    proptest! {
        #[test]
        fn any_order_of_steps_adds_up(steps in prop::collection::vec((0..6u64, 0..7u8), 0..200)) {
            let mut funnels = Funnels::new(vec![label(true)]);
            for (index, kind) in steps {
                let event = match kind {
                    0 => scheduled(),
                    1 => LedgerEvent::Attempted { backend: 0 },
                    2 => accepted(),
                    3 => LedgerEvent::Forced { kind: EndKind::KillWorker },
                    4 => LedgerEvent::Ended { finish: Finish::Lost(FailureCause::WorkerLost) },
                    5 => LedgerEvent::Failed { cause: FailureCause::Rejected },
                    _ => LedgerEvent::Failed { cause: FailureCause::WorkerLost },
                };
                step(&mut funnels, index, event);
                prop_assert!(funnels.total().contradictions().is_empty());
                let total = funnels.total();
                prop_assert!(total.requested >= total.attempted && total.attempted >= total.established);
            }
        }
    }
}
