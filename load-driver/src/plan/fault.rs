//! Faults that the run makes on purpose, at times that the profile names.

use std::time::Duration;

use proto::time::{Micros, format_duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ScenarioPlan;

/// A backoff is doubled so often at most,
const MAX_DOUBLINGS: u32 = 16;
/// and grows to no more than this, unless it begins above it.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Who is struck and how long it waits are drawn apart.
const BACKOFF: u64 = 0x5bf0_3635_dcd1_f2a7;

/// One fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// Position in the timeline: names it in the results, and seeds the choice of whom it strikes.
    pub number: u16,
    /// Run time at which it begins.
    pub at: Micros,
    /// How long it lasts; zero for what happens in a moment.
    pub duration: Duration,
    /// What happens.
    pub kind: FaultKind,
    /// To whom.
    pub target: FaultTarget,
    /// Share of the sessions, or connections, of the target that it strikes.
    pub fraction: f64,
}

/// To whom a fault happens: all that hold of what is named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FaultTarget {
    /// Only this backend (index into the fleet), its connections or its sessions; none: all.
    pub backend: Option<usize>,
    /// Only sessions of this scenario (index into the plan), or its worker; none: all.
    pub scenario: Option<u16>,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FaultKind {
    /// All that is sent, either way, arrives so much later.
    Delay {
        /// Always.
        delay: Duration,
        /// And up to so much more, drawn anew for each piece; order is kept.
        jitter: Duration,
    },
    /// Nothing passes; all of it comes when the fault is over.
    Stall,
    /// No more than so many bytes a second each way, for each connection.
    Bandwidth {
        /// Bytes a second.
        bytes_per_s: u64,
    },
    /// As lost packets look over TCP: in each period nothing passes for a while, then all of it at once.
    Gaps {
        /// Nothing passes for so long,
        gap: Duration,
        /// once in so long.
        period: Duration,
    },
    /// What is sent vanishes, and nobody hears of it.
    Blackhole,
    /// Connections are reset on both sides.
    Reset,
    /// `SIGSTOP`, then `SIGCONT`: of a backend that the run started, or of a scenario's worker.
    Stop,
    /// `kill -9`, and a start on the same ports with a new boot id.
    KillBackend {
        /// It stays dead for so long.
        dead_for: Duration,
    },
    /// The backend is told to drain; it is started anew after the duration.
    Drain,
    /// The backend has no more CPU than this.
    Cpu {
        /// Cores.
        cores: f64,
    },
    /// The session ends so, at once.
    End(super::EndKind),
    /// Cancel, reset and deadline of one session in the same moment. The deadline is asked for when the session starts, where the dialect can.
    Race,
    /// The caller does not read.
    SlowReader,
    /// Every session struck is reset, and comes back after a backoff.
    ReconnectStorm {
        /// Before the first try; doubled with every try that fails.
        backoff: Duration,
        /// Up to so much is added, drawn for each try.
        jitter: Duration,
    },
    /// Connections that never become sessions.
    Churn {
        /// New ones a second.
        rate: f64,
    },
    /// Queueing discipline of the kernel on the way to the backend: `netem` with delay and loss. Needs root and the module.
    Netem {
        /// One way.
        delay: Duration,
        /// Share of packets.
        loss: f64,
    },
    /// Bandwidth by the kernel's `tbf`, in the backend's network namespace. Needs root.
    Tbf {
        /// Bytes a second.
        bytes_per_s: u64,
    },
    /// Packets to and from the backend are dropped by `nft`, in its network namespace. Needs root.
    NftDrop,
    /// Sockets of the backend are destroyed by `ss -K`, in its network namespace. Needs root.
    SocketKill,
}

