//! Each rule for a fault of the backend finds it, and leaves a backend alone that is only slow.

use super::*;
use crate::{
    plan::{Dialect, Service},
    voice::{Kinds, VoiceFault},
};

/// Turns begin at 2 s, 7 s, 12 s ...; speech is over 170 ms later, and missed 2 s after that.
const fn begins(turn: u64) -> u64 {
    2_000 + 5_000 * turn
}

fn talk(acts: Vec<ActTemplate>) -> Bench {
    let at = |(n, act): (usize, ActTemplate)| TurnTemplate { wait: WaitTemplate::At(ms(begins(n as u64))), ..turn(0, act) };
    let turns = acts.into_iter().enumerate().map(at).collect();
    Bench::live(plan(ScenarioPlan { response_timeout: Duration::from_secs(2), ..scenario(turns) }))
}

fn listening(turns: usize) -> Bench {
    talk((0..turns).map(|_| ActTemplate::Listen).collect())
}

fn explicit(heard: Option<crate::plan::Claim>) -> ActTemplate {
    ActTemplate::BargeIn { after: constant(300), explicit: true, heard, says: Vec::new() }
}

impl Bench {
    /// The turn is heard and answered.
    fn answered(&mut self, turn: u64, number: u64) {
        self.heard(turn, number);
        self.answer(begins(turn) + 600, number, number, 30);
    }

    fn heard(&mut self, turn: u64, number: u64) {
        self.hear(begins(turn) + 100, speech(true));
        self.hear(begins(turn) + 500, speech(false));
        self.hear(begins(turn) + 520, transcript(number, true));
    }

    /// The session ends in order; what was found, and what was put to the test.
    fn verdict(&mut self) -> (Vec<(VoiceFault, u32)>, Kinds) {
        self.run(60_000);
        if self.over().is_none() {
            self.hear(60_000, ended(Outcome::Completed));
        }
        let verdict = self.log.iter().find_map(|(_, action)| match action {
            Action::Voice(verdict) => Some(verdict.clone()),
            _ => None,
        });
        let verdict = verdict.unwrap_or_default();
        (verdict.found.iter().map(|found| (found.kind, found.size())).collect(), verdict.tested)
    }

    /// Goodbye is answered when it comes.
    #[track_caller]
    fn finds(&mut self, expected: &[(VoiceFault, u32)]) -> Kinds {
        for second in 3..60 {
            self.run(second * 1_000);
            if self.goodbye().is_some() && self.over().is_none() {
                self.hear(second * 1_000, ended(Outcome::Completed));
            }
        }
        let (found, tested) = self.verdict();
        assert_eq!(found, expected);
        tested
    }
}

#[test]
fn a_good_conversation_is_put_to_the_test_and_nothing_is_found() {
    let mut bench = talk(vec![ActTemplate::Listen, explicit(None), ActTemplate::Listen]);
    bench.answered(0, 1);
    bench.heard(1, 2);
    bench.hear(begins(1) + 600, response_start(2, 2));
    bench.hear_frames(begins(1) + 600, 2, 15);
    bench.hear(begins(1) + 920, response_end(2, ResponseStatus::Interrupted));
    bench.answered(2, 3);
    let tested = bench.finds(&[]);
    for kind in [
        VoiceFault::StaleAudioAfterBargeIn,
        VoiceFault::OutputGaps,
        VoiceFault::SilentSession,
        VoiceFault::NoTurnEnd,
        VoiceFault::DoubleResponse,
        VoiceFault::VadDrop,
        VoiceFault::CrossTalk,
    ] {
        assert!(tested.has(kind), "{kind:?}");
    }
    assert!(!tested.has(VoiceFault::TruncateEdge), "nobody claimed what was not so");
}

/// Interrupted at 900; audio of it goes on for so long after its end, from `from` on.
fn stale(from: u64, frames: u64) -> Bench {
    let mut bench = talk(vec![explicit(None), ActTemplate::Listen]);
    bench.heard(0, 1);
    bench.hear(begins(0) + 600, response_start(1, 1));
    bench.hear_frames(begins(0) + 600, 1, 15);
    bench.hear(begins(0) + 920, response_end(1, ResponseStatus::Interrupted));
    bench.hear_frames(begins(0) + 920 + from, 1, frames);
    bench.answered(1, 2);
    bench
}

