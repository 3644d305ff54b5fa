//! `google.protobuf.Struct`, protobuf's form of a JSON object.

use prost_types::{ListValue, Struct, Value, value::Kind};
use serde_json::{Map, Number};

/// The object that `message` stands for. What JSON has no number for is null.
pub fn to_json(message: Struct) -> Map<String, serde_json::Value> {
    message.fields.into_iter().map(|(key, value)| (key, value_to_json(value))).collect()
}

fn value_to_json(value: Value) -> serde_json::Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::NumberValue(number)) => Number::from_f64(number).map_or(serde_json::Value::Null, serde_json::Value::Number),
        Some(Kind::StringValue(text)) => text.into(),
        Some(Kind::BoolValue(truth)) => truth.into(),
        Some(Kind::StructValue(object)) => to_json(object).into(),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(value_to_json).collect(),
    }
}

/// The message for an object.
pub fn from_json(object: Map<String, serde_json::Value>) -> Struct {
    Struct { fields: object.into_iter().map(|(key, value)| (key, value_from_json(value))).collect() }
}

fn value_from_json(value: serde_json::Value) -> Value {
    let kind = match value {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(truth) => Kind::BoolValue(truth),
        // Every number of JSON here fits, if not exactly.
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(0.0)),
        serde_json::Value::String(text) => Kind::StringValue(text),
        serde_json::Value::Array(list) => Kind::ListValue(ListValue { values: list.into_iter().map(value_from_json).collect() }),
        serde_json::Value::Object(object) => Kind::StructValue(from_json(object)),
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_survive_the_way_there_and_back() {
        let text = r#"{"a":1.5,"b":[true,null,"x",{}],"c":{"d":"e"}}"#;
        let object: Map<String, serde_json::Value> = serde_json::from_str(text).unwrap();
        assert_eq!(to_json(from_json(object.clone())), object);
        let odd = Struct { fields: [("n".to_owned(), Value { kind: Some(Kind::NumberValue(f64::NAN)) })].into() };
        assert_eq!(serde_json::Value::from(to_json(odd)).to_string(), r#"{"n":null}"#);
    }
}
