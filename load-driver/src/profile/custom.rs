//! `custom`: a JSON-over-WebSocket backend, described without code.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is sent and what is received.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a map that describes the dialect")]
pub struct Custom {}