#[test]
fn audio_after_an_interrupted_end_is_stale_when_it_goes_on() {
    stale(0, 100).finds(&[(VoiceFault::StaleAudioAfterBargeIn, 1)]);
    stale(0, 10).finds(&[]);
    stale(0, 0).finds(&[]);
}

/// The user speaks again while the agent thinks, and is heard at 850; the first answer begins at `start` and says so many frames.
fn begun_too_late(start: u64, frames: u64, stopped: bool) -> Bench {
    let again = ActTemplate::SpeakAgain { after: constant(600), says: vec![utterance(5, 10, 70)] };
    let mut bench = talk(vec![again, ActTemplate::Listen]);
    bench.heard(0, 1);
    let heard = |bench: &mut Bench| bench.hear(begins(0) + 850, speech(true));
    if start >= 850 {
        heard(&mut bench);
    }
    if frames > 0 {
        bench.hear(begins(0) + start, response_start(1, 1));
        bench.hear_frames(begins(0) + start, 1, frames);
    }
    if start < 850 {
        heard(&mut bench);
    }
    if stopped {
        bench.hear(begins(0) + 860, response_end(1, ResponseStatus::Interrupted));
    }
    bench.hear(begins(0) + 1_350, speech(false));
    bench.hear(begins(0) + 1_370, transcript(2, true));
    bench.answer(begins(0) + 1_500, 2, 2, 30);
    bench.answered(1, 3);
    bench
}

#[test]
fn an_answer_that_was_given_up_before_it_began_is_stale_when_it_comes() {
    begun_too_late(900, 20, false).finds(&[(VoiceFault::StaleAudioAfterBargeIn, 1)]);
    begun_too_late(900, 4, false).finds(&[]);
    // It began before the agent heard that the user goes on, and is stopped then.
    begun_too_late(800, 2, true).finds(&[]);
    let mut good = begun_too_late(900, 0, false);
    assert!(good.finds(&[]).has(VoiceFault::StaleAudioAfterBargeIn));
    let count = |kind| good.log.iter().filter(|(_, action)| matches!(action, Action::Count(counter, 1) if *counter == kind)).count();
    let counted = [Counter::Turns, Counter::TurnsAnswered, Counter::TurnsInterrupted, Counter::BargeIns].map(count);
    assert_eq!(counted, [3, 2, 1, 0], "there was nothing to stop");
}

/// An answer whose frames come after these pauses, ms.
fn paused(pauses: &[u64]) -> Bench {
    let mut bench = listening(1);
    bench.heard(0, 1);
    let mut at = begins(0) + 600;
    bench.hear(at, response_start(1, 1));
    for pause in pauses {
        bench.hear_frames(at, 1, 10);
        at += 200 + pause;
    }
    bench.hear_frames(at, 1, 10);
    bench.hear(at + 200, response_end(1, ResponseStatus::Completed));
    bench
}

#[test]
fn holes_count_from_a_length_and_a_number_on() {
    paused(&[120, 150, 100]).finds(&[(VoiceFault::OutputGaps, 3)]);
    paused(&[120, 150]).finds(&[]);
    paused(&[80, 80, 80, 80, 80]).finds(&[]);
    assert!(paused(&[0; 5]).finds(&[]).has(VoiceFault::OutputGaps));
    assert!(!paused(&[0]).finds(&[]).has(VoiceFault::OutputGaps), "three holes have no room in it");
}

#[test]
fn what_the_driver_itself_came_late_is_no_hole() {
    let mut bench = listening(1);
    bench.heard(0, 1);
    bench.hear(begins(0) + 600, response_start(1, 1));
    for n in 0..4 {
        bench.caller.on_stall(n * 140_000);
        bench.hear_frames(begins(0) + 600 + n * 340, 1, 10);
    }
    bench.hear(begins(0) + 2_000, response_end(1, ResponseStatus::Completed));
    bench.finds(&[]);
}

/// A machine that kept the driver from running may have kept the backend from it for longer.
#[test]
fn a_hole_in_which_the_driver_itself_stood_still_is_not_judged() {
    let holes = |own_us: u64| {
        let mut bench = listening(1);
        bench.heard(0, 1);
        bench.hear(begins(0) + 600, response_start(1, 1));
        for n in 0..4 {
            bench.caller.on_stall(n * own_us);
            bench.hear_frames(begins(0) + 600 + n * 400, 1, 10);
        }
        bench.hear(begins(0) + 2_200, response_end(1, ResponseStatus::Completed));
        bench
    };
    holes(60_000).finds(&[]);
    holes(30_000).finds(&[(VoiceFault::OutputGaps, 3)]);
}

