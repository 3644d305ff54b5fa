//! `server`: settings of backends that the run starts. It holds what agent-server's own file may hold, so its own reader judges it.

use agent_server::{
    config::{ServeArgs, ServerConfig},
    fault::{Defect, Fault},
};
use serde::Deserialize;

use super::{
    BackendEntry, Backends, Document, Profile,
    document::{Entry, Value},
    validate::Checker,
};

/// What the run itself says to every backend that it starts.
const KEYS_OF_THE_RUN: [&str; 4] = ["listen", "admin_listen", "backend_id", "stop_on_stdin_eof"];
/// What only a server that is started by somebody else may have.
const KEYS_OF_OTHERS: [&str; 10] = [
    "tls_listen",
    "tls_cert",
    "tls_key",
    "tls_self_signed",
    "tls_client_ca",
    "auth_token",
    "auth_token_file",
    "admin_token",
    "admin_token_file",
    "admin_tls",
];

impl Profile {
    /// `server`, those of single backends, and what both come to.
    pub(super) fn check_servers(&self, c: &mut Checker<'_>, document: &Document) {
        if !self.is_embedded() && !self.server.is_empty() {
            c.error(
                "server",
                "`server` holds settings of embedded backends, and the target runs already",
                "drop it, or set `target: embedded`",
            );
        }
        let common = document.root.get("server").is_none_or(|entry| judge(c, entry));
        let Some(Backends::Listed(entries)) = &self.backends else { return };
        let nodes = document.root.get("backends").map(|entry| &entry.node.value);
        let Some(Value::List(nodes)) = nodes else { return };
        for (entry, node) in entries.iter().zip(nodes) {
            let Some(own) = node.get("server") else { continue };
            if judge(c, own) && common {
                self.judge_sum(c, entry, own);
            }
        }
    }

    /// Settings that are right apart need not be together.
    fn judge_sum(&self, c: &mut Checker<'_>, entry: &BackendEntry, own: &Entry) {
        let all = self.server.iter().chain(&entry.server).map(|(key, value)| (key.clone(), value.clone())).collect();
        let resolved = ServeArgs::deserialize(serde_json::Value::Object(all)).map_err(anyhow::Error::new).and_then(ServerConfig::resolve);
        if let Err(error) = resolved {
            c.at(own.place.clone(), format!("with `server`: {error}"), None);
        }
    }
}

/// One map of settings by itself.
fn judge(c: &mut Checker<'_>, entry: &Entry) -> bool {
    let settings = match ServeArgs::deserialize(&entry.node) {
        Ok(settings) => settings,
        Err(error) => {
            c.at(error.place.unwrap_or_else(|| entry.place.clone()), error.message, error.help);
            return false;
        }
    };
    let mut right = true;
    for key in KEYS_OF_THE_RUN {
        if let Some(found) = entry.node.get(key) {
            c.at(found.node.place.clone(), format!("`{key}` is set by the run itself for each backend"), Some("drop it".to_owned()));
            right = false;
        }
    }
    for key in KEYS_OF_OTHERS {
        if let Some(found) = entry.node.get(key) {
            let message = format!("`{key}` is not for backends that the run starts: it speaks to them plainly");
            c.at(found.node.place.clone(), message, Some("start agent-server yourself, and give its URL as `target`".to_owned()));
            right = false;
        }
    }
    let wrong = settings.defect.iter().filter_map(|text| Some(("defect", text, text.parse::<Defect>().err()?.to_string())));
    let wrong = wrong.chain(settings.fault.iter().filter_map(|text| Some(("fault", text, text.parse::<Fault>().err()?.to_string()))));
    for (key, text, error) in wrong {
        let place = entry.node.get(key).map_or(&entry.place, |found| &found.node.place);
        c.at(place.clone(), format!("`{text}`: {error}"), None);
        right = false;
    }
    if let Err(error) = ServerConfig::resolve(settings) {
        let error = error.to_string();
        // Its errors begin with the name of the setting.
        let key = error.split([' ', ':']).next().and_then(|key| entry.node.get(key));
        c.at(key.map_or(&entry.place, |key| &key.node.place).clone(), error, None);
        right = false;
    }
    right
}
