//! What is spoken to whom: all that a stream's opening and its translator need to know beyond the session itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proto::audio::AudioFormat;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Dialect;
use crate::profile::Custom;

/// The service that a scenario's sessions use.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Service {
    /// What is spoken.
    pub dialect: Dialect,
    /// Of the caller's audio.
    pub input: AudioFormat,
    /// Of the agent's audio.
    pub output: AudioFormat,
    /// What the backend is asked for.
    pub agent: Agent,
    /// What is spoken, where `dialect` is `custom`.
    pub custom: Option<Custom>,
    /// How the backend is reached.
    pub connection: Connection,
}

/// What a dialect that leaves its client a choice asks the backend for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a map of what the agent is asked to be")]
pub struct Agent {
    /// Name of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Name of the agent (`agent_id`, app, deployment), where the backend holds several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name of the voice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voice: Option<String>,
    /// The system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Who finds the user's turns.
    pub turn_detection: TurnDetection,
    /// `OpenAI` Realtime: ask for the names of the beta.
    pub beta: bool,
    /// Pipecat: the bot speaks no RTVI messages; it is there as soon as the connection stands.
    pub without_rtvi: bool,
    /// The agent speaks first: its first response answers nobody.
    pub greets: bool,
}

/// Who finds where the user's turns begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnDetection {
    /// The backend, by voice activity.
    #[default]
    ServerVad,
    /// The backend, by what was said.
    SemanticVad,
    /// The caller: it commits each turn and asks for the answer.
    None,
}

/// How the backends of a run are reached. Values may hold `${NAME}`, an environment variable; what it holds is never printed or stored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a map of connection settings")]
pub struct Connection {
    /// HTTP headers of every stream.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Parameters of the query, beside those of the target.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// WebSocket subprotocols to offer, beside those of the dialect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subprotocols: Vec<String>,
    /// PEM file of certificates to trust instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// PEM file of the driver's own certificate, for backends that ask for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file of its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

impl Connection {
    /// As when nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