/// The word for a kind in profiles and tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "see `FaultKind`")]
pub enum FaultName {
    Delay,
    Stall,
    Bandwidth,
    Gaps,
    Blackhole,
    Reset,
    Stop,
    KillBackend,
    Drain,
    Cpu,
    Cancel,
    TcpFin,
    TcpRst,
    HalfOpen,
    Race,
    SlowReader,
    ReconnectStorm,
    Churn,
    Netem,
    Tbf,
    NftDrop,
    SocketKill,
}

/// Who makes a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// The relay between the driver and the backends.
    Relay,
    /// The kernel, in the network namespace of the backend. Needs root.
    Namespace,
    /// The controller, on processes and from outside of sessions.
    Controller,
    /// The shards, on their own sessions, by themselves: they have the plan.
    Shards,
}

impl FaultName {
    /// In the order of every table.
    pub const ALL: [Self; 22] = [
        Self::Delay,
        Self::Stall,
        Self::Bandwidth,
        Self::Gaps,
        Self::Blackhole,
        Self::Reset,
        Self::Stop,
        Self::KillBackend,
        Self::Drain,
        Self::Cpu,
        Self::Cancel,
        Self::TcpFin,
        Self::TcpRst,
        Self::HalfOpen,
        Self::Race,
        Self::SlowReader,
        Self::ReconnectStorm,
        Self::Churn,
        Self::Netem,
        Self::Tbf,
        Self::NftDrop,
        Self::SocketKill,
    ];

    /// As in profiles and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Stall => "stall",
            Self::Bandwidth => "bandwidth",
            Self::Gaps => "gaps",
            Self::Blackhole => "blackhole",
            Self::Reset => "reset",
            Self::Stop => "stop",
            Self::KillBackend => "kill_backend",
            Self::Drain => "drain",
            Self::Cpu => "cpu",
            Self::Cancel => "cancel",
            Self::TcpFin => "tcp_fin",
            Self::TcpRst => "tcp_rst",
            Self::HalfOpen => "half_open",
            Self::Race => "race",
            Self::SlowReader => "slow_reader",
            Self::ReconnectStorm => "reconnect_storm",
            Self::Churn => "churn",
            Self::Netem => "netem",
            Self::Tbf => "tbf",
            Self::NftDrop => "nft_drop",
            Self::SocketKill => "socket_kill",
        }
    }

    /// Who makes it.
    pub const fn maker(self) -> Maker {
        match self {
            Self::Delay | Self::Stall | Self::Bandwidth | Self::Gaps | Self::Blackhole | Self::Reset => Maker::Relay,
            Self::Netem | Self::Tbf | Self::NftDrop | Self::SocketKill => Maker::Namespace,
            Self::Stop | Self::KillBackend | Self::Drain | Self::Cpu | Self::Churn => Maker::Controller,
            Self::Cancel | Self::TcpFin | Self::TcpRst | Self::HalfOpen | Self::Race | Self::SlowReader | Self::ReconnectStorm => {
                Maker::Shards
            }
        }
    }

    /// It happens in a moment and has no duration.
    pub const fn is_momentary(self) -> bool {
        matches!(
            self,
            Self::Reset
                | Self::KillBackend
                | Self::Cancel
                | Self::TcpFin
                | Self::TcpRst
                | Self::HalfOpen
                | Self::Race
                | Self::ReconnectStorm
                | Self::SocketKill
        )
    }
}

