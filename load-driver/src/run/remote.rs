//! Whether the load may go where the profile sends it. A slip of the pen in a target, or a profile of somebody else, must not turn the driver on a
//! service whose owners know nothing of it: beyond a modest load, whoever runs it says that it is meant.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use proto::time::Micros;
use tokio::{net::lookup_host, time::timeout};

use super::{Prepared, RunError, targets::site};
use crate::{
    plan::{Fault, FaultKind, Lane, Plan, ScenarioPlan, Wait},
    profile::{Profile, Reach, TargetUrl, shown},
    report::Exit,
};

/// So many sessions at once, begun within a second, or looks at counters within a second, anybody can bear.
const MODEST: f64 = 20.0;
/// A session that begins at a fixed time is taken to last so long: nobody knows how long a foreign agent speaks.
const OPEN_FOR: Micros = Micros(60_000_000);
const SECOND: Micros = Micros(1_000_000);
/// After a session that failed its place waits so long; so no place begins more sessions than one in this time, unless they are short.
const SHORTEST: f64 = 1.0;
/// Places of a scenario whose sessions are looked at for their length, and turns of each.
const LOOKED_AT: (usize, u32) = (200, 1_000);
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Refuses what would be more than modest for somebody else's machine. Nothing is sent before this.
pub(super) async fn allow(prepared: &Prepared, allowed: bool) -> Result<(), RunError> {
    if allowed {
        return Ok(());
    }
    let (targets, readings) = whom(&prepared.profile);
    let load = Load::of(&prepared.plan);
    if !load.is_modest() {
        for target in targets {
            refuse(&target, &load).await?;
        }
    }
    let looks = Looks(1.0 / prepared.profile.counters.interval.0.as_secs_f64().max(1e-6));
    if looks.0 > MODEST {
        for reading in readings {
            refuse(&reading, &looks).await?;
        }
    }
    Ok(())
}

/// What [`allow`] would ask of this plan, as far as it can be told without a network.
pub(crate) fn asks(profile: &Profile, plan: &Plan) -> Vec<String> {
    let load = Load::of(plan);
    let told = |target: String| {
        let host = TargetUrl::parse(&target).ok()?.host;
        let near = host.parse().map(is_near);
        let sure = match near {
            Ok(true) => return None,
            Err(_) if host.eq_ignore_ascii_case("localhost") => return None,
            Ok(false) => "needs",
            Err(_) => "needs, should it be neither this machine nor in a private network,",
        };
        Some(format!("{} {sure} --allow-remote: this run would {load}", shown(&target)))
    };
    if load.is_modest() { Vec::new() } else { whom(profile).0.into_iter().filter_map(told).collect() }
}

async fn refuse(target: &str, load: &impl fmt::Display) -> Result<(), RunError> {
    let Some(far) = far(target).await else { return Ok(()) };
    let message = format!(
        "{} is at {far}, which is neither this machine nor in a private network, and this run would {load}: where its owners agree, add \
         --allow-remote; else lower the load to {MODEST} sessions at once and {MODEST} a second, or mend the target",
        shown(target)
    );
    Err(RunError::new(Exit::InvalidProfile, message))
}

/// Where sessions go, and where counters are read.
fn whom(profile: &Profile) -> (Vec<String>, Vec<String>) {
    let fleet = profile.fleet();
    let members: Vec<_> = fleet.members.iter().filter_map(|member| member.address.as_ref()).collect();
    let mut readings: Vec<_> = members.iter().filter_map(|address| address.admin()).collect();
    let sites = members.iter().enumerate().map(|(index, address)| site(index, address));
    readings.extend(sites.flat_map(|site| profile.counters.url.0.iter().filter_map(move |url| site.fill(url).ok()).collect::<Vec<_>>()));
    // What has no placeholder is read though nobody knows a backend's address.
    readings.extend(profile.counters.url.0.iter().cloned());
    let targets = match fleet.reach {
        Reach::Embedded => Vec::new(),
        Reach::Direct => members.iter().map(|address| address.address.clone()).collect(),
        Reach::Discovered(name) => {
            readings.push(name.dns.clone());
            vec![name.dns]
        }
        Reach::Front(front) => vec![front.address],
    };
    (targets, readings)
}

