use proto::orca::{OrcaLoadReport, metric};

use super::*;

fn orca(metrics: &[(&str, f64)]) -> OrcaLoadReport {
    let named_metrics = metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    OrcaLoadReport {
        cpu_utilization: 0.5,
        rps_fractional: 9.0,
        eps: 0.25,
        application_utilization: 0.6,
        named_metrics,
        ..Default::default()
    }
}

#[test]
fn a_report_is_read() {
    let metrics = [
        (metric::ACTIVE_SESSIONS, 80.0),
        (metric::SPEAKING_SESSIONS, 20.0),
        (metric::ADDITIONAL_SESSION_RATE, 4.0),
        (metric::EFFECTIVE_CAPACITY, 120.0),
        (metric::MAX_SESSIONS, 200.0),
        (metric::DRAINING, 1.0),
    ];
    let want = Report {
        at: Micros(5),
        utilization: 0.5,
        application_utilization: 0.6,
        qps: 9.0,
        eps: 0.25,
        active: Some(80.0),
        speaking: Some(20.0),
        rate: Some(4.0),
        effective_capacity: Some(120.0),
        max_sessions: Some(200.0),
        draining: true,
    };
    assert_eq!(Report::from_orca(&orca(&metrics), Micros(5)), want);
}

#[test]
fn a_foreign_report_has_no_sessions_but_a_load() {
    let report = Report::from_orca(&orca(&[("fans", 3.0), (metric::DRAINING, 0.0)]), Micros(5));
    let want = Report { at: Micros(5), utilization: 0.5, application_utilization: 0.6, qps: 9.0, eps: 0.25, ..Report::default() };
    assert_eq!(report, want);
}

#[test]
fn values_that_make_no_sense_are_absent() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -f64::MIN_POSITIVE] {
        let names = [
            metric::ACTIVE_SESSIONS,
            metric::SPEAKING_SESSIONS,
            metric::ADDITIONAL_SESSION_RATE,
            metric::EFFECTIVE_CAPACITY,
            metric::MAX_SESSIONS,
            metric::DRAINING,
        ];
        let mut orca = orca(&names.map(|name| (name, bad)));
        (orca.cpu_utilization, orca.rps_fractional, orca.eps, orca.application_utilization) = (bad, bad, bad, bad);
        assert_eq!(Report::from_orca(&orca, Micros::ZERO), Report::default(), "{bad}");
    }
}

fn backend(capacity: f64, active: f64, granted: u32, share: f64) -> Backend {
    let report = Report { effective_capacity: Some(capacity), active: Some(active), ..Report::default() };
    Backend { report: Some(report), granted, share, ..Backend::default() }
}

#[test]
fn room_is_what_the_report_says_less_what_was_spent_since() {
    assert_eq!(backend(120.0, 80.0, 0, 1.0).room(), Some(40.0));
    assert_eq!(backend(120.0, 80.0, 15, 1.0).room(), Some(25.0));
    assert_eq!(backend(120.0, 80.0, 15, 0.25).room(), Some(-5.0), "a quarter of 40, of which 15 are spent");
    assert_eq!(backend(10.0, 12.0, 0, 1.0).room(), Some(-2.0));
    assert_eq!(Backend { share: 1.0, ..Backend::default() }.room(), None);
    let rate_alone = Report { rate: Some(4.0), active: Some(1.0), ..Report::default() };
    assert_eq!(Backend { report: Some(rate_alone), share: 1.0, ..Backend::default() }.room(), None);
}

#[test]
fn sessions_are_reported_and_granted_or_the_own_ones() {
    let mut known = backend(120.0, 80.0, 15, 1.0);
    known.open = 50;
    near(known.sessions(), 95.0, 0.0);
    known.report = Some(Report { max_sessions: Some(95.0), active: Some(80.0), ..Report::default() });
    assert!(known.full());
    known.granted = 14;
    assert!(!known.full());
    known.report = None;
    near(known.sessions(), 50.0, 0.0);
    assert!(!known.full());
}
