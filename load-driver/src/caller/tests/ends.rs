use super::*;
use crate::plan::Service;

fn one_turn() -> SessionPlan {
    plan(scenario(vec![turn(500, ActTemplate::Listen)]))
}

/// Speaks from 1000 for ever, 500 between turns; ends at 4000 or later.
fn talker(end: EndKind) -> SessionPlan {
    let mut plan = one_turn();
    plan.length = Some(Duration::from_secs(3));
    plan.end = end;
    plan
}

#[test]
fn startup_is_measured_from_the_schedule_and_from_the_dial() {
    let mut bench = Bench::new(one_turn());
    bench.caller = Caller::new(one_turn(), ms(103));
    bench.act(ms(110), |caller, out| caller.on_connected(true, ms(110), out));
    bench.hear(125, accepted());
    assert_eq!(bench.samples(Metric::ScheduleLag), [], "what a dial waits for is told by the startup");
    assert_eq!(bench.samples(Metric::Connect), [(100, 103, 110)]);
    assert_eq!(bench.samples(Metric::SessionStartup), [(100, 103, 125)]);
    assert!(
        matches!(&bench.sent()[0], (110, ClientEvent::Start(start)) if start.client_ref == "run-7" && start.input == AudioFormat::Pcm16k)
    );
    bench.hear(130, transcript(1, false));
    bench.hear(140, transcript(1, false));
    assert_eq!(bench.samples(Metric::TimeToFirstStream), [(100, 103, 130)]);
}

/// A fault of the timeline takes whoever is there, whatever it is doing, and nobody else.
#[test]
fn a_session_is_struck_when_it_lives_and_only_then() {
    let kind = EndKind::TcpRst;
    let mut struck = false;
    let mut bench = Bench::new(talker(EndKind::Graceful));
    bench.act(ms(105), |caller, out| struck = caller.cut(kind, ms(105), out));
    assert!(!struck && bench.over().is_none(), "it is not there yet");
    let mut bench = Bench::live(talker(EndKind::Graceful));
    bench.run(1_600);
    bench.act(ms(1_600), |caller, out| struck = caller.cut(kind, ms(1_600), out));
    assert!(struck);
    assert_eq!(bench.over(), Some((1_600, Action::Ended(Finish::Forced(kind)))));
    assert_eq!((bench.count(Counter::TurnsInterrupted), bench.dropped()), (1, false));
    bench.act(ms(1_700), |caller, out| struck = caller.cut(kind, ms(1_700), out));
    assert!(!struck, "it is over");
    // A goodbye that is said already is let finish.
    let mut bench = Bench::live(talker(EndKind::Graceful));
    bench.act(ms(1_300), |caller, out| caller.stop(ms(1_300), ms(1_300), out));
    bench.act(ms(1_310), |caller, out| struck = caller.race(ms(1_310), out));
    assert!(!struck && bench.over().is_none());
}

/// Cancel and disconnect are one action; the deadline was asked for at the start, and never before its time.
#[test]
fn a_race_asks_for_its_deadline_when_the_session_starts() {
    let mut bench = Bench::new(talker(EndKind::Graceful));
    bench.caller.dies_at(Micros(2_500_400));
    bench.act(ms(110), |caller, out| caller.on_connected(true, ms(110), out));
    assert!(matches!(&bench.sent()[0].1, ClientEvent::Start(start) if start.max_duration_ms == 2_391));
    bench.hear(125, accepted());
    bench.act(ms(2_501), |caller, out| assert!(caller.race(ms(2_501), out)));
    assert_eq!(bench.over(), Some((2_501, Action::Ended(Finish::Forced(EndKind::Cancel)))));
}

#[test]
fn what_is_left_of_a_session_is_what_it_has_not_had() {
    let mut bench = Bench::live(talker(EndKind::Graceful));
    assert_eq!(bench.caller.left(ms(1_000)), Some(Duration::from_secs(3)));
    bench.run(2_000);
    assert_eq!(bench.caller.left(ms(2_000)), Some(Duration::from_secs(2)));
    bench.act(ms(2_100), |caller, out| caller.stop(ms(9_000), ms(2_100), out));
    assert_eq!(bench.caller.left(ms(2_100)), Some(Duration::ZERO), "it is told to go");
    assert_eq!(Bench::live(one_turn()).caller.left(ms(500)), None);
}

