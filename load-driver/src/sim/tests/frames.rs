//! The same session twice: once frame by frame, by the caller and the server's session themselves, and once by phases.

use std::{collections::VecDeque, sync::Arc};

use agent_server::{
    config::{ServeArgs, ServerConfig},
    session::{Effect, Session},
    tracker::Phase,
};
use proto::{
    frame::{ClientEvent, Outcome, ServerEvent},
    time::Micros,
};

use super::*;
use crate::{
    caller::{Action, Caller},
    plan::Plan,
    record::Metric,
    sim::{run::Run, session::REACH, setup::Setup},
};

/// What came of a session.
#[derive(Debug, Default)]
struct Course {
    /// From the acceptance until the server's end.
    lasted: u64,
    /// From the schedule to the agent's first stream.
    first_stream: Option<u64>,
    /// Frames that cost something, by phase: all five of them.
    cost: [u64; 5],
    outcome: Option<Outcome>,
}

/// Frame by frame, over a network that takes as long as the simulator says.
fn by_frames(profile: &Profile) -> Course {
    let plan = Plan::build(profile, "sim").unwrap();
    let args: ServeArgs = serde_json::from_value(serde_json::to_value(&profile.server).unwrap()).unwrap();
    let config = Arc::new(ServerConfig::resolve(args).unwrap().session("b", "b"));
    let start = plan.scenarios[0].lanes[0].start;
    let mut caller = Caller::new(plan.session(0, 0, 0, start), start);
    let (mut session, mut out, mut course) = (None::<Session>, Vec::new(), Course::default());
    let (mut up, mut down) = (VecDeque::<(Micros, ClientEvent)>::new(), VecDeque::<(Micros, ServerEvent)>::new());
    let way = Duration::from_micros(session::ONE_WAY);
    let connected = start + Duration::from_micros(REACH - session::ONE_WAY);
    let (mut now, mut accepted, mut begun) = (start, Micros::ZERO, false);
    let stop = plan.scenarios[0].lanes[0].stop + plan.scenarios[0].lanes[0].grace;
    let mut stopped = false;
    while course.outcome.is_none() {
        let mut effects = Vec::new();
        if !begun && now >= connected {
            begun = true;
            caller.on_connected(true, now, &mut out);
        } else if let Some((_, event)) = up.pop_front_if(|(at, _)| *at <= now) {
            match (&mut session, event) {
                (None, ClientEvent::Start(start)) => {
                    accepted = now;
                    session = Some(Session::new(Arc::clone(&config), 1, "s".to_owned(), start, Duration::ZERO, now, &mut effects));
                }
                (Some(session), event) => session.on_event(event, now, &mut effects),
                (None, event) => panic!("{event:?} before the start"),
            }
        } else if let Some((_, event)) = down.pop_front_if(|(at, _)| *at <= now) {
            caller.on_event(event, now, &mut out);
        } else if session.as_ref().is_some_and(|session| session.next_wake() <= now) {
            session.as_mut().unwrap().step(now, &mut effects);
        } else if caller.next_wake() <= now {
            caller.step(now, &mut out);
        } else if !stopped && stop <= now {
            stopped = true;
            caller.stop(now, now, &mut out);
        } else {
            let next = [up.front().map(|e| e.0), down.front().map(|e| e.0), session.as_ref().map(Session::next_wake)];
            let begin = if begun { Micros::NEVER } else { connected };
            let stop = if stopped { Micros::NEVER } else { stop };
            now = next.into_iter().flatten().chain([caller.next_wake(), begin, stop]).min().unwrap();
            assert_ne!(now, Micros::NEVER, "nothing is left to do");
        }
        for action in out.drain(..) {
            match action {
                Action::Send(event) => up.push_back((now + way, event)),
                Action::Measure(sample) if sample.metric == Metric::TimeToFirstStream => {
                    course.first_stream = Some((sample.to - sample.intended).as_micros() as u64);
                }
                Action::Force(_) => session.as_mut().unwrap().on_disconnect(now, &mut effects),
                _ => {}
            }
        }
        for effect in effects {
            match effect {
                Effect::Send(event) => down.push_back((now + way, event)),
                Effect::Cost(phase) => course.cost[phase as usize] += 1,
                Effect::End { outcome, .. } => {
                    (course.outcome, course.lasted) = (Some(outcome), (now - accepted).as_micros() as u64);
                }
                Effect::Phase(_) | Effect::Fault(_) => {}
            }
        }
    }
    course
}

/// By phases.
fn by_phases(profile: &Profile, phase: Phase) -> (u64, Option<f64>, f64) {
    let setup = Setup::new(profile, &[]).unwrap();
    let mut run = Run::new(&setup, policy("round_robin"));
    run.go();
    let used = run.backends[0].used_us(run.now);
    let simulated = run.close();
    assert_eq!(simulated.sessions, 1);
    // A frame of the one phase that costs something costs 1 ms.
    let _ = phase;
    (simulated.ended_at.0 - REACH, simulated.balance.first_stream_p50_ms, used as f64 / 1_000.0)
}

