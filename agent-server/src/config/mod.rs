//! Settings: as given ([`ServeArgs`]) and as they hold ([`ServerConfig`]).

mod args;
mod report;
mod secret;
mod tls;

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;
use proto::{dist::Distribution, frame::MAX_MESSAGE_BYTES};
use serde::Serialize;

pub use self::{
    args::ServeArgs,
    report::{CpuSource, ReportConfig, ReportMode},
    secret::{Secret, warn_of_shown_tokens},
    tls::{Identity, TlsConfig},
};
use crate::{
    cost::CostSpec,
    session::{MAX_DURATION, SessionConfig},
};

/// Every setting with its value, checked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerConfig {
    /// Session address as asked for; port 0 is not yet resolved.
    pub listen: SocketAddr,
    /// What the ports that speak TLS show and ask for, if any does.
    pub tls: Option<TlsConfig>,
    /// What whoever opens a session must show, if anything.
    #[serde(skip)]
    pub auth_token: Option<Secret>,
    /// What whoever asks the admin port must show, if anything.
    #[serde(skip)]
    pub admin_token: Option<Secret>,
    /// Connections at once, unless it follows from the limit of open files.
    pub max_connections: Option<usize>,
    /// Of those from one address.
    pub max_connections_per_ip: Option<usize>,
    /// Admin address, unless it follows from the session address.
    pub admin_listen: Option<SocketAddr>,
    /// Name of this backend, unless it follows from the session port.
    pub backend_id: Option<String>,
    /// Threads that serve sessions.
    pub shards: usize,
    /// Hard cap of live sessions.
    pub max_sessions: Option<u64>,
    /// Longest life of a session, unless it follows from the dialect.
    pub max_duration: Option<Duration>,
    /// Longest time without a message of the client.
    pub idle_timeout: Duration,
    /// From the first byte of a connection, or the opening of a stream, to its start message.
    pub start_timeout: Duration,
    /// Between pings.
    pub keepalive_interval: Duration,
    /// From a ping to giving up.
    pub keepalive_timeout: Duration,
    /// From SIGTERM to ending sessions as drained.
    pub drain_timeout: Duration,
    /// Thinking time.
    pub think: Distribution,
    /// Length of answers.
    pub response: Distribution,
    /// Waiting for a tool.
    pub tool_timeout: Duration,
    /// Unasked tool calls, share of turns.
    pub tool_rate: f64,
    /// Silence that ends a turn.
    pub endpoint_silence: Duration,
    /// RMS of speech.
    pub vad_threshold: f32,
    /// Of latencies, texts, voices.
    pub seed: u64,
    /// Synthetic CPU cost.
    pub cost: CostSpec,
    /// What load reports say.
    pub report: ReportConfig,
    /// `KIND=RATE` of each defect.
    pub defects: Vec<String>,
    /// `KIND[=RATE]` of each fault.
    pub faults: Vec<String>,
    /// Bytes.
    pub http2_stream_window: u32,
    /// Bytes.
    pub http2_connection_window: u32,
    /// Open streams a connection.
    pub http2_max_streams: u32,
    /// Bytes.
    pub max_message_bytes: usize,
    /// Events that may wait for a slow reader.
    pub send_queue: usize,
    /// Exit with the parent.
    pub stop_on_stdin_eof: bool,
    /// Log filter.
    pub log: String,
}