#[test]
fn a_pooled_connection_has_no_connect_time() {
    let mut bench = Bench::new(one_turn());
    bench.act(ms(110), |caller, out| caller.on_connected(false, ms(110), out));
    assert_eq!(bench.samples(Metric::Connect), []);
    assert_eq!(bench.sent().len(), 1);
}

#[test]
fn tools_are_declared() {
    let act = ActTemplate::Tool { name: "lookup".to_owned(), takes: constant(1) };
    let bench = Bench::live(plan(scenario(vec![turn(500, act)])));
    assert!(matches!(&bench.sent()[0].1, ClientEvent::Start(start) if start.tools == ["lookup"]));
}

#[test]
fn what_comes_before_acceptance_fails_the_session() {
    for (event, cause) in [
        (fatal(ErrorCode::Overloaded), FailureCause::Rejected),
        (fatal(ErrorCode::Draining), FailureCause::Draining),
        (fatal(ErrorCode::InvalidArgument), FailureCause::ServerError(ErrorCode::InvalidArgument)),
        (ServerEvent::Error(SessionError::fatal(ErrorCode::InvalidArgument, "no such API key")), FailureCause::Unauthorized),
        (ended(Outcome::Completed), FailureCause::Protocol),
        (audio(0, 1), FailureCause::Protocol),
        (transcript(1, true), FailureCause::Protocol),
    ] {
        let mut bench = Bench::new(one_turn());
        bench.act(ms(110), |caller, out| caller.on_connected(true, ms(110), out));
        bench.hear(200, event);
        assert_eq!(bench.over(), Some((200, Action::Failed(cause))));
        assert!(bench.dropped());
        bench.close(201, FailureCause::Eof);
        bench.over();
    }
}

#[test]
fn acceptance_before_the_start_was_sent_is_no_acceptance() {
    let mut bench = Bench::new(one_turn());
    bench.hear(105, accepted());
    assert_eq!(bench.over(), Some((105, Action::Failed(FailureCause::Protocol))));
}

#[test]
fn dial_and_acceptance_have_one_deadline_from_the_dial() {
    let mut bench = Bench::new(one_turn());
    bench.run(20_000);
    assert_eq!(bench.over(), Some((5_100, Action::Failed(FailureCause::ConnectTimeout))));
    let mut bench = Bench::new(one_turn());
    bench.act(ms(4_000), |caller, out| caller.on_connected(true, ms(4_000), out));
    bench.run(20_000);
    assert_eq!(bench.over(), Some((5_100, Action::Failed(FailureCause::StartTimeout))));
    assert!(bench.dropped());
}

#[test]
fn a_transport_that_closes_before_acceptance_fails_with_its_cause() {
    for connected in [false, true] {
        let mut bench = Bench::new(one_turn());
        if connected {
            bench.act(ms(110), |caller, out| caller.on_connected(true, ms(110), out));
        }
        bench.close(120, FailureCause::Rejected);
        assert_eq!(bench.over(), Some((120, Action::Failed(FailureCause::Rejected))));
    }
}

#[test]
fn the_conversation_ends_with_goodbye_from_both() {
    let mut bench = Bench::live(one_turn());
    bench.answer(2_000, 1, 1, 5);
    // Five frames from 2040: heard out at 2140.
    bench.run(2_139);
    assert_eq!(bench.goodbye(), None);
    bench.run(2_200);
    assert_eq!(bench.goodbye(), Some(2_140));
    bench.hear(2_210, ended(Outcome::Completed));
    assert_eq!(bench.over(), Some((2_210, Action::Ended(Finish::Goodbye(Outcome::Completed)))));
    assert!(!bench.dropped(), "the server closes the stream");
    assert_eq!(bench.count(Counter::TurnsAnswered), 1);
}

#[test]
fn an_unanswered_goodbye_is_waited_for_5_s() {
    let mut bench = Bench::live(one_turn());
    bench.answer(2_000, 1, 1, 5);
    bench.run(60_000);
    assert_eq!(bench.over(), Some((7_140, lost(FailureCause::GoodbyeTimeout))));
    assert!(bench.dropped());
    let mut bench = Bench::live(one_turn());
    bench.answer(2_000, 1, 1, 5);
    bench.run(2_200);
    bench.close(2_300, FailureCause::Reset);
    assert_eq!(bench.over(), Some((2_300, lost(FailureCause::Reset))));
}

