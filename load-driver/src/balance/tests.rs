use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use proto::time::Micros;

use super::*;
use crate::report::Style;

fn config(backends: usize) -> BookConfig {
    BookConfig { backends, target: 0.8, report_interval: Duration::from_secs(1), disturbances: Vec::new() }
}

fn book(backends: usize) -> Book {
    Book::new(config(backends))
}

fn ms(ms: u64) -> Micros {
    Micros::from_millis(ms)
}

fn sight(sessions: f64) -> Sight {
    Sight { sessions, reported: sessions, utilization: f64::NAN, up: true, ..Sight::default() }
}

fn capped(sessions: f64, max: f64) -> Sight {
    Sight { max_sessions: Some(max), ..sight(sessions) }
}

fn grant(at: Micros, backend: usize) -> Decision {
    Decision { at, backend, overloaded: false, avoidable: false, report_age: None }
}

#[track_caller]
fn close(got: f64, want: f64) {
    assert!((got - want).abs() < 1e-9, "{got}, not {want}");
}

#[test]
fn figures_by_hand() {
    let mut book = book(3);
    // Mean 4, variance (4 + 0 + 4) / 3.
    book.see(ms(0), &[sight(2.0), sight(4.0), sight(6.0)]);
    let spread = book.close(ms(1_000), 0).sessions.unwrap();
    let variance: f64 = 8.0 / 3.0 / 16.0;
    close(spread.mean, 4.0);
    close(spread.cv, variance.sqrt());
    close(spread.jain, 144.0 / (3.0 * 56.0));
    close(spread.jain, 1.0 / (1.0 + variance));
    close(spread.peak_to_mean, 1.5);
    close(spread.min_to_max, 1.0 / 3.0);
    close(spread.peak, 6.0);
}

#[test]
fn a_look_counts_for_as_long_as_it_holds() {
    let mut book = book(2);
    // One second even, three seconds all on one: uneven looks weigh as long as they are true, however often somebody looks.
    for at in [0, 10, 500, 999] {
        book.see(ms(at), &[sight(5.0), sight(5.0)]);
    }
    book.see(ms(1_000), &[sight(10.0), sight(0.0)]);
    let spread = book.close(ms(4_000), 0).sessions.unwrap();
    close(spread.mean, 5.0);
    close(spread.cv, 0.75);
    close(spread.jain, 0.25 + 0.75 * 0.5);
    close(spread.peak_to_mean, 0.25 + 0.75 * 2.0);
    close(spread.min_to_max, 0.25);
    close(spread.peak, 10.0);
}

#[test]
fn a_time_without_sessions_is_even_and_has_no_ratios() {
    let mut book = book(2);
    book.see(ms(0), &[sight(3.0), sight(1.0)]);
    book.see(ms(1_000), &[sight(0.0), sight(0.0)]);
    let spread = book.close(ms(2_000), 0).sessions.unwrap();
    close(spread.mean, 1.0);
    close(spread.cv, 0.25);
    close(spread.peak_to_mean, 1.5);
    close(spread.min_to_max, 1.0 / 3.0);
}

#[test]
fn sessions_are_held_against_caps_where_every_backend_has_one() {
    let mut book_of_capped = book(2);
    book_of_capped.see(ms(0), &[capped(10.0, 100.0), capped(4.0, 40.0)]);
    let spread = book_of_capped.close(ms(1_000), 0).sessions.unwrap();
    close(spread.mean, 0.1);
    close(spread.jain, 1.0);
    let mut mixed = book(2);
    mixed.see(ms(0), &[capped(10.0, 100.0), sight(4.0)]);
    close(mixed.close(ms(1_000), 0).sessions.unwrap().mean, 7.0);
}

