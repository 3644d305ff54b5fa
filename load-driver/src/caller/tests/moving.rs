//! A backend that goes away in mid-conversation.

use super::*;
use crate::plan::{Agent, Dialect, Resumption, Service};

/// Three turns, 500 before each: the first speaks from 1530 to 1670.
fn conversation(resume: bool) -> SessionPlan {
    let mut scenario = scenario((0..3).map(|_| turn(500, ActTemplate::Listen)).collect());
    let agent = Agent { resume, ..Agent::default() };
    scenario.service = Arc::new(Service { dialect: Dialect::GeminiLive, agent, ..Service::default() });
    plan(scenario)
}

fn away(left_ms: u32) -> ServerEvent {
    ServerEvent::GoingAway { left_ms }
}

fn handle(name: &str) -> ServerEvent {
    ServerEvent::Resumable { handle: name.to_owned() }
}

/// One turn was answered, from 2000 to 2140, and the second is due at 2640.
fn between_turns(plan: SessionPlan) -> Bench {
    let mut bench = Bench::live(plan);
    bench.hear(1_000, handle("old"));
    bench.answer(2_000, 1, 1, 5);
    bench.hear(2_110, handle("new"));
    bench.run(2_200);
    bench
}

fn resumed(bench: &Bench) -> Option<Resumption> {
    let mut all = bench.log.iter().filter_map(|(_, action)| match action {
        Action::Resume(resumption) => Some((**resumption).clone()),
        _ => None,
    });
    let first = all.next();
    assert!(all.next().is_none(), "once");
    first
}

fn second_turn(at: u64) -> Resumption {
    Resumption { handle: "new".to_owned(), turn: 1, at: ms(at), length: None }
}

fn goodbye(bench: &mut Bench, at: u64) -> Option<(u64, Action)> {
    bench.hear(at, ended(Outcome::Completed));
    bench.over()
}

const GOOD: Action = Action::Ended(Finish::Goodbye(Outcome::Completed));

#[test]
fn between_turns_the_caller_leaves_at_once_and_the_next_turn_keeps_its_time() {
    let mut bench = between_turns(conversation(true));
    bench.hear(2_300, away(50_000));
    assert_eq!(bench.goodbye(), Some(2_300));
    assert_eq!((resumed(&bench), bench.over()), (None, None), "the old connection is closed first");
    assert_eq!(goodbye(&mut bench, 2_310), Some((2_310, GOOD)));
    assert_eq!(resumed(&bench), Some(second_turn(2_640)));
    assert_eq!(bench.counts([Counter::Turns, Counter::TurnsInterrupted, Counter::TurnsUnspoken]), [1, 0, 0]);
}

#[test]
fn an_answer_under_way_is_heard_out() {
    let mut bench = Bench::live(conversation(true));
    bench.hear(1_000, handle("new"));
    bench.hear(1_600, away(50_000));
    bench.answer(2_000, 1, 1, 5);
    bench.run(9_000);
    assert_eq!(bench.goodbye(), Some(2_140));
    bench.over();
    assert_eq!(resumed(&bench), Some(second_turn(2_640)), "however the goodbye is answered");
    assert_eq!(bench.counts([Counter::Turns, Counter::TurnsAnswered, Counter::TurnsInterrupted]), [1, 1, 0]);
}

#[test]
fn an_answer_that_is_longer_than_the_time_left_is_cut() {
    let mut bench = Bench::live(conversation(true));
    bench.hear(1_000, handle("new"));
    bench.hear(2_000, response_start(1, 1));
    bench.hear_frames(2_000, 1, 5);
    bench.hear(2_100, away(400));
    bench.hear_frames(2_100, 1, 15);
    assert_eq!(bench.goodbye(), Some(2_300), "half is kept for the goodbye");
    assert_eq!(goodbye(&mut bench, 2_410), Some((2_410, GOOD)));
    assert_eq!(resumed(&bench), Some(second_turn(2_800)), "what was cut is not said again");
    assert_eq!(bench.counts([Counter::TurnsAnswered, Counter::TurnsInterrupted]), [0, 1]);
}