#[test]
fn length_over_between_turns_ends_at_once() {
    let mut session = talker(EndKind::Graceful);
    session.length = Some(Duration::from_millis(400));
    let mut bench = Bench::live(session);
    bench.run(2_000);
    assert_eq!(bench.goodbye(), Some(1_400));
    assert_eq!(bench.count(Counter::Turns), 0);
}

#[test]
fn length_over_in_a_turn_ends_after_it() {
    let mut session = talker(EndKind::Graceful);
    session.length = Some(Duration::from_millis(600));
    let mut bench = Bench::live(session);
    bench.answer(2_000, 1, 1, 5);
    bench.run(3_000);
    assert_eq!(bench.goodbye(), Some(2_140));
    assert_eq!((bench.count(Counter::Turns), bench.count(Counter::TurnsAnswered)), (1, 1));
}

#[test]
fn abrupt_kinds_strike_when_the_length_is_over_in_mid_turn_too() {
    for kind in [EndKind::Cancel, EndKind::TcpFin, EndKind::TcpRst, EndKind::HalfOpen] {
        let mut session = talker(kind);
        session.length = Some(Duration::from_millis(600));
        let mut bench = Bench::live(session);
        bench.run(60_000);
        assert_eq!(bench.over(), Some((1_600, Action::Ended(Finish::Forced(kind)))));
        let before = bench.log.iter().rev().skip(1).find(|(_, action)| !matches!(action, Action::Voice(_)));
        assert_eq!(before.map(|(_, action)| action), Some(&Action::Force(kind)));
        assert!(!bench.dropped());
        assert_eq!(bench.goodbye(), None);
        assert_eq!((bench.count(Counter::Turns), bench.count(Counter::TurnsInterrupted)), (1, 1));
        bench.close(1_700, FailureCause::Eof);
        bench.over();
    }
}

#[test]
fn abrupt_kinds_without_a_length_strike_after_the_conversation() {
    let mut session = one_turn();
    session.end = EndKind::TcpRst;
    let mut bench = Bench::live(session);
    bench.answer(2_000, 1, 1, 5);
    bench.run(60_000);
    assert_eq!(bench.over(), Some((2_140, Action::Ended(Finish::Forced(EndKind::TcpRst)))));
}

#[test]
fn the_doomed_talk_on_until_they_are_killed() {
    for (kind, length) in [(EndKind::KillWorker, None), (EndKind::KillBackend, Some(Duration::from_secs(1)))] {
        let mut session = one_turn();
        (session.end, session.length) = (kind, length);
        let mut bench = Bench::live(session);
        for n in 1..=20 {
            bench.answer(2_000 * n, n, n, 5);
        }
        assert_eq!((bench.goodbye(), bench.over()), (None, None));
        assert_eq!((bench.count(Counter::Turns), bench.count(Counter::TurnsAnswered)), (20, 19));
        bench.close(40_120, FailureCause::Reset);
        assert_eq!(bench.over(), Some((40_120, lost(FailureCause::Reset))));
        assert_eq!(bench.count(Counter::TurnsInterrupted), 1);
    }
}

#[test]
fn a_conversation_of_nothing_but_silence_does_not_spin() {
    let mut session = plan(scenario(vec![TurnTemplate { says: Vec::new(), ..turn(0, ActTemplate::Listen) }]));
    session.end = EndKind::KillBackend;
    let mut bench = Bench::live(session);
    bench.late(2_000);
    bench.stop(2_000, 9_000);
    assert_eq!(bench.goodbye(), Some(2_000));
    let mut session = plan(scenario(Vec::new()));
    session.end = EndKind::KillBackend;
    let mut bench = Bench::live(session);
    bench.late(2_000);
    assert_eq!(bench.over(), None);
}

#[test]
fn stop_between_turns_is_at_once_and_graceful_whatever_the_plan() {
    for kind in EndKind::ALL {
        let mut bench = Bench::live(talker(kind));
        bench.run(1_200);
        bench.stop(1_200, 9_000);
        assert_eq!(bench.goodbye(), Some(1_200));
        bench.hear(1_250, ended(Outcome::Completed));
        assert_eq!(bench.over(), Some((1_250, Action::Ended(Finish::Goodbye(Outcome::Completed)))));
    }
}

