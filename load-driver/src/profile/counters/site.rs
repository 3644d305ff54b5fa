//! A backend's place in URLs and commands.

use crate::profile::{shown, url::TargetUrl};

/// Where one backend is, for the placeholders of a URL or command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Of the fleet.
    pub index: usize,
    /// `host:port` of its sessions.
    pub address: String,
    /// `host:port` of its admin port, where there is one.
    pub admin: Option<String>,
}

impl Site {
    /// The text with the placeholders filled in; else the one that nobody knows.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            let (before, after) = rest.split_at(at);
            out.push_str(before);
            let name = after.get(1..).and_then(|inner| inner.split_once('}')).map(|(name, _)| name);
            let Some(name) = name.filter(|name| PLACEHOLDERS.contains(name)) else {
                // A brace of its own: `${NAME}`, or JSON in an argument.
                out.push('{');
                rest = after.get(1..).unwrap_or_default();
                continue;
            };
            let (host, port) = self.address.rsplit_once(':').unwrap_or((&self.address, ""));
            match name {
                "host" => out.push_str(host),
                "port" => out.push_str(port),
                "address" => out.push_str(&self.address),
                "index" => out.push_str(&self.index.to_string()),
                _ => out.push_str(self.admin.as_deref().ok_or_else(|| format!("backend {} has no `admin` for {{admin}}", self.index))?),
            }
            rest = after.get(name.len() + 2..).unwrap_or_default();
        }
        out.push_str(rest);
        Ok(out)
    }

    /// For checks before anything is known.
    pub(super) fn example() -> Self {
        Self { index: 0, address: "127.0.0.1:7000".to_owned(), admin: Some("127.0.0.1:7001".to_owned()) }
    }
}

const PLACEHOLDERS: [&str; 5] = ["host", "port", "address", "admin", "index"];

/// It says something else for each backend.
pub(super) fn differs(text: &str) -> bool {
    PLACEHOLDERS.iter().any(|name| text.contains(&format!("{{{name}}}")))
}

/// The URL for one backend, taken apart; else what is wrong with it. Its secrets are in no message.
pub fn read_at(site: &Site, url: &str) -> Result<TargetUrl, String> {
    let filled = site.fill(url)?;
    if !(filled.starts_with("http://") || filled.starts_with("https://")) {
        return Err(format!("`{}` is no URL with http or https", shown(&filled)));
    }
    TargetUrl::parse(&filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_and_other_braces_stay() {
        let place = Site { index: 2, address: "[::1]:7000".to_owned(), admin: None };
        assert_eq!(place.fill("http://{host}:9/{index}?a={address}&p={port}").as_deref(), Ok("http://[::1]:9/2?a=[::1]:7000&p=7000"));
        assert_eq!(place.fill("{\"a\": {x}} ${host} {").as_deref(), Ok("{\"a\": {x}} $[::1] {"));
        assert!(place.fill("http://{admin}/").is_err_and(|error| error.contains("admin")));
    }
}