#[test]
fn backends_that_are_down_or_say_nothing_are_left_out() {
    let mut book = book(3);
    let busy = |utilization| Sight { utilization, ..sight(1.0) };
    book.see(ms(0), &[busy(0.2), busy(0.6), Sight { up: false, ..busy(5.0) }]);
    let balance = book.close(ms(1_000), 0);
    close(balance.utilization.unwrap().mean, 0.4);
    close(balance.utilization.unwrap().peak, 0.6);
    let mut silent = super::Book::new(config(2));
    silent.see(ms(0), &[sight(1.0), sight(1.0)]);
    assert_eq!(silent.close(ms(1_000), 0).utilization, None, "absent, not 0");
}

#[test]
fn overload_is_a_share_of_the_decisions_that_can_be_judged() {
    let mut book = book(3);
    let known = Sight { utilization: 0.9, ..sight(1.0) };
    book.see(ms(0), &[known, capped(1.0, 1.0), sight(1.0)]);
    for n in 0..4 {
        book.decide(Decision { overloaded: n < 2, avoidable: n < 1, ..grant(ms(n), 0) });
        book.decide(Decision { overloaded: n < 1, avoidable: true, ..grant(ms(n), 1) });
        // Whether this one is overloaded is anybody's guess.
        book.decide(grant(ms(n), 2));
    }
    let balance = book.close(ms(10), 0);
    assert_eq!((balance.assignments, balance.assigned.as_slice()), (12, [4, 4, 4].as_slice()));
    close(balance.overload_rate.unwrap(), 3.0 / 8.0);
    // Not avoidable unless overloaded.
    close(balance.avoidable_rate.unwrap(), 2.0 / 8.0);
    close(figure(&balance, "share_2").unwrap(), 1.0 / 3.0);
    assert_eq!((figure(&balance, "share_3"), figure(&balance, "share_")), (None, None));
    let mut blind = super::Book::new(config(1));
    blind.see(ms(0), &[sight(0.0)]);
    blind.decide(grant(ms(1), 0));
    assert_eq!(blind.close(ms(2), 0).overload_rate, None);
}

#[test]
fn the_herd_is_held_against_what_was_said_before_it() {
    let mut book = book(2);
    let said = |rate| Sight { rate: Some(rate), ..sight(0.0) };
    book.see(ms(0), &[said(4.0), said(2.0)]);
    for n in 0..3 {
        book.decide(grant(ms(100 + n), 1));
    }
    // What is said within the window counts from the next one on.
    book.see(ms(500), &[said(100.0), said(100.0)]);
    for n in 0..3 {
        book.decide(grant(ms(600 + n), 1));
    }
    book.decide(grant(ms(700), 0));
    // A new window: the six do not go on.
    for n in 0..5 {
        book.decide(grant(ms(1_000 + n), 1));
    }
    let balance = book.close(ms(2_000), 0);
    assert_eq!(balance.herd, 6);
    close(balance.herd_ratio.unwrap(), 3.0);
}

#[test]
fn one_that_said_it_takes_nothing_counts_as_if_it_took_one() {
    let mut book = book(1);
    book.see(ms(0), &[Sight { rate: Some(0.0), ..sight(0.0) }]);
    book.decide(grant(ms(1), 0));
    book.decide(grant(ms(2), 0));
    close(book.close(ms(3), 0).herd_ratio.unwrap(), 2.0);
    let mut silent = super::Book::new(config(1));
    silent.decide(grant(ms(1), 0));
    let balance = silent.close(ms(3), 0);
    assert_eq!((balance.herd, balance.herd_ratio), (1, None));
}

#[test]
fn counters_are_wrong_with_a_sign() {
    let mut book = book(2);
    book.see(ms(0), &[Sight { reported: 4.0, ..sight(1.0) }, sight(1.0)]);
    book.see(ms(1_000), &[Sight { reported: 0.0, ..sight(2.0) }, Sight { up: false, reported: 9.0, ..sight(0.0) }]);
    let balance = book.close(ms(2_000), 7);
    // 3 and 0 for one second, -2 for one second: three backend-seconds.
    close(balance.counter_error_mean.unwrap(), 1.0 / 3.0);
    close(balance.counter_error_max.unwrap(), 3.0);
    close(balance.counter_error_min.unwrap(), -2.0);
    assert_eq!(balance.ghosts_left, 7);
}

