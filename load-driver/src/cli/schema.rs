//! `schema`: the JSON Schema of a profile, for editors.

use super::Printed;

/// Pretty JSON; `profiles/profile.schema.json` is this text.
pub fn schema() -> Printed {
    match serde_json::to_string_pretty(&crate::profile::schema()) {
        Ok(text) => Printed::ok(text + "\n"),
        Err(error) => Printed::invalid(&error),
    }
}
