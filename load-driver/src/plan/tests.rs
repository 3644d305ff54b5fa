use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::profile::{Source, load};

fn plan(yaml: &str, seed: u64) -> Plan {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.yaml");
    std::fs::write(&file, yaml).unwrap();
    let seed = crate::profile::Override::parse(&format!("seed={seed}")).unwrap();
    let profile = load(&Source::File(file), &[seed]).unwrap_or_else(|error| panic!("{error}"));
    Plan::build(&profile, "cafe0001").unwrap()
}

const MIXED: &str = "
scenarios:
  closed:
    executor: constant-sessions
    sessions: 7
    duration: 20s
    session_length: uniform(5s, 9s)
    end: [{kind: graceful, weight: 3}, {kind: cancel, weight: 1}, {kind: tcp_rst, weight: 0}]
    conversations:
      - weight: 3
        turns:
          - {wait: exponential(1s), say: {synth: 'uniform(300ms, 600ms)'}}
          - {wait: 1s, say: {synth: 300ms}, tool: {name: zebra, takes: 200ms}}
          - {wait: 1s, say: {synth: 300ms}, tool: {name: apple, takes: 200ms}}
          - {wait: 1s, say: {synth: 300ms}, tool: {name: zebra, takes: 100ms}}
      - weight: 1
        turns: [{at: 4s, say: {synth: 300ms}, barge_in: {after: 300ms, say: {synth: 500ms}}}]
  open:
    executor: poisson-arrivals
    rate: 30
    duration: 10s
    startTime: 2s
    conversations: [{turns: [{wait: 1s}]}]
";

/// Who may lose its whole connection has one of its own, and nobody else.
#[test]
fn faults_that_take_a_connection_give_each_session_its_own() {
    let own = |faults: &str| {
        let plan = plan(&format!("{MIXED}faults:\n{faults}"), 1);
        plan.scenarios.iter().map(|scenario| scenario.own_connection).collect::<Vec<_>>()
    };
    // `closed` has ends of its own that take the connection.
    assert_eq!(own("  - {at: 1s, kind: cancel}\n  - {at: 2s, kind: slow_reader, duration: 1s}\n"), [true, false]);
    for kind in ["tcp_rst", "half_open", "race", "reconnect_storm"] {
        assert_eq!(own(&format!("  - {{at: 1s, kind: {kind}, fraction: 0.1}}\n")), [true, true], "{kind}");
    }
    assert_eq!(own("  - {at: 1s, kind: tcp_rst, target: {scenario: closed}}\n"), [true, false]);
}

#[test]
fn who_comes_back_from_a_storm_is_another_session_with_the_same_draws() {
    let session = plan(MIXED, 1).session(0, 3, 2, Micros(5));
    let left = Some(Duration::from_secs(4));
    let again = session.again(Micros(9), left).unwrap();
    assert_eq!((again.start, again.length, again.end, again.conversation), (Micros(9), left, session.end, session.conversation));
    assert!(again.index != session.index && again.client_ref != session.client_ref && again.resumes.is_none());
    assert_eq!(again.turn(0).map(|turn| turn.wait), session.turn(0).map(|turn| turn.wait));
    let times = std::iter::successors(Some(again), |last| last.again(Micros(9), left)).count();
    assert_eq!(times, 63, "and then the lane goes on with its next");
}

const RATIO: &str = "
scenarios:
  talk:
    executor: constant-sessions
    sessions: 40
    duration: 20s
    session_length: 60s
    speaking_ratio: 0.3
    conversations: [{turns: [{say: {synth: 'uniform(1s, 3s)'}}]}]
";

fn describe(plan: &Plan, scenario: usize, lane: u32, iteration: u32) -> String {
    let session = plan.session(scenario, lane, iteration, Micros(5));
    let turns: Vec<_> =
        (0..6).map(|n| format!("{:?}", session.turn(n).map(|t| (t.wait, t.act, t.says.map(|s| s.payload.len()), t.response_ms)))).collect();
    format!("{:?} {:?} {} {} {turns:?}", session.length, session.end, session.conversation, session.client_ref)
}

#[test]
fn one_seed_gives_one_plan_and_another_seed_another() {
    let (a, b, c) = (plan(MIXED, 1), plan(MIXED, 1), plan(MIXED, 2));
    assert_eq!(a.scenarios[1].lanes, b.scenarios[1].lanes);
    assert_ne!(a.scenarios[1].lanes, c.scenarios[1].lanes);
    for lane in 0..7 {
        assert_eq!(describe(&a, 0, lane, 3), describe(&b, 0, lane, 3));
    }
    assert!((0..7).any(|lane| describe(&a, 0, lane, 3) != describe(&c, 0, lane, 3)));
    assert_ne!(describe(&a, 0, 1, 3), describe(&a, 0, 1, 4));
}

