//! The closed list.

use agent_server::fault::FaultKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ledger::Weather;

/// What can be wrong with a voice backend, by the names of `agent-server --fault`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum VoiceFault {
    /// Audio of an interrupted response goes on after its end.
    StaleAudioAfterBargeIn,
    /// Holes of 100 ms or more between audio frames.
    OutputGaps,
    /// A session lives on after the peer hung up.
    GhostAfterHangup,
    /// A session lives and never answers again.
    SilentSession,
    /// A response was played out and its end never came.
    NoTurnEnd,
    /// A second response to a turn that was answered.
    DoubleResponse,
    /// A turn was not heard, and a later one was.
    VadDrop,
    /// Something was said that answers nobody in this session.
    CrossTalk,
    /// A session lives and never answers again, since an interruption at 0 ms or beyond the audio.
    TruncateEdge,
    /// A session was refused although there was room.
    PoolLeak,
    /// More sessions were live than the cap allows.
    AdmissionRace,
}

impl VoiceFault {
    /// In the order of every table.
    pub const ALL: [Self; 11] = [
        Self::StaleAudioAfterBargeIn,
        Self::OutputGaps,
        Self::GhostAfterHangup,
        Self::SilentSession,
        Self::NoTurnEnd,
        Self::DoubleResponse,
        Self::VadDrop,
        Self::CrossTalk,
        Self::TruncateEdge,
        Self::PoolLeak,
        Self::AdmissionRace,
    ];

    /// As in profiles, summaries and flags.
    pub const fn name(self) -> &'static str {
        // In the order of the server's own list.
        FaultKind::ALL[self as usize].name()
    }

    /// So many in a session are a fault: one or two holes are a bad moment of any machine.
    pub const fn least(self) -> u32 {
        match self {
            Self::OutputGaps => 3,
            _ => 1,
        }
    }

    /// What its size counts.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::StaleAudioAfterBargeIn => "interrupted responses",
            Self::OutputGaps => "holes",
            Self::GhostAfterHangup | Self::SilentSession | Self::TruncateEdge | Self::CrossTalk => "sessions",
            Self::NoTurnEnd | Self::DoubleResponse => "responses",
            Self::VadDrop => "turns",
            Self::PoolLeak => "refusals",
            Self::AdmissionRace => "sessions over the cap",
        }
    }

    /// A fault of the run that does this to a session can make an honest agent look so. `by_time`: nothing but times tells it in that session.
    ///
    /// What passes at all passes in order and whole, so what an agent says itself holds whatever the network does.
    pub const fn made_by(self, weather: Weather, by_time: bool) -> bool {
        match self {
            Self::OutputGaps => is_felt(weather, FELT_IN_AUDIO_US),
            // Words of the agent that come late, or not before the end; audio of the caller of which it may make another turn, or none.
            Self::SilentSession | Self::TruncateEdge | Self::NoTurnEnd | Self::VadDrop => is_felt(weather, FELT_IN_TURNS_US),
            // An agent that was starved of audio may answer the parts, and what it then says may meet what the user says next. Where it tells what it heard and
            // whose audio it sends, it answers once, and sends nothing of what it gave up.
            Self::DoubleResponse | Self::StaleAudioAfterBargeIn => by_time && is_felt(weather, FELT_IN_TURNS_US),
            // Nobody can be answered who never spoke, however late it comes. The others are not told by what is heard: hang-ups are waited for longer,
            // and counters are what they are.
            Self::CrossTalk | Self::GhostAfterHangup | Self::PoolLeak | Self::AdmissionRace => false,
        }
    }

    /// What must have happened for it to be judged.
    pub const fn needs(self) -> &'static str {
        match self {
            Self::StaleAudioAfterBargeIn => {
                "no response was interrupted, and listened for after that, in a dialect that names the response of its audio"
            }
            Self::OutputGaps => "no session heard enough of its agent for three holes, in a dialect that names its responses",
            Self::GhostAfterHangup => {
                "no session hung up abruptly on a backend that lists its sessions, or none was watched for long enough"
            }
            Self::SilentSession => {
                "no session had two turns, and was heard in its last one, in a dialect that shows what was heard; one unheard turn at the end proves nothing"
            }
            Self::VadDrop => "no session had a turn between two others, and the last one answered, in a dialect that shows what was heard",
            Self::NoTurnEnd => "no response was heard out in a dialect that signals ends, or what became of its end cannot be told",
            Self::DoubleResponse => {
                "no turn was answered in full, and listened for 500 ms after that, in a dialect that names its responses"
            }
            Self::CrossTalk => "no session began with silence in a dialect that names its responses, or the agents are expected to greet",
            Self::TruncateEdge => {
                "no response was interrupted at 0 ms or beyond its audio, with turns after it, in a dialect that shows what was heard"
            }
            Self::PoolLeak => "no session was refused by a backend whose counters and cap are known",
            Self::AdmissionRace => "no backend with exact counters and a cap was seen to be full",
        }
    }
}

/// A hole is 100 ms: less than this makes none of an agent that is on time, microseconds.
const FELT_IN_AUDIO_US: u64 = 20_000;
/// No turn is lost, split or given up by less, microseconds.
const FELT_IN_TURNS_US: u64 = 200_000;

const fn is_felt(weather: Weather, least_us: u64) -> bool {
    match weather {
        Weather::Lost => true,
        Weather::Late(by_us) => by_us >= least_us,
    }
}

/// A set of kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kinds(u16);

impl Kinds {
    /// One more.
    pub fn insert(&mut self, kind: VoiceFault) {
        self.0 |= 1 << kind as u16;
    }

    /// One less.
    pub fn remove(&mut self, kind: VoiceFault) {
        self.0 &= !(1 << kind as u16);
    }

    /// It is in.
    pub const fn has(self, kind: VoiceFault) -> bool {
        self.0 & (1 << kind as u16) != 0
    }

    /// In the order of every table.
    pub fn iter(self) -> impl Iterator<Item = VoiceFault> {
        VoiceFault::ALL.into_iter().filter(move |kind| self.has(*kind))
    }
}
