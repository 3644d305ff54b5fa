use std::time::Duration;

use super::*;

fn full(active: f64, capacity: f64, at: u64) -> Report {
    Report { at: Micros(at), active: Some(active), effective_capacity: Some(capacity), max_sessions: Some(200.0), ..Report::default() }
}

#[test]
fn grants_are_debited_until_a_report_shows_them() {
    let mut router = router("hybrid", 1);
    hear(&mut router, 0, full(80.0, 120.0, 100));
    deal(&mut router, 1, 3, Micros(200));
    deal(&mut router, 1, 4, Micros(300));
    deal(&mut router, 1, 5, Micros(400));
    let backend = |router: &Router| router.table(0).backend(0).clone();
    assert_eq!((backend(&router).granted, backend(&router).open), (12, 12));
    near(backend(&router).sessions(), 92.0, 0.0);
    assert_eq!(backend(&router).room(), Some(28.0));
    // Made at 300, heard later: it may or may not count the grants of that very moment.
    router.report(0, full(83.0, 121.0, 300), Micros(500));
    assert_eq!((backend(&router).granted, backend(&router).open), (9, 12));
    router.report(0, full(92.0, 121.0, 401), Micros(600));
    assert_eq!((backend(&router).granted, backend(&router).room()), (0, Some(29.0)));
    // What was overtaken on the way says nothing new.
    router.report(0, full(1.0, 150.0, 400), Micros(700));
    assert_eq!(backend(&router).room(), Some(29.0));
}

#[test]
fn a_session_that_comes_to_nothing_or_ends_returns_its_own_debit_alone() {
    let mut router = router("random", 1);
    let early = router.grant(0, None, Micros(100)).unwrap();
    hear(&mut router, 0, full(1.0, 10.0, 150));
    let late = router.grant(1, None, Micros(200)).unwrap();
    let failed = router.grant(2, None, Micros(300)).unwrap();
    let state = |router: &Router| (router.table(0).backend(0).granted, router.table(0).backend(0).open);
    assert_eq!(state(&router), (2, 3));
    // The report shows it, and shows it until the next one.
    router.ended(early);
    assert_eq!(state(&router), (2, 2));
    router.failed(failed);
    assert_eq!(state(&router), (1, 1));
    router.ended(late);
    assert_eq!(state(&router), (0, 0));
}

#[test]
fn without_reports_debits_are_the_open_sessions() {
    let mut router = router("round_robin", 2);
    deal_short(&mut router, 2, 1_000, Micros(1));
    let kept = router.grant(0, None, Micros(2)).unwrap();
    let backend = router.table(0).backend(kept.backend);
    assert_eq!((backend.granted, backend.open), (1, 1));
}

#[test]
fn reports_go_stale_by_when_they_came() {
    let mut router = Router::new(RouterConfig { staleness: Duration::from_millis(1), ..config("random", 2) });
    router.report(0, full(1.0, 10.0, 100), Micros(5_000));
    router.report(1, full(1.0, 10.0, 100), Micros(5_500));
    let ages = |router: &mut Router, now| {
        let mut ages = [None; 2];
        (0..64).for_each(|session| {
            let grant = router.grant(session, None, Micros(now)).unwrap();
            ages[grant.backend] = Some(grant.report_age);
            router.failed(grant);
        });
        ages.map(|age| age.unwrap().map(|age| age.as_micros() as u64))
    };
    assert_eq!(ages(&mut router, 6_000), [Some(5_900), Some(5_900)]);
    assert_eq!(ages(&mut router, 6_001), [None, Some(5_901)]);
    // A new one counts from its own coming.
    router.report(1, full(1.0, 10.0, 6_400), Micros(6_500));
    assert_eq!(ages(&mut router, 7_500), [None, Some(1_100)]);
    assert_eq!(ages(&mut router, 7_501), [None, None]);
    router.report(0, full(1.0, 10.0, 7_600), Micros(7_600));
    assert_eq!(ages(&mut router, 7_600), [Some(0), None]);
}

