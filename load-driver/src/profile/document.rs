//! The YAML text as a tree in which every key and value knows its place, so that whatever is found wrong later can point there.

use std::{fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_yaml::Spanned;

use super::error::{Diagnostic, Place, ProfileError, SEARCHED};

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Of its first character.
    pub place: Place,
}

/// What YAML can say.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`, or nothing.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A whole number below zero.
    Negative(i64),
    /// A whole number.
    Whole(u64),
    /// A number with a fraction.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file.
    Map(Vec<Entry>),
}

/// A key of a map.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Of the key.
    pub place: Place,
    /// What it holds.
    pub node: Node,
}

/// A parsed file.
#[derive(Debug, Clone)]
pub struct Document {
    /// The profile's name for people.
    pub file: Arc<str>,
    text: Arc<str>,
    /// The tree.
    pub root: Node,
}

impl Document {
    /// Parses YAML; anchors and merge keys are resolved, doubled keys refused.
    pub fn parse(file: &str, text: &str) -> Result<Self, ProfileError> {
        let start = Place::File { line: 1, column: 1 };
        let mut document =
            Self { file: file.into(), text: text.into(), root: Node { value: Value::Map(Vec::new()), place: start.clone() } };
        let parsed: Result<Spanned<Raw>, _> = serde_yaml::from_str(text);
        match parsed {
            Ok(raw) => document.root = node(raw, None),
            Err(error) => {
                let error = error.without_snippet();
                let place = error.location().map_or(start, |at| place(at.line(), at.column()));
                let message = error.render_with_formatter(&serde_yaml::UserMessageFormatter);
                // The place is said by the diagnostic.
                let message = message.split(" at line ").next().unwrap_or_default().to_owned();
                let diagnostic = document.diagnostic(place, format!("not valid YAML: {message}"), None);
                return Err(ProfileError::Invalid(vec![diagnostic]));
            }
        }
        if matches!(document.root.value, Value::Null) {
            document.root.value = Value::Map(Vec::new());
        }
        Ok(document)
    }

    /// The word that begins at a place of the file.
    pub fn word_at(&self, place: &Place) -> Option<String> {
        let Place::File { line, column } = place else { return None };
        let line = self.text.lines().nth((*line as usize).checked_sub(1)?)?;
        let word: String = line.chars().skip((*column as usize).checked_sub(1)?).take_while(char::is_ascii_alphabetic).collect();
        (!word.is_empty()).then_some(word)
    }

    /// Something wrong at a place.
    pub fn diagnostic(&self, place: Place, message: impl Into<String>, help: Option<String>) -> Diagnostic {
        let line = match &place {
            // One that is too long to be shown is kept so far that this can be told.
            Place::File { line, .. } => self.text.lines().nth(*line as usize - 1).unwrap_or_default().chars().take(SEARCHED + 1).collect(),
            Place::Override(_) => String::new(),
        };
        Diagnostic { message: message.into(), help, file: self.file.clone(), place, line }
    }

    /// Something wrong at a path; see [`Self::locate`].
    pub fn error(&self, path: &[&str], message: impl Into<String>, help: Option<String>) -> ProfileError {
        ProfileError::Invalid(vec![self.diagnostic(self.locate(path), message, help)])
    }

    /// Something wrong within a text, so many characters from its begin: the caret stands there where the line shows the text as it is.
    pub fn error_in(&self, path: &[&str], text: &str, position: usize, message: impl Into<String>) -> ProfileError {
        let mut found = self.diagnostic(self.locate(path), message, None);
        if let Place::File { column, .. } = &mut found.place {
            let from = *column as usize - 1;
            let rest: String = found.line.chars().skip(from).collect();
            if let Some(at) = rest.find(text) {
                *column = (from + rest[..at].chars().count() + position) as u32 + 1;
            }
        }
        ProfileError::Invalid(vec![found])
    }

    /// Where the value of a path stands; where a key is not there, its nearest ancestor's key. List items go by their number.
    pub fn locate(&self, path: &[&str]) -> Place {
        let (mut node, mut place) = (&self.root, self.root.place.clone());
        for (depth, step) in path.iter().enumerate() {
            let last = depth + 1 == path.len();
            match &node.value {
                Value::Map(entries) => {
                    let Some(entry) = entries.iter().find(|entry| entry.key == *step) else { return place };
                    let inside = matches!(entry.node.value, Value::Map(_) | Value::List(_) | Value::Null);
                    place = if last && !inside { entry.node.place.clone() } else { entry.place.clone() };
                    node = &entry.node;
                }
                Value::List(items) => {
                    let Some(item) = step.parse().ok().and_then(|at: usize| items.get(at)) else { return place };
                    place = item.place.clone();
                    node = item;
                }
                // A scalar that stands for a list of one: `end: cancel`.
                _ => return node.place.clone(),
            }
        }
        place
    }
}

impl Node {
    /// The entry of a key, when this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// In words: `the number 10`.
    pub fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Negative(value) => format!("the number {value}"),
            Value::Whole(value) => format!("the number {value}"),
            Value::Float(value) => format!("the number {value}"),
            Value::Text(value) => format!("the text `{value}`"),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }
}

/// Parses the value of an override; everything in it stands at that override.
pub(super) fn parse_value(text: &str, place: &Place) -> Result<Node, String> {
    let raw: Spanned<Raw> = serde_yaml::from_str(text).map_err(|error| {
        let message = error.without_snippet().render_with_formatter(&serde_yaml::UserMessageFormatter);
        message.split(" at line ").next().unwrap_or_default().to_owned()
    })?;
    Ok(node(raw, Some(place)))
}

fn place(line: u64, column: u64) -> Place {
    Place::File { line: u32::try_from(line.max(1)).unwrap_or(u32::MAX), column: u32::try_from(column.max(1)).unwrap_or(u32::MAX) }
}

fn node(raw: Spanned<Raw>, over: Option<&Place>) -> Node {
    let at = |line, column| over.cloned().unwrap_or_else(|| place(line, column));
    let here = at(raw.referenced.line(), raw.referenced.column());
    let value = match raw.value {
        Raw::Scalar(value) => value,
        Raw::List(items) => Value::List(items.into_iter().map(|item| node(item, over)).collect()),
        Raw::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| Entry {
                    place: at(key.referenced.line(), key.referenced.column()),
                    key: key.value,
                    node: node(value, over),
                })
                .collect(),
        ),
    };
    Node { value, place: here }
}

/// As the parser gives it.
enum Raw {
    Scalar(Value),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Scalar(u64::try_from(value).map_or(Value::Negative(value), Value::Whole)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Whole(value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Text(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Text(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Raw::Map(map))
    }
}
