//! What each policy is known for. Seeds are fixed, bounds are wide.

use std::time::Duration;

use super::*;

fn load(utilization: f64) -> Report {
    Report { at: Micros(1), utilization, ..Report::default() }
}

fn sessions(active: f64) -> Report {
    Report { at: Micros(1), active: Some(active), ..Report::default() }
}

fn capacity(active: f64, capacity: f64) -> Report {
    Report { effective_capacity: Some(capacity), ..sessions(active) }
}

/// A router that heard one report of each backend, where there is one.
fn heard<const N: usize>(policy: &str, reports: [Option<Report>; N]) -> Router {
    let mut router = router(policy, N);
    for (backend, report) in reports.into_iter().enumerate() {
        if let Some(report) = report {
            hear(&mut router, backend, report);
        }
    }
    router
}

/// Shares of sessions that end at once.
fn shares<const N: usize>(policy: &str, reports: [Option<Report>; N]) -> [f64; N] {
    let counts = deal_short(&mut heard(policy, reports), N, 20_000, Micros(2));
    std::array::from_fn(|backend| counts[backend] as f64 / 20_000.0)
}

#[track_caller]
fn split<const N: usize>(policy: &str, reports: [Option<Report>; N], want: [f64; N]) {
    let got = shares(policy, reports);
    let total: f64 = want.iter().sum();
    let close = got.iter().zip(want).all(|(got, want)| (got - want / total).abs() <= if want > 0.0 { 0.02 } else { 0.0 });
    assert!(close, "{policy}: {got:?}, not as {want:?}");
}

#[test]
fn names_are_found_and_the_near_ones_guessed() {
    for made in ALL {
        assert_eq!(find(made.name).unwrap().name, made.name);
        assert!(made.about.ends_with('.'), "{}", made.about);
    }
    let names: Vec<&str> = ALL.iter().map(|made| made.name).collect();
    assert_eq!(
        names.join(" "),
        "random round_robin least_cpu remaining_capacity power_of_two orca_wrr rate_wrr hybrid prequal one_minus_load"
    );
    assert_eq!(find("RoundRobin").unwrap_err().to_string(), "there is no policy `RoundRobin`: did you mean `round_robin`?");
    assert!(
        find("xyz").unwrap_err().to_string().ends_with("there are ".to_owned().as_str().trim()) || {
            find("xyz").unwrap_err().to_string().contains("there are random, round_robin, least_cpu")
        }
    );
}

#[test]
fn round_robin_goes_round() {
    let mut router = router("round_robin", 5);
    assert_eq!(deal(&mut router, 5, 1_000, Micros(1)), [200; 5]);
    let mut order = || router.grant(0, None, Micros(1)).unwrap().backend;
    let first = order();
    (1..20).for_each(|step| assert_eq!(order(), (first + step) % 5));
    router.set_up(2, false);
    hear(&mut router, 4, Report { draining: true, ..load(0.0) });
    let turns: Vec<usize> = (0..6).map(|_| router.grant(0, None, Micros(2)).unwrap().backend).collect();
    assert_eq!(turns[..3], turns[3..]);
    let mut turns = turns[..3].to_vec();
    turns.sort_unstable();
    assert_eq!(turns, [0, 1, 3]);
}

#[test]
fn random_is_even() {
    split("random", [None, Some(load(0.9)), Some(load(0.1)), None], [1.0; 4]);
}

#[test]
fn least_cpu_sends_everybody_to_the_idlest_until_the_next_report() {
    let mut router = heard("least_cpu", [Some(load(0.5)), Some(load(0.2)), Some(load(0.3))]);
    assert_eq!(deal(&mut router, 3, 100, Micros(2)), [0, 100, 0]);
    split("least_cpu", [Some(load(0.2)), Some(load(0.2)), Some(load(0.3))], [1.0, 1.0, 0.0]);
}

#[test]
fn the_unheard_of_get_the_share_of_chance_and_no_more() {
    split("least_cpu", [Some(load(0.5)), Some(load(0.2)), None, None], [0.0, 1.0, 0.5, 0.5]);
    split("remaining_capacity", [Some(sessions(9.0)), Some(sessions(5.0)), None, None], [0.0, 1.0, 0.5, 0.5]);
    split("hybrid", [Some(capacity(0.0, 10.0)), Some(capacity(0.0, 30.0)), None, Some(capacity(5.0, 5.0))], [10.0, 30.0, 40.0 / 3.0, 0.0]);
}

