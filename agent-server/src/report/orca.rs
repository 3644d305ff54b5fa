//! A [`Load`] as the report that stock balancers read.
//!
//! | field | honest | `rate_weight` | `fixed=U` |
//! |---|---|---|---|
//! | `rps_fractional` | sessions of the window as a rate | 1,000 x the rate that may be added, at least 0.001 | 100 |
//! | `application_utilization` | the higher of CPU and sessions over the cap | 1 | U |
//! | `cpu_utilization` | CPU | CPU | U |
//! | `eps` | refusals and failures per second | the same | 0 |
//!
//! A weighted round robin weighs a backend by `rps / (utilization + eps / rps * penalty)`. A weight of 0 is ignored by stock clients (the last
//! one stays), so nobody can be stopped by a report: a full stop is a refusal. Named metrics are honest in every mode.

use std::collections::BTreeMap;

use http::HeaderValue;
use proto::orca::{OrcaLoadReport, encode_binary, encode_text, metric};

use super::meter::Load;
use crate::config::ReportMode;

/// Weights of stock proxies are whole numbers of at least 1: a rate per second would be cut to that.
const RATE_SCALE: f64 = 1_000.0;
/// Least rate that is claimed.
const RATE_MIN: f64 = 0.001;
/// Rate that is claimed where only the utilization shall tell backends apart.
const RATE_FIXED: f64 = 100.0;

/// What a report says of a load; `memory` is the share in use.
pub fn report(load: &Load, mode: ReportMode, memory: f64) -> OrcaLoadReport {
    let mut report = OrcaLoadReport {
        cpu_utilization: load.utilization,
        mem_utilization: memory,
        eps: load.eps,
        named_metrics: named(load),
        ..OrcaLoadReport::default()
    };
    match mode {
        ReportMode::Honest => {
            report.rps_fractional = load.capacity.virtual_qps;
            // Sessions and CPU of the same window, as everything that is weighed against each other.
            let seats = load.max_sessions.map_or(0.0, |max| load.sessions / max.max(1) as f64);
            report.application_utilization = load.utilization.max(seats);
        }
        ReportMode::RateWeight => {
            report.rps_fractional = (load.rate() * RATE_SCALE).max(RATE_MIN);
            report.application_utilization = 1.0;
        }
        ReportMode::Fixed(utilization) => {
            report.rps_fractional = RATE_FIXED;
            report.application_utilization = utilization;
            report.cpu_utilization = utilization;
            report.eps = 0.0;
        }
    }
    report
}

