//! The profile: what a run does, as a YAML file says it.
//!
//! [`load`] reads a file or a shipped profile, applies overrides, fills in `defaults`, and checks everything that can be checked without
//! a network. Every error points at the line that is wrong ([`Diagnostic`]). The result is *resolved*: serialised and read
//! back it gives the same profile, so that results can hold it and a worker can rebuild the plan from it.

mod backends;
mod check;
mod connection;
mod conversation;
mod counters;
mod custom;
mod decode;
mod document;
mod driver;
mod ends;
mod error;
mod faults;
mod fleet;
mod masked;
mod named;
mod overrides;
mod routing;
mod scenario;
mod schema;
mod server;
mod shipped;
mod target;
mod threshold;
mod units;
mod url;
mod validate;
mod words;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use self::document::{Entry, Node, Value};
pub(crate) use self::error::nearest;
pub use self::{
    backends::{BackendEntry, Backends, Discovery},
    connection::{header_error, is_wrong_subprotocol},
    conversation::{BargeIn, BargeInFrom, Cancel, Conversation, Say, Says, Tool, Turn},
    counters::{CounterKind, Counters, Ended, Site, Urls, read_at},
    custom::{Custom, Fill, Hole, Kind, Rule, Script, Template},
    document::Document,
    driver::{Driver, Http2, VoiceFaults},
    ends::{Ends, WeightedEnd},
    error::{Diagnostic, Place, ProfileError},
    faults::FaultEntry,
    fleet::{DEAD_FOR, Fleet, Member, Reach},
    named::Named,
    overrides::Override,
    routing::{Policies, ReportSource, Routing},
    scenario::{ExecutorName, Scenario},
    schema::schema,
    shipped::{SHIPPED, ShippedProfile, shipped, shipped_clip},
    target::{Address, Target},
    threshold::Threshold,
    units::{Dist, Span},
    url::{MASK, Scheme, TargetUrl, encoded, is_secret_name, secrets_of, shown},
};
use crate::{arrival, audio::Library, balance::Tolerance, plan::Connection};

/// What a run does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a profile: a map of settings")]
pub struct Profile {
    /// Names the run in reports; absent: the file's name.
    #[serde(default)]
    pub name: String,
    /// What the profile shows, in a sentence.
    #[serde(default)]
    pub description: String,
    /// Of everything random: the same seed, profile and target give the same sessions.
    #[serde(default = "one")]
    pub seed: u64,
    /// Whom the sessions are opened against; absent: one embedded backend, or what `backends` says.
    #[serde(default, skip_serializing_if = "Target::is_default")]
    pub target: Target,
    /// The backends one by one, or a name that gives them; absent: the target says it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backends: Option<Backends>,
    /// Which backend gets a session; absent: each in turn, by the session's number in the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// What a comparison of policies is expected to show: `hybrid.overload_rate < round_robin.overload_rate`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expectations: Vec<String>,
    /// How far each figure of `run` may be from what the simulator predicts for it: `{overload_rate: 0.05, startup_p99_ms: 20% or 10}`.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub predictions: Named<Tolerance>,
    /// Settings of the embedded backends: the keys of agent-server's own configuration file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server: BTreeMap<String, serde_json::Value>,
    /// Folder that WAV paths are relative to; absent: the profile's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio_dir: Option<PathBuf>,
    /// Statistics begin at this run time.
    #[serde(default)]
    pub warmup: Span,
    /// How the load is made.
    #[serde(default)]
    pub driver: Driver,
    /// How backends are reached that want more than an address: headers, certificates.
    #[serde(default, skip_serializing_if = "Connection::is_default", serialize_with = "shown_connection")]
    pub connection: Connection,
    /// How the backends' counters are watched.
    #[serde(default)]
    pub counters: Counters,
    /// Which faults of the backends as voice agents do not fail the run; absent: each does.
    #[serde(default, skip_serializing_if = "VoiceFaults::is_strict")]
    pub voice_faults: VoiceFaults,
    /// What goes wrong on purpose, and when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultEntry>,
    /// Crowds of callers, by name. They run side by side.
    pub scenarios: Named<Scenario>,
    /// What must hold for the run to pass: conditions by metric.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub thresholds: Named<Vec<Threshold>>,
}

const fn one() -> u64 {
    1
}

/// Results hold the profile, and must hold no secret.
fn shown_connection<S: Serializer>(connection: &Connection, serializer: S) -> Result<S::Ok, S::Error> {
    connection.shown().serialize(serializer)
}

/// Where a profile comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// One that the program carries.
    Shipped(String),
}

impl Source {
    /// A word without slash or extension is a shipped profile, all else a file.
    pub fn of(argument: &str) -> Self {
        if argument.contains(['/', '\\', '.']) { Self::File(argument.into()) } else { Self::Shipped(argument.to_owned()) }
    }