#[test]
fn a_peer_that_closes_after_its_warning_has_lost_the_session_and_not_the_conversation() {
    for (error, cause, seen) in [
        (Some(fatal(ErrorCode::Deadline)), FailureCause::Eof, FailureCause::ServerError(ErrorCode::Deadline)),
        (None, FailureCause::Eof, FailureCause::Eof),
        (None, FailureCause::Reset, FailureCause::Reset),
    ] {
        let mut bench = Bench::live(conversation(true));
        bench.hear(1_000, handle("new"));
        bench.hear(1_600, away(0));
        if let Some(error) = error {
            bench.hear(1_700, error);
        }
        bench.close(1_700, cause);
        assert_eq!(bench.over(), Some((1_700, lost(seen))));
        assert_eq!(resumed(&bench), Some(second_turn(2_200)));
        assert_eq!(bench.count(Counter::TurnsInterrupted), 1);
    }
}

#[test]
fn without_a_handle_the_session_is_no_good_one_and_its_turns_are_counted() {
    let mut bench = Bench::live(conversation(true));
    bench.hear(1_200, away(0));
    assert_eq!(goodbye(&mut bench, 1_210), Some((1_210, lost(FailureCause::NotResumed))));
    assert_eq!((resumed(&bench), bench.count(Counter::TurnsUnspoken)), (None, 3));
}

#[test]
fn what_ends_anyway_does_not_go_on() {
    // Told to stop, before or after the warning.
    for (stop, warning) in [(1_600, 1_610), (1_610, 1_600)] {
        let mut bench = Bench::live(conversation(true));
        bench.hear(1_000, handle("new"));
        for at in [1_600, 1_610] {
            if at == stop {
                bench.stop(at, 5_000);
            }
            if at == warning {
                bench.hear(at, away(0));
            }
        }
        bench.answer(2_000, 1, 1, 5);
        bench.run(2_200);
        assert_eq!(goodbye(&mut bench, 2_210), Some((2_210, GOOD)));
        assert_eq!(resumed(&bench), None, "{stop}");
    }
    // In the last turn.
    let mut plan = conversation(true);
    let mut scenario = (*plan.scenario).clone();
    scenario.conversations[0].turns.truncate(1);
    plan.scenario = Arc::new(scenario);
    let mut bench = Bench::live(plan);
    bench.hear(1_600, away(0));
    bench.answer(2_000, 1, 1, 5);
    bench.run(2_200);
    assert_eq!(goodbye(&mut bench, 2_210), Some((2_210, GOOD)));
    assert_eq!((resumed(&bench), bench.count(Counter::TurnsUnspoken)), (None, 0));
    // Its length is over in the turn.
    let mut plan = conversation(true);
    plan.length = Some(Duration::from_millis(900));
    let mut bench = Bench::live(plan);
    bench.hear(1_000, handle("new"));
    bench.hear(1_600, away(0));
    bench.answer(2_000, 1, 1, 5);
    bench.run(2_200);
    assert_eq!(goodbye(&mut bench, 2_210), Some((2_210, GOOD)));
    assert_eq!(resumed(&bench), None);
}

#[test]
fn what_is_left_of_a_length_goes_on() {
    let mut plan = conversation(true);
    plan.length = Some(Duration::from_secs(10));
    let mut bench = between_turns(plan);
    bench.hear(2_300, away(0));
    goodbye(&mut bench, 2_310);
    assert_eq!(resumed(&bench).and_then(|resumption| resumption.length), Some(Duration::from_millis(8_700)));
}

fn successor(at: u64) -> SessionPlan {
    let resumption = second_turn(at);
    conversation(true).successor(resumption, ms(100)).expect("a successor")
}

