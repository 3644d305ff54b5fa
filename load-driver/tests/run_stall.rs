//! A backend that stands still for three seconds, and what the figures make of it.

mod run_support;

use std::time::Duration;

use run_support::{Run, backend::Backend};
use rustix::process::Signal;

/// Sessions a second.
const RATE: u64 = 80;
/// For so many seconds.
const DURATION: u64 = 12;
/// Of them, the backend is stopped for so many.
const STALL: u64 = 3;
/// Sessions that may be connecting at once.
const HANDSHAKES: u64 = 4;

/// Coordinated omission, and what intended times make of it.
///
/// 80 sessions a second for 12 s are 960. The backend stands still for 3 s: 240 of them, a quarter, should have begun meanwhile. The driver may
/// have 4 handshakes under way (a WebSocket's needs the backend), so 4 sessions hang in a dial, and 236 wait in the driver for their turn.
///
/// - From the *intended* time, whoever is due `y` seconds into the stall waits at least `3 - y` seconds. The share that waits at least `x` is
///   `80 * (3 - x) / 960`. It is 1 % at `x = 2.88` and 10 % at `x = 1.8`: the p99 must be at least 2.88 s and the p90 at least 1.8 s. After the
///   stall the waiting ones are worked off, which only makes them wait longer.
/// - From the *actual* dial, only the 4 that hang in theirs show the stall, and the few that had just connected and wait to be accepted. They
///   are 0.4 % of 960, and the p99 is the sample of rank `ceil(0.99 * 960) = 951`: up to 9 samples are beyond it. It shows nothing.
#[test]
fn a_stall_shows_from_the_intended_time_and_service_time_alone_hides_it() {
    let total = RATE * DURATION;
    let backend = Backend::start(&[]);
    let going = Run::of(&format!(
        "
name: stall
# To wait for a handshake is schedule lag as well; here it is what the test is about.
driver: {{shards: 1, handshakes: {HANDSHAKES}, max_schedule_lag: 30s, connect_timeout: 30s}}
counters: {{settle: 20s, window: 10s}}
scenarios:
  arrivals:
    executor: constant-arrival-rate
    rate: {RATE}
    duration: {DURATION}s
    protocol: websocket
    start_timeout: 30s
    conversations: [{{turns: [{{wait: 20ms}}]}}]
thresholds:
  sessions_failed: ['rate==0']
"
    ))
    .against(&backend)
    .begin();
    // In mid-run.
    backend.eventually("a quarter of the sessions", |snapshot| snapshot.started >= total / 4);
    backend.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(STALL));
    backend.signal(Signal::CONT);
    let done = going.finish().exits(0);

    assert_eq!(done.count("/funnel/completed"), total);
    assert_eq!(done.at("/counters/status"), "agree");
    let startup = |basis: &str, figure: &str| done.latency("session_startup", basis, figure);
    for basis in ["response", "service"] {
        assert_eq!(startup(basis, "count") as u64, total);
    }

    // The share that waits at least x: RATE * (STALL - x) / total. Two arrivals of slack, for the moments at which the stall begins and ends.
    let at_least_ms = |share: f64| (STALL as f64 - (share * total as f64 + 2.0) / RATE as f64) * 1_000.0;
    assert!(startup("response", "p99_ms") >= at_least_ms(0.01), "{} < {}", startup("response", "p99_ms"), at_least_ms(0.01));
    assert!(startup("response", "p90_ms") >= at_least_ms(0.10), "{} < {}", startup("response", "p90_ms"), at_least_ms(0.10));

    // Service time has seen the stall, but only in as many samples as there were handshakes under way: its p99 has not.
    let stall_ms = STALL as f64 * 1_000.0;
    assert!(startup("service", "max_ms") >= stall_ms * 0.9, "nobody hung in a dial: {}", startup("service", "max_ms"));
    assert!(startup("service", "p99_ms") < stall_ms / 2.0, "{}", startup("service", "p99_ms"));
    assert!(startup("response", "p90_ms") > 2.0 * startup("service", "p90_ms"));
}
