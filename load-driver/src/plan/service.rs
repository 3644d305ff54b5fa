//! What is spoken to whom: all that a stream's opening and its translator need to know beyond the session itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use proto::audio::AudioFormat;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Dialect,
    variables::{expand, has_variable},
};
use crate::profile::{MASK, Script, encoded, is_secret_name};

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
    pub custom: Option<Arc<Script>>,
    /// How the backend is reached.
    pub connection: Connection,
}

impl Service {
    /// The description has a rule by which its backend says that it takes a session.
    pub fn says_ready(&self) -> bool {
        self.custom.as_ref().is_some_and(|script| script.has_ready)
    }

    /// Its backend says when a response that was said in full is over: of `custom` the description decides, by a rule `turn_end`.
    pub fn signals_ends(&self) -> bool {
        self.dialect.signals_ends() || self.custom.as_ref().is_some_and(|script| script.names_ends)
    }

    /// Nobody says where responses begin and end, or not so that it could be relied on: the caller tells by the audio ([`crate::caller`]).
    pub fn infers_responses(&self) -> bool {
        self.dialect.infers_responses() || self.custom.as_ref().is_some_and(|script| !script.names_ends)
    }
}

/// What a dialect that leaves its client a choice asks the backend for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a map of what the agent is asked to be")]
#[expect(clippy::struct_excessive_bools, reason = "keys of the profile, each by itself")]
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
    /// Gemini Live: ask for session resumption. When the backend goes away in mid-conversation, the conversation goes on in a session of its own,
    /// over a new connection.
    pub resume: bool,
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
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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
    /// What the admin ports of `agent-server`s want to be shown (`--admin-token`), where counters are read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_token: Option<String>,
    /// PEM file of certificates to trust instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// PEM file of the driver's own certificate, for backends that ask for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file of its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Values that are in no file, because they were given on the command line: of headers and parameters by name, and subprotocols.
    #[serde(skip)]
    pub private: BTreeSet<String>,
}

/// Key of [`Connection::admin_token`].
pub const ADMIN_TOKEN: &str = "admin_token";

impl Connection {
    /// As when nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// As it may be stored and shown: literal values that were given on the command line, or go by the name of a secret, are masked.
    pub fn shown(&self) -> Self {
        let mask = |(name, value): (&String, &String)| {
            let hidden = self.private.contains(name) || is_secret_name(name);
            (name.clone(), if hidden { masked(value) } else { value.clone() })
        };
        let offered = |name: &String| if self.private.contains(name) || is_secret_name(name) { masked(name) } else { name.clone() };
        Self {
            headers: self.headers.iter().map(mask).collect(),
            query: self.query.iter().map(mask).collect(),
            subprotocols: self.subprotocols.iter().map(offered).collect(),
            admin_token: self.admin_token.as_deref().map(masked),
            ..self.clone()
        }
    }

    /// Every value that may hold a variable, under the path of its key.
    pub fn values(&self) -> impl Iterator<Item = ([String; 2], &str)> {
        let headers = self.headers.iter().map(|(name, value)| (["headers".to_owned(), name.clone()], value.as_str()));
        let query = self.query.iter().map(|(name, value)| (["query".to_owned(), name.clone()], value.as_str()));
        let offered = self.subprotocols.iter().enumerate();
        let admin = self.admin_token.iter().map(|token| ([ADMIN_TOKEN.to_owned(), ADMIN_TOKEN.to_owned()], token.as_str()));
        headers.chain(query).chain(offered.map(|(at, name)| (["subprotocols".to_owned(), at.to_string()], name.as_str()))).chain(admin)
    }

    /// What is no secret of the text, every other value of this connection masked in it.
    pub fn scrub(&self, text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
        self.secrets(lookup).iter().fold(text.to_owned(), |text, secret| hide(secret, text))
    }

    /// The secrets of this connection as they are sent, each whole and by its words, in the order in which they are to be masked.
    pub fn secrets(&self, lookup: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let mut all = Vec::new();
        for ([_, name], value) in self.values() {
            if !(has_variable(value) || self.private.contains(&name) || self.private.contains(value) || is_secret_name(&name)) {
                continue;
            }
            let Ok(value) = expand(value, &lookup) else { continue };
            // With its scheme, `Bearer` for one, and without.
            let words = value.split([' ', '.']).filter(|word| !SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme)));
            all.extend(std::iter::once(value.as_str()).chain(words).map(str::to_owned));
        }
        all
    }
}

/// The text without this secret, as it is and as it is sent in a query.
pub fn hide(secret: &str, text: String) -> String {
    if secret.len() < SECRET_LENGTH {
        return text;
    }
    let sent = encoded(secret);
    let text = text.replace(secret, MASK);
    if sent == secret { text } else { text.replace(&sent, MASK).replace(&lower_codes(&sent), MASK) }
}

/// With the digits of its codes in lower case, as some servers write them.
fn lower_codes(sent: &str) -> String {
    let mut pieces = sent.split('%');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |out, piece| {
        let (code, rest) = piece.split_at_checked(2).unwrap_or((piece, ""));
        out + "%" + &code.to_ascii_lowercase() + rest
    })
}

/// Words before a key that everybody knows, and that a server's advice needs.
const SCHEMES: [&str; 5] = ["bearer", "token", "basic", "apikey", "openai-insecure-api-key"];

/// A shorter word is none that anybody keeps secret, and may be anywhere in a text.
const SECRET_LENGTH: usize = 4;

/// A value that is hidden. One that names a variable says nothing of what that holds, and is shown.
fn masked(value: &str) -> String {
    if has_variable(value) { value.to_owned() } else { MASK.to_owned() }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("headers", &self.headers.keys())
            .field("query", &self.query.keys())
            .field("ca", &self.ca)
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}
