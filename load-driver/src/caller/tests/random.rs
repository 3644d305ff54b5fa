//! Whatever a server sends, and whenever.

use proptest::prelude::*;

use super::*;
use crate::plan::{Agent, Dialect, Service, TurnDetection};

#[derive(Debug, Clone)]
enum Input {
    Event(ServerEvent),
    Connected,
    Closed,
    Stop(u64),
    /// Time passes, punctually.
    Run,
    /// Time passes, and the shard wakes late.
    Late,
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..6u64, 1 => Just(u64::MAX)]
}

fn status() -> impl Strategy<Value = ResponseStatus> {
    use ResponseStatus::{Cancelled, Completed, Failed, Interrupted};
    prop_oneof![Just(Completed), Just(Interrupted), Just(Cancelled), Just(Failed)]
}

fn input() -> impl Strategy<Value = Input> {
    let event = prop_oneof![
        1 => Just(accepted()),
        4 => any::<bool>().prop_map(speech),
        6 => (number(), any::<bool>()).prop_map(|(turn, last)| transcript(turn, last)),
        12 => (number(), number()).prop_map(|(response, turn)| response_start(response, turn)),
        40 => (number(), number(), 0..3_000usize, any::<bool>()).prop_map(|(sequence, response, bytes, loud)| {
            let payload = Bytes::from(vec![u8::from(loud); bytes]);
            ServerEvent::Audio(AgentAudio { sequence, timestamp_us: 0, payload, response: ResponseId(response) })
        }),
        10 => number().prop_map(|sequence| audio(sequence, 0)),
        3 => number().prop_map(|turn| ServerEvent::Committed { turn: TurnId(turn) }),
        3 => Just(ServerEvent::Mark { name: "m".to_owned() }),
        1 => Just(ServerEvent::GoingAway { left_ms: 1_000 }),
        10 => (number(), status()).prop_map(|(response, status)| response_end(response, status)),
        5 => number().prop_map(|sequence| ServerEvent::Ack { sequence }),
        4 => any::<bool>().prop_map(|planned| tool_call("c", if planned { "lookup" } else { "other" })),
        2 => Just(ServerEvent::ToolCancel { call_id: "c".to_owned() }),
        1 => Just(fatal(ErrorCode::Internal)),
        2 => Just(ServerEvent::Error(SessionError::warning(ErrorCode::SequenceGap, "test"))),
        1 => Just(ended(Outcome::Completed)),
    ];
    prop_oneof![
        80 => event.prop_map(Input::Event),
        1 => Just(Input::Connected),
        1 => Just(Input::Closed),
        1 => (0..5_000u64).prop_map(Input::Stop),
        20 => Just(Input::Run),
        10 => Just(Input::Late),
    ]
}

prop_compose! {
    fn session()(
        end in 0..EndKind::ALL.len(),
        length in proptest::option::of(0..20_000u64),
        waits in prop::collection::vec(0..2_000u64, 0..4),
        acts in prop::collection::vec(0..6u8, 4),
        send_silence in any::<bool>(),
        markers in any::<bool>(),
        ack_every in 0..4u32,
        silent in prop::bool::weighted(0.2),
        after in 0..600u64,
        dialect in 0..Dialect::ALL.len(),
        commits in prop::bool::weighted(0.2),
        greets in prop::bool::weighted(0.2),
    ) -> SessionPlan {
        let turns = waits.iter().zip(&acts).map(|(&wait, act)| {
            let act = match act {
                0 => ActTemplate::Listen,
                1 => ActTemplate::BargeIn { after: constant(after), explicit: true, heard: None, says: Vec::new() },
                2 => ActTemplate::BargeIn { after: constant(after), explicit: true, heard: None, says: says() },
                3 => ActTemplate::BargeIn { after: constant(after), explicit: false, heard: None, says: says() },
                4 => ActTemplate::Cancel { after: constant(after) },
                _ => ActTemplate::Tool { name: "lookup".to_owned(), takes: constant(after) },
            };
            let says = if silent { Vec::new() } else { says() };
            TurnTemplate { wait: WaitTemplate::After(constant(wait)), says, act, response: None, dtmf: "".into() }
        });
        let mut scenario = scenario(turns.collect());
        (scenario.send_silence, scenario.markers, scenario.ack_every) = (send_silence, markers, ack_every);
        scenario.response_timeout = Duration::from_secs(2);
        // As often the native one as any other.
        let dialect = if after % 2 == 0 { Dialect::Native } else { Dialect::ALL[dialect] };
        let turn_detection = if commits { TurnDetection::None } else { TurnDetection::ServerVad };
        let agent = Agent { turn_detection, greets, ..Agent::default() };
        scenario.service = Arc::new(Service { dialect, agent, ..Service::default() });
        let mut plan = plan(scenario);
        (plan.end, plan.length) = (EndKind::ALL[end], length.map(Duration::from_millis));
        plan
    }
}