#[test]
fn a_session_is_silent_after_two_turns_without_any_sign_that_it_survives() {
    let mut bench = listening(3);
    bench.answered(0, 1);
    bench.finds(&[(VoiceFault::SilentSession, 1)]);
    // One is not enough.
    let mut bench = listening(2);
    bench.answered(0, 1);
    bench.finds(&[]);
    // A slow backend shows that it heard, whatever becomes of its answers.
    let mut bench = listening(3);
    bench.answered(0, 1);
    bench.heard(1, 2);
    bench.heard(2, 3);
    bench.finds(&[]);
    // Even long after the turn was given up.
    let mut bench = listening(3);
    bench.answered(0, 1);
    bench.hear(begins(2) + 2_400, transcript(2, true));
    bench.finds(&[]);
    // A session that breaks is not alive.
    let mut bench = listening(4);
    bench.answered(0, 1);
    bench.run(begins(3));
    bench.close(begins(3) + 10, FailureCause::Reset);
    assert_eq!(bench.verdict().0, []);
}

#[test]
fn a_session_that_falls_silent_at_an_edge_says_where() {
    for claim in [crate::plan::Claim::Nothing, crate::plan::Claim::Beyond] {
        let mut bench = talk(vec![explicit(Some(claim)), ActTemplate::Listen, ActTemplate::Listen]);
        bench.heard(0, 1);
        bench.hear(begins(0) + 600, response_start(1, 1));
        bench.hear_frames(begins(0) + 600, 1, 15);
        bench.hear(begins(0) + 920, response_end(1, ResponseStatus::Interrupted));
        let claimed = bench.sent().into_iter().find_map(|(_, event)| match event {
            ClientEvent::BargeIn { heard_ms, .. } => Some(heard_ms),
            _ => None,
        });
        assert_eq!(claimed, Some(claim.heard_ms()));
        bench.finds(&[(VoiceFault::TruncateEdge, 1)]);
    }
    let mut bench = talk(vec![explicit(Some(crate::plan::Claim::Nothing)), ActTemplate::Listen]);
    bench.heard(0, 1);
    bench.hear(begins(0) + 600, response_start(1, 1));
    bench.hear_frames(begins(0) + 600, 1, 15);
    bench.hear(begins(0) + 920, response_end(1, ResponseStatus::Interrupted));
    bench.answered(1, 2);
    assert!(bench.finds(&[]).has(VoiceFault::TruncateEdge));
}

/// The first answer is played out, and its end comes at this time, if ever.
fn unended(end: Option<u64>) -> Bench {
    let mut bench = listening(2);
    bench.heard(0, 1);
    bench.hear(begins(0) + 600, response_start(1, 1));
    bench.hear_frames(begins(0) + 600, 1, 30);
    if let Some(end) = end {
        bench.hear(end, response_end(1, ResponseStatus::Completed));
    }
    bench.answered(1, 2);
    bench
}

#[test]
fn an_end_that_never_comes_is_told_from_a_late_one() {
    unended(None).finds(&[(VoiceFault::NoTurnEnd, 1)]);
    unended(Some(begins(0) + 1_200)).finds(&[]);
    // After the turn was given up, but before anything else.
    unended(Some(begins(0) + 4_500)).finds(&[]);
    // A stalled backend is interrupted by the next turn before it can end.
    let mut bench = listening(2);
    bench.heard(0, 1);
    bench.hear(begins(0) + 600, response_start(1, 1));
    bench.hear_frames(begins(0) + 600, 1, 30);
    bench.hear(begins(1) + 100, speech(true));
    bench.hear(begins(1) + 100, response_end(1, ResponseStatus::Interrupted));
    bench.answer(begins(1) + 600, 2, 2, 30);
    assert!(!bench.finds(&[]).has(VoiceFault::NoTurnEnd), "what it lost nobody knows");
}