impl ServerConfig {
    /// Puts defaults where nothing is set, and checks the values. The file, if any, must have been merged by [`ServeArgs::with_file`].
    pub fn resolve(args: ServeArgs) -> anyhow::Result<Self> {
        let secs = Duration::from_secs;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let report = ReportConfig::resolve(&args, cores)?;
        let tls = TlsConfig::resolve(&args)?;
        let config = Self {
            report,
            tls,
            auth_token: secret::given("auth_token", args.auth_token, args.auth_token_file.as_deref())?,
            admin_token: secret::given("admin_token", args.admin_token, args.admin_token_file.as_deref())?,
            max_connections: args.max_connections,
            max_connections_per_ip: args.max_connections_per_ip,
            listen: args.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 7000))),
            admin_listen: args.admin_listen,
            backend_id: args.backend_id,
            shards: args.shards.unwrap_or(cores),
            max_sessions: args.max_sessions,
            max_duration: args.max_duration,
            idle_timeout: args.idle_timeout.unwrap_or(secs(5 * 60)),
            start_timeout: args.start_timeout.unwrap_or(secs(10)),
            keepalive_interval: args.keepalive_interval.unwrap_or(secs(10)),
            keepalive_timeout: args.keepalive_timeout.unwrap_or(secs(5)),
            drain_timeout: args.drain_timeout.unwrap_or(secs(30)),
            think: args.think.unwrap_or(Distribution::Lognormal(Duration::from_millis(400), 0.4)),
            response: args.response.unwrap_or(Distribution::Uniform(secs(1), secs(4))),
            tool_timeout: args.tool_timeout.unwrap_or(secs(10)),
            tool_rate: args.tool_rate.unwrap_or(0.0),
            endpoint_silence: args.endpoint_silence.unwrap_or(Duration::from_millis(500)),
            vad_threshold: args.vad_threshold.unwrap_or(500.0),
            seed: args.seed.unwrap_or(1),
            cost: args.cost.unwrap_or_default(),
            defects: args.defect,
            faults: args.fault,
            http2_stream_window: args.http2_stream_window.unwrap_or(64 * 1024),
            http2_connection_window: args.http2_connection_window.unwrap_or(32 * 1024 * 1024),
            http2_max_streams: args.http2_max_streams.unwrap_or(4096),
            max_message_bytes: args.max_message_bytes.unwrap_or(MAX_MESSAGE_BYTES),
            send_queue: args.send_queue.unwrap_or(512),
            stop_on_stdin_eof: args.stop_on_stdin_eof.unwrap_or(false),
            log: args.log.unwrap_or_else(|| "info".to_owned()),
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> anyhow::Result<()> {
        const WINDOW_MAX: u32 = (1 << 31) - 1;
        ensure!((1..=256).contains(&self.shards), "shards is {}: choose 1 to 256", self.shards);
        ensure!(self.max_sessions != Some(0), "max_sessions is 0: leave it out for no cap, or choose at least 1");
        ensure!((0.0..=1.0).contains(&self.tool_rate), "tool_rate is {}: choose a share from 0 to 1", self.tool_rate);
        ensure!(
            self.vad_threshold >= 0.0 && self.vad_threshold.is_finite(),
            "vad_threshold is {}: choose an RMS of 0 or more",
            self.vad_threshold
        );
        for (name, time) in [
            ("max_duration", self.max_duration.unwrap_or(MAX_DURATION)),
            ("idle_timeout", self.idle_timeout),
            ("start_timeout", self.start_timeout),
            ("keepalive_interval", self.keepalive_interval),
            ("keepalive_timeout", self.keepalive_timeout),
        ] {
            ensure!(!time.is_zero(), "{name} is 0: choose a time above 0");
        }
        for (name, window) in [("http2_stream_window", self.http2_stream_window), ("http2_connection_window", self.http2_connection_window)]
        {
            ensure!((65_535..=WINDOW_MAX).contains(&window), "{name} is {window}: choose 65535 to {WINDOW_MAX} bytes");
        }
        ensure!(self.http2_max_streams > 0, "http2_max_streams is 0: choose at least 1");
        ensure!(
            (4096..=16 * 1024 * 1024).contains(&self.max_message_bytes),
            "max_message_bytes is {}: choose 4096 bytes to 16 MiB",
            self.max_message_bytes
        );
        ensure!((16..=65_536).contains(&self.send_queue), "send_queue is {}: choose 16 to 65536 events", self.send_queue);
        for (name, token) in [("auth_token", &self.auth_token), ("admin_token", &self.admin_token)] {
            ensure!(token.as_ref().is_none_or(Secret::is_word), "{name} must be printable ASCII characters without spaces, at least one");
        }
        for (name, most) in [("max_connections", self.max_connections), ("max_connections_per_ip", self.max_connections_per_ip)] {
            ensure!(most != Some(0), "{name} is 0: nobody could connect; leave it out, or choose at least 1");
        }
        if let Some(name) = &self.backend_id {
            ensure!(
                !name.is_empty() && name.len() <= 128 && name.bytes().all(|b| b.is_ascii_graphic()),
                "backend_id `{name}` must be 1 to 128 printable characters without spaces"
            );
        }
        Ok(())
    }

    /// What sessions need to know.
    pub fn session(&self, backend_id: &str, boot_id: &str) -> SessionConfig {
        SessionConfig {
            backend_id: backend_id.to_owned(),
            boot_id: boot_id.to_owned(),
            think: self.think.clone(),
            tool_timeout: self.tool_timeout,
            response: self.response.clone(),
            tool_rate: self.tool_rate,
            endpoint_silence: self.endpoint_silence,
            vad_threshold: self.vad_threshold,
            max_duration: self.max_duration,
            idle_timeout: self.idle_timeout,
            seed: self.seed,
            cost: self.cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn parse(flags: &[&str]) -> ServeArgs {
        Cli::try_parse_from(std::iter::once("agent-server").chain(flags.iter().copied())).unwrap().serve
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.yaml");
        std::fs::write(
            &file,
            "max_sessions: 7\nidle_timeout: 90s\nthink: uniform(1s, 2s)\ndefect: [ghost=0.5]\nfault: [vad_drop, output_gaps=0.1]\n",
        )
        .unwrap();
        let args = parse(&["--config", file.to_str().unwrap(), "--max-sessions", "9"]).with_file().unwrap();
        let config = ServerConfig::resolve(args).unwrap();
        assert_eq!(config.max_sessions, Some(9));
        assert_eq!(config.idle_timeout, Duration::from_secs(90));
        assert_eq!(config.think, Distribution::Uniform(Duration::from_secs(1), Duration::from_secs(2)));
        assert_eq!(config.defects, ["ghost=0.5"]);
        assert_eq!(config.faults, ["vad_drop", "output_gaps=0.1"]);
        assert_eq!(config.max_duration, None);
    }

    #[test]
    fn unknown_keys_and_wrong_values_of_the_file_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.yaml");
        for (text, complaint) in [
            ("max_session: 7\n", "max_session"),
            ("idle_timeout: 90\n", "duration"),
            ("max_sessions: -1\n", "max_sessions"),
            ("cost: speaking=fast\n", "fast"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = parse(&["--config", file.to_str().unwrap()]).with_file().unwrap_err().to_string();
            assert!(error.contains(complaint) && error.contains("server.yaml"), "{text}: {error}");
        }
    }

    #[test]
    fn values_are_checked() {
        for flags in [
            ["--shards", "0"],
            ["--max-sessions", "0"],
            ["--max-connections", "0"],
            ["--max-connections-per-ip", "0"],
            ["--tool-rate", "1.5"],
            ["--keepalive-interval", "0"],
            ["--http2-stream-window", "10"],
            ["--max-message-bytes", "1"],
            ["--send-queue", "1"],
            ["--backend-id", "two words"],
        ] {
            let error = ServerConfig::resolve(parse(&flags)).unwrap_err().to_string();
            assert!(error.contains(&flags[0][2..].replace('-', "_")), "{flags:?}: {error}");
        }
    }

    #[test]
    fn tls_settings_go_together() {
        let listen = "--tls-listen=127.0.0.1:0";
        for (flags, complaint) in [
            (&["--tls-cert=a", "--tls-key=b"][..], "tls_cert is set and no port speaks TLS"),
            (&["--admin-tls"], "admin_tls needs a certificate"),
            (&["--tls-client-ca=a"], "tls_client_ca is set and no port speaks TLS"),
            (&[listen], "tls_listen needs a certificate"),
            (&[listen, "--tls-cert=a"], "add --tls-key"),
            (&[listen, "--tls-key=a"], "add --tls-cert"),
            (&[listen, "--tls-cert=a", "--tls-key=b", "--tls-self-signed=c"], "tls_self_signed makes"),
        ] {
            let error = ServerConfig::resolve(parse(flags)).unwrap_err().to_string();
            assert!(error.contains(complaint), "{flags:?}: {error}");
        }
        let config = ServerConfig::resolve(parse(&[listen, "--tls-self-signed=c"])).unwrap();
        assert_eq!(config.tls.unwrap().identity, Identity::SelfSigned("c".into()));
        let tls = ServerConfig::resolve(parse(&["--admin-tls", "--tls-self-signed=c"])).unwrap().tls.unwrap();
        assert_eq!((tls.listen, tls.admin), (None, true));
        assert_eq!(ServerConfig::resolve(parse(&["--admin-tls=false"])).unwrap().tls, None);
    }

    #[test]
    fn a_token_is_shown_nowhere() {
        let args = parse(&["--auth-token=hunter2", "--admin-token=hunter2"]);
        let config = ServerConfig::resolve(args.clone()).unwrap();
        let shown = format!("{args:?}{config:?}{}{}", serde_json::to_string(&args).unwrap(), serde_json::to_string(&config).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
        let token = config.auth_token.unwrap();
        assert!(token.is("hunter2") && !token.is("hunter") && !token.is("hunter3"));
        for wrong in ["", "two words", "\u{e9}"] {
            let error = ServerConfig::resolve(parse(&[&format!("--auth-token={wrong}")])).unwrap_err().to_string();
            assert!(error.starts_with("auth_token must") && (wrong.is_empty() || !error.contains(wrong)), "{error}");
        }
    }

    #[test]
    fn a_token_comes_from_a_file_as_it_stands_in_its_first_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let of = |flags: &[&str]| ServerConfig::resolve(parse(flags)).map_err(|e| e.to_string());
        let flag = format!("--admin-token-file={}", file.display());
        assert!(of(&[&flag]).unwrap_err().contains("admin_token_file"));
        std::fs::write(&file, "hunter2\n").unwrap();
        assert!(of(&[&flag]).unwrap().admin_token.unwrap().is("hunter2"));
        assert!(of(&[&flag, "--admin-token=other"]).unwrap_err().contains("admin_token_file"));
        for (wrong, complaint) in [("", "admin_token must"), ("hunter2\nhunter3", "admin_token must"), (&"x".repeat(70_000), "64 KiB")] {
            std::fs::write(&file, wrong).unwrap();
            let error = of(&[&flag]).unwrap_err();
            assert!(error.contains(complaint) && !error.contains("hunter2"), "{error}");
        }
        let endless = of(&["--auth-token-file=/dev/zero"]).unwrap_err();
        assert!(endless.contains("64 KiB"), "{endless}");
    }

    #[test]
    fn what_serialises_reads_back() {
        let flags =
            ["--listen=127.0.0.1:0", "--idle-timeout=90s", "--cost=virtual:speaking=200us", "--defect=ghost=0.1", "--stop-on-stdin-eof"];
        let args = parse(&flags);
        let text = serde_json::to_string(&args).unwrap();
        assert_eq!(serde_json::from_str::<ServeArgs>(&text).unwrap(), args);
        assert_eq!(serde_yaml::from_str::<ServeArgs>(&text).unwrap(), args);
        assert_eq!(args.stop_on_stdin_eof, Some(true));
    }
}
