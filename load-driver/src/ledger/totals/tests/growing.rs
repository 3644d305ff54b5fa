//! What only grows, held against the sessions.

use super::*;

/// Refusals that the driver knows of may be what was counted as ends; if nothing was subtracted for them, they were counted all the same.
#[test]
fn refusals_are_held_against_what_the_driver_was_refused() {
    let story = |ended: u64, active: i64, rejected: u64| {
        let mut story = Story::of(everything());
        (story.counts.started, story.counts.ended, story.counts.rejected) = (Some(0), Some(0), Some(70));
        story.counts.outcomes = Outcome::ALL.map(|outcome| (outcome, 0)).into();
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.fail(10..15, FailureCause::Rejected);
        story.counts.started = Some(10);
        story.pass(3_000, 10, 0);
        story.end(0..10);
        story.has_ended(Outcome::Cancelled, ended);
        story.counts.rejected = Some(70 + rejected);
        story.pass(15_000, active, 0);
        found(&story.close())
    };
    assert_eq!(story(10, 0, 5), []);
    assert_eq!(story(15, 0, 5), [(DefectName::Miscounted, 5)]);
    assert_eq!(story(15, -5, 5), [(DefectName::FalseCapacity, 5)], "sums do not tell which it was");
    assert_eq!(story(18, 0, 5), [(DefectName::DoubleDecrement, 8)], "more than can have been refusals");
    assert_eq!(story(10, 0, 3), [(DefectName::Miscounted, 2)]);
    assert_eq!(story(10, 0, 35), [(DefectName::Miscounted, 30)]);
}

/// The driver need not know that a session was counted for its end to be missed: the backend says that it began.
#[test]
fn what_the_backend_says_began_must_end() {
    let story = |ended: u64, active: i64| {
        let mut story = Story::over(Dialect::Twilio, None, everything());
        (story.counts.started, story.counts.ended) = (Some(50), Some(48));
        story.counts.outcomes = Outcome::ALL.map(|outcome| (outcome, 0)).into();
        story.pass(1_000, 2, 0);
        story.begin(0..10);
        story.counts.started = Some(60);
        story.pass(600, 12, 0);
        story.end(0..10);
        story.counts.ended = Some(48 + ended);
        story.counts.outcomes.insert(Outcome::Cancelled, ended);
        story.pass(15_000, active, 0);
        found(&story.close())
    };
    assert_eq!(story(10, 2), []);
    assert_eq!(story(7, 2), [(DefectName::Miscounted, 3)]);
    assert_eq!(story(7, 5), [(DefectName::Ghost, 3)]);
}

#[test]
fn ends_tell_a_double_decrement_and_a_wrong_outcome() {
    let story = |cancelled: u64, completed: u64, active: i64, rejected: u64| {
        let mut story = Story::of(everything());
        let zero = Counts {
            started: Some(0),
            ended: Some(0),
            rejected: Some(0),
            outcomes: Outcome::ALL.map(|outcome| (outcome, 0)).into(),
            ..Counts::default()
        };
        story.counts = zero.clone();
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.counts.started = Some(10);
        story.pass(3_000, 10, 0);
        story.end(0..10);
        story.counts.ended = Some(cancelled + completed);
        story.counts.outcomes.insert(Outcome::Cancelled, cancelled);
        story.counts.outcomes.insert(Outcome::Completed, completed);
        story.counts.rejected = Some(rejected);
        story.pass(15_000, active, 0);
        story.close()
    };
    assert_eq!(found(&story(10, 0, 0, 0)), []);
    assert_eq!(found(&story(13, 0, -3, 0)), [(DefectName::DoubleDecrement, 3)]);
    let said = [(DefectName::DoubleDecrement, 3), (DefectName::Miscounted, 5)];
    assert_eq!(found(&story(13, 0, -3, 5)), said, "nobody was refused, whatever it says");
    assert_eq!(found(&story(13, 0, 0, 0)), [(DefectName::DoubleDecrement, 3)]);
    assert_eq!(found(&story(7, 0, 0, 0)), [(DefectName::Miscounted, 3)], "they are counted nowhere");
    assert_eq!(found(&story(0, 0, 0, 0)), [(DefectName::Miscounted, 10)]);
    assert_eq!(found(&story(6, 4, 0, 0)), [(DefectName::WrongOutcome, 4)]);
    assert_eq!(found(&story(7, 0, 3, 0)), [(DefectName::Ghost, 3)]);
}

