//! The driver as a telephone network and as a Pipecat client, against embedded bots: every latency that the dialect has, no miss, exact counters.

mod run_support;

use run_support::{Done, Run, backend::Backend};

const CALLS: &str = "
name: calls
target: embedded
driver: {shards: 1, max_schedule_lag: 5s}
server: {shards: 1, think: 100ms, response: 'uniform(700ms, 1s)', tool_rate: TOOLS}
defaults:
  executor: constant-arrival-rate
  rate: 2
  duration: 1s
  gracefulStop: 15s
  send_silence: true
  dialect: DIALECT
scenarios:
  talk:
    conversations:
      - turns:
          - {wait: 100ms, dtmf: '1#', say: {synth: 500ms}}
          - {wait: 100ms, say: {synth: 500ms}}
  interrupting:
    conversations:
      - turns: [{wait: 100ms, say: {synth: 500ms}, barge_in: {after: 200ms, say: {synth: 500ms}}}]
";

fn run(dialect: &str, tools: &str) -> Done {
    Run::of(&CALLS.replace("DIALECT", dialect).replace("TOOLS", tools)).finish().exits(0)
}

#[track_caller]
fn filled(done: &Done, latencies: &[(&str, u64)]) {
    let all = done.at("/latencies").as_array().expect("a list");
    for (name, least) in latencies {
        let row = all.iter().find(|row| row["metric"] == *name).unwrap_or_else(|| panic!("no metric {name}"));
        let count = row["response"]["count"].as_u64().unwrap_or_else(|| panic!("{row}"));
        assert!(count >= *least, "{name}: {count}\n{}", done.shown());
    }
}

#[test]
fn twilio_calls_are_answered_and_interrupted() {
    let done = run("twilio", "0");
    assert_eq!(done.findings(), []);
    filled(
        &done,
        &[
            ("connect", 4),
            ("session_startup", 4),
            ("time_to_first_stream", 4),
            ("turn_response", 8),
            ("barge_in_stop", 2),
            ("barge_in_signal", 2),
            ("barge_in_silent", 2),
        ],
    );
    for (total, want) in [("turns", 8), ("turns_answered", 8), ("turns_missed", 0), ("barge_ins_missed", 0), ("server_errors", 0)] {
        assert_eq!(done.count(&format!("/counts/{total}")), want, "{total}\n{}", done.shown());
    }
}

#[test]
fn pipecat_clients_are_answered_interrupted_and_asked_for_tools() {
    let done = run("pipecat", "1");
    assert_eq!(done.findings(), []);
    filled(
        &done,
        &[
            ("session_startup", 4),
            ("turn_response", 8),
            ("endpointing", 6),
            ("transcript_first", 6),
            ("transcript_final", 6),
            ("barge_in_stop", 2),
            ("barge_in_last_packet", 2),
            ("tool_round_trip", 8),
        ],
    );
    for (total, want) in [("turns", 8), ("turns_answered", 8), ("turns_missed", 0), ("stale_frames", 0), ("server_errors", 0)] {
        assert_eq!(done.count(&format!("/counts/{total}")), want, "{total}\n{}", done.shown());
    }
}

/// Twilio has no word for an acceptance, and Pipecat without RTVI none either: a session counts once its start is written, so that whoever got
/// an upgrade must get the session. Ten callers run for two places, again and again.
#[test]
fn of_those_who_race_for_the_last_places_nobody_is_taken_for_lost() {
    for (dialect, agent) in [("twilio", "{}"), ("pipecat", "{without_rtvi: true}")] {
        let profile = format!(
            "
name: full
driver: {{shards: 1, max_schedule_lag: 5s}}
defaults: {{dialect: {dialect}, agent: {agent}, executor: constant-sessions, duration: 3s, gracefulStop: 20s, expect: rejected}}
scenarios:
  many: {{sessions: 10, conversations: [{{turns: [{{wait: 200ms, say: {{synth: 300ms}}}}]}}]}}
"
        );
        let backend = Backend::start(&["--max-sessions", "2", "--response", "constant(200ms)"]);
        let done = Run::of(&profile).against(&backend).finish().exits(0);
        assert_eq!(done.findings(), [], "{dialect}");
        let snapshot = backend.eventually("the sessions end", |snapshot| snapshot.active == 0);
        assert!(snapshot.started >= 2 && snapshot.rejected >= 8, "{dialect}: {snapshot:?}");
        assert_eq!(snapshot.ended.get("completed"), Some(&snapshot.started), "{dialect}");
        assert_eq!(done.count("/funnel/completed"), snapshot.started, "{dialect}\n{}", done.shown());
        // Who is refused is told so, by a full server's 503 as well as by any other word.
        assert_eq!(done.count("/funnel/refused_as_planned"), snapshot.rejected, "{dialect}\n{}", done.shown());
    }
}