#[test]
fn remaining_capacity_fills_up_to_equal_rests() {
    let cap = |active, max| Some(Report { max_sessions: Some(max), ..sessions(active) });
    let mut router = heard("remaining_capacity", [cap(0.0, 100.0), cap(50.0, 100.0), cap(0.0, 40.0)]);
    // 100, 50 and 40 are left; 100 more, and 30 are left in each.
    assert_eq!(deal(&mut router, 3, 100, Micros(2)), [70, 20, 10]);
    let mut router = heard("remaining_capacity", [Some(sessions(3.0)), Some(sessions(7.0)), Some(sessions(0.0))]);
    assert_eq!(deal(&mut router, 3, 11, Micros(2)), [4, 0, 7], "without caps it levels sessions");
    let counts = deal(&mut self::router("remaining_capacity", 50), 50, 5_000, Micros(2));
    assert!(counts.iter().all(|count| (95..=105).contains(count)), "without reports it levels its own: {counts:?}");
}

#[test]
fn two_choices_beat_one_by_far() {
    const N: usize = 10_000;
    let peak = |policy| deal(&mut router(policy, N), N, N as u64, Micros(1)).into_iter().max();
    let (random, two) = (peak("random").unwrap(), peak("power_of_two").unwrap());
    // ln n / ln ln n is 4.1, and random's constant is above 1; ln ln n / ln 2 is 3.2.
    assert!((6..=10).contains(&random) && (2..=4).contains(&two), "random {random}, two choices {two}");
}

#[test]
fn power_of_two_looks_at_sessions_for_the_cap() {
    let cap = |active, max| Some(Report { max_sessions: Some(max), ..sessions(active) });
    split("power_of_two", [cap(10.0, 100.0), cap(8.0, 20.0)], [1.0, 0.0]);
    split("power_of_two", [cap(10.0, 100.0), Some(sessions(8.0))], [0.0, 1.0]);
    // Of three, the fullest is never the better of two, the emptiest always.
    split("power_of_two", [Some(sessions(1.0)), Some(sessions(2.0)), Some(sessions(3.0))], [2.0, 1.0, 0.0]);
    split("power_of_two", [None], [1.0]);
}

fn qps(qps: f64, utilization: f64) -> Report {
    Report { qps, ..load(utilization) }
}

#[test]
fn a_tenth_against_nine_tenths_splits_nine_to_one() {
    split("orca_wrr", [Some(qps(9.0, 0.1)), Some(qps(9.0, 0.9))], [9.0, 1.0]);
    // What the application says goes before the CPU.
    let said = |application_utilization| Some(Report { application_utilization, ..qps(9.0, 0.5) });
    split("orca_wrr", [said(0.1), said(0.9)], [9.0, 1.0]);
    // 0.1 + 3 errors in 10 requests at a penalty of 1.
    split("orca_wrr", [Some(Report { eps: 3.0, ..qps(10.0, 0.1) }), Some(qps(10.0, 0.1))], [1.0, 4.0]);
}

#[test]
fn weighted_round_robin_takes_the_unknown_and_the_zero_for_the_mean() {
    split(
        "orca_wrr",
        [Some(qps(1.0, 1.0)), Some(qps(3.0, 1.0)), None, Some(qps(0.0, 0.5)), Some(qps(5.0, 0.0))],
        [1.0, 3.0, 2.0, 2.0, 2.0],
    );
    let mut router = heard("orca_wrr", [Some(qps(1.0, 1.0)), None, None]);
    assert_eq!(deal(&mut router, 3, 300, Micros(2)), [100; 3], "one known weight is none");
}

