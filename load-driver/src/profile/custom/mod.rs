//! `custom`: a JSON-over-WebSocket backend, described without code. What is sent are templates, what is received is told by rules.

mod check;
mod script;
mod template;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    script::{Rule, Script},
    template::{Fill, Hole, Template},
};

/// What is sent and what is received.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a map that describes the dialect: {path: /, send: {...}, receive: [...]}")]
pub struct Custom {
    /// Path and query of the upgrade, where the target names none; absent: `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What is sent.
    pub send: Send,
    /// What a message means: every rule that fits it holds, in this order.
    pub receive: Vec<Receive>,
}

/// Messages to the backend: JSON with placeholders such as `${audio}`. What has no template is not said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a map of templates")]
pub struct Send {
    /// Opens the session, in this order. Without a rule of the kind `ready` the session counts as accepted after them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<String>,
    /// A frame of the user's audio: a template with `${audio}`, or `binary` for the bare samples in a binary frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio: Option<String>,
    /// The user's turn is over (`agent.turn_detection: none`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Asks for the answer (`agent.turn_detection: none`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub respond: Option<String>,
    /// Stops the answer: an interruption by message, or a cancel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<String>,
    /// A tool's result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_result: Option<String>,
    /// The user begins to speak (`markers: true`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speech_start: Option<String>,
    /// The user stops speaking (`markers: true`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speech_stop: Option<String>,
    /// The last words, before the WebSocket is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// The answer to a `ping`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pong: Option<String>,
}

/// A rule: which messages it fits, and where in them to find what they say. Places are JSON pointers, such as `/response/id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a rule: {kind: transcript, when: {/type: transcript}, text: /text}")]
pub struct Receive {
    /// What such a message is.
    pub kind: Kind,
    /// The message fits when each of these places holds this value; `{exists: true}` is any value, `{exists: false}` none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, Value>,
    /// `audio`: binary frames are the agent's audio, bare samples.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub binary: bool,
    /// `audio`: the place of the agent's audio, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// `transcript`, `agent_text`: the place of the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// `transcript`: it is the last of its turn when this fits; absent: it always is.
    #[serde(rename = "final", default, skip_serializing_if = "Option::is_none")]
    pub last: Option<BTreeMap<String, Value>>,
    /// `ready`: the place of the backend's name for the session. `tool_call`, `ping`: the place of what names it in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `tool_call`: the place of the tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `tool_call`: the place of the arguments, an object or text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// `error`: the place of the words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `error`: the session ends with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fatal: bool,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The session is accepted.
    Ready,
    /// Audio of the agent.
    Audio,
    /// What the user was understood to say.
    Transcript,
    /// What the agent says.
    AgentText,
    /// The backend hears the user begin to speak.
    SpeechStarted,
    /// The backend hears the user stop.
    SpeechStopped,
    /// The agent begins to answer.
    ResponseStart,
    /// The agent has sent all of its answer. Without such a rule answers are told by their audio.
    TurnEnd,
    /// The agent was interrupted: whatever is being played is thrown away.
    Interrupted,
    /// The agent wants a tool's result.
    ToolCall,
    /// Something was wrong.
    Error,
    /// Wants the `pong`.
    Ping,
}
