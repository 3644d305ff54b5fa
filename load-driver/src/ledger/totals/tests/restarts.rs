//! Processes that go, and numbers that fall though none did.

use super::*;

#[test]
fn a_restart_is_told_apart_from_a_loss() {
    let story = |boots: bool, killed: bool| {
        let mut story = Story::of(Shows { started: true, boot: boots, ..Shows::default() });
        story.counts.started = Some(50);
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.counts.started = Some(60);
        story.pass(3_000, 10, 0);
        if killed {
            story.ledger.backend_killed(0, "1", T0 + (story.now + 10) * MS);
        }
        story.now += 50;
        story.end(0..10);
        story.counts.started = Some(0);
        if boots {
            story.boot = "2";
        }
        story.pass(1_000, 0, 0);
        story.begin(10..14);
        story.counts.started = Some(4);
        story.pass(3_000, 4, 0);
        story.end(10..14);
        story.pass(15_000, 0, 0);
        story.close()
    };
    unverified(&story(true, false), "another process answers");
    // One and the same name, and a number that only grows fell: whatever it is, it is no restart.
    let reset = story(false, false);
    assert_eq!(found(&reset), [(DefectName::CounterReset, 1)], "{reset:#?}");
    assert!(reset.findings[0].evidence.contains("in one and the same process"), "{:?}", reset.findings);
    let planned = story(true, true);
    assert_eq!(found(&planned), [], "{planned:#?}");
    assert!(planned.notes.iter().any(|note| note.contains("10 sessions are written off")), "{:?}", planned.notes);
}

#[test]
fn without_a_name_of_the_process_a_fall_is_a_restart() {
    let mut story = Story::of(Shows { started: true, ..Shows::default() });
    story.nameless = true;
    story.counts.started = Some(50);
    story.pass(1_000, 0, 0);
    story.begin(0..10);
    story.counts.started = Some(60);
    story.pass(3_000, 10, 0);
    story.end(0..10);
    story.counts.started = Some(0);
    story.pass(15_000, 0, 0);
    unverified(&story.close(), "`started`, which only grows, went from 60 down to 0, so the backend was started anew");
}

#[test]
fn a_sum_of_which_a_part_began_anew_proves_nothing() {
    let mut config = LedgerConfig::new("run", T0, vec![BackendConfig { watched: false, fresh: false }; 2]);
    config.totals = vec![TotalsConfig { name: "all backends".to_owned(), backend: None, age_us: 0, shows: everything() }];
    let mut story = Story::of(Shows::default());
    story.ledger = Ledger::new(config);
    story.ledger.open(SOURCE, T0);
    story.pass(1_000, 0, 0);
    story.begin(0..10);
    story.pass(3_000, 10, 0);
    story.boot = "2";
    story.pass(3_000, 4, 0);
    story.end(0..10);
    story.pass(15_000, 0, 0);
    unverified(&story.close(), "behind the sum began anew");
}

/// Numbers fall under no name of a process: what the sessions do tells what it was.
#[test]
fn a_fall_is_a_restart_only_where_it_can_be_one() {
    let shows = || Shows { started: true, ..Shows::default() };
    // Sessions that live on over their connections; sessions that broke, and a number that began anew; one that did not.
    let story = |live: bool, after: u64| {
        let mut story = Story::of(shows());
        story.nameless = true;
        story.counts.started = Some(50);
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.counts.started = Some(60);
        story.pass(3_000, 10, 0);
        if !live {
            story.end(0..10);
        }
        story.counts.started = Some(after);
        story.pass(6_000, if live { 10 } else { 0 }, 0);
        if live {
            story.end(0..10);
        }
        story.pass(15_000, 0, 0);
        story.close()
    };
    let reset = story(true, 0);
    assert_eq!(found(&reset), [(DefectName::CounterReset, 1)], "{reset:#?}");
    assert!(reset.findings[0].evidence.contains("10 sessions from before went on"), "{:?}", reset.findings);
    unverified(&story(false, 0), "was started anew (most likely");
    let reset = story(false, 40);
    assert_eq!(found(&reset), [(DefectName::CounterReset, 1)], "{reset:#?}");
    assert_eq!(found(&story(true, 60)), []);
}