#[test]
fn weights_are_kept_near_their_mean() {
    let mut router = router("orca_wrr", 101);
    hear(&mut router, 0, qps(1e6, 1.0));
    (1..101).for_each(|backend| hear(&mut router, backend, qps(1.0, 1.0)));
    // The mean is 9,902: one of 99,020 and a hundred of 99.
    let counts = deal_short(&mut router, 101, 20_000, Micros(2));
    near(counts[0] as f64 / 20_000.0, 10.0 / 11.0, 0.02);
    assert!(counts[1..].iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn a_rate_of_zero_still_gets_something_from_weighted_round_robin() {
    let rate = |rate| Some(Report { rate: Some(rate), ..qps(9.0, 0.5) });
    split("rate_wrr", [rate(1.0), rate(3.0), None], [1.0, 3.0, 2.0]);
    // A hundredth of the mean.
    let [zero, _] = shares("rate_wrr", [rate(0.0), rate(4.0)]);
    near(zero, 0.005 / 1.005, 0.003);
    assert!(zero > 0.0);
}

#[test]
fn hybrid_stops_the_hot_one_and_feeds_the_other() {
    // 10 sessions at 90 % have a capacity of 10; 80 at 40 % one of 120.
    let mut router = heard("hybrid", [Some(capacity(10.0, 10.0)), Some(capacity(80.0, 120.0))]);
    assert_eq!(deal(&mut router, 2, 40, Micros(2)), [0, 40]);
    let room = |backend: usize| router.table(0).backend(backend).room();
    assert_eq!((room(0), room(1)), (Some(0.0), Some(0.0)));
}

#[test]
fn hybrid_without_room_takes_the_one_that_is_least_over_for_its_size() {
    // A tenth, a fiftieth, a fifth over.
    let reports = [capacity(110.0, 100.0), capacity(510.0, 500.0), capacity(12.0, 10.0)];
    assert_eq!(heard("hybrid", reports.map(Some)).grant(0, None, Micros(2)).unwrap().backend, 1);
    let mut router = heard("hybrid", reports.map(Some));
    // 40 more there, and it is a tenth over too.
    assert_eq!(deal(&mut router, 3, 40, Micros(2)), [0, 40, 0]);
}

#[test]
fn hybrid_draws_by_room() {
    split("hybrid", [Some(capacity(10.0, 20.0)), Some(capacity(50.0, 80.0)), Some(capacity(9.0, 8.0))], [1.0, 3.0, 0.0]);
    split("hybrid", [None, None], [1.0, 1.0]);
}

#[test]
fn balancers_that_share_do_not_spend_more_than_there_is() {
    // 40 left in each of four.
    let spent = |balancers: usize, share: bool, sessions: u64| {
        let mut router = Router::new(RouterConfig { balancers, share, ..config("hybrid", 4) });
        (0..4).for_each(|backend| hear(&mut router, backend, capacity(80.0, 120.0)));
        deal(&mut router, 4, sessions, Micros(2))
    };
    assert_eq!(spent(1, false, 160), [40; 4]);
    assert_eq!(spent(4, true, 160), [40; 4]);
    // Each believes that it has all of it, and is right until the fourfold is spent.
    assert_eq!(spent(4, false, 640), [160; 4]);
}

/// Every backend had one session that took so many milliseconds to start.
fn started<const N: usize>(policy: &str, took: [u64; N], reports: [Option<Report>; N]) -> Router {
    let mut router = heard(policy, reports);
    for (backend, ms) in took.into_iter().enumerate().filter(|(_, ms)| *ms > 0) {
        let grant = Grant { backend, balancer: 0, at: Micros(1), report_age: None };
        router.accepted(grant, Duration::from_millis(ms));
    }
    router
}

#[test]
fn prequal_takes_the_fastest_that_is_not_hot() {
    let active = [9.0, 1.0, 2.0, 3.0].map(|active| Some(sessions(active)));
    let pick = |took, not| started("prequal", took, active).grant(0, not, Micros(2)).unwrap().backend;
    assert_eq!(pick([1, 30, 20, 10], None), 3, "the fastest has too many sessions");
    assert_eq!(pick([1, 30, 20, 10], Some(3)), 2);
    assert_eq!(pick([1, 30, 0, 10], None), 2, "nobody knows how fast that is");
    // As long as latency does not grow with load, the fastest two outdo each other in turn.
    let mut router = started("prequal", [1, 30, 20, 10], [0.0; 4].map(|active| Some(sessions(active))));
    assert_eq!(deal(&mut router, 4, 400, Micros(2)), [200, 0, 0, 200]);
    let mut router = started("prequal", [10; 4], [0.0; 4].map(|active| Some(sessions(active))));
    assert_eq!(deal(&mut router, 4, 400, Micros(2)), [100; 4], "of the equally fast, the one with fewer sessions");
}

#[test]
fn the_pool_of_prequal_is_any_sixteen() {
    // Equals in everything: whoever is first in the pool has it.
    for backends in [2, 5, 16, 17, 40] {
        let counts = deal_short(&mut router("prequal", backends), backends, 20_000, Micros(1));
        let (got, want) = (counts.iter().map(|count| *count as f64 / 20_000.0), 1.0 / backends as f64);
        got.for_each(|share| near(share, want, 6.0 * (want / 20_000.0).sqrt()));
        // The one that is fast has it as often as it is in the pool, and never when it is not.
        let mut router = router("prequal", backends);
        (0..backends).for_each(|backend| {
            let grant = Grant { backend, balancer: 0, at: Micros(1), report_age: None };
            router.accepted(grant, Duration::from_millis(if backend == 1 { 10 } else { 20 }));
        });
        let counts = deal_short(&mut router, backends, 20_000, Micros(1));
        near(counts[1] as f64 / 20_000.0, (16.0 / backends as f64).min(1.0), 0.02);
    }
}

#[test]
fn one_minus_load_is_random_by_what_is_left_below_the_threshold() {
    split("one_minus_load", [Some(load(0.1)), Some(load(0.7)), Some(load(0.75)), Some(load(0.76))], [0.9, 0.3, 0.25, 0.0]);
    split("one_minus_load", [Some(load(0.8)), Some(load(0.9)), Some(load(1.5))], [2.0, 1.0, 0.0]);
    split("one_minus_load", [Some(load(1.2)), Some(load(1.2))], [1.0, 1.0]);
}
