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
        for index in 10..15 {
            let client_ref = format!("run-{index}");
            story.say(index, LedgerEvent::Scheduled { scenario: 0, protocol: Protocol::Websocket, end: EndKind::Cancel, client_ref });
            story.say(index, LedgerEvent::Attempted { backend: Some(0), report_age_us: None });
            story.say(index, LedgerEvent::Failed { cause: FailureCause::Rejected });
        }
        story.counts.started = Some(10);
        story.pass(3_000, 10, 0);
        story.end(0..10);
        story.counts.ended = Some(ended);
        story.counts.outcomes.insert(Outcome::Cancelled, ended);
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