/// A gauge that is wrong in every other look is wrong, though no one time of it lasts.
#[test]
fn a_gauge_that_flaps_is_found() {
    let story = |wrong: i64, every: u64| {
        let mut story = Story::from_zero();
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.counts.started = Some(10);
        for n in 0..60 {
            story.pass(100, if n % every == 0 { 10 + wrong } else { 10 }, 0);
        }
        story.end(0..10);
        story.has_ended(Outcome::Cancelled, 10);
        story.pass(15_000, 0, 0);
        found(&story.close())
    };
    assert_eq!(story(0, 2), []);
    assert_eq!(story(-10, 2), [(DefectName::FalseCapacity, 10)]);
    assert_eq!(story(20, 2), [(DefectName::LateDecrement, 20)]);
    assert_eq!(story(-4, 7), [(DefectName::FalseCapacity, 4)]);
    assert_eq!(story(20, 50), [], "two slips");
}

/// Looks that always take long are no pauses: what is late is late, and a run comes to its end.
#[test]
fn who_is_slow_to_answer_is_seen_all_the_same() {
    let story = |late_ms: u64| {
        let mut story = Story::from_zero();
        let pass = |story: &mut Story, ms: u64, active: i64| {
            for _ in 0..ms / 700 {
                story.now += 700;
                let at_us = T0 + story.now * MS;
                let counts = Counts { active, boot: Some("1".to_owned()), ..story.counts.clone() };
                story.ledger.entries(SOURCE, Vec::new(), at_us);
                story.ledger.totals(TotalsSample { source: 0, asked_at_us: at_us - 600 * MS, answered_at_us: at_us, counts });
            }
        };
        pass(&mut story, 7_000, 0);
        story.begin(0..10);
        story.counts.started = Some(10);
        pass(&mut story, 7_000, 10);
        story.end(0..10);
        pass(&mut story, late_ms, 10);
        story.has_ended(Outcome::Cancelled, 10);
        pass(&mut story, 40_000, 0);
        story.ledger.source_done(SOURCE);
        assert!(story.ledger.settled(T0 + story.now * MS));
        found(&story.close())
    };
    assert_eq!(story(700), []);
    assert_eq!(story(14_000), [(DefectName::LateDecrement, 10)]);
}

/// A reading that may be old is of the process before or after a kill: it is held against neither.
#[test]
fn a_cached_page_of_a_killed_process_is_no_ghost() {
    let mut config = LedgerConfig::new("run", T0, vec![BackendConfig { watched: false, fresh: false }]);
    config.totals = vec![TotalsConfig { name: "backend 0".to_owned(), backend: Some(0), age_us: 1_000 * MS, shows: everything() }];
    let mut story = Story::of(everything());
    story.ledger = Ledger::new(config);
    story.ledger.open(SOURCE, T0);
    (story.counts.started, story.counts.ended) = (Some(0), Some(0));
    story.counts.outcomes = Outcome::ALL.map(|outcome| (outcome, 0)).into();
    story.pass(1_000, 0, 0);
    story.begin(0..10);
    story.pass(900, 0, 0);
    story.counts.started = Some(10);
    story.pass(3_000, 10, 0);
    story.ledger.backend_killed(0, "1", T0 + (story.now + 10) * MS);
    story.now += 50;
    story.end_as(0..10, Finish::Lost(FailureCause::Reset));
    story.pass(900, 10, 0);
    story.boot = "2";
    story.counts.started = Some(0);
    story.pass(15_000, 0, 0);
    assert_eq!(found(&story.close()), []);
}