#[test]
fn the_next_session_takes_the_conversation_up() {
    for (due, begins) in [(600, 1_000), (1_400, 1_400)] {
        let mut bench = Bench::live(successor(due));
        let ClientEvent::Start(start) = &bench.sent()[0].1 else { panic!("a start is due") };
        assert_eq!(start.resume, "new");
        assert_ne!(start.client_ref, conversation(true).client_ref);
        assert_eq!(bench.count(Counter::SessionsResumed), 1);
        assert_eq!(bench.samples(Metric::Resumption), [(100, 100, 1_000)]);
        assert_eq!(bench.samples(Metric::SessionStartup), [], "nobody arrived");
        bench.answer(begins + 500, 1, 1, 5);
        bench.answer(begins + 1_700, 2, 2, 5);
        bench.run(9_000);
        assert_eq!(bench.frame_times().first(), Some(&(begins + 20)));
        assert_eq!(bench.counts([Counter::Turns, Counter::TurnsAnswered]), [2, 2], "of three");
        assert_eq!(bench.samples(Metric::TimeToFirstStream), []);
        assert_eq!(bench.samples(Metric::TurnResponse)[0], (begins + 170, begins + 170, begins + 500));
    }
}

#[test]
fn a_handle_that_is_refused_has_a_name_of_its_own() {
    let refused = |hear: Option<ErrorCode>, cause| {
        let mut bench = Bench::new(successor(600));
        bench.act(ms(110), |caller, out| caller.on_connected(true, ms(110), out));
        match hear {
            Some(code) => bench.hear(200, fatal(code)),
            None => bench.close(200, cause),
        }
        bench.over()
    };
    let as_such = Some((200, Action::Failed(FailureCause::NotResumed)));
    assert_eq!(refused(Some(ErrorCode::InvalidArgument), FailureCause::Eof), as_such);
    assert_eq!(refused(None, FailureCause::Policy), as_such);
    assert_eq!(refused(None, FailureCause::ServerError(ErrorCode::Internal)), as_such);
    for (hear, cause) in [(Some(ErrorCode::Overloaded), FailureCause::Rejected), (None, FailureCause::Reset)] {
        assert_eq!(refused(hear, cause), Some((200, Action::Failed(cause))), "not about the handle");
    }
    assert_eq!((successor(600).turns_at_stake(), conversation(true).turns_at_stake()), (2, 0));
}

#[test]
fn a_conversation_does_not_move_for_ever() {
    let mut plan = conversation(true);
    let resumption = second_turn(2_000);
    let mut names = std::collections::HashSet::from([plan.client_ref.clone()]);
    while let Some(next) = plan.successor(resumption.clone(), ms(100)) {
        assert!(names.insert(next.client_ref.clone()), "a name of its own");
        plan = next;
    }
    assert_eq!(names.len(), 64);
    let mut bench = Bench::live(plan);
    bench.hear(1_000, handle("new"));
    bench.hear(1_000, away(0));
    assert_eq!(goodbye(&mut bench, 1_010), Some((1_010, lost(FailureCause::NotResumed))));
    assert_eq!(bench.count(Counter::TurnsUnspoken), 2);
}

/// Turns, missed, interrupted, unspoken; sessions cut short.
fn lost_turns(bench: &Bench) -> [u64; 5] {
    let of = [Counter::Turns, Counter::TurnsMissed, Counter::TurnsInterrupted, Counter::TurnsUnspoken, Counter::SessionsCutShort];
    let counts = bench.counts(of);
    assert_eq!(bench.caller.cut_short(), counts[4] == 1);
    counts
}