#[test]
fn a_backend_that_is_full_or_drains_is_picked_again_when_its_report_is_stale() {
    let mut router = Router::new(RouterConfig { staleness: Duration::from_millis(1), ..config("least_cpu", 2) });
    hear(&mut router, 0, Report { draining: true, ..full(1.0, 10.0, 10) });
    hear(&mut router, 1, full(200.0, 200.0, 10));
    assert_eq!(router.grant(0, None, Micros(20)), None);
    assert!(router.grant(0, None, Micros(1_011)).is_some());
}

#[test]
fn what_is_down_is_not_picked_and_comes_back_unheard_of() {
    let mut router = router("prequal", 2);
    hear(&mut router, 0, full(5.0, 10.0, 10));
    let grant = router.grant(0, Some(1), Micros(20)).unwrap();
    assert_eq!((grant.backend, grant.report_age), (0, Some(Duration::from_micros(10))));
    router.accepted(grant, Duration::from_millis(20));
    near(router.table(0).backend(0).latency, 0.02, 1e-12);
    router.set_up(0, false);
    assert!((0..50).all(|session| router.grant(session, None, Micros(30)).unwrap().backend == 1));
    assert_eq!(router.grant(0, Some(1), Micros(30)), None);
    // Made before it went, or heard while it is gone.
    router.report(0, full(5.0, 10.0, 40), Micros(40));
    router.set_up(0, true);
    router.report(0, full(5.0, 10.0, 15), Micros(50));
    let backend = router.table(0).backend(0);
    assert!(backend.report.is_none() && backend.latency == 0.0 && backend.open == 1);
    router.report(0, full(0.0, 10.0, 60), Micros(60));
    let backend = router.table(0).backend(0);
    assert!(backend.report.is_some() && backend.granted == 0);
}

#[test]
fn startup_times_are_averaged() {
    let mut router = router("random", 1);
    let grant = router.grant(0, None, Micros(1)).unwrap();
    for (ms, want) in [(100, 0.1), (200, 0.12), (0, 0.096)] {
        router.accepted(grant, Duration::from_millis(ms));
        near(router.table(0).backend(0).latency, want, 1e-6);
    }
}

#[test]
fn balancers_know_nothing_of_each_other_and_share_if_told() {
    let mut router = Router::new(RouterConfig { balancers: 4, share: true, ..config("hybrid", 1) });
    hear(&mut router, 0, full(80.0, 120.0, 10));
    for session in 0..8 {
        assert_eq!(router.grant(session, None, Micros(20)).unwrap().balancer as u64, session % 4);
    }
    (0..4).for_each(|balancer| assert_eq!(router.table(balancer).backend(0).room(), Some(8.0)));
}

#[test]
fn a_report_from_the_future_holds_nothing_back() {
    let mut router = router("random", 1);
    router.report(0, full(1.0, 10.0, u64::MAX), Micros(10));
    router.report(0, full(2.0, 10.0, 20), Micros(20));
    near(router.table(0).backend(0).sessions(), 2.0, 0.0);
}

#[test]
fn no_backends_no_grants_and_strangers_do_no_harm() {
    for made in ALL {
        let mut router = router(made.name, 0);
        assert_eq!(router.grant(0, Some(3), Micros(1)), None);
        let grant = Grant { backend: 7, balancer: 9, at: Micros(1), report_age: None };
        for grant in [grant, Grant { balancer: 0, ..grant }] {
            router.accepted(grant, Duration::ZERO);
            router.failed(grant);
            router.ended(grant);
        }
        router.set_up(7, false);
        router.report(7, Report::default(), Micros(2));
    }
}

#[test]
fn the_same_seed_deals_the_same_and_another_does_not() {
    for made in ALL {
        let dealt = |seed| {
            let mut router = Router::new(RouterConfig { seed, balancers: 2, ..config(made.name, 50) });
            for backend in 0..50 {
                let load = Report { utilization: 0.5, qps: 5.0, rate: Some(1.0), ..full(10.0, 40.0, 1) };
                hear(&mut router, backend, load);
            }
            (0..200).map(|session| router.grant(session, None, Micros(2))).collect::<Vec<_>>()
        };
        assert_eq!(dealt(1), dealt(1), "{}", made.name);
        assert_ne!(dealt(1), dealt(2), "{}", made.name);
    }
}
