//! The profile: what a run does, as a YAML file says it.
//!
//! [`load`] reads a file or a shipped profile, applies overrides, fills in `defaults`, and checks everything that can be checked without
//! a network. Every error points at the line that is wrong ([`Diagnostic`]). The result is *resolved*: serialised and read
//! back it gives the same profile, so that results can hold it and a worker can rebuild the plan from it.

mod conversation;
mod decode;
mod document;
mod driver;
mod ends;
mod error;
mod fleet;
mod named;
mod overrides;
mod routing;
mod scenario;
mod schema;
mod shipped;
mod target;
mod threshold;
mod units;
mod validate;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use agent_server::config::{ServeArgs, ServerConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    conversation::{BargeIn, Cancel, Conversation, Say, Says, Tool, Turn},
    document::Document,
    driver::{Counters, Driver, Http2},
    ends::{Ends, WeightedEnd},
    error::{Diagnostic, Place, ProfileError},
    fleet::{BackendEntry, Backends, DEAD_FOR, Discovery, Fleet, Member, Reach},
    named::Named,
    overrides::Override,
    routing::{Policies, ReportSource, Routing},
    scenario::{ExecutorName, Scenario},
    schema::schema,
    shipped::{SHIPPED, ShippedProfile, shipped, shipped_clip},
    target::{Address, Target},
    threshold::Threshold,
    units::{Dist, Span},
};
use self::{
    document::{Entry, Node, Value},
    scenario::World,
    validate::Checker,
};
use crate::{arrival, audio::Library};

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
    /// Whom the sessions are opened against.
    #[serde(default)]
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
    /// How the backends' counters are watched.
    #[serde(default)]
    pub counters: Counters,
    /// Crowds of callers, by name. They run side by side.
    pub scenarios: Named<Scenario>,
    /// What must hold for the run to pass: conditions by metric.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub thresholds: Named<Vec<Threshold>>,
}

const fn one() -> u64 {
    1
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
            Self::File(path) => std::fs::read_to_string(path)
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

/// What the run itself says to every backend that it starts.
const SERVER_KEYS_OF_THE_RUN: [&str; 4] = ["listen", "admin_listen", "backend_id", "stop_on_stdin_eof"];

/// `server` holds what agent-server's own file may hold, so its own reader judges it.
fn check_server(c: &mut Checker<'_>, document: &Document) {
    let Some(entry) = document.root.get("server") else { return };
    let settings = match ServeArgs::deserialize(&entry.node) {
        Ok(settings) => settings,
        Err(error) => return c.at(error.place.unwrap_or_else(|| entry.place.clone()), error.message, error.help),
    };
    for key in SERVER_KEYS_OF_THE_RUN {
        if entry.node.get(key).is_some() {
            c.within("server", |c| c.error(key, format!("`{key}` is set by the run itself for each backend"), "drop it"));
        }
    }
    if let Err(error) = ServerConfig::resolve(settings) {
        c.at(entry.place.clone(), error.to_string(), None);
    }
}

impl Profile {
    /// The clips that this profile speaks with.
    pub fn library(&self) -> Library {
        Library::new(self.audio_dir.clone())
    }

    fn check(&self, document: &Document) -> Result<(), ProfileError> {
        let mut c = Checker::new(document);
        let embedded = matches!(self.target, Target::Embedded { .. });
        c.within("target", |c| self.target.check(c));
        if !embedded && !self.server.is_empty() {
            c.error(
                "server",
                "`server` holds settings of embedded backends, and the target runs already",
                "drop it, or set `target: embedded`",
            );
        }
        check_server(&mut c, document);
        c.within("driver", |c| self.driver.check(c));
        c.within("counters", |c| self.counters.check(c));
        let world = World { embedded, backends: self.target.backends(), audio: &self.library() };
        c.within("scenarios", |c| {
            if self.scenarios.is_empty() {
                c.here("there is no scenario", "add one under `scenarios`");
            }
            if self.scenarios.0.len() > usize::from(u16::MAX) {
                c.here("there are too many scenarios", "write at most 65535");
            }
            for (name, scenario) in self.scenarios.iter() {
                c.within(name, |c| {
                    if name.is_empty() || name.len() > 64 || !name.chars().all(|ch| ch.is_ascii_alphanumeric() || "-_".contains(ch)) {
                        c.here(format!("`{name}` is no name for a scenario"), "use up to 64 letters, digits, `-` and `_`");
                    }
                    scenario.check(c, &world);
                });
            }
        });
        self.check_kills(&mut c);
        c.within("thresholds", |c| {
            for (metric, all) in self.thresholds.iter() {
                c.within(metric, |c| {
                    if all.is_empty() {
                        c.here(format!("`{metric}` has no threshold"), "write a list: ['p(95)<300']");
                    }
                    for (at, threshold) in all.iter().enumerate() {
                        c.within(at, |c| threshold.check(c));
                    }
                });
            }
        });
        if c.is_clean() {
            let ends = self.scenarios.iter().map(|(_, scenario)| arrival::end_of(&scenario.schedule(), scenario.executor.executor())).max();
            if self.warmup != Span::default() && ends.is_some_and(|end| self.warmup.0 >= end) {
                c.error("warmup", "the warm-up is as long as the whole run: no statistics would be left", "make it shorter");
            }
        }
        c.finish()
    }

    /// A backend that is killed takes every session with it: those of another scenario would count as lost.
    fn check_kills(&self, c: &mut Checker<'_>) {
        let kills = |scenario: &Scenario| scenario.end.0.iter().any(|end| end.kind == crate::plan::EndKind::KillBackend);
        for (name, killer) in self.scenarios.iter().filter(|(_, scenario)| kills(scenario)) {
            let Some(victim) = killer.backend else { continue };
            // Two kills of one backend: the second scenario may only begin when the first kill is over.
            let early = |other: &Scenario| other.kill_at < killer.kill_at && other.kill_at >= Some(killer.start_time);
            for (other, _) in self.scenarios.iter().filter(|(_, other)| kills(other) && other.backend == Some(victim) && early(other)) {
                c.within("scenarios", |c| {
                    c.within(name, |c| {
                        let message = format!("`{other}` kills backend {victim} before, while this scenario uses it");
                        c.error("kill_at", message, "kill at the same time, begin later, or pin it to another backend");
                    });
                });
            }
            for (other, scenario) in self.scenarios.iter().filter(|(_, scenario)| !kills(scenario)) {
                if scenario.backend.is_none_or(|backend| backend == victim) {
                    c.within("scenarios", |c| {
                        c.within(other, |c| {
                            c.error(
                                "backend",
                                format!("`{other}` may use backend {victim}, which `{name}` kills: its sessions would be lost"),
                                "pin this scenario to another backend",
                            );
                        });
                    });
                }
            }
        }
    }
}