fn case(name: &str, rest: &str) {
    for (phase, key) in Phase::ALL.iter().zip(["idle", "user_speaking", "thinking", "tool", "agent_speaking"]) {
        let yaml = format!(
            "
server: {{cpu_cores: 1000, cost: 'virtual:{key}=1ms', think: 'lognormal(300ms, 0.5)', response: 'uniform(1s, 2s)', tool_timeout: 2s}}
backends: [{{count: 1}}]
routing: {{policy: round_robin}}
scenarios:
  one:
    executor: constant-arrival-rate
    rate: 0.5
    duration: 1s
    gracefulStop: 40s
{rest}
"
        );
        let profile = profile(&yaml, &["seed=5"]);
        let served = Profile { server: profile.fleet().members[0].server.clone(), ..profile.clone() };
        let frames = by_frames(&served);
        let (lasted, first_stream, cost) = by_phases(&profile, *phase);
        assert!(lasted.abs_diff(frames.lasted) <= 45_000, "{name}: {lasted} us by phases, {} by frames", frames.lasted);
        let first = frames.first_stream.map(|us| us as f64 / 1_000.0);
        let near = match (first, first_stream) {
            (Some(a), Some(b)) => (a - b).abs() <= 2.0,
            (None, None) => true,
            _ => false,
        };
        assert!(near, "{name}: first stream {first_stream:?} ms by phases, {first:?} by frames");
        let wanted = frames.cost[*phase as usize] as f64;
        // A frame for each time that the phase is entered, at most.
        assert!((cost - wanted).abs() <= 0.03 * wanted + 4.0, "{name}: {cost} frames of {key} by phases, {wanted} by frames");
    }
}

#[test]
fn plain_turns() {
    case(
        "plain",
        "    conversations:
      - turns:
          - {wait: 700ms, say: {synth: 1s}, response: 1500ms}
          - {wait: 300ms, say: {synth: 'uniform(300ms, 900ms)'}}
          - {wait: 0s, say: {synth: 500ms}, response: 20ms}",
    );
}

#[test]
fn turns_with_markers_and_turns_of_silence() {
    case(
        "markers",
        "    markers: true
    conversations:
      - turns:
          - {wait: 700ms}
          - {wait: 300ms, say: {synth: 1s}, response: 1s}
          - {wait: 0s}
          - {wait: 0s}
          - {at: 9s, say: {synth: 500ms}, response: 1s}",
    );
}

#[test]
fn interruptions() {
    for act in [
        "barge_in: {after: 400ms, say: {synth: 600ms}}",
        "barge_in: {after: 400ms, explicit: true}",
        "barge_in: {after: 400ms, explicit: true, say: {synth: 600ms}}",
        "cancel: {after: 300ms}",
        "cancel: {after: 5s}",
        "tool: {name: look, takes: 700ms}",
        "tool: {name: look, takes: 4s}",
    ] {
        case(
            act,
            &format!(
                "    conversations:
      - turns:
          - {{wait: 500ms, say: {{synth: 800ms}}, response: 2s, {act}}}
          - {{wait: 500ms, say: {{synth: 400ms}}, response: 1s}}"
            ),
        );
    }
}

#[test]
fn a_length_that_ends_in_mid_turn_and_one_that_ends_between() {
    for length in ["1200ms", "3s", "4200ms", "9s"] {
        for end in ["graceful", "cancel"] {
            case(
                &format!("{end} after {length}"),
                &format!(
                    "    session_length: {length}
    end: {end}
    conversations: [{{turns: [{{wait: 500ms, say: {{synth: 700ms}}, response: 1s}}]}}]"
                ),
            );
        }
    }
}

#[test]
fn a_share_of_speech() {
    case(
        "ratio",
        "    session_length: 20s
    speaking_ratio: 0.3
    conversations: [{turns: [{say: {synth: 'uniform(600ms, 1500ms)'}, response: 1s}]}]",
    );
}

#[test]
fn answers_that_are_not_waited_for() {
    case(
        "missed",
        "    response_timeout: 700ms
    conversations:
      - turns:
          - {wait: 200ms, say: {synth: 500ms}, response: 1s}
          - {wait: 800ms, say: {synth: 500ms}, response: 1s}
          - {wait: 100ms, say: {synth: 500ms}, response: 1s}",
    );
}

#[test]
fn a_lane_that_ends_under_the_session() {
    case(
        "stop",
        "    session_length: 300s
    conversations: [{turns: [{wait: 500ms, say: {synth: 700ms}, response: 1s}]}]",
    );
}
