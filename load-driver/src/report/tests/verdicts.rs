//! Which exit code a run ends with, and why.

use super::*;

/// k6 2804: the exit code follows from the table, whatever combination holds.
#[test]
fn the_worst_reason_names_the_exit_code() {
    let everything = bad();
    assert_eq!(everything.exit.code, 98);
    let reasons: Vec<u8> = everything.exit.reasons.iter().map(|r| r.code()).collect();
    assert_eq!(reasons, [98, 97, 96, 99, 105]);
    let (registry, ledger) = recorded();
    let funnels = funnels(ledger);
    let code = |change: &dyn Fn(&mut Known), reasons: &[Exit]| {
        let mut known = known(&registry);
        change(&mut known);
        summary(&registry, &funnels, known, reasons).exit.code
    };
    assert_eq!(code(&|_| {}, &[]), 0);
    assert_eq!(code(&|k| k.counters.status = CountersStatus::Disagree, &[Exit::Interrupted]), 98);
    assert_eq!(code(&|k| k.counters.status = CountersStatus::Unverified, &[]), 98, "no proof is no pass");
    assert_eq!(code(&|k| k.counters.findings.push(FindingRow::default()), &[]), 98, "a finding is never overlooked");
    assert_eq!(code(&|k| k.generator.saturation.saturated = true, &[Exit::Interrupted]), 97);
    assert_eq!(code(&|k| k.workers_lost = 1, &[]), 96);
    assert_eq!(code(&|k| k.irregular.push("session 1 was scheduled twice".into()), &[]), 109);
    assert_eq!(code(&|k| k.thresholds = judged(&registry, &funnels, &[("barge_in_stop", "max<1")]), &[Exit::Interrupted]), 99);
    assert_eq!(code(&|_| {}, &[Exit::Interrupted]), 105);
}

#[test]
fn a_run_that_established_nothing_does_not_pass() {
    let registry = Registry::new(START, labels());
    let mut ledger = ledger();
    session(&mut ledger, 1, 0, Some(LedgerEvent::Failed { cause: FailureCause::ConnectionRefused }));
    assert_eq!(summary(&registry, &funnels(ledger), Known::default(), &[]).exit.code, 106);
}

/// Two scenarios of one session each, and what was counted in the first.
fn verdict_of(ends: [LedgerEvent; 2], counts: &[(Counter, u64)], expect: Option<Expect>) -> (u8, Option<String>) {
    let mut labels = labels();
    labels[0].expect = expect;
    let mut registry = Registry::new(START, labels);
    let mut recorder = ShardRecorder::new(2);
    for (counter, n) in counts {
        recorder.count(0, *counter, *n);
    }
    let scenarios = recorder.take();
    let to_us = START + 1_000_000;
    registry.add(IntervalReport { shard: 0, from_us: START, to_us, active: 1, speaking: 0, tasks: 0, warmup: false, scenarios });
    registry.finish();
    let mut ledger = ledger();
    for (index, end) in (0u8..).zip(ends) {
        session(&mut ledger, index.into(), index.into(), Some(end));
    }
    let summary = summary(&registry, &funnels(ledger), Known::default(), &[]);
    let why = summary.invariants.iter().find(|i| i.name == build::WORKS && i.holds == Some(false)).map(|i| i.detail.clone());
    (summary.exit.code, why)
}

