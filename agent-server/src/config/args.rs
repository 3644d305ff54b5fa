//! Settings as they are given: flags, environment, file. All optional; [`super::ServerConfig`] is what holds after defaults.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use proto::{dist::Distribution, time::parse_duration};
use serde::{Deserialize, Serialize};

use super::{
    report::{CpuSource, ReportMode},
    secret::Secret,
};
use crate::cost::CostSpec;

/// Settings of `agent-server serve`. A flag wins over its environment variable, that over the file, that over the default.
///
/// The same type is the file: keys are the flags with underscores, unknown keys are errors.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServeArgs {
    /// YAML file of these settings (keys are the flags, with underscores)
    #[arg(long, env = "AGENT_SERVER_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// Where sessions come in, gRPC and WebSocket alike; port 0 takes a free one [default: 127.0.0.1:7000]
    #[arg(long, env = "AGENT_SERVER_LISTEN", value_name = "ADDR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,

    /// Where sessions come in over TLS, all that the session port serves; port 0 takes a free one [default: nowhere]
    #[arg(long, env = "AGENT_SERVER_TLS_LISTEN", value_name = "ADDR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_listen: Option<SocketAddr>,

    /// Certificate of the ports that speak TLS, PEM, with those between it and its authority
    #[arg(long, env = "AGENT_SERVER_TLS_CERT", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,

    /// Its key, PEM
    #[arg(long, env = "AGENT_SERVER_TLS_KEY", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,

    /// Make a certificate for localhost, 127.0.0.1, `::1` and the TLS address, and write it to this file, so that clients can trust it; the key
    /// stays in memory
    #[arg(long, env = "AGENT_SERVER_TLS_SELF_SIGNED", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_self_signed: Option<PathBuf>,

    /// Clients of the ports that speak TLS must show a certificate that one of these authorities signed (PEM) [default: none need]
    #[arg(long, env = "AGENT_SERVER_TLS_CLIENT_CA", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_client_ca: Option<PathBuf>,

    /// Whoever opens a session must show this token, as services ask for theirs: `Authorization: Bearer TOKEN`, an API key header, `?key=`, a
    /// subprotocol; health checks need not [default: none]
    #[arg(long, env = "AGENT_SERVER_AUTH_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    #[serde(skip_serializing)]
    pub auth_token: Option<Secret>,

    /// File that holds the token of `--auth-token`, which the list of processes does not show
    #[arg(long, env = "AGENT_SERVER_AUTH_TOKEN_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_token_file: Option<PathBuf>,

    /// Whoever asks the admin port must show this token (`Authorization: Bearer TOKEN`, or an API key header); `/healthz` is open to all
    /// [default: none]
    #[arg(long, env = "AGENT_SERVER_ADMIN_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    #[serde(skip_serializing)]
    pub admin_token: Option<Secret>,

    /// File that holds the token of `--admin-token`
    #[arg(long, env = "AGENT_SERVER_ADMIN_TOKEN_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_token_file: Option<PathBuf>,

    /// The admin port speaks TLS, and nothing else, with the certificate of the TLS port; where clients of that must show one, so must those of
    /// this [default: false]
    #[arg(long, env = "AGENT_SERVER_ADMIN_TLS", num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_tls: Option<bool>,

    /// Where snapshot, sessions, metrics and drain are asked for [default: the session port + 1; a free one when that port is 0; on loopback,
    /// unless sessions are not and there is an admin token]
    #[arg(long, env = "AGENT_SERVER_ADMIN_LISTEN", value_name = "ADDR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_listen: Option<SocketAddr>,

    /// Name of this backend, stable over restarts [default: agent-PORT]
    #[arg(long, env = "AGENT_SERVER_BACKEND_ID", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_id: Option<String>,

    /// Threads that serve sessions [default: the number of cores]
    #[arg(long, env = "AGENT_SERVER_SHARDS", value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<usize>,

    /// Connections that may be open at once, sessions or not; more are closed unheard [default: as many as files may be open, less those that the
    /// admin port needs]
    #[arg(long, env = "AGENT_SERVER_MAX_CONNECTIONS", value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<usize>,

    /// Of those, from one IPv4 address or one IPv6 /64 [default: no limit, as a load test comes from one address]
    #[arg(long, env = "AGENT_SERVER_MAX_CONNECTIONS_PER_IP", value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections_per_ip: Option<usize>,

    /// Hard cap of live sessions; more are refused (`RESOURCE_EXHAUSTED`, close code 1013) [default: none]
    #[arg(long, env = "AGENT_SERVER_MAX_SESSIONS", value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<u64>,

    /// Longest life of a session [default: 20m; 60m for OpenAI Realtime, which never has more]
    #[arg(long, env = "AGENT_SERVER_MAX_DURATION", value_name = "TIME", value_parser = parse_duration)]
    #[serde(with = "duration_text", skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<Duration>,

    /// Longest time without any message from the client [default: 5m]
    #[arg(long, env = "AGENT_SERVER_IDLE_TIMEOUT", value_name = "TIME", value_parser = parse_duration)]
    #[serde(with = "duration_text", skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Duration>,

    /// A stream that has not sent its start by then is closed and never counted; so is a silent connection to the admin port [default: 10s]
    #[arg(long, env = "AGENT_SERVER_START_TIMEOUT", value_name = "TIME", value_parser = parse_duration)]
    #[serde(with = "duration_text", skip_serializing_if = "Option::is_none")]
    pub start_timeout: Option<Duration>,

    /// How often a connection is pinged [default: 10s]
    #[arg(long, env = "AGENT_SERVER_KEEPALIVE_INTERVAL", value_name = "TIME", value_parser = parse_duration)]
    #[serde(with = "duration_text", skip_serializing_if = "Option::is_none")]
    pub keepalive_interval: Option<Duration>,

    /// How long after a ping a silent peer is given up; its sessions end as `timed_out`; also how long a client may let
    /// its session's last words lie before the stream is given up [default: 5s]
    #[arg(long, env = "AGENT_SERVER_KEEPALIVE_TIMEOUT", value_name = "TIME", value_parser = parse_duration)]
    #[serde(with = "duration_text", skip_serializing_if = "Option::is_none")]
    pub keepalive_timeout: Option<Duration>,

    /// How long sessions may go on after SIGTERM [default: 30s]
    #[arg(long, env = "AGENT_SERVER_DRAIN_TIMEOUT", value_name = "TIME", value_parser = parse_duration)]
    #[serde(with = "duration_text", skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<Duration>,

    /// Time from the end of the user's speech to the answer [default: lognormal(400ms, 0.4)]
    #[arg(long, env = "AGENT_SERVER_THINK", value_name = "DIST")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think: Option<Distribution>,

    /// Length of an answer that the client did not fix [default: uniform(1s, 4s)]
    #[arg(long, env = "AGENT_SERVER_RESPONSE", value_name = "DIST")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Distribution>,

    /// How long the agent waits for a tool's result before it answers without [default: 10s]
    #[arg(long, env = "AGENT_SERVER_TOOL_TIMEOUT", value_name = "TIME", value_parser = parse_duration)]
    #[serde(with = "duration_text", skip_serializing_if = "Option::is_none")]
    pub tool_timeout: Option<Duration>,

    /// Share of turns that call a declared tool unasked, 0 to 1 [default: 0]
    #[arg(long, env = "AGENT_SERVER_TOOL_RATE", value_name = "SHARE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_rate: Option<f64>,

    /// Silence that ends a user turn [default: 500ms]
    #[arg(long, env = "AGENT_SERVER_ENDPOINT_SILENCE", value_name = "TIME", value_parser = parse_duration)]
    #[serde(with = "duration_text", skip_serializing_if = "Option::is_none")]
    pub endpoint_silence: Option<Duration>,

    /// RMS (of 16-bit samples) above which a frame is speech [default: 500]
    #[arg(long, env = "AGENT_SERVER_VAD_THRESHOLD", value_name = "RMS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vad_threshold: Option<f32>,

    /// Seeds latencies, texts and voices [default: 1]
    #[arg(long, env = "AGENT_SERVER_SEED", value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,

    /// CPU time that a 20 ms frame of a phase costs, and the opening of a session: `start=5ms,speaking=200us,thinking=50us,idle=0`; a leading
    /// `virtual:` burns nothing and lets sessions wait for a processor of `--cpu-cores` instead [default: none]
    #[arg(long, env = "AGENT_SERVER_COST", value_name = "SPEC")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostSpec>,

    /// CPU cores that utilization is measured against; also the speed of the processor that `--cost virtual:` is accounted to, which sessions
    /// wait for when it is behind [default: the number of cores]
    #[arg(long, env = "AGENT_SERVER_CPU_CORES", value_name = "CORES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,

    /// Whose CPU time load reports show: `process`, `cgroup`, or `virtual` (the accounted cost) [default: virtual where the cost is, else process]
    #[arg(long, env = "AGENT_SERVER_REPORT_CPU", value_name = "SOURCE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_cpu: Option<CpuSource>,

    /// What load reports claim: `honest`, `rate_weight` (the admissible rate as the weight), or `fixed=U` (always the same rate and the utilization
    /// U, to see how a balancer weighs it) [default: honest]
    #[arg(long, env = "AGENT_SERVER_REPORT_MODE", value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_mode: Option<ReportMode>,

    /// Shortest interval of out-of-band load reports; shorter wishes are raised to it [default: 100ms]
    #[arg(long, env = "AGENT_SERVER_REPORT_MIN_INTERVAL", value_name = "TIME", value_parser = parse_duration)]
    #[serde(with = "duration_text", skip_serializing_if = "Option::is_none")]
    pub report_min_interval: Option<Duration>,

    /// Window over which load reports average sessions and utilization [default: 10s]
    #[arg(long, env = "AGENT_SERVER_REPORT_WINDOW", value_name = "TIME", value_parser = parse_duration)]
    #[serde(with = "duration_text", skip_serializing_if = "Option::is_none")]
    pub report_window: Option<Duration>,

    /// Utilization to aim at [default: 0.8]
    #[arg(long, env = "AGENT_SERVER_REPORT_TARGET", value_name = "SHARE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_target: Option<f64>,

    /// Safety scaler: so many times dearer than measured a further session is taken to be [default: 2]
    #[arg(long, env = "AGENT_SERVER_REPORT_SCALER", value_name = "FACTOR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_scaler: Option<f64>,

    /// Utilization without any session [default: 0]
    #[arg(long, env = "AGENT_SERVER_REPORT_IDLE_UTILIZATION", value_name = "SHARE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_idle_utilization: Option<f64>,

    /// Least cost of a session, a share of the CPU: silent sessions will speak [default: 0]
    #[arg(long, env = "AGENT_SERVER_REPORT_COST_FLOOR", value_name = "SHARE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_cost_floor: Option<f64>,

    /// Cost of a session while there is none, a share of the CPU [default: 0.01]
    #[arg(long, env = "AGENT_SERVER_REPORT_COST_PRIOR", value_name = "SHARE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_cost_prior: Option<f64>,

    /// Half-life of the highest cost of a session seen, which is then a floor for the cost; 0 switches that off [default: 0s]
    #[arg(long, env = "AGENT_SERVER_REPORT_COST_MEMORY", value_name = "TIME", value_parser = parse_duration)]
    #[serde(with = "duration_text", skip_serializing_if = "Option::is_none")]
    pub report_cost_memory: Option<Duration>,

    /// Counts wrongly on purpose: KIND=RATE, repeatable (ghost, `double_decrement`, `decrement_on_reject`, `late_decrement`, `torn_snapshot`, `forget_on_timeout`, `resurrect`)
    #[arg(long, env = "AGENT_SERVER_DEFECT", value_name = "KIND=RATE", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub defect: Vec<String>,

    /// Misbehaves on purpose as real voice backends do, in this share of the sessions: KIND[=RATE], repeatable (`stale_audio_after_barge_in`,
    /// `output_gaps`, `ghost_after_hangup`, `silent_session`, `no_turn_end`, `double_response`, `vad_drop`, `cross_talk`, `truncate_edge`,
    /// `pool_leak`, `admission_race`); `ghost_after_hangup=RATE:TIME` says for how long
    #[arg(long, env = "AGENT_SERVER_FAULT", value_name = "KIND[=RATE]", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fault: Vec<String>,

    /// HTTP/2 flow-control window of a stream, bytes [default: 65536]
    #[arg(long, env = "AGENT_SERVER_HTTP2_STREAM_WINDOW", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2_stream_window: Option<u32>,

    /// HTTP/2 flow-control window of a connection, bytes; a small one kills busy connections (`too_many_data_frames`) [default: 33554432]
    #[arg(long, env = "AGENT_SERVER_HTTP2_CONNECTION_WINDOW", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2_connection_window: Option<u32>,

    /// Streams that one HTTP/2 connection may have open; more wait in the client, silently [default: 4096]
    #[arg(long, env = "AGENT_SERVER_HTTP2_MAX_STREAMS", value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2_max_streams: Option<u32>,

    /// Largest message taken, bytes, on every transport [default: 65536]
    #[arg(long, env = "AGENT_SERVER_MAX_MESSAGE_BYTES", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_message_bytes: Option<usize>,

    /// Events that may wait for a client that does not read; more audio is dropped and counted [default: 512]
    #[arg(long, env = "AGENT_SERVER_SEND_QUEUE", value_name = "EVENTS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_queue: Option<usize>,

    /// Exit when standard input closes, so that a child never outlives its parent [default: false]
    #[arg(long, env = "AGENT_SERVER_STOP_ON_STDIN_EOF", num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_on_stdin_eof: Option<bool>,

    /// Log filter: error, warn, info, debug, trace, or `target=level,..` [default: info]
    #[arg(long, env = "AGENT_SERVER_LOG", value_name = "FILTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