fn recovery(disturbances: &[u64], looks: &[(u64, &[f64])], end: u64) -> (Option<f64>, u64) {
    let backends = looks.iter().map(|(_, fleet)| fleet.len()).max().unwrap_or(0);
    let mut book = Book::new(BookConfig { disturbances: disturbances.iter().map(|at| ms(*at)).collect(), ..config(backends) });
    for (at, fleet) in looks {
        // A negative number of sessions: down.
        let fleet: Vec<Sight> = fleet.iter().map(|n| Sight { up: *n >= 0.0, ..sight(n.max(0.0)) }).collect();
        book.see(ms(*at), &fleet);
    }
    let balance = book.close(ms(end), 0);
    (balance.recovery_s, balance.unrecovered)
}

#[test]
fn recovery_is_from_the_disturbance_to_the_first_even_look() {
    let scale_up: &[(u64, &[f64])] = &[
        (0, &[5.0, 5.0, -1.0]),
        (10_000, &[5.0, 5.0, 0.0]),
        (12_000, &[5.0, 5.0, 2.0]),
        (13_500, &[5.0, 5.0, 5.0]),
        (20_000, &[5.0, 5.0, 5.0]),
    ];
    assert_eq!(recovery(&[10_000], scale_up, 21_000), (Some(3.5), 0));
    assert_eq!(recovery(&[9_500], scale_up, 21_000), (Some(4.0), 0));
    assert_eq!(recovery(&[10_000], &scale_up[..3], 13_000), (None, 1), "it never was");
    assert_eq!(recovery(&[], scale_up, 21_000), (None, 0));
    assert_eq!(recovery(&[30_000], scale_up, 21_000), (None, 0), "the run was over before");
    assert_eq!(recovery(&[20_500], scale_up, 21_000), (None, 1), "nobody looked");
}

#[test]
fn a_kill_is_felt_when_the_backend_is_back() {
    let kill: &[(u64, &[f64])] =
        &[(0, &[5.0, 5.0]), (1_000, &[5.0, -1.0]), (3_000, &[5.0, 0.0]), (4_000, &[5.0, 2.0]), (7_000, &[5.0, 5.0])];
    assert_eq!(recovery(&[1_000], kill, 8_000), (Some(6.0), 0));
}

#[test]
fn what_never_upsets_the_balance_takes_no_time_and_the_end_of_a_run_upsets_nothing() {
    let looks: &[(u64, &[f64])] = &[(0, &[5.0, 5.0]), (1_000, &[5.0, 5.0]), (9_000, &[3.0, 0.0]), (9_500, &[0.0, 0.0])];
    assert_eq!(recovery(&[1_000], looks, 10_000), (Some(0.0), 0));
    // An empty fleet has not recovered: it only has nothing to balance any more.
    let looks: &[(u64, &[f64])] = &[(0, &[5.0, 5.0]), (1_000, &[5.0, 0.0]), (9_500, &[0.0, 0.0])];
    assert_eq!(recovery(&[1_000], looks, 10_000), (None, 1));
}

#[test]
fn nothing_in_gives_no_figure_that_is_not_there() {
    for backends in [0, 1, 3] {
        let mut empty = book(backends);
        empty.see(ms(0), &[]);
        let balance = empty.close(ms(5), 0);
        let json = serde_json::to_string(&balance).unwrap();
        assert_eq!(serde_json::from_str::<Balance>(&json).unwrap(), balance);
        let known: Vec<&str> = METRICS.iter().filter(|m| (m.of)(&balance).is_some()).map(|m| m.name).collect();
        assert_eq!(known, ["assignments", "rejected", "dropped", "retried", "ghosts_left", "late_ends", "unrecovered"]);
    }
}

