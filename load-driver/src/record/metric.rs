//! The closed list of metrics and counters.

use proto::time::Micros;
use serde::{Deserialize, Serialize};

use crate::plan::{Dialect, TurnDetection};

/// A latency; each is taken from the intended and from the actual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Dial to transport ready.
    Connect,
    /// Scheduled arrival to session accepted.
    SessionStartup,
    /// Old connection over to the acceptance of the session that goes on with its conversation.
    Resumption,
    /// Scheduled arrival to the agent's first transcript or audible audio.
    TimeToFirstStream,
    /// End of the user's speech to the server's word that it is over.
    Endpointing,
    /// End of the user's speech to the first agent audio that can be heard.
    TurnResponse,
    /// Interrupt sent to the last agent audio frame of the cancelled response or its acknowledgement, whichever is later.
    BargeInStop,
    /// Interruption to the first sign of the server: speech heard, response ended, audio thrown away.
    BargeInSignal,
    /// Interruption to the last audio of the response.
    BargeInLastPacket,
    /// Interruption by speech to the silence of the loudspeaker: what was sent and not thrown away is played.
    BargeInSilent,
    /// Tool call received to agent resumes after the result.
    ToolRoundTrip,
    /// Speech onset to first partial transcript.
    TranscriptFirst,
    /// End of speech to final transcript.
    TranscriptFinal,
    /// Playout deadline of a late frame to its arrival.
    AudioGap,
    /// Frame sent to its acknowledgement.
    FrameRtt,
    /// Intended to actual send: the driver's own error.
    ScheduleLag,
    /// Forced end to agreement of the backend's counters with the ledger.
    CounterConvergence,
}

impl Metric {
    /// In the order of every table.
    pub const ALL: [Self; 17] = [
        Self::Connect,
        Self::SessionStartup,
        Self::Resumption,
        Self::TimeToFirstStream,
        Self::Endpointing,
        Self::TurnResponse,
        Self::BargeInStop,
        Self::BargeInSignal,
        Self::BargeInLastPacket,
        Self::BargeInSilent,
        Self::ToolRoundTrip,
        Self::TranscriptFirst,
        Self::TranscriptFinal,
        Self::AudioGap,
        Self::FrameRtt,
        Self::ScheduleLag,
        Self::CounterConvergence,
    ];

    /// Sessions of this dialect can give samples of it.
    pub fn is_told_in(self, dialect: Dialect) -> bool {
        match self {
            Self::FrameRtt => dialect == Dialect::Native,
            Self::Endpointing | Self::TranscriptFirst | Self::TranscriptFinal => dialect != Dialect::Twilio,
            Self::ToolRoundTrip => dialect.capabilities(TurnDetection::default()).tools || dialect == Dialect::Custom,
            _ => true,
        }
    }

    /// As in profiles and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::SessionStartup => "session_startup",
            Self::Resumption => "resumption",
            Self::TimeToFirstStream => "time_to_first_stream",
            Self::Endpointing => "endpointing",
            Self::TurnResponse => "turn_response",
            Self::BargeInStop => "barge_in_stop",
            Self::BargeInSignal => "barge_in_signal",
            Self::BargeInLastPacket => "barge_in_last_packet",
            Self::BargeInSilent => "barge_in_silent",
            Self::ToolRoundTrip => "tool_round_trip",
            Self::TranscriptFirst => "transcript_first",
            Self::TranscriptFinal => "transcript_final",
            Self::AudioGap => "audio_gap",
            Self::FrameRtt => "frame_rtt",
            Self::ScheduleLag => "schedule_lag",
            Self::CounterConvergence => "counter_convergence",
        }
    }
}

/// One latency: `to - intended` is the response time, `to - actual` the service time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// What.
    pub metric: Metric,
    /// When it should have begun.
    pub intended: Micros,
    /// When it began.
    pub actual: Micros,
    /// When it was over.
    pub to: Micros,
}