#[test]
fn stop_in_a_turn_waits_for_its_end_or_the_deadline() {
    let mut bench = Bench::live(talker(EndKind::TcpRst));
    bench.run(1_600);
    bench.stop(1_600, 9_000);
    bench.answer(2_000, 1, 1, 5);
    bench.run(3_000);
    assert_eq!(bench.goodbye(), Some(2_140));
    let mut bench = Bench::live(talker(EndKind::Graceful));
    bench.run(1_600);
    bench.stop(1_600, 2_500);
    bench.run(30_000);
    assert_eq!(bench.goodbye(), Some(2_500));
    assert_eq!(bench.count(Counter::TurnsInterrupted), 1);
    assert_eq!(bench.over(), Some((7_500, lost(FailureCause::GoodbyeTimeout))));
}

#[test]
fn stop_before_acceptance_aborts_or_ends_what_is_accepted() {
    let mut bench = Bench::new(one_turn());
    bench.stop(105, 9_000);
    assert_eq!(bench.over(), Some((105, Action::Failed(FailureCause::Aborted))));
    for late in [false, true] {
        let mut bench = Bench::new(one_turn());
        bench.act(ms(110), |caller, out| caller.on_connected(true, ms(110), out));
        bench.stop(120, 900);
        assert_eq!(bench.over(), None);
        if late {
            bench.run(2_000);
            assert_eq!(bench.over(), Some((900, Action::Failed(FailureCause::Aborted))));
        } else {
            bench.hear(200, accepted());
            assert_eq!(bench.goodbye(), Some(200));
            bench.run(5_000);
            assert_eq!(bench.over(), None, "the answer has its 5 s");
        }
    }
}

#[test]
fn the_server_may_end_it() {
    let mut bench = Bench::live(one_turn());
    bench.run(1_600);
    bench.hear(1_600, ended(Outcome::Drained));
    assert_eq!(bench.over(), Some((1_600, Action::Ended(Finish::ByServer(Outcome::Drained)))));
    assert_eq!((bench.count(Counter::TurnsMissed), bench.count(Counter::SessionsCutShort)), (1, 1), "an answer was due");
}

#[test]
fn a_fatal_error_silences_the_caller_until_the_server_ends_it() {
    let doomed = || {
        let mut bench = Bench::live(one_turn());
        bench.hear(1_600, fatal(ErrorCode::Deadline));
        assert_eq!(bench.over(), None);
        assert_eq!(bench.count(Counter::TurnsInterrupted), 1);
        bench.run(1_900);
        assert!(bench.frame_times().iter().all(|&at| at <= 1_600));
        bench
    };
    let mut bench = doomed();
    bench.hear(1_900, ended(Outcome::TimedOut));
    assert_eq!(bench.over(), Some((1_900, Action::Ended(Finish::ByServer(Outcome::TimedOut)))));
    let mut bench = doomed();
    bench.close(1_900, FailureCause::Eof);
    assert_eq!(bench.over(), Some((1_900, lost(FailureCause::ServerError(ErrorCode::Deadline)))));
    // The close says more than the error: a key, for one.
    let mut bench = doomed();
    bench.close(1_900, FailureCause::Unauthorized);
    assert_eq!(bench.over(), Some((1_900, lost(FailureCause::Unauthorized))));
    let mut bench = doomed();
    bench.run(60_000);
    assert_eq!(bench.over(), Some((6_600, lost(FailureCause::ServerError(ErrorCode::Deadline)))));
}

#[test]
fn an_error_that_crosses_our_goodbye_is_the_servers_end() {
    let mut bench = Bench::live(one_turn());
    bench.stop(1_100, 9_000);
    bench.hear(1_200, fatal(ErrorCode::Deadline));
    bench.hear(1_200, ended(Outcome::TimedOut));
    assert_eq!(bench.over(), Some((1_200, Action::Ended(Finish::ByServer(Outcome::TimedOut)))));
}

#[test]
fn an_acceptance_that_is_wrong_still_goes_to_the_ledger() {
    let mut bench = Bench::live(one_turn());
    bench.hear(1_100, accepted());
    assert_eq!(bench.over(), Some((1_100, lost(FailureCause::Protocol))));
    let mut other = one_turn();
    let mut ulaw = scenario(Vec::new());
    ulaw.service = Arc::new(Service { input: AudioFormat::Mulaw8k, output: AudioFormat::Mulaw8k, ..Service::default() });
    other.scenario = Arc::new(ulaw);
    let bench = Bench::live(other);
    assert_eq!(bench.over(), Some((1_000, lost(FailureCause::Protocol))));
    assert!(bench.log.iter().any(|(_, action)| matches!(action, Action::Accepted(_))));
    assert!(bench.dropped());
}