#[test]
fn a_second_response_to_one_turn_is_found_and_one_to_a_tool_is_not() {
    let twice = |after: u64, between: Option<ServerEvent>| {
        let mut bench = listening(2);
        bench.answered(0, 1);
        let at = begins(0) + 1_200;
        if let Some(event) = between {
            bench.hear(at, event);
        }
        bench.answer(at + after, 2, 1, 30);
        bench.answered(1, 3);
        bench
    };
    twice(100, None).finds(&[(VoiceFault::DoubleResponse, 1)]);
    twice(2_500, None).finds(&[]);
    twice(100, Some(tool_call("call-1", "lookup"))).finds(&[]);
    // Starved of audio, the backend took one thing said for two, and answers both.
    twice(100, Some(speech(true))).finds(&[]);
    twice(100, Some(transcript(2, true))).finds(&[]);
}

#[test]
fn a_turn_that_was_dropped_is_told_from_one_that_was_heard_late() {
    let mut bench = listening(3);
    bench.answered(0, 1);
    bench.answered(2, 2);
    bench.finds(&[(VoiceFault::VadDrop, 1)]);
    // The words of the turn come when nobody waits for them any more.
    let mut bench = listening(3);
    bench.answered(0, 1);
    bench.hear(begins(1) + 4_000, transcript(2, true));
    bench.answered(2, 3);
    bench.finds(&[]);
    // What the driver did not send cannot have been heard.
    let mut bench = listening(3);
    bench.answered(0, 1);
    bench.caller.on_lost_audio();
    bench.answered(2, 2);
    let tested = bench.finds(&[]);
    assert!(!tested.has(VoiceFault::VadDrop));
}

#[test]
fn who_speaks_before_anybody_spoke_is_heard_in_the_wrong_session_unless_it_greets() {
    let greeted = |greets: bool| {
        let mut scenario = scenario(vec![TurnTemplate { wait: WaitTemplate::At(ms(begins(0))), ..turn(0, ActTemplate::Listen) }]);
        let service = crate::plan::Service { agent: crate::plan::Agent { greets, ..Default::default() }, ..Default::default() };
        scenario.service = Arc::new(service);
        let mut bench = Bench::live(plan(scenario));
        bench.answer(1_050, 1, 0, 10);
        bench.hear(begins(0) + 100, speech(true));
        bench.hear(begins(0) + 520, transcript(1, true));
        bench.answer(begins(0) + 600, 2, 1, 30);
        bench
    };
    greeted(false).finds(&[(VoiceFault::CrossTalk, 1)]);
    assert!(!greeted(true).finds(&[]).has(VoiceFault::CrossTalk));
}

/// A session that ends in order, 200 ms after its goodbye or, where it says none, when it is stopped at `stop`.
fn tested(bench: &mut Bench, stop: u64) -> Kinds {
    bench.run(stop);
    if bench.goodbye().is_none() {
        bench.stop(stop, stop + 10);
        bench.run(stop + 10);
    }
    let goodbye = bench.goodbye().expect("a goodbye");
    bench.hear(goodbye.max(stop) + 200, ended(Outcome::Completed));
    let (found, tested) = bench.verdict();
    assert_eq!(found, []);
    tested
}

#[test]
fn one_unheard_turn_at_the_end_proves_neither_silence_nor_hearing() {
    let kinds = [VoiceFault::SilentSession, VoiceFault::VadDrop];
    let judged = |bench: &mut Bench, stop: u64| {
        let tested = tested(bench, stop);
        kinds.map(|kind| tested.has(kind))
    };
    // Given up; and cut off before that.
    for stop in [begins(2), begins(1) + 1_000] {
        let mut bench = listening(2);
        bench.answered(0, 1);
        assert_eq!(judged(&mut bench, stop), [false, false], "{stop}");
    }
    let mut bench = listening(4);
    for turn in 0..3 {
        bench.answered(turn, turn + 1);
    }
    assert_eq!(judged(&mut bench, begins(3) + 1_000), [false, false], "the last turn may be the one");
    // All were answered: nothing was silent, and between two turns none was lost.
    for (turns, expected) in [(1, [false, false]), (2, [true, false]), (3, [true, true])] {
        let mut bench = listening(turns);
        for turn in 0..turns as u64 {
            bench.answered(turn, turn + 1);
        }
        assert_eq!(judged(&mut bench, begins(turns as u64)), expected, "{turns}");
    }
}