#[test]
fn latencies_troubles_and_ages_are_kept() {
    let mut book = book(1);
    for n in 1..=100 {
        book.startup(Duration::from_millis(n));
        book.first_stream(Duration::from_millis(2 * n));
        book.decide(Decision { report_age: Some(Duration::from_millis(n * 10)), ..grant(ms(n), 0) });
    }
    book.trouble(Trouble::Rejected, "rejected");
    book.trouble(Trouble::Rejected, "rejected");
    book.trouble(Trouble::Dropped, "reset");
    book.trouble(Trouble::Retried, "draining");
    book.late_end();
    let balance = book.close(ms(200), 0);
    let near = |got: Option<f64>, want: f64| (got.unwrap() - want).abs() <= want / 500.0;
    assert!(near(balance.startup_p50_ms, 50.0) && near(balance.startup_p95_ms, 95.0) && near(balance.startup_p99_ms, 99.0));
    assert!(near(balance.first_stream_p50_ms, 100.0) && near(balance.first_stream_p99_ms, 198.0));
    assert!(near(balance.report_age_p50_ms, 500.0) && near(balance.report_age_p99_ms, 990.0));
    assert_eq!(balance.rejected, BTreeMap::from([("rejected".to_owned(), 2)]));
    assert_eq!(["rejected", "dropped", "retried", "late_ends"].map(|name| figure(&balance, name)), [2.0, 1.0, 1.0, 1.0].map(Some));
}

proptest! {
    #[test]
    fn figures_stay_within_their_bounds_and_do_not_depend_on_the_order_of_backends(
        looks in prop::collection::vec((0..5_000_u64, prop::collection::vec((0.0..1e6_f64, 0.0..3.0_f64, any::<bool>()), 4)), 1..20),
        turn in 0..4_usize,
        decisions in prop::collection::vec((0..4_usize, any::<bool>(), any::<bool>()), 0..50),
    ) {
        let run = |turn: usize| {
            let mut book = book(4);
            let mut at = 0;
            for (after, fleet) in &looks {
                at += after;
                let mut fleet: Vec<Sight> =
                    fleet.iter().map(|(n, u, up)| Sight { utilization: *u, up: *up, ..sight(*n) }).collect();
                fleet.rotate_left(turn);
                book.see(ms(at), &fleet);
            }
            for (backend, overloaded, avoidable) in &decisions {
                let backend = (backend + 4 - turn) % 4;
                book.decide(Decision { overloaded: *overloaded, avoidable: *avoidable, ..grant(ms(at), backend) });
            }
            book.close(ms(at + 10), 0)
        };
        let (straight, turned) = (run(0), run(turn));
        for (a, b) in [(straight.sessions, turned.sessions), (straight.utilization, turned.utilization)] {
            let (Some(a), Some(b)) = (a, b) else { prop_assert_eq!(a.is_some(), b.is_some()); continue };
            prop_assert!((0.25..=1.0).contains(&a.jain), "{a:?}");
            prop_assert!(a.mean <= a.peak * (1.0 + 1e-12) && a.peak_to_mean >= 1.0 && (0.0..=1.0).contains(&a.min_to_max), "{a:?}");
            for (x, y) in [(a.mean, b.mean), (a.cv, b.cv), (a.jain, b.jain), (a.peak_to_mean, b.peak_to_mean), (a.min_to_max, b.min_to_max), (a.peak, b.peak)] {
                prop_assert!(x.is_finite() && (x - y).abs() <= 1e-9 * x.abs().max(1.0), "{x} {y}");
            }
        }
        for rate in [straight.overload_rate, straight.avoidable_rate].into_iter().flatten() {
            prop_assert!((0.0..=1.0).contains(&rate));
        }
        prop_assert!(straight.avoidable_rate <= straight.overload_rate);
        prop_assert_eq!(straight.overload_rate, turned.overload_rate);
        prop_assert_eq!(straight.herd, turned.herd);
    }

    /// Whatever a profile says, it is read or refused.
    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z_.<>=!*0-9 é]{0,40}") {
        let _ = Expectation::parse(&text);
    }
}