#[test]
fn a_conversation_that_the_backend_ends_in_order_is_cut_short_and_its_turns_are_missed() {
    // By its warning, of which the goodbye comes.
    let mut bench = between_turns(conversation(false));
    bench.hear(2_300, away(0));
    assert_eq!(goodbye(&mut bench, 2_310), Some((2_310, GOOD)));
    assert_eq!((resumed(&bench), lost_turns(&bench)), (None, [3, 2, 0, 2, 1]));
    // In mid-turn: what is under way is heard out.
    let mut bench = Bench::live(conversation(false));
    bench.hear(1_600, away(0));
    bench.answer(2_000, 1, 1, 5);
    bench.run(2_200);
    assert_eq!(goodbye(&mut bench, 2_210), Some((2_210, GOOD)));
    assert_eq!(lost_turns(&bench), [3, 2, 0, 2, 1]);
    // At once; a drain that the run did not make is no better.
    for outcome in [Outcome::Completed, Outcome::Drained] {
        let mut bench = Bench::live(conversation(false));
        bench.hear(1_100, ended(outcome));
        assert_eq!(bench.over(), Some((1_100, Action::Ended(Finish::ByServer(outcome)))));
        assert_eq!(lost_turns(&bench), [3, 3, 0, 3, 1]);
    }
    // Before the answer, and in it.
    for (heard, expected) in [(false, [3, 3, 0, 2, 1]), (true, [3, 2, 1, 2, 1])] {
        let mut bench = Bench::live(conversation(false));
        if heard {
            bench.hear(2_000, response_start(1, 1));
            bench.hear_frames(2_000, 1, 5);
        }
        bench.hear(2_100, ended(Outcome::Completed));
        assert_eq!(lost_turns(&bench), expected, "{heard}");
    }
    // Of a conversation without end one turn was due.
    let mut plan = conversation(false);
    plan.length = Some(Duration::from_mins(1));
    let mut bench = Bench::live(plan);
    bench.hear(1_100, ended(Outcome::Completed));
    assert_eq!(lost_turns(&bench), [1, 1, 0, 1, 1]);
}

#[test]
fn what_the_plan_or_the_run_ends_is_not_cut_short() {
    // The run's own end, before the backend's warning and before its goodbye.
    let mut bench = between_turns(conversation(false));
    bench.stop(2_200, 5_000);
    bench.hear(2_210, away(0));
    goodbye(&mut bench, 2_220);
    assert_eq!(lost_turns(&bench), [1, 0, 0, 0, 0]);
    let mut bench = Bench::live(conversation(false));
    bench.run(1_600);
    bench.stop(1_600, 5_000);
    bench.hear(1_610, ended(Outcome::Completed));
    assert_eq!(lost_turns(&bench), [1, 0, 1, 0, 0]);
    // The run makes the backend drain.
    let mut plan = conversation(false);
    let mut scenario = (*plan.scenario).clone();
    scenario.drains = vec![(ms(2_000), ms(2_500))];
    plan.scenario = Arc::new(scenario);
    let mut bench = between_turns(plan.clone());
    bench.hear(2_300, away(0));
    goodbye(&mut bench, 2_310);
    assert_eq!(lost_turns(&bench), [1, 0, 0, 0, 0]);
    let mut bench = between_turns(plan);
    bench.hear(2_600, away(0));
    goodbye(&mut bench, 2_610);
    assert_eq!(lost_turns(&bench)[4], 1, "after the drain");
    // The scenario is there to show it.
    let mut plan = conversation(false);
    plan.scenario = Arc::new(ScenarioPlan { expect: Some(crate::plan::Expect::TimedOut), ..(*plan.scenario).clone() });
    let mut bench = between_turns(plan);
    bench.hear(2_300, away(0));
    goodbye(&mut bench, 2_310);
    assert_eq!(lost_turns(&bench), [1, 0, 0, 0, 0]);
    // What broke or ran out of time is no end in order: the session tells.
    let mut bench = between_turns(conversation(false));
    bench.close(2_300, FailureCause::Eof);
    assert_eq!(lost_turns(&bench), [1, 0, 0, 0, 0]);
    let mut bench = between_turns(conversation(false));
    bench.hear(2_300, ended(Outcome::TimedOut));
    assert_eq!(lost_turns(&bench), [1, 0, 0, 0, 0]);
    // A session that goes on elsewhere.
    let mut bench = between_turns(conversation(true));
    bench.hear(2_300, away(0));
    goodbye(&mut bench, 2_310);
    assert_eq!(lost_turns(&bench), [1, 0, 0, 0, 0]);
}