impl ServeArgs {
    /// Fills what is not set from the file named by `--config`, if any.
    pub fn with_file(self) -> anyhow::Result<Self> {
        match self.config.clone() {
            None => Ok(self),
            Some(path) => Ok(self.or(Self::read(&path)?)),
        }
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("failed to read the settings file {}", path.display()))?;
        serde_yaml::from_str(&text).map_err(|e| anyhow::anyhow!("failed to parse the settings file {}: {e}", path.display()))
    }

    /// What is set here, else what is set in `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            config: self.config.or(other.config),
            listen: self.listen.or(other.listen),
            tls_listen: self.tls_listen.or(other.tls_listen),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_self_signed: self.tls_self_signed.or(other.tls_self_signed),
            tls_client_ca: self.tls_client_ca.or(other.tls_client_ca),
            auth_token: self.auth_token.or(other.auth_token),
            auth_token_file: self.auth_token_file.or(other.auth_token_file),
            admin_token: self.admin_token.or(other.admin_token),
            admin_token_file: self.admin_token_file.or(other.admin_token_file),
            admin_tls: self.admin_tls.or(other.admin_tls),
            admin_listen: self.admin_listen.or(other.admin_listen),
            backend_id: self.backend_id.or(other.backend_id),
            shards: self.shards.or(other.shards),
            max_connections: self.max_connections.or(other.max_connections),
            max_connections_per_ip: self.max_connections_per_ip.or(other.max_connections_per_ip),
            max_sessions: self.max_sessions.or(other.max_sessions),
            max_duration: self.max_duration.or(other.max_duration),
            idle_timeout: self.idle_timeout.or(other.idle_timeout),
            start_timeout: self.start_timeout.or(other.start_timeout),
            keepalive_interval: self.keepalive_interval.or(other.keepalive_interval),
            keepalive_timeout: self.keepalive_timeout.or(other.keepalive_timeout),
            drain_timeout: self.drain_timeout.or(other.drain_timeout),
            think: self.think.or(other.think),
            response: self.response.or(other.response),
            tool_timeout: self.tool_timeout.or(other.tool_timeout),
            tool_rate: self.tool_rate.or(other.tool_rate),
            endpoint_silence: self.endpoint_silence.or(other.endpoint_silence),
            vad_threshold: self.vad_threshold.or(other.vad_threshold),
            seed: self.seed.or(other.seed),
            cost: self.cost.or(other.cost),
            cpu_cores: self.cpu_cores.or(other.cpu_cores),
            report_cpu: self.report_cpu.or(other.report_cpu),
            report_mode: self.report_mode.or(other.report_mode),
            report_min_interval: self.report_min_interval.or(other.report_min_interval),
            report_window: self.report_window.or(other.report_window),
            report_target: self.report_target.or(other.report_target),
            report_scaler: self.report_scaler.or(other.report_scaler),
            report_idle_utilization: self.report_idle_utilization.or(other.report_idle_utilization),
            report_cost_floor: self.report_cost_floor.or(other.report_cost_floor),
            report_cost_prior: self.report_cost_prior.or(other.report_cost_prior),
            report_cost_memory: self.report_cost_memory.or(other.report_cost_memory),
            defect: if self.defect.is_empty() { other.defect } else { self.defect },
            fault: if self.fault.is_empty() { other.fault } else { self.fault },
            http2_stream_window: self.http2_stream_window.or(other.http2_stream_window),
            http2_connection_window: self.http2_connection_window.or(other.http2_connection_window),
            http2_max_streams: self.http2_max_streams.or(other.http2_max_streams),
            max_message_bytes: self.max_message_bytes.or(other.max_message_bytes),
            send_queue: self.send_queue.or(other.send_queue),
            stop_on_stdin_eof: self.stop_on_stdin_eof.or(other.stop_on_stdin_eof),
            log: self.log.or(other.log),
        }
    }
}

/// An optional duration as text, as [`parse_duration`] reads it.
mod duration_text {
    use std::time::Duration;

    use proto::time::{format_duration, parse_duration};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(clippy::ref_option, reason = "serde's `with` asks for this shape")]
    pub(super) fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(duration) => serializer.serialize_str(&format_duration(*duration)),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Option::<String>::deserialize(deserializer)?.map(|text| parse_duration(&text).map_err(D::Error::custom)).transpose()
    }
}