fn named(load: &Load) -> BTreeMap<String, f64> {
    let mut named: BTreeMap<String, f64> = [
        (metric::ACTIVE_SESSIONS, load.active),
        (metric::SPEAKING_SESSIONS, load.speaking),
        (metric::SESSIONS_UTIL, load.sessions_util()),
        (metric::VIRTUAL_QPS, load.capacity.virtual_qps),
        (metric::ADDITIONAL_SESSION_RATE, load.rate()),
        (metric::EFFECTIVE_CAPACITY, load.effective_capacity()),
        (metric::DRAINING, f64::from(u8::from(load.draining))),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    named.extend(load.max_sessions.map(|max| (metric::MAX_SESSIONS.to_owned(), max as f64)));
    named
}

/// A report in the forms that go on the wire, made once for all who send it.
#[derive(Debug, Clone)]
pub struct Published {
    /// What was measured.
    pub load: Load,
    /// CPU time that it was computed from, microseconds.
    pub used_us: u64,
    /// As a message.
    pub report: OrcaLoadReport,
    /// As the value of [`proto::orca::BINARY_HEADER`].
    pub binary: HeaderValue,
    /// As the value of [`proto::orca::TEXT_HEADER`].
    pub text: HeaderValue,
}

impl Published {
    /// In `mode`; `memory` is the share in use.
    pub fn new(load: Load, used_us: u64, mode: ReportMode, memory: f64) -> Self {
        let report = report(&load, mode, memory);
        // Base64 and portable names are always header values.
        let value = |text: String| HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
        Self { load, used_us, binary: value(encode_binary(&report)), text: value(encode_text(&report)), report }
    }
}

#[cfg(test)]
mod tests {
    use proto::orca::{BINARY_HEADER, TEXT_HEADER, decode_header};

    use super::*;
    use crate::report::capacity::CapacityConfig;

    fn load(sessions: f64, utilization: f64, max_sessions: Option<u64>) -> Load {
        let config = CapacityConfig { max_sessions, ..CapacityConfig::default() };
        let capacity = config.capacity(sessions, utilization);
        Load { active: sessions, speaking: 3.0, max_sessions, sessions, utilization, eps: 0.5, capacity, ..Load::default() }
    }

    fn near(got: f64, want: f64) -> bool {
        (got - want).abs() < 1e-9
    }

    #[test]
    fn an_honest_report_shows_the_window() {
        // 90 sessions at 45 % in a window of 10 s: 9 a second; 3.5 a second may be added.
        let report = report(&load(90.0, 0.45, Some(500)), ReportMode::Honest, 0.25);
        assert!(near(report.rps_fractional, 9.0) && near(report.cpu_utilization, 0.45) && near(report.application_utilization, 0.45));
        assert!(near(report.eps, 0.5) && near(report.mem_utilization, 0.25));
        let named = &report.named_metrics;
        assert!(near(named["virtual_qps"], 9.0) && near(named["additional_session_rate"], 3.5) && near(named["effective_capacity"], 125.0));
        assert!(near(named["active_sessions"], 90.0) && near(named["speaking_sessions"], 3.0) && near(named["sessions_util"], 0.18));
        assert!(near(named["max_sessions"], 500.0) && near(named["draining"], 0.0));
    }

    #[test]
    fn the_cap_counts_as_utilization_where_it_is_nearer_than_the_cpu() {
        let report = report(&load(80.0, 0.40, Some(100)), ReportMode::Honest, 0.0);
        assert!(near(report.application_utilization, 0.8) && near(report.cpu_utilization, 0.4));
        let uncapped = super::report(&load(80.0, 0.40, None), ReportMode::Honest, 0.0);
        assert!(near(uncapped.application_utilization, 0.4) && !uncapped.named_metrics.contains_key("max_sessions"));
    }

    #[test]
    fn the_rate_as_a_weight_feeds_80_at_40_and_all_but_stops_10_at_90() {
        let fed = report(&load(80.0, 0.40, None), ReportMode::RateWeight, 0.0);
        assert!(near(fed.rps_fractional, 4_000.0) && near(fed.application_utilization, 1.0) && near(fed.cpu_utilization, 0.4));
        let stopped = report(&load(10.0, 0.90, None), ReportMode::RateWeight, 0.0);
        assert!(near(stopped.rps_fractional, 0.001) && near(stopped.named_metrics["additional_session_rate"], 0.0));
    }

    #[test]
    fn fixed_claims_leave_the_named_metrics_honest() {
        let report = report(&load(90.0, 0.45, None), ReportMode::Fixed(0.9), 0.0);
        assert!(near(report.rps_fractional, 100.0) && near(report.application_utilization, 0.9) && near(report.cpu_utilization, 0.9));
        assert!(near(report.eps, 0.0) && near(report.named_metrics["virtual_qps"], 9.0));
    }

    #[test]
    fn who_drains_takes_nothing() {
        let draining = Load { draining: true, ..load(80.0, 0.40, None) };
        let honest = report(&draining, ReportMode::Honest, 0.0).named_metrics;
        assert!(near(honest["draining"], 1.0) && near(honest["additional_session_rate"], 0.0) && near(honest["effective_capacity"], 80.0));
        assert!(near(report(&draining, ReportMode::RateWeight, 0.0).rps_fractional, 0.001));
    }

    #[test]
    fn both_headers_hold_the_report() {
        let published = Published::new(load(90.0, 0.45, Some(500)), 7, ReportMode::Honest, 0.25);
        assert_eq!(decode_header(BINARY_HEADER, &published.binary), Ok(published.report.clone()));
        assert_eq!(decode_header(TEXT_HEADER, &published.text), Ok(published.report));
    }
}
