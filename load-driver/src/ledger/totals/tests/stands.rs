//! What a checkpoint tells of sums.

use super::*;

type Names = Vec<(DefectName, u64)>;

/// Ten sessions, of which the gauge shows so many more or fewer for a while; then all is well. What a checkpoint would say at the end of it.
fn checkpoint(wrong: i64) -> (Names, Names) {
    let mut story = Story::of(everything());
    story.pass(1_000, 0, 0);
    story.begin(0..10);
    story.counts.started = Some(10);
    story.pass(1_000, 10, 0);
    story.pass(4_000, 10 + wrong, 0);
    let during = names(&story);
    story.pass(2_000, 10, 0);
    story.end(0..10);
    (story.counts.ended, story.counts.outcomes) = (Some(10), [(Outcome::Cancelled, 10)].into());
    story.pass(20_000, 0, 0);
    let after = names(&story);
    // The next driver's ledger knows nothing of it.
    assert_eq!(found(&story.close()), after);
    (during, after)
}

fn names(story: &Story) -> Names {
    story.ledger.proven().iter().map(|finding| (finding.name, finding.size)).collect()
}

#[test]
fn what_lasted_and_is_over_is_proven_at_a_checkpoint() {
    assert_eq!(checkpoint(0), (vec![], vec![]));
    assert_eq!(checkpoint(-4).1, [(DefectName::FalseCapacity, 4)]);
    // As long as they are counted they may be ghosts.
    assert_eq!(checkpoint(4), (vec![], vec![(DefectName::LateDecrement, 4)]));
}

#[test]
fn a_stand_has_what_lasts_and_what_others_had_at_least() {
    let mut story = Story::of(everything());
    story.counts.started = Some(100);
    story.pass(1_000, 3, 0);
    story.begin(0..10);
    story.counts.started = Some(110);
    story.pass(5_000, 13, 0);
    story.end(0..10);
    story.pass(15_000, 5, 0);
    let stands = story.ledger.sums_stands();
    let [stand] = stands.as_slice() else { panic!("{stands:?}") };
    assert_eq!((stand.base_least, stand.floor, stand.base_active, stand.accepted, stand.overdue), (3, 0, 3, 10, 2));
    assert_eq!(stand.since(|counts| counts.started, &Counts { started: Some(112), ..Counts::default() }), Some(12));
}

#[test]
fn in_the_first_seconds_the_looks_before_the_run_are_the_stand() {
    let mut story = Story::of(everything());
    story.counts.started = Some(7);
    for (at_us, active) in [(T0 - 300 * MS, 2), (T0 - 100 * MS, 2), (T0 + 200 * MS, 9)] {
        let counts = Counts { active, boot: Some("1".to_owned()), ..story.counts.clone() };
        story.ledger.totals(TotalsSample { source: 0, asked_at_us: at_us, answered_at_us: at_us + 5 * MS, counts });
    }
    let stands = story.ledger.sums_stands();
    let [stand] = stands.as_slice() else { panic!("{stands:?}") };
    assert_eq!((stand.base_active, stand.base.started, stand.accepted), (2, Some(7), 0), "{stand:?}");
}

#[test]
fn what_only_grew_late_is_proven_at_a_checkpoint_too() {
    let mut story = Story::of(everything());
    story.counts.started = Some(0);
    story.pass(1_000, 0, 0);
    story.begin(0..10);
    story.pass(6_000, 10, 0);
    story.counts.started = Some(10);
    story.pass(2_000, 10, 0);
    story.end(0..10);
    (story.counts.ended, story.counts.outcomes) = (Some(10), [(Outcome::Cancelled, 10)].into());
    story.pass(20_000, 0, 0);
    let proven = names(&story);
    assert_eq!(proven.len(), 1, "{proven:?}");
    assert_eq!(found(&story.close()), proven);
}
