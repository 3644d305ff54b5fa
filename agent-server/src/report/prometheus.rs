//! `/metrics` in the text format of `OpenMetrics`, made from one snapshot at each scrape, so that its figures agree with each other.

use std::{collections::BTreeMap, fmt};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric, text::encode},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use proto::frame::ErrorCode;

use crate::admin::wire::SnapshotJson;

/// Of the answer.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a snapshot does not hold.
#[derive(Debug)]
pub struct Extra {
    /// Connections accepted.
    pub connections: u64,
    /// Connections open.
    pub open: u64,
    /// Connections closed unheard.
    pub turned_away: u64,
    /// Connections given up because the peer went silent.
    pub silent: u64,
    /// Streams given up because the client did not read the end of its session.
    pub unread: u64,
    /// Events dropped because a client does not read.
    pub dropped: u64,
    /// Streams refused for what came before a session began.
    pub refused: BTreeMap<ErrorCode, u64>,
}

/// The whole exposition.
pub fn text(snapshot: SnapshotJson, extra: Extra) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape { snapshot, extra }));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Scrape {
    snapshot: SnapshotJson,
    extra: Extra,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (s, extra) = (&self.snapshot, &self.extra);
        let mut out = Out(&mut encoder);
        let build = [("version", env!("CARGO_PKG_VERSION")), ("backend_id", s.backend_id.as_str()), ("boot_id", s.boot_id.as_str())];
        out.gauge("agent_server_build_info", "Version and names of this server", [(build, 1)])?;

        out.counter("agent_server_sessions_started", "Sessions admitted", [([], s.started)])?;
        let ended = s.ended.iter().map(|(outcome, n)| ([("outcome", outcome.as_str())], *n));
        out.counter("agent_server_sessions_ended", "Sessions ended, each once", ended)?;
        let phases = s.phases.iter().map(|(phase, n)| ([("phase", phase.as_str())], *n));
        out.gauge("agent_server_sessions_active", "Live sessions by phase", phases)?;
        out.gauge("agent_server_session_tasks", "Sessions that the shards really hold", [([], s.live_tasks as i64)])?;
        if let Some(max) = s.max_sessions {
            out.gauge("agent_server_sessions_max", "Hard cap of live sessions", [([], max as i64)])?;
        }
        out.counter("agent_server_sessions_rejected", "Refused at the cap: not sessions", [([], s.rejected)])?;
        let refused: Vec<(String, u64)> = extra.refused.iter().map(|(code, n)| (code_name(*code), *n)).collect();
        let refused = refused.iter().map(|(code, n)| ([("code", code.as_str())], *n));
        out.counter("agent_server_streams_refused", "Streams that never became sessions, by error code", refused)?;
        out.counter("agent_server_late_ends", "Ends that lost a race: a diagnostic", [([], s.late_ends)])?;

        out.counter("agent_server_frames_received", "Audio frames received", [([], s.frames_in)])?;
        out.counter("agent_server_frames_sent", "Audio frames sent", [([], s.frames_out)])?;
        out.counter("agent_server_events_dropped", "Events dropped because the client does not read", [([], extra.dropped)])?;
        out.counter("agent_server_connections", "Connections accepted", [([], extra.connections)])?;
        out.gauge("agent_server_connections_open", "Connections open", [([], extra.open as i64)])?;
        out.counter("agent_server_connections_refused", "Connections closed unheard: too many were open", [([], extra.turned_away)])?;
        out.counter("agent_server_connections_silent", "Connections given up because the peer went silent", [([], extra.silent)])?;
        out.counter("agent_server_streams_unread", "Streams given up because the client did not read the end", [([], extra.unread)])?;

        let load = &s.load;
        out.counter("agent_server_load_cpu_microseconds", "CPU time that load is computed from", [([], load.used_us)])?;
        out.gauge("agent_server_load_cores", "Cores that utilization is measured against", [([], load.cores)])?;
        out.gauge("agent_server_load_target", "Utilization to aim at", [([], load.target)])?;
        out.gauge("agent_server_load_speaking_sessions", "Sessions in which somebody speaks", [([], load.speaking as i64)])?;
        out.gauge("agent_server_load_sessions", "Mean sessions of the window", [([], load.sessions)])?;
        out.gauge("agent_server_load_utilization", "Mean utilization of the window", [([], load.utilization)])?;
        out.gauge("agent_server_load_virtual_qps", "Sessions of the window as a rate, 1/s", [([], load.virtual_qps)])?;
        out.gauge("agent_server_load_session_cost", "CPU share of a session", [([], load.cost)])?;
        out.gauge("agent_server_load_additional_session_rate", "Sessions per second that may be added", [([], load.rate)])?;
        out.gauge("agent_server_load_effective_capacity", "Sessions at the end of the next window", [([], load.effective_capacity)])?;

        out.counter("agent_server_virtual_cost_microseconds", "Synthetic cost that was only accounted", [([], s.virtual_cost_us)])?;
        out.counter("agent_server_cpu_microseconds", "User and system CPU time of the process", [([], s.cpu_us)])?;
        out.gauge("agent_server_resident_bytes", "Resident memory of the process", [([], s.rss_bytes as i64)])?;
        out.gauge("agent_server_draining", "1 when no new session is taken", [([], i64::from(s.draining))])?;
        let strikes = s.defects.iter().map(|(kind, n)| ([("kind", kind.as_str())], *n));
        out.counter("agent_server_defect_strikes", "THIS SERVER COUNTS WRONGLY ON PURPOSE if any kind is listed", strikes)?;
        let strikes = s.faults.iter().map(|(kind, n)| ([("kind", kind.as_str())], *n));
        out.counter("agent_server_fault_strikes", "THIS SERVER MISBEHAVES ON PURPOSE if any kind is listed", strikes)
    }
}

