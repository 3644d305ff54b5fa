//! The JSON Schema of a profile, for editors.

use schemars::{Schema, generate::SchemaSettings};
use serde_json::{Value, json};

use super::Profile;

/// JSON Schema (draft 2020-12) of a profile file. A scenario requires nothing here, since `defaults` may hold it: [`super::load`] judges that.
pub fn schema() -> Schema {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Profile>();
    if let Some(scenario) = schema.pointer_mut("/$defs/Scenario").and_then(Value::as_object_mut) {
        scenario.remove("required");
    }
    if let Some(properties) = schema.pointer_mut("/properties").and_then(Value::as_object_mut) {
        let about = "What every scenario has that does not say otherwise.";
        properties.insert("defaults".to_owned(), json!({ "description": about, "$ref": "#/$defs/Scenario" }));
    }
    schema
}