fn with(overload_rate: f64, startup_p99_ms: f64) -> Balance {
    Balance {
        overload_rate: Some(overload_rate),
        startup_p99_ms: Some(startup_p99_ms),
        assignments: 4,
        assigned: vec![1, 3],
        ..Balance::default()
    }
}

fn two() -> BTreeMap<String, Balance> {
    BTreeMap::from([("hybrid".to_owned(), with(0.01, 20.0)), ("round_robin".to_owned(), with(0.2, 45.0))])
}

#[test]
fn expectations_are_read_and_judged() {
    for (text, holds) in [
        ("hybrid.overload_rate < round_robin.overload_rate", Some(true)),
        ("hybrid.overload_rate<0.01", Some(false)),
        ("hybrid.overload_rate <= 0.01", Some(true)),
        ("hybrid.startup_p99_ms < 0.5 * round_robin.startup_p99_ms", Some(true)),
        ("round_robin.startup_p99_ms >= 3*hybrid.startup_p99_ms", Some(false)),
        ("hybrid.share_0 == 2.5e-1", Some(true)),
        ("hybrid.share_0 > -1", Some(true)),
        // What is not there is not met, whatever is asked of it.
        ("hybrid.share_7 < 1", None),
        ("hybrid.recovery_s >= 0", None),
        ("nobody.overload_rate < 1", None),
        ("hybrid.overload_rate < nobody.overload_rate", None),
        ("hybrid.overload_rate < 1e308 * hybrid.startup_p99_ms", None),
    ] {
        let result = Expectation::parse(text).unwrap().judge(&two());
        assert_eq!((result.holds, result.met()), (holds, holds == Some(true)), "{text}: {result:?}");
    }
    assert_eq!(Expectation::parse("a.herd < 2 * b.herd").unwrap().policies(), ["a", "b"]);
    assert_eq!(Expectation::parse("a.herd < 2 * a.herd_ratio").unwrap().policies(), ["a"]);
}

#[test]
fn what_is_wrong_with_an_expectation_is_said_with_what_is_due() {
    for (text, message) in [
        ("hybrid.overload_rate", "one of < <= > >= == is due between two figures"),
        ("hybrid.overload_rate != 1", "`!=` compares nothing here: one of < <= > >= == is due"),
        ("hybrid.overload_rate = 1", "`=` compares nothing here: one of < <= > >= == is due"),
        ("overload_rate < 1", "`overload_rate` is no figure of a policy: POLICY.METRIC is due, such as hybrid.overload_rate"),
        ("hybrid.overload_rat < 1", "there is no figure `overload_rat`: did you mean `overload_rate`?"),
        ("hybrid.herd <", "the right side is missing: a number, POLICY.METRIC, or FACTOR * POLICY.METRIC is due"),
        ("hybrid.herd < x * hybrid.herd", "`x` is no number: FACTOR * POLICY.METRIC is due"),
        ("hybrid.herd < inf", "`inf` is no figure of a policy: POLICY.METRIC is due, such as hybrid.overload_rate"),
        ("hybrid.herd < 1 < 2", "`1 < 2` is no figure of a policy: POLICY.METRIC is due, such as hybrid.overload_rate"),
        ("0.5 < hybrid.herd", "there is no figure `5`: there are sessions_mean, "),
    ] {
        let error = Expectation::parse(text).unwrap_err();
        assert!(error.starts_with(message), "{text}: {error}");
    }
}

