//! From the tree to the types: a serde deserialiser whose errors know their place.

use std::fmt;

use serde::{
    de::{self, DeserializeSeed, Expected, IntoDeserializer, Unexpected, Visitor},
    forward_to_deserialize_any,
};

use super::{
    document::{Entry, Node, Value},
    error::{Place, nearest},
};

/// Something that does not fit its type.
#[derive(Debug)]
pub struct DecodeError {
    /// What.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// Set by the innermost map or list that knows.
    pub place: Option<Place>,
    /// The key that holds the value is the place to point at, not the value.
    about_key: bool,
}

impl DecodeError {
    fn new(message: String, help: Option<String>) -> Self {
        Self { message, help, place: None, about_key: false }
    }

    fn at(mut self, place: &Place) -> Self {
        self.place.get_or_insert_with(|| place.clone());
        self
    }

    fn within(self, entry: &Entry) -> Self {
        let place = if self.about_key { &entry.place } else { &entry.node.place };
        self.at(place)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string(), None)
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match unexpected {
            Unexpected::Bool(value) => format!("`{value}`"),
            Unexpected::Unsigned(value) => format!("the number {value}"),
            Unexpected::Signed(value) => format!("the number {value}"),
            Unexpected::Float(value) => format!("the number {value}"),
            Unexpected::Str(value) => format!("the text `{value}`"),
            Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "a map".to_owned(),
            other => other.to_string(),
        };
        let expected = in_words(&expected.to_string());
        let help = (matches!(unexpected, Unexpected::Bool(_)) && expected != "`true` or `false`").then(|| UNQUOTED.to_owned());
        Self::new(format!("expected {expected}, found {found}"), help)
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        // A profile's `defaults` went into its scenarios before.
        let also = expected.contains(&"scenarios").then_some("defaults");
        let keys: Vec<&'static str> = expected.iter().copied().chain(also).collect();
        let help = match nearest(field, keys.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("the keys here are {}", listed(&keys)),
        };
        Self::new(format!("unknown key `{field}`"), Some(help))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let meant = nearest(variant, expected.iter().copied()).map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
        Self::new(format!("unknown value `{variant}`"), Some(format!("{meant}it is one of {}", listed(expected))))
    }

    fn missing_field(field: &'static str) -> Self {
        let mut error = Self::new(format!("the key `{field}` is missing"), Some(format!("add `{field}: ...` here")));
        error.about_key = true;
        error
    }
}

/// YAML has words for them that people mean as words.
pub(super) const UNQUOTED: &str = "YAML reads y, n, yes, no, on and off as true and false: put the word in quotes";

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Rust's names of types are not the reader's.
fn in_words(expected: &str) -> String {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "`true` or `false`".to_owned(),
        "a string" => "text".to_owned(),
        "a sequence" => "a list".to_owned(),
        other => other.to_owned(),
    }
}

impl<'de> de::Deserializer<'de> for &'de Node {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Negative(value) => visitor.visit_i64(*value),
            Value::Whole(value) => visitor.visit_u64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(value) => visitor.visit_borrowed_str(value),
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            Value::Map(entries) => visitor.visit_map(Entries { rest: entries.iter(), current: None }),
        }
        .map_err(|error| if error.about_key { error } else { error.at(&self.place) })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match &self.value {
            // Every enum of a profile is a plain word.
            Value::Text(word) => visitor.visit_enum(word.as_str().into_deserializer()),
            Value::Bool(_) => Err(DecodeError::new(format!("expected a word, found {}", self.describe()), Some(UNQUOTED.to_owned()))),
            _ => Err(DecodeError::new(format!("expected a word, found {}", self.describe()), None)),
        }
        .map_err(|error| error.at(&self.place))
    }

    /// The fields of a struct have names: a list, even an empty one, is none.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match &self.value {
            Value::List(_) => Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> de::SeqAccess<'de> for Items<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        self.0.next().map(|node| seed.deserialize(node).map_err(|error| error.at(&node.place))).transpose()
    }
}

struct Entries<'de> {
    rest: std::slice::Iter<'de, Entry>,
    current: Option<&'de Entry>,
}

impl<'de> de::MapAccess<'de> for Entries<'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        self.current = self.rest.next();
        self.current
            .map(|entry| seed.deserialize(entry.key.as_str().into_deserializer()).map_err(|error: DecodeError| error.at(&entry.place)))
            .transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, DecodeError> {
        match self.current {
            Some(entry) => seed.deserialize(&entry.node).map_err(|error| error.within(entry)),
            None => Err(de::Error::custom("a value without a key")),
        }
    }
}