#[test]
fn a_run_in_which_nothing_worked_does_not_pass() {
    let ends = |finish| LedgerEvent::Ended { finish };
    let (lost, cut) = (|| ends(Finish::Lost(FailureCause::Eof)), || ends(Finish::Forced(EndKind::TcpRst)));
    let says = |text: &str| (106, Some(text.to_owned()));
    let good = (0, None);
    assert_eq!(verdict_of([lost(), lost()], &[], None), says("every session that was accepted failed: 2"));
    assert_eq!(verdict_of([lost(), completed()], &[], None), good, "one of two is for a threshold to judge");
    let turns = |missed, answered| {
        let turns = 4;
        vec![(Counter::Turns, turns), (Counter::TurnsMissed, missed), (Counter::TurnsAnswered, answered)]
    };
    let not_one = says("4 turns were due, and not one was answered");
    assert_eq!(verdict_of([completed(), completed()], &turns(4, 0), None), not_one);
    assert_eq!(verdict_of([completed(), completed()], &turns(1, 0), None), not_one, "others were cut");
    assert_eq!(verdict_of([completed(), completed()], &turns(3, 1), None), good);
    assert_eq!(verdict_of([lost(), cut()], &turns(0, 0), None), not_one, "one failed, the other was cut in its turn");
    // The plan cut them all before an answer could come, or wants what it sees.
    assert_eq!(verdict_of([cut(), cut()], &turns(0, 0), None), good);
    let timed_out = ends(Finish::ByServer(Outcome::TimedOut));
    assert_eq!(verdict_of([timed_out, completed()], &turns(4, 0), Some(Expect::TimedOut)).1, None);
}

/// The last words of the terminal.
#[test]
fn an_unusable_target_is_told_as_it_was() {
    let mut summary = bad();
    summary.exit.reasons = vec![Exit::TargetUnusable];
    let mut last = |established: u64, detail: &str, cause: Option<&str>| {
        summary.funnel.established = established;
        summary.invariants = vec![summary::Invariant { name: build::WORKS.into(), holds: Some(false), detail: detail.into() }];
        summary.errors = cause.map(|cause| (cause.to_owned(), 2)).into_iter().collect();
        let text = terminal::render(&summary, Style::default());
        text.lines().last().unwrap_or_default().trim().to_owned()
    };
    assert_eq!(last(0, "no session was accepted", Some("x")), "target unusable: no session began, most for x");
    let failed = "every session that was accepted failed: 2";
    assert_eq!(last(2, failed, Some("x")), format!("target unusable: {failed}; of all sessions that failed most for x"));
    let silent = "4 turns were due, and not one was answered";
    assert_eq!(last(2, silent, None), format!("target unusable: {silent}"));
    let hint = last(0, "no session was accepted", Some("connection_refused"));
    assert!(hint.ends_with("most for connection_refused: nobody listens there; check host and port"), "{hint}");
}

#[test]
fn sessions_that_the_backend_ended_early_are_shown() {
    let (mut registry, ledger) = recorded();
    let mut recorder = ShardRecorder::new(2);
    recorder.count(0, Counter::SessionsCutShort, 3);
    let (from_us, to_us) = (START + 10_000_000, START + 11_000_000);
    registry.add(IntervalReport { shard: 0, from_us, to_us, active: 1, speaking: 0, tasks: 0, warmup: false, scenarios: recorder.take() });
    registry.finish();
    let funnels = funnels(ledger);
    let thresholds = judged(&registry, &funnels, &[("sessions_cut_short", "count==0")]);
    let summary = summary(&registry, &funnels, Known { thresholds, ..known(&registry) }, &[]);
    assert_eq!(summary.exit.code, 99);
    let shown = terminal::render(&summary, Style::default());
    assert!(shown.lines().any(|line| line.contains("ended early by the backend") && line.contains(" 3 ")), "{shown}");
}

#[test]
fn a_session_that_is_never_over_is_a_fault_unless_the_run_was_cut_short() {
    let registry = Registry::new(START, labels());
    let mut ledger = ledger();
    session(&mut ledger, 1, 0, None);
    let funnels = funnels(ledger);
    assert_eq!(summary(&registry, &funnels, Known::default(), &[]).exit.code, 109);
    let cut = Known { stopped_early: Some("interrupted twice".into()), ..Known::default() };
    assert_eq!(summary(&registry, &funnels, cut, &[Exit::Interrupted]).exit.code, 105);
}