/// Both forget what they count; of the second the driver knows that nobody can have left.
#[test]
fn a_gauge_that_is_reset_under_living_sessions_is_false_capacity_too() {
    let mut story = Story::of(Shows { started: true, ..Shows::default() });
    story.nameless = true;
    story.counts.started = Some(0);
    story.pass(1_000, 0, 0);
    story.begin(0..10);
    story.counts.started = Some(10);
    story.pass(3_000, 10, 0);
    story.counts.started = Some(0);
    story.pass(6_000, 0, 0);
    story.end(0..10);
    story.pass(15_000, 0, 0);
    let verdict = story.close();
    assert_eq!(found(&verdict), [(DefectName::FalseCapacity, 10), (DefectName::CounterReset, 1)], "{verdict:#?}");
    let row = &verdict.drift[0];
    assert_eq!((row.most, row.least, row.lasts), (0, -10, false), "{row:?}");
    assert!(row.false_capacity_seconds > 30.0 && row.ghost_seconds == 0.0, "{row:?}");
}

/// A process that is killed in the end, for good, does not take along what its numbers had shown.
#[test]
fn what_was_wrong_before_a_last_kill_stays_wrong() {
    let story = |active: i64, ended: u64| {
        let mut story = Story::of(everything());
        (story.counts.started, story.counts.ended) = (Some(0), Some(0));
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.counts.started = Some(10);
        story.pass(3_000, 10, 0);
        story.end(0..5);
        story.counts.ended = Some(ended);
        story.pass(6_000, active, 0);
        story.ledger.backend_killed(0, "1", T0 + (story.now + 10) * MS);
        story.now += 50;
        story.end_as(5..10, Finish::Lost(FailureCause::Reset));
        for _ in 0..100 {
            story.now += 100;
            story.ledger.entries(SOURCE, Vec::new(), T0 + story.now * MS);
            story.ledger.totals_gap(0, T0 + story.now * MS, "refused");
        }
        found(&story.close())
    };
    assert_eq!(story(5, 5), []);
    assert_eq!(story(2, 5), [(DefectName::FalseCapacity, 3)]);
    assert_eq!(story(9, 1), [(DefectName::LateDecrement, 4)]);
    assert_eq!(story(5, 0), [(DefectName::Miscounted, 5)]);
}

/// What a process had counted under a wrong outcome goes with it, and was wrong all the same: killed for good, or followed by another one.
#[test]
fn outcomes_that_a_killed_process_had_wrong_stay_wrong() {
    let story = |counted_as: Outcome, back: bool| {
        let mut story = Story::from_zero();
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.counts.started = Some(10);
        story.pass(3_000, 10, 0);
        story.end_as(0..4, Finish::Goodbye(Outcome::Completed));
        story.has_ended(counted_as, 4);
        story.pass(3_000, 6, 0);
        // Some end in order right before the kill: no look can have shown that.
        story.end_as(4..6, Finish::Goodbye(Outcome::Completed));
        story.ledger.backend_killed(0, "1", T0 + (story.now + 10) * MS);
        story.now += 50;
        story.end_as(6..10, Finish::Lost(FailureCause::Reset));
        if back {
            story.boot = "2";
            (story.counts.started, story.counts.ended) = (Some(0), Some(0));
            story.counts.outcomes = Outcome::ALL.map(|outcome| (outcome, 0)).into();
            story.pass(15_000, 0, 0);
        } else {
            for _ in 0..100 {
                story.now += 100;
                story.ledger.entries(SOURCE, Vec::new(), T0 + story.now * MS);
                story.ledger.totals_gap(0, T0 + story.now * MS, "refused");
            }
        }
        found(&story.close())
    };
    for back in [true, false] {
        assert_eq!(story(Outcome::Completed, back), [], "{back}");
        assert_eq!(story(Outcome::Cancelled, back), [(DefectName::WrongOutcome, 4)], "{back}");
    }
}