fn check(bench: &Bench) {
    let over = bench.over();
    let ends = bench.log.iter().filter(|(_, action)| matches!(action, Action::Ended(_) | Action::Failed(_))).count();
    assert!(ends <= 1);
    let accepted = bench.log.iter().filter(|(_, action)| matches!(action, Action::Accepted(_))).count();
    match over {
        Some((_, Action::Failed(_))) => assert_eq!(accepted, 0),
        Some(_) => assert_eq!(accepted, 1),
        None => assert!(accepted <= 1),
    }
    let frames = bench.frames();
    for (n, (_, frame)) in frames.iter().enumerate() {
        assert_eq!(frame.sequence, n as u64);
    }
    for pair in frames.windows(2) {
        assert!(pair[0].1.timestamp_us + 20_000 <= pair[1].1.timestamp_us, "no two frames within 20 ms of intended time");
    }
    assert_eq!(bench.count(Counter::FramesSent), frames.len() as u64);
    for (at, action) in &bench.log {
        if let Action::Measure(sample) = action {
            assert!(sample.intended <= sample.actual, "{sample:?} at {at}");
            assert!(sample.to <= *at, "nothing is measured before it happened: {sample:?} at {at}");
            assert!(sample.intended <= sample.to, "{sample:?}");
        }
    }
    let turns = bench.count(Counter::Turns);
    let closed = bench.count(Counter::TurnsAnswered) + bench.count(Counter::TurnsMissed) + bench.count(Counter::TurnsInterrupted);
    assert_eq!(turns, closed + u64::from(bench.caller.turn.is_some()));
    let stops = bench.samples(Metric::BargeInStop).len() as u64 + bench.count(Counter::BargeInsMissed);
    assert!(stops <= bench.count(Counter::BargeIns));
    for metric in [Metric::BargeInSignal, Metric::BargeInLastPacket, Metric::BargeInSilent] {
        assert!(bench.samples(metric).len() as u64 <= bench.count(Counter::BargeIns));
    }
    assert!(bench.count(Counter::BargeInsFalse) <= bench.count(Counter::Responses) + 1);
    assert!(bench.count(Counter::TalkOverUs) <= bench.count(Counter::SpeechUs) + 40_000 * turns, "within the speech");
    let marks = bench.log.iter().filter(|(_, action)| matches!(action, Action::Send(ClientEvent::Played { .. }))).count();
    assert!(marks <= 200);
    let said_goodbye = bench.log.iter().position(|(_, action)| matches!(action, Action::Send(ClientEvent::End { .. })));
    if let Some(at) = said_goodbye {
        assert!(!bench.log[at + 1..].iter().any(|(_, action)| matches!(action, Action::Send(_))), "nothing follows goodbye");
    }
}

fn play(session: SessionPlan, inputs: &[(u64, Input)]) -> Bench {
    let mut bench = Bench::new(session);
    bench.act(ms(110), |caller, out| caller.on_connected(true, ms(110), out));
    let mut now = 120;
    bench.hear(now, accepted());
    for (gap, input) in inputs {
        now += gap;
        let at = ms(now);
        match input.clone() {
            Input::Event(event) => bench.act(at, |caller, out| caller.on_event(event, at, out)),
            Input::Connected => bench.act(at, |caller, out| caller.on_connected(false, at, out)),
            Input::Closed => bench.close(now, FailureCause::Reset),
            Input::Stop(more) => bench.stop(now, now + more),
            Input::Run => bench.run(now),
            Input::Late => bench.late(now),
        }
    }
    bench.stop(now, now + 1_000);
    bench.run(now + 10_000);
    bench
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_server_breaks_the_caller(session in session(), inputs in prop::collection::vec((0..120u64, input()), 0..200)) {
        let bench = play(session, &inputs);
        check(&bench);
        prop_assert!(bench.over().is_some(), "a stopped session ends");
    }

    #[test]
    fn nothing_but_the_start_is_sent_before_acceptance(session in session(), inputs in prop::collection::vec((0..120u64, input()), 0..20)) {
        let mut bench = Bench::new(session);
        bench.act(ms(110), |caller, out| caller.on_connected(true, ms(110), out));
        let mut now = 110;
        for (gap, input) in inputs {
            now += gap;
            match input {
                Input::Event(ServerEvent::Accepted(_)) => continue,
                Input::Event(event) => bench.hear(now, event),
                Input::Closed => bench.close(now, FailureCause::Eof),
                _ => bench.run(now),
            }
            check(&bench);
        }
        prop_assert_eq!(bench.sent().len() + bench.frames().len(), 1);
    }
}