impl FaultKind {
    /// Its word.
    pub const fn name(&self) -> FaultName {
        use super::EndKind;
        match self {
            Self::Delay { .. } => FaultName::Delay,
            Self::Stall => FaultName::Stall,
            Self::Bandwidth { .. } => FaultName::Bandwidth,
            Self::Gaps { .. } => FaultName::Gaps,
            Self::Blackhole => FaultName::Blackhole,
            Self::Reset => FaultName::Reset,
            Self::Stop => FaultName::Stop,
            Self::KillBackend { .. } | Self::End(EndKind::KillBackend) => FaultName::KillBackend,
            Self::Drain => FaultName::Drain,
            Self::Cpu { .. } => FaultName::Cpu,
            Self::End(EndKind::TcpFin) => FaultName::TcpFin,
            Self::End(EndKind::TcpRst) => FaultName::TcpRst,
            Self::End(EndKind::HalfOpen) => FaultName::HalfOpen,
            Self::End(EndKind::Graceful | EndKind::Cancel | EndKind::KillWorker) => FaultName::Cancel,
            Self::Race => FaultName::Race,
            Self::SlowReader => FaultName::SlowReader,
            Self::ReconnectStorm { .. } => FaultName::ReconnectStorm,
            Self::Churn { .. } => FaultName::Churn,
            Self::Netem { .. } => FaultName::Netem,
            Self::Tbf { .. } => FaultName::Tbf,
            Self::NftDrop => FaultName::NftDrop,
            Self::SocketKill => FaultName::SocketKill,
        }
    }

    /// What was made of it, in words: `delay 200ms, jitter 50ms`; empty where the kind says it all.
    pub fn with(&self) -> String {
        let time = |what: &str, span: Duration| (!span.is_zero()).then(|| format!("{what} {}", format_duration(span)));
        let parts = match *self {
            Self::Delay { delay, jitter } => [time("delay", delay), time("jitter", jitter)],
            Self::Bandwidth { bytes_per_s } | Self::Tbf { bytes_per_s } => [Some(format!("{bytes_per_s} bytes/s")), None],
            Self::Gaps { gap, period } => [Some(format!("gap {} in every {}", format_duration(gap), format_duration(period))), None],
            Self::KillBackend { dead_for } => [Some(format!("dead for {}", format_duration(dead_for))), None],
            Self::Cpu { cores } => [Some(format!("{cores} cores left")), None],
            Self::ReconnectStorm { backoff, jitter } => [time("backoff", backoff), time("jitter", jitter)],
            Self::Churn { rate } => [Some(format!("{rate} connections/s")), None],
            Self::Netem { delay, loss } => [time("delay", delay), (loss > 0.0).then(|| format!("loss {} %", percent(loss)))],
            Self::Stall
            | Self::Blackhole
            | Self::Reset
            | Self::Stop
            | Self::Drain
            | Self::End(_)
            | Self::Race
            | Self::SlowReader
            | Self::NftDrop
            | Self::SocketKill => [None, None],
        };
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Without the noise of a product of floats.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}

impl Fault {
    /// Run time at which it is over.
    pub fn ends_at(&self) -> Micros {
        self.at + self.duration
    }

    /// Whether it strikes this one (a session's index, a connection's number) of those that its target holds: the same ones in every run of a seed.
    pub fn strikes(&self, seed: u64, one: u64) -> bool {
        self.fraction >= 1.0 || self.draw(seed, one) < self.fraction
    }

    /// Sessions of this scenario may be among those that it strikes, if their backend is.
    pub fn concerns(&self, scenario: &ScenarioPlan) -> bool {
        self.target.scenario.is_none_or(|number| number == scenario.number)
            && self.target.backend.is_none_or(|backend| scenario.backend.is_none_or(|pinned| pinned == backend))
    }

    /// It takes the whole connection of a session: those that it may strike need one of their own.
    pub const fn takes_connection(&self) -> bool {
        match self.kind {
            FaultKind::End(kind) => kind.needs_own_connection(),
            FaultKind::Race | FaultKind::ReconnectStorm { .. } => true,
            _ => false,
        }
    }

    /// Try number `tries` (from 0) of this session to come back after a storm struck it, counted from the failure of the one before.
    pub fn comes_back_after(&self, seed: u64, one: u64, tries: u32) -> Duration {
        let FaultKind::ReconnectStorm { backoff, jitter } = self.kind else { return Duration::ZERO };
        let doubled = backoff.saturating_mul(1 << tries.min(MAX_DOUBLINGS)).min(MAX_BACKOFF.max(backoff));
        doubled + jitter.mul_f64(self.draw(seed ^ u64::from(tries).rotate_left(32), one ^ BACKOFF))
    }

