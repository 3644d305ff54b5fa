//! A JSON document behind a URL. A place is a JSON pointer: `/sessions/active`. Numbers may stand as text.

use std::{future::Future, pin::Pin};

use serde_json::Value;

use super::{CounterError, Document, Fetch, FetchResult, Number, Opening, http::Resource};

pub(super) fn check_place(place: &str) -> Result<(), String> {
    if !place.starts_with('/') {
        return Err("a JSON pointer begins with `/`".to_owned());
    }
    let mut rest = place;
    while let Some((_, after)) = rest.split_once('~') {
        if !after.starts_with(['0', '1']) {
            return Err("`~` stands as `~0`, and `/` in a key as `~1`".to_owned());
        }
        rest = after;
    }
    Ok(())
}

pub(super) fn open(opening: &Opening<'_>) -> Result<Box<dyn Fetch>, CounterError> {
    Ok(Box::new(Json(Resource::open(opening, "application/json, */*;q=0.1")?)))
}

struct Json(Resource);

impl Fetch for Json {
    fn shown(&self) -> String {
        self.0.shown.clone()
    }

    fn fetch(&mut self) -> Pin<Box<dyn Future<Output = FetchResult> + Send + '_>> {
        Box::pin(async move {
            let body = self.0.get().await?;
            let value: Value = serde_json::from_slice(&body).map_err(|error| self.0.unreadable(format!("no JSON: {error}")))?;
            Ok(Box::new(Pointed(value)) as Box<dyn Document>)
        })
    }
}

/// A document whose places are pointers.
pub(super) struct Pointed(pub(super) Value);

impl Document for Pointed {
    fn number(&self, place: &str) -> Result<Number, String> {
        match self.0.pointer(place) {
            None | Some(Value::Null) => Ok(Number::Absent),
            Some(Value::Number(number)) => number.as_f64().map(Number::Is).ok_or_else(|| format!("{number} is beyond all numbers")),
            Some(Value::String(text)) => text.trim().parse().map(Number::Is).map_err(|_| format!("the text `{text}` is no number")),
            Some(Value::Bool(value)) => Err(format!("`{value}` is no number")),
            Some(Value::Array(_)) => Err("a list is no number".to_owned()),
            Some(Value::Object(_)) => Err("an object is no number: point into it".to_owned()),
        }
    }

    fn text(&self, place: &str) -> Result<Option<String>, String> {
        match self.0.pointer(place) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(format!("what is at `{place}` names no process: a text or a number does")),
        }
    }

    fn known(&self) -> Vec<String> {
        let mut out = Vec::new();
        list(&self.0, String::new(), &mut out);
        out
    }
}

/// Pointers to numbers.
fn list(value: &Value, path: String, out: &mut Vec<String>) {
    const LISTED: usize = 1_000;
    const DEEP: usize = 160;
    if out.len() >= LISTED || path.len() > DEEP {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                list(value, format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), out);
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                list(value, format!("{path}/{at}"), out);
            }
        }
        Value::Number(_) if path.len() <= DEEP => out.push(path),
        _ => {}
    }
}