#[test]
fn nothing_is_put_to_the_test_that_was_not_listened_for() {
    let mut bench = listening(1);
    bench.answered(0, 1);
    assert!(!tested(&mut bench, begins(1)).has(VoiceFault::DoubleResponse), "it left with the answer");
    // Interrupted, and gone.
    let mut bench = talk(vec![explicit(Some(crate::plan::Claim::Nothing)), ActTemplate::Listen]);
    bench.heard(0, 1);
    bench.hear(begins(0) + 600, response_start(1, 1));
    bench.hear_frames(begins(0) + 600, 1, 15);
    bench.hear(begins(0) + 920, response_end(1, ResponseStatus::Interrupted));
    let at_once = tested(&mut bench, begins(0) + 1_000);
    assert!(!at_once.has(VoiceFault::StaleAudioAfterBargeIn) && !at_once.has(VoiceFault::TruncateEdge), "{at_once:?}");
}

/// Three turns in a dialect without names, none of which ends of itself.
fn nameless(dialect: crate::plan::Dialect) -> Bench {
    let at = |n: u64| TurnTemplate { wait: WaitTemplate::At(ms(begins(n))), ..turn(0, ActTemplate::Listen) };
    let mut scenario = ScenarioPlan { response_timeout: Duration::from_secs(2), ..scenario((0..3).map(at).collect()) };
    scenario.service = Arc::new(crate::plan::Service { dialect, ..Default::default() });
    Bench::live(plan(scenario))
}

impl Bench {
    /// Answered, and no end of it comes.
    fn unended(&mut self, turn: u64, number: u64) {
        self.heard(turn, number);
        self.hear(begins(turn) + 600, response_start(number, number));
        self.hear_frames(begins(turn) + 600, number, 30);
    }
}

#[test]
fn where_an_onset_may_have_ended_it_one_lost_end_is_not_judged_and_two_are_found() {
    let mut bench = nameless(crate::plan::Dialect::Deepgram);
    for turn in 0..3 {
        bench.unended(turn, turn + 1);
    }
    let given_up = |(_, event): &(u64, ClientEvent)| matches!(event, ClientEvent::GiveUp { .. });
    assert_eq!(bench.sent().iter().filter(|sent| given_up(sent)).count(), 2, "so far");
    bench.finds(&[(VoiceFault::NoTurnEnd, 2)]);
    let mut bench = nameless(crate::plan::Dialect::Deepgram);
    bench.unended(0, 1);
    bench.answered(1, 2);
    bench.answered(2, 3);
    assert!(!bench.finds(&[]).has(VoiceFault::NoTurnEnd));
}

#[test]
fn where_responses_have_no_names_a_new_one_without_a_user_is_the_old_one() {
    let mut bench = nameless(crate::plan::Dialect::Ces);
    bench.unended(0, 1);
    bench.hear(begins(1) + 400, transcript(2, false));
    bench.answer(begins(1) + 600, 2, 2, 30);
    bench.answered(2, 3);
    bench.finds(&[(VoiceFault::NoTurnEnd, 1)]);
    // It goes on after a pause that is longer than anybody waits.
    let mut bench = nameless(crate::plan::Dialect::Ces);
    bench.unended(0, 1);
    bench.answer(begins(0) + 4_000, 2, 0, 10);
    bench.answered(1, 3);
    bench.answered(2, 4);
    assert!(!bench.finds(&[]).has(VoiceFault::NoTurnEnd));
}

/// An agent that was starved of audio may look so where it does not say what it heard: a fault of the run can be the reason there, and only there.
#[test]
fn what_times_alone_told_is_marked() {
    for (dialect, by_time) in [(Dialect::Native, false), (Dialect::GeminiLive, true)] {
        let acts = [0, 1].map(|n| TurnTemplate { wait: WaitTemplate::At(ms(begins(n))), ..turn(0, ActTemplate::Listen) });
        let service = Arc::new(Service { dialect, ..Service::default() });
        let mut bench = Bench::live(plan(ScenarioPlan { service, response_timeout: Duration::from_secs(2), ..scenario(acts.into()) }));
        bench.answer(begins(0) + 600, 1, 0, 30);
        bench.answer(begins(0) + 1_300, 2, 0, 30);
        bench.answer(begins(1) + 600, 3, 0, 30);
        bench.finds(&[(VoiceFault::DoubleResponse, 1)]);
        let verdict = bench.log.iter().find_map(|(_, action)| match action {
            Action::Voice(verdict) => Some(verdict.clone()),
            _ => None,
        });
        assert_eq!(verdict.unwrap().by_time.has(VoiceFault::DoubleResponse), by_time, "{dialect:?}");
    }
}
