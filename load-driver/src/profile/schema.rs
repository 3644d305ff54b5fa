//! The JSON Schema of a profile, for editors.

use schemars::{Schema, generate::SchemaSettings};
use serde_json::{Value, json};

use super::Profile;

/// JSON Schema (draft 2020-12) of a profile file. `defaults` is a scenario without required keys.
pub fn schema() -> Schema {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Profile>();
    let scenario = schema.as_value().pointer("/$defs/Scenario").cloned();
    if let (Some(mut defaults), Some(root)) = (scenario, schema.as_object_mut()) {
        if let Some(object) = defaults.as_object_mut() {
            object.remove("required");
            object.insert("description".to_owned(), json!("What every scenario has that does not say otherwise."));
            if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
                for property in properties.values_mut().filter_map(Value::as_object_mut) {
                    property.remove("default");
                }
            }
        }
        if let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert("defaults".to_owned(), json!({ "$ref": "#/$defs/ScenarioDefaults" }));
        }
        if let Some(definitions) = root.get_mut("$defs").and_then(Value::as_object_mut) {
            definitions.insert("ScenarioDefaults".to_owned(), defaults);
        }
    }
    schema
}
