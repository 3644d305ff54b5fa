//! What a session is doing.

/// What a session is doing; the five gauges sum to `active`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Phase {
    /// Idle: nobody speaks.
    Listening,
    /// The user speaks.
    UserSpeaking,
    /// The agent composes.
    Thinking,
    /// A tool runs.
    ToolCalling,
    /// The agent speaks.
    AgentSpeaking,
}

impl Phase {
    /// In the order of every table.
    pub const ALL: [Self; 5] = [Self::Listening, Self::UserSpeaking, Self::Thinking, Self::ToolCalling, Self::AgentSpeaking];

    /// As in JSON and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Listening => "listening",
            Self::UserSpeaking => "user_speaking",
            Self::Thinking => "thinking",
            Self::ToolCalling => "tool_calling",
            Self::AgentSpeaking => "agent_speaking",
        }
    }
}