    fn read(&self) -> Result<(String, String), ProfileError> {
        match self {
            Self::File(path) => read_bounded(path)
                .map(|text| (path.display().to_string(), text))
                .map_err(|source| ProfileError::Read { path: path.clone(), source }),
            Self::Shipped(name) => {
                shipped(name).map(|found| (format!("shipped profile {name}"), found.text.to_owned())).ok_or_else(|| ProfileError::Unknown {
                    name: name.clone(),
                    shipped: SHIPPED.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", "),
                })
            }
        }
    }

    fn name(&self) -> String {
        match self {
            Self::File(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            Self::Shipped(name) => name.clone(),
        }
    }

    /// None for a shipped profile, whose clips the program carries.
    fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::File(path) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                Some(std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()))
            }
            Self::Shipped(_) => None,
        }
    }
}

/// Longest profile, bytes. One that a program wrote, with a thousand scenarios, has a tenth of it.
const PROFILE_MAX: u64 = 4 << 20;

/// A file need not have an end.
fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(PROFILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > PROFILE_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 4 MiB, which no profile is"));
    }
    Ok(text)
}

/// A profile with the text it came from, so that later stages can point into it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Resolved and checked.
    pub profile: Profile,
    /// Gives the place of a path: [`Document::error`].
    pub document: Document,
}

/// Reads, resolves and checks a profile.
pub fn load(source: &Source, overrides: &[Override]) -> Result<Profile, ProfileError> {
    open(source, overrides).map(|loaded| loaded.profile)
}

/// As [`load`], and keeps the text.
pub fn open(source: &Source, overrides: &[Override]) -> Result<Loaded, ProfileError> {
    let (file, text) = source.read()?;
    open_text(source, &file, &text, overrides)
}

/// As [`open`], of text that was read already; errors call it `file`.
pub fn open_text(source: &Source, file: &str, text: &str, overrides: &[Override]) -> Result<Loaded, ProfileError> {
    let mut document = Document::parse(file, text)?;
    // What decides which defaults a scenario gets comes before them, the rest after: it may name values that come from them.
    let (before, after): (Vec<_>, Vec<_>) = overrides.iter().partition(|one| one.shapes_defaults());
    for one in before {
        one.apply(&mut document)?;
    }
    fill_in_defaults(&mut document)?;
    for one in after {
        one.apply(&mut document)?;
    }
    let mut profile = Profile::deserialize(&document.root).map_err(|error| {
        let place = error.place.unwrap_or_else(|| document.root.place.clone());
        ProfileError::Invalid(vec![document.diagnostic(place, error.message, error.help)])
    })?;
    if profile.name.is_empty() {
        profile.name = source.name();
    }
    profile.audio_dir = match (source.folder(), profile.audio_dir.take()) {
        (Some(folder), Some(own)) => Some(folder.join(own)),
        (folder, own) => own.or(folder),
    };
    profile.check(&document)?;
    Ok(Loaded { profile, document })
}

/// Reads a profile that was resolved and checked before, as a worker gets it.
pub fn from_json(text: &str) -> Result<Profile, serde_json::Error> {
    serde_json::from_str(text)
}

/// Gives every scenario what `defaults` says and it does not say itself; a schedule's key only where the executor knows it.
fn fill_in_defaults(document: &mut Document) -> Result<(), ProfileError> {
    let Value::Map(entries) = &mut document.root.value else { return Ok(()) };
    let Some(at) = entries.iter().position(|entry| entry.key == "defaults") else { return Ok(()) };
    let defaults = entries.remove(at);
    let Value::Map(given) = &defaults.node.value else {
        let found = format!("`defaults` is a map of scenario settings, found {}", defaults.node.describe());
        return Err(ProfileError::Invalid(vec![document.diagnostic(defaults.place, found, None)]));
    };
    let scenarios = entries.iter_mut().find(|entry| entry.key == "scenarios");
    let Some(Value::Map(scenarios)) = scenarios.map(|entry| &mut entry.node.value) else { return Ok(()) };
    for scenario in scenarios {
        fill_in(&mut scenario.node, given);
    }
    Ok(())
}

fn fill_in(scenario: &mut Node, defaults: &[Entry]) {
    let name = scenario.get("executor").or_else(|| defaults.iter().find(|entry| entry.key == "executor"));
    let executor = match name.map(|entry| &entry.node.value) {
        Some(Value::Text(name)) => arrival::find(name),
        _ => None,
    };
    let Value::Map(own) = &mut scenario.value else { return };
    for default in defaults {
        let key = default.key.as_str();
        let fits = executor.is_none_or(|executor| {
            !arrival::KEYS.contains(&key) || executor.required().contains(&key) || executor.optional().contains(&key)
        });
        if fits && own.iter().all(|entry| entry.key != key) {
            own.push(default.clone());
        }
    }
}

impl Profile {
    /// The clips that this profile speaks with.
    pub fn library(&self) -> Library {
        Library::new(self.audio_dir.clone())
    }
}