/// Counters that could not be read while there were sessions show nothing of them.
#[test]
fn what_was_hardly_ever_read_is_unverified() {
    let story = |blind_ms: u64| {
        let mut story = Story::from_zero();
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.counts.started = Some(10);
        story.pass(6_000 - blind_ms, 10, 0);
        for _ in 0..blind_ms / 100 {
            story.now += 100;
            story.ledger.entries(SOURCE, Vec::new(), T0 + story.now * MS);
            story.ledger.totals_gap(0, T0 + story.now * MS, "NaN");
        }
        story.end(0..10);
        story.has_ended(Outcome::Cancelled, 10);
        story.pass(15_000, 0, 0);
        story.close()
    };
    assert_eq!(found(&story(2_000)), []);
    unverified(&story(4_500), "could not be read in 4.");
}

/// A ghost is one after the longest window *and* the settling time, however long the window was.
#[test]
fn who_is_counted_in_the_settling_time_is_late_and_no_ghost() {
    let story = |after_ms: u64| {
        let mut story = Story::of(Shows::default());
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.pass(3_000, 10, 0);
        story.end(0..10);
        story.ledger.source_done(SOURCE);
        let settled = |story: &Story| story.ledger.settled(T0 + story.now * MS);
        while story.now < 4_000 + after_ms && !settled(&story) {
            story.pass(100, 10, 0);
        }
        while !settled(&story) {
            story.pass(100, 0, 0);
        }
        found(&story.close())
    };
    let config = LedgerConfig::new("run", T0, Vec::new());
    let window_ms = config.windows.of(EndKind::Cancel) / MS;
    assert_eq!(story(window_ms + config.settle_us / MS - 500), [(DefectName::LateDecrement, 10)]);
    assert_eq!(story(window_ms + config.settle_us / MS + 500), [(DefectName::Ghost, 10)]);
}

/// A network that only delays hides nothing that lasts longer than it delays.
#[test]
fn a_slight_delay_on_purpose_excuses_no_count() {
    let story = |weather: crate::ledger::Weather| {
        let mut story = Story::of(Shows::default());
        story.pass(1_000, 0, 0);
        story.ledger.network_fault(0, 1, T0 + story.now * MS, weather);
        story.begin(0..10);
        story.pass(3_000, 10, 0);
        story.pass(4_000, 0, 0);
        story.pass(3_000, 10, 0);
        story.end(0..10);
        story.pass(15_000, 0, 0);
        found(&story.close())
    };
    assert_eq!(story(crate::ledger::Weather::Late(100 * MS)), [(DefectName::FalseCapacity, 10)]);
    assert_eq!(story(crate::ledger::Weather::Lost), []);
}

/// A connection that broke without a goodbye is not counted as one.
#[test]
fn lost_sessions_are_no_goodbyes() {
    let story = |counted_as: Outcome| {
        let mut story = Story::from_zero();
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.counts.started = Some(10);
        story.pass(3_000, 10, 0);
        story.end_as(0..10, Finish::Lost(FailureCause::Reset));
        story.has_ended(counted_as, 10);
        story.pass(15_000, 0, 0);
        found(&story.close())
    };
    assert_eq!(story(Outcome::Cancelled), []);
    assert_eq!(story(Outcome::Completed), [(DefectName::WrongOutcome, 10)]);
}

/// Of a dial in doubt the backend knows whether it began a session, and what it says of that binds it.
#[test]
fn dials_in_doubt_excuse_no_number_that_contradicts_another() {
    let story = |started: u64, ended: u64, rejected: u64| {
        let mut story = Story::from_zero();
        story.counts.rejected = Some(0);
        story.pass(1_000, 0, 0);
        story.begin(0..10);
        story.fail(10..15, FailureCause::Reset);
        story.counts.started = Some(started);
        story.pass(3_000, 10, 0);
        story.end(0..10);
        story.has_ended(Outcome::Cancelled, ended);
        story.counts.rejected = Some(rejected);
        story.pass(15_000, 0, 0);
        found(&story.close())
    };
    for honest in [story(10, 10, 0), story(15, 15, 0), story(12, 12, 3), story(10, 10, 5)] {
        assert_eq!(honest, []);
    }
    assert_eq!(story(10, 14, 0), [(DefectName::DoubleDecrement, 4)]);
    assert_eq!(story(15, 15, 5), [(DefectName::Miscounted, 5)], "more than were dialled");
}