    /// From 0 to 1, for this fault and this one.
    fn draw(&self, seed: u64, one: u64) -> f64 {
        // SplitMix64: neighbours must not share their fate.
        let mut x = seed ^ one.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(self.number) + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_struck_and_always_the_same() {
        for (fraction, least, most) in [(0.0, 0, 0), (0.1, 850, 1_150), (0.5, 4_800, 5_200), (1.0, 10_000, 10_000)] {
            let fault = |number| Fault {
                number,
                at: Micros::ZERO,
                duration: Duration::ZERO,
                kind: FaultKind::Stall,
                target: FaultTarget::default(),
                fraction,
            };
            let struck = |number| (0..10_000).filter(|one| fault(number).strikes(7, *one)).collect::<Vec<u64>>();
            assert!((least..=most).contains(&struck(0).len()), "{fraction}: {}", struck(0).len());
            assert_eq!(struck(0), struck(0));
            assert_eq!(struck(0) == struck(1), matches!(fraction, 0.0 | 1.0), "two faults strike others");
        }
    }

    #[test]
    fn a_storm_doubles_its_backoff_up_to_a_bound_and_spreads_by_its_jitter() {
        let (backoff, jitter) = (Duration::from_millis(500), Duration::from_millis(200));
        let kind = FaultKind::ReconnectStorm { backoff, jitter };
        let fault = Fault { number: 3, at: Micros::ZERO, duration: Duration::ZERO, kind, target: FaultTarget::default(), fraction: 1.0 };
        for (tries, least) in [(0, 500), (1, 1_000), (4, 8_000), (9, 30_000), (u32::MAX, 30_000)] {
            let all: Vec<Duration> = (0..1_000).map(|one| fault.comes_back_after(7, one, tries)).collect();
            let least = Duration::from_millis(least);
            assert!(all.iter().all(|one| (least..=least + jitter).contains(one)), "{tries}");
            let late = all.iter().filter(|one| **one > least + jitter / 2).count();
            assert!((400..600).contains(&late), "{tries}: {late}");
            assert_eq!(all[5], fault.comes_back_after(7, 5, tries));
        }
    }

    /// Two faults of a kind that differ must not look alike.
    #[test]
    fn what_was_made_is_told_in_words() {
        let ms = Duration::from_millis;
        for (kind, words) in [
            (FaultKind::Delay { delay: ms(850), jitter: Duration::ZERO }, "delay 850ms"),
            (FaultKind::Delay { delay: ms(840), jitter: ms(50) }, "delay 840ms, jitter 50ms"),
            (FaultKind::Bandwidth { bytes_per_s: 4_000 }, "4000 bytes/s"),
            (FaultKind::Tbf { bytes_per_s: 16_000 }, "16000 bytes/s"),
            (FaultKind::Gaps { gap: ms(200), period: ms(1_500) }, "gap 200ms in every 1.5s"),
            (FaultKind::KillBackend { dead_for: ms(1_000) }, "dead for 1s"),
            (FaultKind::Cpu { cores: 0.25 }, "0.25 cores left"),
            (FaultKind::ReconnectStorm { backoff: ms(500), jitter: ms(200) }, "backoff 500ms, jitter 200ms"),
            (FaultKind::Churn { rate: 20.0 }, "20 connections/s"),
            (FaultKind::Netem { delay: ms(40), loss: 0.07 }, "delay 40ms, loss 7 %"),
            (FaultKind::Netem { delay: ms(40), loss: 0.0 }, "delay 40ms"),
            (FaultKind::Stall, ""),
            (FaultKind::End(crate::plan::EndKind::TcpRst), ""),
        ] {
            assert_eq!(kind.with(), words);
        }
    }

    #[test]
    fn every_name_is_its_word() {
        for name in FaultName::ALL {
            assert_eq!(serde_json::to_value(name).unwrap(), name.name());
        }
    }
}