/// As on the wire of JSON.
fn code_name(code: ErrorCode) -> String {
    serde_json::to_value(code).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Writes families of one value or of one value for each set of labels.
struct Out<'a, 'e>(&'a mut DescriptorEncoder<'e>);

impl Out<'_, '_> {
    fn counter<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([(&'l str, &'l str); N], u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            if N == 0 {
                return ConstCounter::new(value).encode(family);
            }
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauge<'l, const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([(&'l str, &'l str); N], V)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            if N == 0 {
                return ConstGauge::new(value).encode(family);
            }
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::wire::LoadJson;

    #[test]
    fn the_exposition_holds_labels_and_ends_as_openmetrics_does() {
        let snapshot = SnapshotJson {
            backend_id: "b".into(),
            boot_id: "boot".into(),
            captured_at_us: 0,
            exact: true,
            started: 5,
            active: 2,
            active_interval: (2, 2),
            ended: BTreeMap::from([("completed".to_owned(), 3)]),
            phases: BTreeMap::from([("listening".to_owned(), 2)]),
            max_sessions: None,
            rejected: 4,
            late_ends: 0,
            live_tasks: 2,
            draining: false,
            next_end: 3,
            frames_in: 10,
            frames_out: 20,
            cpu_us: 1,
            rss_bytes: 2,
            virtual_cost_us: 0,
            load: LoadJson { used_us: 1_500, cores: 2.0, utilization: 0.45, rate: 3.5, effective_capacity: 125.0, ..LoadJson::default() },
            defects: BTreeMap::from([("ghost".to_owned(), 1)]),
            faults: BTreeMap::from([("vad_drop".to_owned(), 2)]),
        };
        let extra = Extra {
            connections: 1,
            open: 0,
            turned_away: 0,
            silent: 0,
            unread: 0,
            dropped: 7,
            refused: BTreeMap::from([(ErrorCode::NotStarted, 2)]),
        };
        let text = text(snapshot, extra);
        for line in [
            "agent_server_sessions_started_total 5",
            "agent_server_sessions_ended_total{outcome=\"completed\"} 3",
            "agent_server_sessions_active{phase=\"listening\"} 2",
            "agent_server_streams_refused_total{code=\"not_started\"} 2",
            "agent_server_defect_strikes_total{kind=\"ghost\"} 1",
            "agent_server_fault_strikes_total{kind=\"vad_drop\"} 2",
            "agent_server_events_dropped_total 7",
            "agent_server_load_cpu_microseconds_total 1500",
            "agent_server_load_cores 2.0",
            "agent_server_load_utilization 0.45",
            "agent_server_load_additional_session_rate 3.5",
            "agent_server_load_effective_capacity 125.0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