/// An address of the target that is somebody else's, if it has one. A name that cannot be resolved is told where it is dialled.
async fn far(target: &str) -> Option<IpAddr> {
    let url = TargetUrl::parse(target).ok()?;
    let found = timeout(RESOLVE_TIMEOUT, lookup_host((url.host.as_str(), url.port))).await.ok()?.ok()?;
    found.map(|address| address.ip()).find(|ip| !is_near(*ip))
}

/// This machine, or a network that is not the world's: RFC 1918, shared address space (RFC 6598), link-local, and unique local addresses of IPv6.
fn is_near(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => {
            let shared = v4 & Ipv4Addr::new(255, 192, 0, 0) == Ipv4Addr::new(100, 64, 0, 0);
            v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_unspecified() || shared
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// Looks at counters within a second.
struct Looks(f64);

impl fmt::Display for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read its counters {:.0} times a second", self.0)
    }
}

/// The most that a plan asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Load {
    at_once: f64,
    /// Sessions that begin, and connections that faults of the timeline make beside them.
    a_second: f64,
    by_faults: f64,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keep up to {:.0} sessions open at once and begin up to {:.0} a second", self.at_once, self.a_second.ceil())?;
        if self.by_faults > 0.0 { write!(f, " ({:.0} of them by its faults)", self.by_faults) } else { Ok(()) }
    }
}

impl Load {
    fn of(plan: &Plan) -> Self {
        let lanes = || plan.scenarios.iter().flat_map(|scenario| &scenario.lanes);
        let begun = most_at_once(lanes().map(|lane| (lane.start, Micros(lane.start.0 + SECOND.0), 1)));
        let again: f64 = plan.scenarios.iter().map(|scenario| repeated(scenario, plan.seed)).sum();
        let at_once = most_at_once(lanes().map(open));
        let by_scenario: Vec<_> = plan.scenarios.iter().map(|scenario| (scenario, most_at_once(scenario.lanes.iter().map(open)))).collect();
        let struck = |fault: &Fault| {
            let concerned = by_scenario.iter().filter(|(scenario, _)| fault.concerns(scenario));
            concerned.map(|(_, open)| *open).sum::<u64>().min(at_once)
        };
        let by_faults = most_at_once(plan.faults.iter().filter_map(|fault| made(fault, struck(fault)))) as f64;
        Self { at_once: at_once as f64, a_second: again.max(begun as f64) + by_faults, by_faults }
    }

    fn is_modest(self) -> bool {
        self.at_once <= MODEST && self.a_second <= MODEST
    }
}

/// While its session is open, as far as that is known.
fn open(lane: &Lane) -> (Micros, Micros, u64) {
    let to = if lane.repeat { lane.stop + lane.grace } else { lane.start + Duration::from_micros(OPEN_FOR.0) };
    (lane.start, to, 1)
}

/// Connections a second that a fault makes by itself, and while it does. A storm makes those of all that it can strike, at once: the draw spares some.
fn made(fault: &Fault, open: u64) -> Option<(Micros, Micros, u64)> {
    let (lasts, rate) = match fault.kind {
        FaultKind::Churn { rate } => (fault.duration, rate),
        FaultKind::ReconnectStorm { backoff, jitter } => {
            let struck = (open as f64 * fault.fraction).ceil();
            // Where nobody answers each tries again, after twice the time: so often within a second of the first try.
            let tries = (2.0 + 1.0 / backoff.as_secs_f64().max(1e-6)).log2().floor();
            (backoff + jitter, struck * tries)
        }
        _ => return None,
    };
    Some((fault.at, fault.at + lasts + Duration::from_micros(SECOND.0), rate.ceil() as u64))
}

/// The most of these stretches that overlap, each with its weight.
fn most_at_once(stretches: impl Iterator<Item = (Micros, Micros, u64)>) -> u64 {
    let mut changes: Vec<(Micros, i64)> =
        stretches.flat_map(|(from, to, weight)| [(from, weight as i64), (to, -(weight as i64))]).collect();
    // An end before a begin at the same moment.
    changes.sort_unstable();
    let mut open = 0;
    let most = changes.into_iter().map(|(_, change)| {
        open += change;
        open
    });
    most.max().unwrap_or(0).max(0) as u64
}

/// Sessions a second that the places of a scenario begin, if each begins the next when one is over.
fn repeated(scenario: &ScenarioPlan, seed: u64) -> f64 {
    let repeating: Vec<_> = scenario.lanes.iter().filter(|lane| lane.repeat).collect();
    let looked_at = repeating.len().min(LOOKED_AT.0);
    let rate: f64 = repeating.iter().take(looked_at).map(|lane| 1.0 / length(scenario, seed, lane.number).clamp(1e-3, SHORTEST)).sum();
    rate * repeating.len() as f64 / looked_at.max(1) as f64
}