#[test]
fn turns_repeat_with_a_length_and_end_without() {
    let plan = plan(MIXED, 1);
    let session = (0..7).map(|lane| plan.session(0, lane, 0, Micros::ZERO)).find(|session| session.conversation == 0).unwrap();
    assert!(session.turn(1_000_000).is_some());
    assert_eq!(session.tools(), ["apple", "zebra"]);
    assert!(matches!(session.turn(5).unwrap().act, Act::Tool { name, .. } if name == "zebra"));
    let once = plan.session(1, 0, 0, Micros::ZERO);
    assert!(once.turn(0).is_some() && once.turn(1).is_none());
    assert!(once.turn(0).unwrap().says.is_none());
}

#[test]
fn a_turn_is_the_same_in_whatever_order_it_is_asked_for() {
    let plan = plan(MIXED, 9);
    let session = plan.session(0, 2, 0, Micros::ZERO);
    let forth: Vec<Wait> = (0..50).map(|n| session.turn(n).unwrap().wait).collect();
    let mut back: Vec<Wait> = (0..50).rev().map(|n| session.turn(n).unwrap().wait).collect();
    back.reverse();
    assert_eq!(forth, back);
}

#[test]
fn weights_are_kept_and_zero_is_never() {
    let plan = plan(MIXED, 5);
    let count = |kind| (0..4_000).filter(|i| plan.session(0, 0, *i, Micros::ZERO).end == kind).count();
    assert!(count(EndKind::Cancel).abs_diff(1_000) < 140, "{}", count(EndKind::Cancel));
    assert_eq!(count(EndKind::TcpRst), 0);
    let second = (0..4_000).filter(|i| plan.session(0, 0, *i, Micros::ZERO).conversation == 1).count();
    assert!(second.abs_diff(1_000) < 140, "{second}");
}

#[test]
fn the_speaking_ratio_fixes_the_cycle() {
    let plan = plan(RATIO, 3);
    let (mut speech, mut time) = (0, Duration::ZERO);
    for lane in 0..40 {
        let session = plan.session(0, lane, 0, Micros::ZERO);
        let first = session.turn(0).unwrap();
        let Wait::After(wait) = first.wait else { panic!("{:?}", first.wait) };
        assert!(wait.as_micros() as f64 <= first.says.unwrap().speech_us() as f64 / 0.3 + 1.0);
        for n in 0..30 {
            speech += session.turn(n).unwrap().says.unwrap().speech_us();
            let Wait::Cycle(cycle) = session.turn(n + 1).unwrap().wait else { panic!() };
            time += cycle;
        }
    }
    let ratio = speech as f64 / time.as_micros() as f64;
    assert!((ratio - 0.3).abs() < 1e-4, "{ratio}");
}

#[test]
fn an_end_that_takes_the_connection_gets_its_own() {
    // `tcp_rst` has no weight here, but who edits the weight should not have to think of it.
    assert!(plan(MIXED, 1).scenarios[0].own_connection);
    assert!(!plan(MIXED, 1).scenarios[1].own_connection);
}

#[test]
fn the_outline_says_how_long_and_how_many() {
    let plan = plan(MIXED, 1);
    let text = Outline(&plan).to_string();
    assert!(text.starts_with("sessions begin for 20.0s, and get up to 30s more to finish: at most 50.0s in all\n"), "{text}");
    assert!(text.contains("places kept filled (closed): 7; sessions at fixed times (open): "), "{text}");
    assert_eq!(plan.scenarios[0].outlook().sessions, None);
    assert_eq!(plan.scenarios[1].outlook().sessions, Some(plan.scenarios[1].lanes.len() as u64));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn the_parts_add_up_to_the_whole(workers in 1usize..9, seed in 0u64..4) {
        let whole = plan(MIXED, seed);
        let parts: Vec<Plan> = (0..workers).map(|worker| whole.split(worker, workers)).collect();
        for (number, scenario) in whole.scenarios.iter().enumerate() {
            let mut all: Vec<Lane> = parts.iter().flat_map(|part| part.scenarios[number].lanes.clone()).collect();
            all.sort_by_key(|lane| lane.number);
            prop_assert_eq!(&all, &scenario.lanes);
            let sizes: BTreeSet<usize> = parts.iter().map(|part| part.scenarios[number].lanes.len()).collect();
            prop_assert!(sizes.last().unwrap() - sizes.first().unwrap() <= 1, "{:?}", sizes);
        }
        for worker in &parts {
            for lane in &worker.scenarios[0].lanes {
                prop_assert_eq!(describe(worker, 0, lane.number, 2), describe(&whole, 0, lane.number, 2));
            }
        }
    }

    #[test]
    fn indices_are_unique(a in (0u16..9, 0u32..2_000_000, 0u32..1_000_000), b in (0u16..9, 0u32..2_000_000, 0u32..1_000_000)) {
        prop_assert_eq!(index(a.0, a.1, a.2) == index(b.0, b.1, b.2), a == b);
    }
}
