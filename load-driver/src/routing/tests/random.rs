//! Whatever backends report, and whatever becomes of them: every policy, against a list of what happened.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};

use super::*;

const STALENESS: u64 = 1_000;

#[derive(Debug, Clone)]
enum Event {
    Report {
        backend: usize,
        report: Report,
        delay: u64,
    },
    Grant {
        session: u64,
        not: Option<usize>,
    },
    /// Of the open session of this number, modulo.
    Accepted(usize, u64),
    Failed(usize),
    Ended(usize),
    Up(usize, bool),
    Wait(u64),
}

/// Small numbers mostly, so that caps are reached; and what only a broken or hostile backend says.
fn figure(top: f64) -> impl Strategy<Value = f64> {
    let odd = vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, 5e-324, -1.0, -0.0, 1e300];
    prop_oneof![12 => 0.0..top, 4 => (0..6u32).prop_map(f64::from), 2 => prop::sample::select(odd)]
}

prop_compose! {
    fn report()(
        (utilization, application_utilization, qps, eps) in (figure(1.2), figure(1.2), figure(10.0), figure(2.0)),
        (active, speaking, rate) in (prop::option::of(figure(8.0)), prop::option::of(figure(8.0)), prop::option::of(figure(3.0))),
        (effective_capacity, max_sessions) in (prop::option::of(figure(12.0)), prop::option::of(figure(12.0))),
        draining in prop::bool::weighted(0.1),
    ) -> Report {
        Report {
            at: Micros::ZERO, utilization, application_utilization, qps, eps, active, speaking, rate, effective_capacity, max_sessions,
            draining,
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    let backend = 0..8usize;
    prop_oneof![
        6 => (backend.clone(), report(), prop_oneof![Just(0), 0..200u64, Just(u64::MAX)])
            .prop_map(|(backend, report, delay)| Event::Report { backend, report, delay }),
        16 => (any::<u64>(), prop::option::weighted(0.2, backend.clone())).prop_map(|(session, not)| Event::Grant { session, not }),
        2 => (any::<usize>(), 0..100_000u64).prop_map(|(n, us)| Event::Accepted(n, us)),
        2 => any::<usize>().prop_map(Event::Failed),
        4 => any::<usize>().prop_map(Event::Ended),
        1 => (backend, any::<bool>()).prop_map(|(backend, up)| Event::Up(backend, up)),
        6 => prop_oneof![8 => 0..50u64, 1 => 500..1_500u64].prop_map(Event::Wait),
    ]
}

/// A backend, as it would be written down.
#[derive(Debug, Clone)]
struct Noted {
    up: bool,
    /// The last one heard, and when it came.
    heard: Option<(Report, u64)>,
    /// Grants before this are shown by a report.
    shown: u64,
    /// Reports made before this are not heard.
    horizon: u64,
}

#[derive(Debug)]
struct Notes {
    now: u64,
    backends: Vec<Noted>,
    open: Vec<Grant>,
}

impl Notes {
    fn report(&self, backend: usize) -> Option<Report> {
        self.backends[backend].heard.filter(|(_, came)| self.now - came <= STALENESS).map(|(report, _)| report)
    }

    fn open(&self, balancer: usize, backend: usize) -> impl Iterator<Item = &Grant> {
        self.open.iter().filter(move |grant| (grant.balancer, grant.backend) == (balancer, backend))
    }

    fn granted(&self, balancer: usize, backend: usize) -> usize {
        self.open(balancer, backend).filter(|grant| grant.at.0 >= self.backends[backend].shown).count()
    }

    fn eligible(&self, balancer: usize, backend: usize) -> bool {
        let sane = |x: &f64| x.is_finite() && *x >= 0.0;
        let (granted, open) = (self.granted(balancer, backend), self.open(balancer, backend).count());
        let report = self.report(backend);
        let sessions = report.and_then(|r| r.active).filter(sane).map_or(open as f64, |active| active + granted as f64);
        let full = report.and_then(|r| r.max_sessions).filter(sane).is_some_and(|max| sessions >= max);
        self.backends[backend].up && !full && !report.is_some_and(|r| r.draining)
    }

    fn hear(&mut self, backend: usize, report: Report) {
        let now = self.now;
        let noted = &mut self.backends[backend];
        if noted.up && report.at.0 >= noted.horizon {
            *noted = Noted { up: true, heard: Some((report, now)), shown: report.at.0, horizon: report.at.0 };
        }
    }

    fn check(&self, router: &Router, balancer: usize) -> Result<(), TestCaseError> {
        let table = router.table(balancer);
        for backend in 0..self.backends.len() {
            let known = table.backend(backend);
            prop_assert_eq!(known.granted as usize, self.granted(balancer, backend));
            prop_assert_eq!(known.open as usize, self.open(balancer, backend).count());
            prop_assert!(known.room().is_none_or(f64::is_finite) && known.sessions() >= 0.0 && known.latency >= 0.0);
            prop_assert!(table.weight(backend).is_none_or(f64::is_finite), "weight {:?}", table.weight(backend));
        }
        prop_assert!(table.mean().is_none_or(|mean| mean.is_finite() && mean >= 0.0));
        Ok(())
    }
}

fn run(made: &Made, backends: usize, balancers: usize, share: bool, events: &[Event]) -> Result<(), TestCaseError> {
    let config = config(made.name, backends);
    let mut router = Router::new(RouterConfig { balancers, share, staleness: Duration::from_micros(STALENESS), ..config });
    let noted = Noted { up: true, heard: None, shown: 0, horizon: 0 };
    let mut notes = Notes { now: 1_000, backends: vec![noted; backends], open: vec![] };
    // The router knows of no time before the first that it is told.
    let mut told = 0;
    for event in events {
        match *event {
            Event::Wait(us) => notes.now += us,
            Event::Report { backend, report, delay } => {
                let at = if delay == u64::MAX { Micros::NEVER } else { Micros(notes.now - delay) };
                router.report(backend, Report { at, ..report }, Micros(notes.now));
                told = notes.now;
                if backend < backends {
                    notes.hear(backend, Report { at: at.min(Micros(notes.now)), ..report });
                }
            }
            Event::Grant { session, not } => {
                let balancer = (session % balancers as u64) as usize;
                let choices: Vec<usize> =
                    (0..backends).filter(|backend| Some(*backend) != not && notes.eligible(balancer, *backend)).collect();
                let fair = |picked: Option<usize>| picked.map_or(choices.is_empty(), |backend| choices.contains(&backend));
                let room = |router: &Router, backend| router.table(balancer).backend(backend).room();
                let grant = router.grant(session, not, Micros(notes.now));
                told = notes.now;
                prop_assert!(fair(grant.map(|grant| grant.backend)), "{}: {:?} is not among {:?}", made.name, grant, choices);
                if let Some(grant) = grant {
                    prop_assert_eq!((grant.balancer, grant.at), (balancer, Micros(notes.now)));
                    let age = notes.report(grant.backend).map(|report| Micros(notes.now).since(report.at));
                    prop_assert_eq!(grant.report_age, age);
                    // What it had before this grant.
                    let spent = room(&router, grant.backend).is_some_and(|left| left + 1.0 <= 0.0);
                    let elsewhere = choices.iter().any(|b| *b != grant.backend && room(&router, *b).is_some_and(|left| left > 0.0));
                    prop_assert!(made.name != "hybrid" || !(spent && elsewhere), "room was left elsewhere");
                    notes.open.push(grant);
                }
                // And the policy by itself, without the router's own check.
                let choices: Vec<usize> =
                    (0..backends).filter(|backend| Some(*backend) != not && notes.eligible(balancer, *backend)).collect();
                let picked = router.choose(balancer, not);
                prop_assert!(picked.map_or(choices.is_empty(), |b| choices.contains(&b)), "{}: {:?} of {:?}", made.name, picked, choices);
            }
            Event::Accepted(n, us) if !notes.open.is_empty() => {
                router.accepted(notes.open[n % notes.open.len()], Duration::from_micros(us));
            }
            Event::Failed(n) if !notes.open.is_empty() => {
                let n = n % notes.open.len();
                router.failed(notes.open.remove(n));
            }
            Event::Ended(n) if !notes.open.is_empty() => {
                let n = n % notes.open.len();
                router.ended(notes.open.remove(n));
            }
            Event::Up(backend, up) if backend < backends => {
                router.set_up(backend, up);
                let noted = &mut notes.backends[backend];
                if noted.up && !up {
                    (noted.heard, noted.horizon) = (None, told);
                }
                noted.up = up;
            }
            _ => {}
        }
        for balancer in 0..balancers {
            notes.check(&router, balancer)?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_policy_picks_what_is_full_draining_down_or_excluded(
        backends in 1..8usize,
        balancers in 1..4usize,
        share: bool,
        events in vec(event(), 1..120),
    ) {
        for made in ALL {
            run(made, backends, balancers, share, &events)?;
        }
    }

    /// Balancers that share overspend by rounding alone: less than one session each, at each backend.
    #[test]
    fn sharing_balancers_spend_what_there_is(
        fleet in vec((0.0..50.0f64, 0.0..40.0f64), 1..6),
        balancers in 1..6usize,
        seed: u64,
    ) {
        let mut router = Router::new(RouterConfig { balancers, share: true, seed, ..config("hybrid", fleet.len()) });
        for (backend, (active, room)) in fleet.iter().enumerate() {
            let report = Report { at: Micros(1), active: Some(*active), effective_capacity: Some(active + room), ..Report::default() };
            router.report(backend, report, Micros(1));
        }
        // Every balancer spends what it has, and no more.
        let mut counts = vec![0.0; fleet.len()];
        for balancer in 0..balancers {
            let left = |router: &Router| (0..fleet.len()).any(|b| router.table(balancer).backend(b).room().is_some_and(|room| room > 0.0));
            let most = 40 * fleet.len() + fleet.len();
            for _ in 0..most {
                if left(&router) {
                    counts[router.grant(balancer as u64, None, Micros(2)).unwrap().backend] += 1.0;
                }
            }
            prop_assert!(!left(&router), "grants are not debited");
        }
        for (count, (_, room)) in counts.iter().zip(&fleet) {
            prop_assert!(*count >= room - 1e-6 && *count < room + balancers as f64 + 1e-6, "{} granted for {}", count, room);
        }
    }
}