/// The least that a session lasts, as far as the caller has a say in it, seconds.
fn length(scenario: &ScenarioPlan, seed: u64, lane: u32) -> f64 {
    let draw = scenario.draw(seed, lane, 0);
    if let Some(length) = draw.length {
        return length.as_secs_f64();
    }
    let turns = (0..LOOKED_AT.1).map_while(|n| scenario.turn(seed, &draw, n));
    turns
        .map(|turn| {
            let wait = match turn.wait {
                Wait::After(silence) => silence.as_secs_f64(),
                Wait::Cycle(cycle) => cycle.as_secs_f64(),
                Wait::At(_) => 0.0,
            };
            wait + turn.says.map_or(0.0, |says| says.frames() as f64 * 0.02)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Source, open_text};

    fn prepared(text: &str) -> Prepared {
        let loaded = open_text(&Source::Shipped("test".into()), "test", text, &[]).unwrap_or_else(|e| panic!("{e}"));
        let plan = Plan::build(&loaded.profile, "00000000").unwrap_or_else(|e| panic!("{e}"));
        Prepared { profile: loaded.profile, plan, thresholds: Vec::new() }
    }

    fn closed(sessions: u32, wait: &str) -> String {
        format!(
            "scenarios: {{talk: {{protocol: websocket, executor: constant-sessions, sessions: {sessions}, duration: 10s, conversations: [{{turns: [{{wait: {wait}}}]}}]}}}}"
        )
    }

    fn open(rate: u32, duration: &str) -> String {
        format!(
            "scenarios: {{talk: {{executor: constant-arrival-rate, rate: {rate}, duration: {duration}, conversations: [{{turns: [{{wait: 1s}}]}}]}}}}"
        )
    }

    #[test]
    fn near_is_what_the_world_does_not_reach() {
        for near in [
            "127.0.0.1",
            "127.9.9.9",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "0.0.0.0",
            "::1",
            "::",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
        ] {
            assert!(is_near(near.parse().unwrap()), "{near}");
        }
        for far in [
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.169.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "169.253.0.1",
            "203.0.113.7",
            "2001:db8::1",
            "fec0::1",
            "fe00::1",
            "::ffff:1.1.1.1",
            "64:ff9b::7f00:1",
        ] {
            assert!(!is_near(far.parse().unwrap()), "{far}");
        }
    }

    #[test]
    fn the_load_of_a_plan_is_what_it_asks_for_at_most() {
        for (text, at_once, a_second) in [
            (closed(20, "1s"), 20.0, 20.0),
            (closed(21, "1s"), 21.0, 21.0),
            // Sessions that are over at once begin again at once.
            (closed(2, "100ms"), 2.0, 20.0),
            (closed(2, "0s"), 2.0, 2_000.0),
            (open(10, "2s"), 20.0, 10.0),
            (open(1, "300s"), 60.0, 1.0),
        ] {
            assert_eq!(Load::of(&prepared(&text).plan), Load { at_once, a_second, by_faults: 0.0 }, "{text}");
        }
    }

    #[test]
    fn what_faults_connect_by_themselves_is_load_too() {
        let of = |faults: &str| Load::of(&prepared(&format!("{}\nfaults: [{faults}]", closed(10, "1s"))).plan);
        for (faults, by_faults) in [
            ("{at: 1s, kind: churn, rate: 10000, duration: 1s}", 10_000.0),
            ("{at: 1s, kind: churn, rate: 0.5, duration: 1s}", 1.0),
            // Those at once add up, those after each other do not.
            ("{at: 1s, kind: churn, rate: 5, duration: 2s}, {at: 2s, kind: churn, rate: 6, duration: 1s}", 11.0),
            ("{at: 1s, kind: churn, rate: 5, duration: 1s}, {at: 6s, kind: churn, rate: 6, duration: 1s}", 6.0),
            ("{at: 1s, kind: reconnect_storm}", 10.0),
            ("{at: 1s, kind: reconnect_storm, fraction: 0.25, jitter: 0s}", 3.0),
            ("{at: 1s, kind: reconnect_storm, backoff: 1ms, jitter: 0s}", 90.0),
            ("{at: 1s, kind: reconnect_storm, target: {scenario: talk}}, {at: 2s, kind: reconnect_storm}", 20.0),
            ("{at: 1s, kind: tcp_rst}", 0.0),
        ] {
            assert_eq!(of(faults), Load { at_once: 10.0, a_second: 10.0 + by_faults, by_faults }, "{faults}");
        }
        let told = of("{at: 1s, kind: churn, rate: 10000, duration: 1s}");
        assert!(!told.is_modest() && told.to_string().ends_with("begin up to 10010 a second (10000 of them by its faults)"), "{told}");
    }

    #[test]
    fn what_is_asked_for_is_told_before() {
        let of = |target: &str, load: &str| {
            let prepared = prepared(&format!("target: ['{target}']\n{load}"));
            asks(&prepared.profile, &prepared.plan).join("; ")
        };
        let (modest, more) = (closed(20, "1s"), closed(21, "1s"));
        let told = of("ws://203.0.113.7:80/a?key=hunter2", &more);
        assert!(told.contains("203.0.113.7") && told.contains("needs --allow-remote") && told.contains("21 sessions"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
        assert!(of("agents.example:7000", &more).contains("should it be neither"));
        for (target, load) in [("203.0.113.7:7000", &modest), ("10.0.0.1:7000", &more), ("localhost:7000", &more), ("[::1]:7000", &more)] {
            assert_eq!(of(target, load), "", "{target}");
        }
    }

    async fn error(text: &str) -> Option<String> {
        let prepared = prepared(text);
        allow(&prepared, true).await.unwrap();
        allow(&prepared, false).await.err().map(|error| {
            assert_eq!(error.exit, Exit::InvalidProfile);
            error.to_string()
        })
    }

    #[tokio::test]
    async fn more_than_modest_asks_where_it_is_somebody_elses() {
        let (modest, more) = (closed(20, "1s"), closed(21, "1s"));
        let far = [
            "target: 'ws://203.0.113.7:80/a?key=hunter2'",
            "target: ['127.0.0.1:7000', '203.0.113.7:7000']",
            "target: ['[2001:db8::1]:7000']",
            "backends: [{address: '203.0.113.7:7000', admin: '127.0.0.1:7001'}]",
            "backends: {dns: '203.0.113.7:7000'}",
            "target: ['203.0.113.7:7000']\nbackends: ['127.0.0.1:7000']",
        ];
        for far in far {
            let told = error(&format!("{far}\n{more}")).await.unwrap_or_else(|| panic!("{far}: nothing is asked"));
            assert!(told.contains("--allow-remote") && told.contains("21 sessions") && !told.contains("hunter2"), "{told}");
            assert_eq!(error(&format!("{far}\n{modest}")).await, None, "{far}");
        }
        for near in [
            "",
            "target: ['127.0.0.1:7000', 'localhost:7000', '10.0.0.1:7000', '[fd00::1]:7000']",
            "target: ['127.0.0.1:7000']\nbackends: ['203.0.113.7:7000']",
        ] {
            assert_eq!(error(&format!("{near}\n{more}")).await, None, "{near}");
        }
    }

    #[tokio::test]
    async fn counters_of_somebody_else_are_not_read_without_end_either() {
        let text = |interval| {
            format!(
                "target: [{{address: '127.0.0.1:7000', admin: '203.0.113.7:7001'}}]\ncounters: {{interval: {interval}}}\n{}",
                closed(1, "1s")
            )
        };
        assert_eq!(error(&text("100ms")).await, None);
        assert!(error(&text("1ms")).await.unwrap().contains("1000 times a second"));
        for url in
            ["http://203.0.113.7:9100/metrics", "http://203.0.113.7:9100/{index}", "['http://127.0.0.1:9/a', 'http://203.0.113.7/b']"]
        {
            let url = if url.starts_with('[') { url.to_owned() } else { format!("'{url}'") };
            let backends = if url.starts_with('[') { "['127.0.0.1:7000', '127.0.0.1:7002']" } else { "['127.0.0.1:7000']" };
            let text = |interval| {
                let counters = format!("counters: {{source: json, url: {url}, active: /active, interval: {interval}}}");
                format!("target: {backends}\n{counters}\n{}", closed(1, "1s"))
            };
            assert_eq!(error(&text("100ms")).await, None, "{url}");
            assert!(error(&text("1ms")).await.expect(&url).contains("203.0.113.7"), "{url}");
        }
    }
}