/// Things that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// Audio frames sent.
    FramesSent,
    /// Audio received, in frames of 20 ms.
    FramesReceived,
    /// User turns begun, and those that were due and never begun ([`Self::TurnsUnspoken`]).
    Turns,
    /// Turns that got their answer.
    TurnsAnswered,
    /// Turns whose answer did not come in time, or never could: those that nobody spoke are among them.
    TurnsMissed,
    /// Turns cut short by the session's end, or by the user, who spoke again before the agent began: kept, not failures.
    TurnsInterrupted,
    /// Responses whose end came.
    Responses,
    /// Responses that answer nobody, or somebody who has an answer.
    ResponsesSpurious,
    /// Interruptions made.
    BargeIns,
    /// Those that could show whether the agent stops: all but what crossed the end of the response on the wire, found nothing but the client's own
    /// loudspeaker to stop, or was cut short by the session's end.
    BargeInsJudged,
    /// Interruptions after which the agent never stopped.
    BargeInsMissed,
    /// Responses that the server broke off although the user had not spoken.
    BargeInsFalse,
    /// Frames of a cancelled response after its acknowledgement.
    StaleFrames,
    /// Tool calls received.
    ToolCalls,
    /// Late frames.
    Underruns,
    /// Microseconds of playout lost to late frames.
    UnderrunUs,
    /// Messages of agent audio that the backend numbered: where the dialect has no numbers there are none.
    AudioNumbered,
    /// Gaps in the agent's sequence numbers, of those.
    SequenceGaps,
    /// Non-fatal errors from the server.
    ServerErrors,
    /// Frames that the driver dropped because a stream's queue was full.
    SendDrops,
    /// Microseconds of user speech sent.
    SpeechUs,
    /// Microseconds in which user and agent could be heard at once.
    TalkOverUs,
    /// Microseconds of agent audio before the last of each response that is over: what came in [`Self::PacedWallUs`].
    PacedMediaUs,
    /// Microseconds from the first audio to the last of each response that is over.
    PacedWallUs,
    /// Announcements that the session will be ended by the server.
    GoingAways,
    /// Sessions that took up the conversation of one before them.
    SessionsResumed,
    /// Of the missed: turns that were due in the plan and never begun, for the backend ended the session in order before them, or the conversation
    /// found no session to go on in; of conversations without an end, one.
    TurnsUnspoken,
    /// Sessions that the backend ended in order before their conversation was over, and that went on in no other.
    SessionsCutShort,
}

impl Counter {
    /// In the order of every table.
    pub const ALL: [Self; 28] = [
        Self::FramesSent,
        Self::FramesReceived,
        Self::Turns,
        Self::TurnsAnswered,
        Self::TurnsMissed,
        Self::TurnsInterrupted,
        Self::Responses,
        Self::ResponsesSpurious,
        Self::BargeIns,
        Self::BargeInsJudged,
        Self::BargeInsMissed,
        Self::BargeInsFalse,
        Self::StaleFrames,
        Self::ToolCalls,
        Self::Underruns,
        Self::UnderrunUs,
        Self::AudioNumbered,
        Self::SequenceGaps,
        Self::ServerErrors,
        Self::SendDrops,
        Self::SpeechUs,
        Self::TalkOverUs,
        Self::PacedMediaUs,
        Self::PacedWallUs,
        Self::GoingAways,
        Self::SessionsResumed,
        Self::TurnsUnspoken,
        Self::SessionsCutShort,
    ];

    /// So many turns were due and nobody spoke them: what to count.
    pub const fn unspoken(turns: u64) -> [(Self, u64); 3] {
        [(Self::Turns, turns), (Self::TurnsMissed, turns), (Self::TurnsUnspoken, turns)]
    }

    /// As in profiles and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FramesSent => "frames_sent",
            Self::FramesReceived => "frames_received",
            Self::Turns => "turns",
            Self::TurnsAnswered => "turns_answered",
            Self::TurnsMissed => "turns_missed",
            Self::TurnsInterrupted => "turns_interrupted",
            Self::Responses => "responses",
            Self::ResponsesSpurious => "responses_spurious",
            Self::BargeIns => "barge_ins",
            Self::BargeInsJudged => "barge_ins_judged",
            Self::BargeInsMissed => "barge_ins_missed",
            Self::BargeInsFalse => "barge_ins_false",
            Self::StaleFrames => "stale_frames",
            Self::ToolCalls => "tool_calls",
            Self::Underruns => "underruns",
            Self::UnderrunUs => "underrun_us",
            Self::AudioNumbered => "audio_numbered",
            Self::SequenceGaps => "sequence_gaps",
            Self::ServerErrors => "server_errors",
            Self::SendDrops => "send_drops",
            Self::SpeechUs => "speech_us",
            Self::TalkOverUs => "talk_over_us",
            Self::PacedMediaUs => "paced_media_us",
            Self::PacedWallUs => "paced_wall_us",
            Self::GoingAways => "going_aways",
            Self::SessionsResumed => "sessions_resumed",
            Self::TurnsUnspoken => "turns_unspoken",
            Self::SessionsCutShort => "sessions_cut_short",
        }
    }
}
