//! Checks of a profile as a whole: what its parts say of each other.

use super::{Document, Profile, ProfileError, Reach, Scenario, Span, connection, scenario::World, validate::Checker};
use crate::{
    arrival,
    balance::{Expectation, Prediction},
    plan::{EndKind, MAX_SCENARIOS},
};

impl Profile {
    pub(super) fn check(&self, document: &Document) -> Result<(), ProfileError> {
        let mut c = Checker::new(document);
        if self.name.chars().any(char::is_control) {
            c.error("name", "the name holds a line break, or another character that is none to be read", "write a name of one line");
        }
        self.check_fleet(&mut c, document);
        self.check_servers(&mut c, document);
        self.check_routing(&mut c);
        self.check_predictions(&mut c);
        self.check_schemes(&mut c);
        c.within("connection", |c| connection::check(&self.connection, c));
        c.within("driver", |c| self.driver.check(c));
        c.within("counters", |c| self.counters.check(c, self));
        let world = World { embedded: self.is_embedded(), backends: self.choices(), audio: &self.library() };
        c.within("scenarios", |c| {
            if self.scenarios.is_empty() {
                c.here("there is no scenario", "add one under `scenarios`");
            }
            if self.scenarios.0.len() > MAX_SCENARIOS {
                c.here("there are too many scenarios", format!("write at most {MAX_SCENARIOS}"));
            }
            for (name, scenario) in self.scenarios.iter() {
                c.within(name, |c| {
                    if name.is_empty() || name.len() > 64 || !name.chars().all(|ch| ch.is_ascii_alphanumeric() || "-_".contains(ch)) {
                        c.here(format!("`{name}` is no name for a scenario"), "use up to 64 letters, digits, `-` and `_`");
                    }
                    scenario.check(c, &world);
                });
            }
        });
        self.check_kills(&mut c);
        self.check_faults(&mut c);
        c.within("thresholds", |c| {
            for (metric, all) in self.thresholds.iter() {
                c.within(metric, |c| {
                    if all.is_empty() {
                        c.here(format!("`{metric}` has no threshold"), "write a list: ['p(95)<300']");
                    }
                    for (at, threshold) in all.iter().enumerate() {
                        c.within(at, |c| threshold.check(c));
                    }
                });
            }
        });
        if c.is_clean()
            && let Some(end) =
                self.scenarios.iter().map(|(_, scenario)| arrival::end_of(&scenario.schedule(), scenario.executor.executor())).max()
        {
            if self.warmup != Span::default() && self.warmup.0 >= end {
                c.error("warmup", "the warm-up is as long as the whole run: no statistics would be left", "make it shorter");
            }
            self.check_disturbances(&mut c, end);
            self.check_fault_times(&mut c, end);
        }
        c.finish()
    }

    /// `routing`, and `expectations`, which compare its policies.
    fn check_routing(&self, c: &mut Checker<'_>) {
        let Some(routing) = &self.routing else {
            if !self.expectations.is_empty() {
                c.error("expectations", "expectations compare policies, and there is no `routing`", "add `routing: {policy: all}`");
            }
            return;
        };
        if matches!(self.reach(), Reach::Front(_)) {
            c.error("routing", "the target is a balancer, which chooses the backend itself", "drop `routing`, or drop `target`");
        }
        let known = c.within("routing", |c| routing.check(c));
        if !known {
            return;
        }
        c.within("expectations", |c| {
            for (at, text) in self.expectations.iter().enumerate() {
                c.within(at, |c| check_expectation(c, text, routing.policy.names()));
            }
        });
    }

    /// Figures that there are, of backends that there are, and that can be simulated.
    fn check_predictions(&self, c: &mut Checker<'_>) {
        if self.predictions.is_empty() {
            return;
        }
        if self.routing.is_none() {
            c.error("predictions", "predictions are of policies, and there is no `routing`", "add `routing: {policy: round_robin}`");
        }
        if !self.is_embedded() {
            let message = "the settings of backends that run already are not known: nothing can be predicted of them";
            c.error("predictions", message, "let the run start its backends, or predict nothing: --set 'predictions={}'");
        }
        let backends = self.choices().unwrap_or(usize::MAX);
        c.within("predictions", |c| {
            for (metric, tolerance) in self.predictions.iter() {
                match Prediction::parse(metric, tolerance) {
                    Err((message, help)) => c.error(metric, message, help),
                    Ok(read) if read.backend().is_some_and(|backend| backend >= backends) => {
                        let message = format!("`{metric}` is the share of a backend that there is not");
                        c.error(metric, message, format!("there are {backends}, from `share_0` on"));
                    }
                    Ok(_) => {}
                }
            }
        });
    }

    /// A backend that is killed takes every session with it: those of another scenario would count as lost.
    fn check_kills(&self, c: &mut Checker<'_>) {
        let kills = |scenario: &Scenario| scenario.end.0.iter().any(|end| end.kind == EndKind::KillBackend);
        for (name, killer) in self.scenarios.iter().filter(|(_, scenario)| kills(scenario)) {
            let Some(victim) = killer.backend else { continue };
            if self.entry(victim).is_some_and(|entry| entry.killed.is_some()) {
                c.within("scenarios", |c| {
                    c.within(name, |c| {
                        let message = format!("backend {victim} is killed by its entry in `backends` and by this scenario");
                        c.error("backend", message, "drop its `killed`, or pin the scenario to another backend");
                    });
                });
            }
            // Two kills of one backend: the second scenario may only begin when the first kill is over.
            let early = |other: &Scenario| other.kill_at < killer.kill_at && other.kill_at >= Some(killer.start_time);
            for (other, _) in self.scenarios.iter().filter(|(_, other)| kills(other) && other.backend == Some(victim) && early(other)) {
                c.within("scenarios", |c| {
                    c.within(name, |c| {
                        let message = format!("`{other}` kills backend {victim} before, while this scenario uses it");
                        c.error("kill_at", message, "kill at the same time, begin later, or pin it to another backend");
                    });
                });
            }
            for (other, scenario) in self.scenarios.iter().filter(|(_, scenario)| !kills(scenario)) {
                if scenario.backend.is_none_or(|backend| backend == victim) {
                    c.within("scenarios", |c| {
                        c.within(other, |c| {
                            c.error(
                                "backend",
                                format!("`{other}` may use backend {victim}, which `{name}` kills: its sessions would be lost"),
                                "pin this scenario to another backend",
                            );
                        });
                    });
                }
            }
        }
    }
}

/// One expectation: it can be read, and its policies are among those that run.
fn check_expectation(c: &mut Checker<'_>, text: &str, policies: &[String]) {
    let expectation = match Expectation::parse(text) {
        Ok(expectation) => expectation,
        Err(error) => return c.here(error, "write for example 'hybrid.overload_rate < round_robin.overload_rate'"),
    };
    for policy in expectation.policies() {
        if policies.iter().all(|name| name != policy) {
            let message = format!("the expectation is about `{policy}`, which is not in `routing.policy`");
            c.here(message, "add it there, or drop the expectation; without any: --set 'expectations=[]'");
        }
    }
}
