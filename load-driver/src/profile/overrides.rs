//! Values that are set over the file: `--set path.to.key=value` and `LOAD_DRIVER_*`.

use std::{borrow::Cow, sync::Arc};

use super::{
    document::{Document, Entry, Node, Value, parse_value},
    error::{Diagnostic, Place, ProfileError, nearest},
    url::{MASK, shown},
};
use crate::plan::variables::has_variable;

/// One value over the file's. Later ones win: give the environment's first, then the flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    path: String,
    value: String,
    origin: Arc<str>,
}

impl Override {
    /// From `path.to.key=value`; the value is YAML, list items go by their number.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let (path, value) = text
            .split_once('=')
            .filter(|(path, _)| !path.is_empty() && path.split('.').all(|step| !step.trim().is_empty()))
            .ok_or_else(|| ProfileError::Override { text: text.to_owned() })?;
        let path = path.trim().to_owned();
        Ok(Self { origin: format!("--set {path}={}", shown_value(&path, value)).into(), path, value: value.to_owned() })
    }

    /// The seed, as a flag or variable gives it; `origin` is shown in errors.
    pub fn seed(value: &str, origin: &str) -> Self {
        Self { path: "seed".to_owned(), value: value.to_owned(), origin: origin.into() }
    }

    /// The target, as a flag or variable gives it: `embedded`, or addresses and URLs with commas between them.
    pub fn target(value: &str, origin: &str) -> Self {
        // In quotes: a URL holds much that YAML has a meaning for.
        let quoted = |one: &str| format!("'{}'", one.trim().replace('\'', "''"));
        let listed = || format!("[{}]", value.split(',').map(quoted).collect::<Vec<_>>().join(", "));
        let yaml = match value.trim() {
            "embedded" => value.to_owned(),
            maps if maps.starts_with('{') => format!("[{maps}]"),
            _ => listed(),
        };
        Self { path: "target".to_owned(), value: yaml, origin: origin.into() }
    }

    /// Those of the environment: `LOAD_DRIVER_SEED`, `LOAD_DRIVER_TARGET`.
    pub fn from_env(variables: impl IntoIterator<Item = (String, String)>) -> Vec<Self> {
        let mut found: Vec<Self> = variables
            .into_iter()
            .filter_map(|(name, value)| {
                let origin = format!("{name}={}", shown_value("target", &value));
                match name.as_str() {
                    "LOAD_DRIVER_SEED" => Some(Self::seed(&value, &origin)),
                    "LOAD_DRIVER_TARGET" => Some(Self::target(&value, &origin)),
                    _ => None,
                }
            })
            .collect();
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }

    /// It changes which defaults a scenario gets: `defaults`, a whole scenario, its executor.
    pub(super) fn shapes_defaults(&self) -> bool {
        let steps: Vec<&str> = self.path.split('.').collect();
        matches!(steps.as_slice(), ["defaults", ..] | ["scenarios"] | ["scenarios", _] | ["scenarios", _, "executor"])
    }

    /// Puts the value into the tree.
    pub(super) fn apply(&self, document: &mut Document) -> Result<(), ProfileError> {
        let place = Place::Override(self.origin.clone());
        let refuse = |document: &Document, (message, help): (String, Option<String>)| {
            let diagnostic: Diagnostic = document.diagnostic(place.clone(), message, help);
            Err(ProfileError::Invalid(vec![diagnostic]))
        };
        let node = match parse_value(&self.value, &place) {
            Ok(node) => node,
            Err(message) => return refuse(document, (format!("the value is not valid YAML: {message}"), None)),
        };
        let steps: Vec<&str> = self.path.split('.').collect();
        let mut root = std::mem::replace(&mut document.root, Node { value: Value::Null, place: place.clone() });
        let outcome = insert(&mut root, &steps, 0, node, &place);
        // A target that a flag names runs already: what the profile says of backends that it would start is not about that one.
        if self.path == "target"
            && !self.value.contains("embedded")
            && let Value::Map(entries) = &mut root.value
        {
            entries.retain(|entry| entry.key != "server");
        }
        document.root = root;
        outcome.or_else(|refusal| refuse(document, refusal))
    }
}

/// As errors may show it: secrets of a URL, and of what is sent with every stream, are masked.
fn shown_value<'a>(path: &str, value: &'a str) -> Cow<'a, str> {
    match path.split('.').next() {
        Some("connection") if !has_variable(value) => MASK.into(),
        Some("target") if value.contains('?') || value.contains('@') => {
            value.split(',').map(|one| shown(one).into_owned()).collect::<Vec<_>>().join(",").into()
        }
        _ => value.into(),
    }
}

type Refusal = (String, Option<String>);

fn insert(node: &mut Node, steps: &[&str], depth: usize, value: Node, place: &Place) -> Result<(), Refusal> {
    let Some(step) = steps.get(depth) else {
        *node = value;
        return Ok(());
    };
    let here = if depth == 0 { "the profile".to_owned() } else { format!("`{}`", steps[..depth].join(".")) };
    if matches!(node.value, Value::Null) {
        node.value = Value::Map(Vec::new());
    }
    let found = node.describe();
    match &mut node.value {
        Value::Map(entries) => {
            let at = entries.iter().position(|entry| entry.key == *step);
            // A threshold that is set to nothing is dropped.
            let nothing = matches!(value.value, Value::Null) || matches!(&value.value, Value::List(items) if items.is_empty());
            let drops = nothing && depth == 1 && steps.len() == 2 && steps[0] == "thresholds";
            let at = match at {
                Some(at) if drops => {
                    entries.remove(at);
                    return Ok(());
                }
                Some(at) => at,
                None if drops => {
                    let names: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
                    return Err((format!("there is no threshold of `{step}`"), Some(format!("there are {}", names.join(", ")))));
                }
                // A new key may be a default that the file left out; a new scenario is a slip of the pen.
                None if depth == 1 && steps[0] == "scenarios" && steps.len() > 2 => {
                    let names: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
                    let help = nearest(step, names.iter().copied())
                        .map_or_else(|| format!("there are {}", names.join(", ")), |meant| format!("did you mean `{meant}`?"));
                    return Err((format!("there is no scenario `{step}`"), Some(help)));
                }
                None => {
                    let node = Node { value: Value::Null, place: place.clone() };
                    entries.push(Entry { key: (*step).to_owned(), place: place.clone(), node });
                    entries.len() - 1
                }
            };
            entries[at].place = if depth + 1 == steps.len() { place.clone() } else { entries[at].place.clone() };
            insert(&mut entries[at].node, steps, depth + 1, value, place)
        }
        Value::List(items) => {
            let length = items.len();
            let item = step.parse().ok().and_then(|at: usize| items.get_mut(at));
            let item = item.ok_or_else(|| {
                let help = if length == 0 { "it is empty".to_owned() } else { format!("its items are 0 to {}", length - 1) };
                (format!("{here} is a list of {length} and has no item `{step}`"), Some(help))
            })?;
            insert(item, steps, depth + 1, value, place)
        }
        _ => Err((
            format!("{here} is {found} and has no key `{step}`"),
            Some(format!("set all of it: --set '{}={{{step}: ...}}'", steps[..depth].join("."))),
        )),
    }
}
