//! The files of a run, as their readers read them.

mod run_support;

use std::{collections::BTreeMap, fs, path::Path};

use hdrhistogram::{
    Histogram,
    serialization::{
        Deserializer,
        interval_log::{IntervalLogIterator, LogEntry},
    },
};
use run_support::{Run, schema};
use serde_json::Value;

const TALK: &str = "
name: talk
driver: {shards: 1, max_schedule_lag: 2s}
defaults:
  executor: constant-sessions
  sessions: 3
  duration: 4s
  gracefulStop: 10s
  end: [{kind: graceful, weight: 1}, {kind: cancel, weight: 1}]
  conversations: [{turns: [{wait: 100ms, say: {synth: 300ms}, response: 500ms}]}]
scenarios:
  grpc: {protocol: grpc}
  websocket: {protocol: websocket, format: mulaw_8k}
thresholds:
  turn_response: ['p(95)<60000', 'p(95)>=0']
  sessions_failed: ['rate==0']
";

fn committed_schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("summary.schema.json");
    serde_json::from_str(&fs::read_to_string(path).expect("committed")).expect("JSON")
}

/// By tag, over the whole log; untagged lines are `""`.
fn histograms(log: &str) -> BTreeMap<String, Histogram<u64>> {
    let mut all = BTreeMap::new();
    let mut deserializer = Deserializer::new();
    for entry in IntervalLogIterator::new(log.as_bytes()) {
        let LogEntry::Interval(interval) = entry.expect("a line of the format") else { continue };
        let payload = base64(interval.encoded_histogram());
        let histogram: Histogram<u64> = deserializer.deserialize(&mut payload.as_slice()).expect("a V2 histogram");
        let tag = interval.tag().map_or(String::new(), |tag| tag.as_str().to_owned());
        match all.entry(tag) {
            std::collections::btree_map::Entry::Vacant(first) => drop(first.insert(histogram)),
            std::collections::btree_map::Entry::Occupied(mut sum) => sum.get_mut().add(histogram).expect("one range"),
        }
    }
    all
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<u32> = text.bytes().filter_map(|byte| Some(ALPHABET.iter().position(|digit| *digit == byte)? as u32)).collect();
    let of = |four: &[u32]| {
        let bits = four.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(of).collect()
}

#[test]
fn every_file_is_what_its_readers_expect() {
    let done = Run::of(TALK).finish().exits(0);

    // summary.json is what the published schema says; the check itself can fail.
    let schema = committed_schema();
    assert_eq!(schema::faults(&schema, done.summary()), Vec::<String>::new());
    let mut wrong = done.summary().clone();
    wrong["exit"]["code"] = "0".into();
    wrong["funnel"].as_object_mut().expect("a map").remove("requested");
    assert_eq!(schema::faults(&schema, &wrong).len(), 2);
    assert_eq!(done.count("/schema_version"), u64::from(load_driver::report::summary::SCHEMA_VERSION));

    // The log adds up to the summary: every metric, both bases.
    let log = histograms(&done.file("latencies.hlog"));
    let mut compared = 0;
    for row in done.at("/latencies").as_array().expect("a list") {
        let metric = row["metric"].as_str().expect("a name");
        for (basis, tag) in [("response", metric.to_owned()), ("service", format!("{metric}.service"))] {
            let counted = row[basis]["count"].as_u64().unwrap_or(0);
            assert_eq!(log.get(&tag).map_or(0, Histogram::len), counted, "{tag}");
            if let (Some(histogram), Some(p99)) = (log.get(&tag), row[basis]["p99_ms"].as_f64()) {
                assert!((histogram.value_at_quantile(0.99) as f64 / 1_000.0 - p99).abs() < 1e-9, "{tag}");
                compared += 1;
            }
        }
    }
    assert!(compared >= 10, "{compared} histograms");
    assert!(log.contains_key(""), "the aggregate without a tag");
    // Scenarios add up to the whole.
    let of = |tag: &str| log.get(tag).map_or(0, Histogram::len);
    let parts = of("turn_response{scenario:grpc}") + of("turn_response{scenario:websocket}");
    assert!(parts > 0 && parts == of("turn_response"), "{parts} of {}", of("turn_response"));

    // A test case for each threshold, invariant and voice fault, the counters, and the verdict.
    let junit = done.file("junit.xml");
    let thresholds = done.at("/thresholds").as_array().expect("a list").len();
    let invariants = done.at("/invariants").as_array().expect("a list").len();
    let faults = done.at("/voice/kinds").as_array().expect("a list").len();
    assert_eq!((thresholds, faults), (3, 11));
    assert_eq!(junit.matches("<testcase ").count(), thresholds + 1 + invariants + faults + 1, "{junit}");
    assert_eq!(junit.matches("classname=\"load-driver.thresholds\"").count(), thresholds, "{junit}");
    assert!(junit.contains("failures=\"0\"") && !junit.contains("<failure"), "{junit}");
    for name in ["turn_response: p(95)&lt;60000", "turn_response: p(95)&gt;=0", "sessions_failed: rate==0"] {
        assert!(junit.contains(name), "{name} is not in {junit}");
    }

    // Standard output is the summary and nothing else, thresholds first.
    let at = |text: &str| done.stdout.find(text).unwrap_or_else(|| panic!("no {text} in {}", done.stdout));
    assert!(at("p(95)<60000") < at("agree with the ledger") && at("agree with the ledger") < at("session_startup"), "{}", done.stdout);
    assert!(!done.stdout.contains("running:"), "progress belongs on standard error");
}

#[test]
fn a_failed_threshold_is_a_failed_test_case() {
    let profile = TALK.replace("'p(95)<60000'", "'p(95)<0.001'").replace("duration: 4s", "duration: 1s");
    let done = Run::of(&profile).finish().exits(99);
    let junit = done.file("junit.xml");
    assert!(junit.contains("turn_response must be p(95)&lt;0.001"), "{junit}");
    // The threshold, and the verdict because of it.
    assert_eq!(junit.matches("<failure").count(), 2, "{junit}");
}

/// Two backends, one of which has a single place: settings of an entry go over the common ones, and only there.
const UNEQUAL: &str = "
name: unequal
driver: {shards: 1, max_schedule_lag: 2s}
server: {shards: 1, max_sessions: 50}
backends:
  - {server: {max_sessions: 1}}
  - {}
defaults:
  executor: constant-arrival-rate
  rate: 3
  duration: 1s
  gracefulStop: 6s
  session_length: 3s
  conversations: [{turns: [{wait: 500ms}]}]
scenarios:
  small: {protocol: grpc, backend: 0, expect: rejected}
  large: {protocol: grpc, backend: 1}
thresholds:
  sessions_failed: ['rate==0']
";

#[test]
fn each_backend_has_its_own_settings() {
    let done = Run::of(UNEQUAL).finish().exits(0);
    let established = |scenario: &str| done.scenario(scenario)["funnel"]["established"].as_u64();
    assert_eq!((established("small"), established("large")), (Some(1), Some(3)), "{}", done.shown());
    for (file, most) in [("backend-0.json", 1), ("backend-1.json", 50)] {
        let settings: Value = serde_json::from_str(&done.file(file)).expect("JSON");
        assert_eq!(settings["max_sessions"], most);
    }
}

#[test]
fn what_only_the_simulator_can_do_is_refused_by_a_run() {
    Run::of(UNEQUAL).with("--set=backends.1.count=64").finish().exits(104).says("65 processes").says("simulate").has_no_summary();
}
