//! Synthetic CPU cost, so that a silent session is cheap and a speaking one is not.
//!
//! `--cost speaking=200us,thinking=50us,idle=0` charges that much for every 20 ms frame of a session in the phase: of audio while somebody
//! speaks, of time while nobody does. The cost is spent for real,
//! on the thread that serves the session, measured by that thread's own CPU clock: a preempted thread does not get it for free.
//!
//! `start=5ms` is what opening a session costs, once.
//!
//! With `virtual:` in front nothing is burnt: the cost is added up (`/snapshot`, `/metrics`) and queues for a [`crate::processor`] of
//! `--cpu-cores`. While that is behind, sessions wait for it as they would for a busy CPU: their acceptance and their answers come later.

use std::{fmt, str::FromStr, time::Duration};

use proto::time::{format_duration, parse_duration};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::tracker::Phase;

/// No frame may cost more than this: a shard that burns longer than a frame lasts serves nobody.
pub const MAX_COST: Duration = Duration::from_millis(20);
/// Opening a session may cost more where nobody burns it.
pub const MAX_VIRTUAL_START: Duration = Duration::from_secs(1);

/// CPU time of a 20 ms frame, by phase, and of opening a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CostSpec {
    /// In the order of [`Phase::ALL`].
    per_frame: [Duration; 5],
    /// Of opening a session.
    start: Duration,
    /// Not burnt.
    accounted: bool,
}

/// A text that is no cost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a cost: {reason}; write [virtual:]start=5ms,speaking=200us,thinking=50us,tool=0,idle=0")]
pub struct CostError {
    text: String,
    reason: String,
}

impl CostSpec {
    /// Of one frame in `phase`.
    pub const fn of(&self, phase: Phase) -> Duration {
        self.per_frame[phase as usize]
    }

    /// Of opening a session.
    pub const fn start(&self) -> Duration {
        self.start
    }

    /// It is only accounted, not spent.
    pub const fn is_virtual(&self) -> bool {
        self.accounted
    }

    /// Spends the cost of one frame of `phase`: burns it, or returns it as microseconds to account.
    pub fn charge(&self, phase: Phase) -> u64 {
        self.spend(self.of(phase))
    }

    /// As [`Self::charge`], for the opening of a session.
    pub fn charge_start(&self) -> u64 {
        self.spend(self.start)
    }

    fn spend(&self, cost: Duration) -> u64 {
        if cost.is_zero() {
            return 0;
        }
        if self.accounted {
            return cost.as_micros() as u64;
        }
        burn(cost);
        0
    }
}

/// Keeps the CPU busy until this thread has used `cost` more of it.
fn burn(cost: Duration) {
    let now = || {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
    };
    let end = now() + cost;
    while now() < end {
        // The clock is a system call of some 200 ns; work in between keeps the burn in user space.
        for i in 0..256u32 {
            std::hint::black_box(i);
        }
    }
}

impl FromStr for CostSpec {
    type Err = CostError;

    fn from_str(text: &str) -> Result<Self, CostError> {
        let error = |reason: String| CostError { text: text.to_owned(), reason };
        let (accounted, list) = text.strip_prefix("virtual:").map_or((false, text), |rest| (true, rest));
        let mut spec = Self { accounted, ..Self::default() };
        for part in list.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, cost) = part.split_once('=').ok_or_else(|| error(format!("`{part}` is not PHASE=TIME")))?;
            let cost = parse_duration(cost).map_err(|e| error(e.to_string()))?;
            if name.trim() == "start" {
                let most = if accounted { MAX_VIRTUAL_START } else { MAX_COST };
                if cost > most {
                    return Err(error(format!("opening a session may cost {} at most", format_duration(most))));
                }
                spec.start = cost;
                continue;
            }
            if cost > MAX_COST {
                return Err(error(format!("{} is longer than the frame it is for ({})", format_duration(cost), format_duration(MAX_COST))));
            }
            for phase in phases(name.trim()).ok_or_else(|| error(format!("`{name}` is no phase")))? {
                spec.per_frame[*phase as usize] = cost;
            }
        }
        Ok(spec)
    }
}

/// The phases that a name stands for.
fn phases(name: &str) -> Option<&'static [Phase]> {
    Some(match name {
        "idle" | "listening" => &[Phase::Listening],
        "speaking" => &[Phase::UserSpeaking, Phase::AgentSpeaking],
        "user_speaking" => &[Phase::UserSpeaking],
        "agent_speaking" => &[Phase::AgentSpeaking],
        "thinking" => &[Phase::Thinking],
        "tool" | "tool_calling" => &[Phase::ToolCalling],
        _ => return None,
    })
}

impl fmt::Display for CostSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.accounted {
            f.write_str("virtual:")?;
        }
        let phases = Phase::ALL.iter().map(|p| (p.name(), self.of(*p)));
        let parts = std::iter::once(("start", self.start)).chain(phases).filter(|(_, cost)| !cost.is_zero());
        for (i, (name, cost)) in parts.enumerate() {
            write!(f, "{}{name}={}", if i == 0 { "" } else { "," }, format_duration(cost))?;
        }
        Ok(())
    }
}

impl Serialize for CostSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CostSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_parse_and_read_back() {
        let spec: CostSpec = "speaking=200us,thinking=50us,idle=0".parse().unwrap();
        assert_eq!(spec.of(Phase::UserSpeaking), Duration::from_micros(200));
        assert_eq!(spec.of(Phase::AgentSpeaking), Duration::from_micros(200));
        assert_eq!(spec.of(Phase::Thinking), Duration::from_micros(50));
        assert_eq!(spec.of(Phase::Listening), Duration::ZERO);
        for text in ["", "virtual:", "virtual:speaking=1ms", "user_speaking=5us,tool=2ms", "start=20ms", "virtual:start=1s,idle=1us"] {
            let spec: CostSpec = text.parse().unwrap();
            assert_eq!(spec.to_string().parse::<CostSpec>().unwrap(), spec, "{text}");
        }
    }

    #[test]
    fn wrong_specs_say_why() {
        for (text, why) in [
            ("speaking", "PHASE=TIME"),
            ("shouting=1us", "no phase"),
            ("idle=x", "duration"),
            ("idle=1s", "longer than the frame"),
            ("start=21ms", "20ms at most"),
            ("virtual:start=2s", "1s at most"),
        ] {
            let error = text.parse::<CostSpec>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_virtual_cost_is_accounted_and_a_real_one_is_spent() {
        let accounted: CostSpec = "virtual:start=200ms,speaking=200us".parse().unwrap();
        assert_eq!(accounted.charge_start(), 200_000);
        assert_eq!(accounted.charge(Phase::AgentSpeaking), 200);
        assert_eq!(accounted.charge(Phase::Listening), 0);
        let real: CostSpec = "speaking=200us".parse().unwrap();
        let used = || {
            let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            t.tv_sec * 1_000_000_000 + t.tv_nsec
        };
        let before = used();
        assert_eq!(real.charge(Phase::AgentSpeaking), 0);
        assert!(used() - before >= 200_000, "CPU time is counted, not guessed");
    }
}