#[test]
fn the_table_marks_the_best_and_stays_narrow() {
    let rows: Vec<(String, Balance)> = two().into_iter().collect();
    let shown = table(&rows, &["overload_rate", "startup_p99_ms", "herd", "recovery_s", "no_such_figure"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "               overload  start p99  herd  recov s");
    assert_eq!(lines[1], "  hybrid          1.0%*      20.0*     0        -");
    assert_eq!(lines[2], "  round_robin    20.0%       45.0      0        -");
    assert!(lines[3].contains("* best"), "{shown}");
    let spread = super::Spread { mean: 123.456, cv: 0.123_4, jain: 0.987, peak_to_mean: 1.5, min_to_max: 0.5, peak: 1_234.5 };
    let wide = Balance {
        sessions: Some(spread),
        utilization: Some(spread),
        herd: 123_456,
        herd_ratio: Some(1_234.56),
        recovery_s: Some(1_234.5),
        avoidable_rate: Some(0.123),
        rejected: BTreeMap::from([("rejected".to_owned(), 1_234_567)]),
        first_stream_p99_ms: Some(12_345.6),
        ..with(0.5, 12_345.6)
    };
    let rows = [("remaining_capacity".to_owned(), wide.clone()), ("b".to_owned(), with(0.1, 1.0))];
    let width = table(&rows, SHOWN).lines().map(|line| line.chars().count()).max().unwrap();
    assert!(width <= 140, "{width}\n{}", table(&rows, SHOWN));
    assert_eq!(SHOWN.iter().filter(|name| figure(&wide, name).is_none()).count(), 0, "every column is a figure");
}

#[test]
fn a_comparison_fails_by_what_is_missing() {
    let row = |policy: &str, balance| PolicyRow { policy: policy.to_owned(), balance };
    let expected = ["a.overload_rate < 1", "b.overload_rate < 1"].map(|text| Expectation::parse(text).unwrap());
    let all = Comparison::new("p", 1, vec![row("a", Some(with(0.1, 1.0))), row("b", None)], &expected);
    assert!(!all.met());
    let shown = all.render(Style::default());
    for text in
        ["b: its run has no figures", "✓ a.overload_rate < 1  holds (0.100, 1)", "✗ b.overload_rate < 1  fails: not measured (-, 1)"]
    {
        assert!(shown.contains(text), "no `{text}` in\n{shown}");
    }
    assert!(Comparison::new("p", 1, all.policies.clone(), &expected[..1]).met());
}

/// The schema is published; a change that is not in it is a mistake. `UPDATE_GOLDEN=1` writes it.
#[test]
fn the_published_schema_is_that_of_the_comparison() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/comparison.schema.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, schema()).unwrap();
    }
    assert!(std::fs::read_to_string(path).unwrap() == schema(), "comparison.schema.json is stale: run this test with UPDATE_GOLDEN=1");
}

#[test]
fn every_figure_has_one_name_and_a_short_heading() {
    for (n, measure) in METRICS.iter().enumerate() {
        assert!(METRICS[..n].iter().all(|other| other.name != measure.name && other.head != measure.head), "{}", measure.name);
        assert!(measure.head.chars().count() <= 9 && !measure.about.is_empty(), "{}", measure.name);
    }
    assert!(SHOWN.iter().all(|name| METRICS.iter().any(|measure| measure.name == *name)));
}

#[test]
fn a_million_sessions_cost_little() {
    let mut book = book(1_000);
    let fleet = vec![Sight { max_sessions: Some(100.0), utilization: 0.5, ..sight(10.0) }; 1_000];
    for n in 0..1_000_000_u64 {
        let at = Micros(n * 100);
        if n.is_multiple_of(10_000) {
            book.see(at, &fleet);
        }
        book.decide(Decision { report_age: Some(Duration::from_micros(n % 1_000_000)), ..grant(at, (n % 1_000) as usize) });
        book.startup(Duration::from_micros(n));
    }
    let balance = book.close(Micros(100_000_000), 0);
    assert_eq!((balance.assignments, balance.herd), (1_000_000, 10));
}

#[test]
fn where_nobody_chose_a_backend_that_is_said() {
    let mut balance = Balance { assigned: vec![0, 0], ..Balance::default() };
    assert!(describe(&balance).contains("assigned 0: nobody had to choose a backend\n"), "{}", describe(&balance));
    (balance.assigned, balance.assignments) = (vec![1, 3], 4);
    assert!(describe(&balance).contains("assigned 4: 25.0% 75.0%\n"), "{}", describe(&balance));
}
