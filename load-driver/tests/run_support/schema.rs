//! Holds a value against a JSON Schema, as far as the schemas of this repository go: a keyword that is not known here is an error, so that
//! nothing passes because nobody looked.

use serde_json::{Map, Value};

/// What does not fit, with its place.
pub fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    Check { root: schema }.value(schema, value, "", &mut out);
    out
}

struct Check<'a> {
    root: &'a Value,
}

impl Check<'_> {
    fn value(&self, schema: &Value, value: &Value, place: &str, out: &mut Vec<String>) {
        let Value::Object(keywords) = schema else {
            if *schema != Value::Bool(true) {
                out.push(format!("{place}: nothing is allowed here"));
            }
            return;
        };
        for (keyword, wanted) in keywords {
            match keyword.as_str() {
                "$schema" | "$defs" | "title" | "description" | "default" | "format" => {}
                "$ref" => match wanted.as_str().and_then(|to| self.root.pointer(to.trim_start_matches('#'))) {
                    Some(schema) => self.value(schema, value, place, out),
                    None => out.push(format!("{place}: {wanted} leads nowhere")),
                },
                "type" => {
                    let any = |wanted: &Value| wanted.as_str().is_some_and(|wanted| is(value, wanted));
                    if !wanted.as_array().map_or_else(|| any(wanted), |all| all.iter().any(any)) {
                        out.push(format!("{place}: {value} is no {wanted}"));
                    }
                }
                "const" if wanted == value => {}
                "enum" if wanted.as_array().is_some_and(|all| all.contains(value)) => {}
                "const" | "enum" => out.push(format!("{place}: {value} is not {wanted}")),
                "minimum" if value.as_f64() >= wanted.as_f64() => {}
                "maximum" if value.as_f64() <= wanted.as_f64() => {}
                "minItems" if value.as_array().map(Vec::len) >= wanted.as_u64().map(|n| n as usize) => {}
                "maxItems" if value.as_array().map(Vec::len) <= wanted.as_u64().map(|n| n as usize) => {}
                "minimum" | "maximum" | "minItems" | "maxItems" => {
                    if value.is_number() || value.is_array() {
                        out.push(format!("{place}: {value} is beyond the {keyword} {wanted}"));
                    }
                }
                "anyOf" | "oneOf" => self.alternatives(keyword, wanted, value, place, out),
                "required" => {
                    let missing = |key: &&Value| value.is_object() && key.as_str().is_none_or(|key| value.get(key).is_none());
                    out.extend(wanted.as_array().into_iter().flatten().filter(missing).map(|key| format!("{place}: no {key}")));
                }
                "properties" => {
                    for (key, schema) in wanted.as_object().into_iter().flatten() {
                        if let Some(value) = value.get(key) {
                            self.value(schema, value, &format!("{place}/{key}"), out);
                        }
                    }
                }
                "additionalProperties" => self.others(keywords, wanted, value, place, out),
                "items" => {
                    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                        if keywords.get("prefixItems").and_then(Value::as_array).is_none_or(|first| at >= first.len()) {
                            self.value(wanted, item, &format!("{place}/{at}"), out);
                        }
                    }
                }
                "prefixItems" => {
                    for (at, (schema, item)) in
                        wanted.as_array().into_iter().flatten().zip(value.as_array().into_iter().flatten()).enumerate()
                    {
                        self.value(schema, item, &format!("{place}/{at}"), out);
                    }
                }
                other => out.push(format!("{place}: the keyword {other} is not known to this check")),
            }
        }
    }

    fn alternatives(&self, keyword: &str, all: &Value, value: &Value, place: &str, out: &mut Vec<String>) {
        let fits = |schema: &&Value| {
            let mut faults = Vec::new();
            self.value(schema, value, place, &mut faults);
            faults.is_empty()
        };
        let fitting = all.as_array().into_iter().flatten().filter(fits).count();
        if fitting == 0 || (keyword == "oneOf" && fitting > 1) {
            out.push(format!("{place}: {fitting} of the {keyword} fit {value}"));
        }
    }

    fn others(&self, keywords: &Map<String, Value>, schema: &Value, value: &Value, place: &str, out: &mut Vec<String>) {
        let named = keywords.get("properties").and_then(Value::as_object);
        for (key, value) in value.as_object().into_iter().flatten() {
            if named.is_none_or(|named| !named.contains_key(key)) {
                self.value(schema, value, &format!("{place}/{key}"), out);
            }
        }
    }
}

fn is(value: &Value, wanted: &str) -> bool {
    match wanted {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}
