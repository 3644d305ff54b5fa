//! Flags of the command line over the profile's `connection`.

use std::path::PathBuf;

use clap::Args;

use crate::{
    plan::{ADMIN_TOKEN, Connection, variables::has_variable},
    profile::{Address, Loaded, ProfileError, Target, TargetUrl, header_error, is_secret_name, secrets_of, shown},
    transport::{TlsClient, unsendable},
};

/// How the backends are reached, over what the profile says.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct ReachArgs {
    /// Sends this header with every stream: 'Authorization: Bearer ${KEY}'. Variables are read when it is sent, and neither they nor a
    /// value that is written out here are printed or stored. May be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<Hidden>,
    /// Adds a parameter to the query of the target: 'key=${KEY}'. May be repeated.
    #[arg(long = "query", value_name = "NAME=VALUE")]
    query: Vec<Hidden>,
    /// Offers a WebSocket subprotocol. May be repeated.
    #[arg(long = "subprotocol", value_name = "NAME")]
    subprotocols: Vec<Hidden>,
    /// What the admin ports of agent-servers want to be shown (their `--admin-token`), where counters are read: '${TOKEN}'.
    #[arg(long, value_name = "TOKEN", env = "LOAD_DRIVER_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<Hidden>,
    /// Trusts the certificates in this PEM file instead of the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The driver's own certificate, PEM, for backends that ask for one.
    #[arg(long = "cert", value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

/// A value that may be a secret.
#[derive(Clone)]
struct Hidden(String);

impl From<String> for Hidden {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// A flag that cannot be used. The value is in no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReachError {
    /// Not a header.
    #[error("--header: {0}")]
    Header(String),
    /// Not a parameter.
    #[error("--query is NAME=VALUE: write for example --query 'model=m'")]
    Query,
    /// Not a subprotocol.
    #[error("--subprotocol: write one word, without commas and spaces")]
    Subprotocol,
    /// Not a token.
    #[error("--admin-token: write one word, or `${{NAME}}` for an environment variable")]
    AdminToken,
    /// The files of TLS.
    #[error(transparent)]
    Tls(#[from] crate::transport::TlsError),
}

impl ReachArgs {
    /// Puts the flags over what the profile says.
    pub fn apply(&self, connection: &mut Connection) -> Result<(), ReachError> {
        for Hidden(text) in &self.headers {
            let due = || ReachError::Header("write NAME: VALUE, for example --header 'Authorization: Bearer ${KEY}'".to_owned());
            let (name, value) = text.split_once(':').ok_or_else(due)?;
            let (name, value) = (name.trim(), value.trim());
            if let Some((message, help)) = header_error(name, value) {
                return Err(ReachError::Header(format!("{message}: {help}")));
            }
            // Of one name in another case there is one as well.
            connection.headers.retain(|known, _| !known.eq_ignore_ascii_case(name));
            connection.headers.insert(name.to_owned(), value.to_owned());
            connection.private.insert(name.to_owned());
        }
        for Hidden(text) in &self.query {
            let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or(ReachError::Query)?;
            crate::plan::variables::expand(value, |_| Some(String::new())).map_err(|_| ReachError::Query)?;
            connection.query.insert(name.to_owned(), value.to_owned());
            connection.private.insert(name.to_owned());
        }
        for Hidden(name) in &self.subprotocols {
            if crate::profile::is_wrong_subprotocol(name) {
                return Err(ReachError::Subprotocol);
            }
            connection.subprotocols.push(name.clone());
            connection.private.insert(name.clone());
        }
        if let Some(Hidden(token)) = &self.admin_token {
            crate::plan::variables::expand(token, |_| Some(String::new())).map_err(|_| ReachError::AdminToken)?;
            connection.admin_token = Some(token.clone());
            connection.private.insert(ADMIN_TOKEN.to_owned());
        }
        let Self { ca, certificate, key, .. } = self;
        connection.ca = ca.clone().or(connection.ca.take());
        connection.certificate = certificate.clone().or(connection.certificate.take());
        connection.key = key.clone().or(connection.key.take());
        Ok(())
    }
}

impl ReachArgs {
    /// Flags with a secret that is written out: everybody on this machine can read the arguments of a process.
    pub fn shown_secrets(&self) -> Vec<&'static str> {
        let literal = |name: &str, value: &str| is_secret_name(name) && !value.trim().is_empty() && !has_variable(value);
        let header = |Hidden(text): &Hidden| text.split_once(':').is_some_and(|(name, value)| literal(name, value));
        let parameter = |Hidden(text): &Hidden| text.split_once('=').is_some_and(|(name, value)| literal(name, value));
        // One that came from the environment is no argument.
        let from_a_variable = std::env::var("LOAD_DRIVER_ADMIN_TOKEN").ok();
        let token = |Hidden(token): &Hidden| literal(ADMIN_TOKEN, token) && from_a_variable.as_ref() != Some(token);
        let found = [
            ("--header", self.headers.iter().any(header)),
            ("--query", self.query.iter().any(parameter)),
            ("--subprotocol", self.subprotocols.iter().any(|Hidden(text)| literal(text, text))),
            ("--admin-token", self.admin_token.as_ref().is_some_and(token)),
        ];
        found.into_iter().filter(|(_, shown)| *shown).map(|(flag, _)| flag).collect()
    }
}

/// The same of the flags beside those of the connection: a URL's query, and what `--set` puts into a connection.
pub fn other_shown_secrets(target: Option<&str>, set: &[String]) -> Vec<&'static str> {
    let found = [("--target", target.is_some_and(has_secret_query)), ("--set", set.iter().any(|text| sets_a_secret(text)))];
    found.into_iter().filter(|(_, shown)| *shown).map(|(flag, _)| flag).collect()
}

fn has_secret_query(text: &str) -> bool {
    secrets_of(text).iter().any(|secret| !secret.is_empty() && !has_variable(secret))
}

/// YAML for no value.
const NOTHING: [&str; 5] = ["", "~", "null", "''", "\"\""];

fn sets_a_secret(text: &str) -> bool {
    let Some((path, value)) = text.split_once('=') else { return false };
    let literal = |name: &str| is_secret_name(name) && !NOTHING.contains(&value.trim()) && !has_variable(value);
    let steps: Vec<&str> = path.split('.').map(str::trim).collect();
    let of_connection = match steps.strip_prefix(&["counters"]).unwrap_or(&steps) {
        ["connection", "headers" | "query", name] | ["connection", name @ "admin_token"] => literal(name),
        // A whole map, or a name that is the secret itself.
        ["connection", "headers" | "query"] | ["connection", "subprotocols", ..] => literal(value),
        ["connection"] => ["headers", "query", "subprotocols", "admin_token"].iter().any(|key| value.contains(key)) && literal(value),
        _ => false,
    };
    of_connection || has_secret_query(value)
}

/// What the connection needs is there: variables, and the files of TLS where they are used.
pub fn ready(loaded: &Loaded) -> Result<(), super::UsageError> {
    let connection = &loaded.profile.connection;
    if let Some(([map, name], error)) = unsendable(connection) {
        let flag = connection.private.contains(&name) || (map == "subprotocols" && !connection.private.is_empty());
        if flag {
            let flag = match map.as_str() {
                "headers" => "--header",
                "query" => "--query",
                ADMIN_TOKEN => return Err(ProfileError::Connection(format!("--admin-token: {error}")).into()),
                _ => "--subprotocol",
            };
            return Err(ProfileError::Connection(format!("{flag} {name}: {error}")).into());
        }
        let path = if map == name { map.clone() } else { format!("{map}.{name}") };
        let message = format!("`connection.{path}`: {error}");
        let help = Some("set it, or drop the key".to_owned());
        return Err(loaded.document.error(&["connection", &map, &name], message, help).into());
    }
    if let Some(([map, name], error)) = unsendable(&loaded.profile.counters.connection) {
        let message = format!("`counters.connection.{map}.{name}`: {error}");
        let help = Some("set it, or drop the key".to_owned());
        return Err(loaded.document.error(&["counters", "connection", &map, &name], message, help).into());
    }
    let over_tls =
        |address: &Address| address.admin.iter().chain([&address.address]).any(|text| TargetUrl::parse(text).is_ok_and(|url| url.tls()));
    if loaded.profile.fleet().members.iter().filter_map(|member| member.address.as_ref()).any(over_tls)
        || matches!(&loaded.profile.target, Target::Addresses(all) if all.iter().any(over_tls))
    {
        TlsClient::load(connection).map_err(ReachError::from)?;
    }
    Ok(())
}

/// What is sent with every stream and where from, for people; a line for each variable.
pub fn describe(loaded: &Loaded) -> Vec<String> {
    let shown_connection = loaded.profile.connection.shown();
    let mut lines = Vec::new();
    for ([map, name], value) in shown_connection.values() {
        if value.contains("${") {
            let name = if map == name { String::new() } else { format!(".{name}") };
            lines.push(format!("connection.{map}{name}: {value}, from the environment when a stream is opened"));
        }
    }
    if let Target::Addresses(all) = &loaded.profile.target {
        lines.extend(all.iter().filter(|address| address.is_url()).map(|address| format!("target: {}", shown(&address.address))));
    }
    lines
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        reach: ReachArgs,
    }

    fn applied(flags: &[&str], connection: &mut Connection) -> Result<(), ReachError> {
        let cli = Cli::try_parse_from(std::iter::once("load-driver").chain(flags.iter().copied())).expect("flags");
        assert!(!format!("{cli:?}").contains("hunter2"));
        cli.reach.apply(connection)
    }

    #[test]
    fn flags_go_over_the_profile_and_their_values_are_stored_nowhere() {
        let mut connection = Connection { headers: [("authorization".to_owned(), "old".to_owned())].into(), ..Connection::default() };
        let flags = ["--header=X-Kind: hunter2", "--header=Authorization: Bearer ${KEY}", "--query=a=hunter2", "--subprotocol=hunter2"];
        applied(&flags, &mut connection).expect("right");
        assert_eq!(connection.headers["X-Kind"], "hunter2");
        assert_eq!(connection.headers.len(), 2);
        let stored = serde_json::to_string(&connection.shown()).expect("JSON");
        assert!(!stored.contains("hunter2") && stored.contains("Bearer ${KEY}"), "{stored}");
        assert!(!format!("{connection:?}").contains("hunter2"));
    }

    #[test]
    fn secrets_that_are_written_out_are_told_by_their_flags() {
        for (flag, shown) in [
            ("--header=Authorization: Bearer hunter2", Some("--header")),
            ("--header=Authorization: Bearer ${KEY}", None),
            ("--header=X-Kind: hunter2", None),
            ("--query=api_key=hunter2", Some("--query")),
            ("--query=api_key=${KEY}", None),
            ("--subprotocol=openai-insecure-api-key.hunter2", Some("--subprotocol")),
            ("--admin-token=hunter2", Some("--admin-token")),
            ("--admin-token=${TOKEN}", None),
        ] {
            let cli = Cli::try_parse_from(["load-driver", flag]).expect("flags");
            assert_eq!(cli.reach.shown_secrets(), Vec::from_iter(shown), "{flag}");
        }
    }

    #[test]
    fn a_target_and_a_set_show_secrets_too() {
        for (target, told) in [
            ("ws://agents.example/path?api_key=hunter2", true),
            ("ws://a.example,ws://b.example/?model=m&token=hunter2", true),
            ("ws://agents.example/path?model=m", false),
            ("127.0.0.1:7000", false),
        ] {
            assert_eq!(other_shown_secrets(Some(target), &[]), Vec::from_iter(told.then_some("--target")), "{target}");
        }
        for (set, told) in [
            ("connection.headers.Authorization=Bearer hunter2", true),
            ("connection.headers.Authorization=Bearer ${KEY}", false),
            ("connection.headers.X-Kind=hunter2", false),
            ("connection.query.key=hunter2", true),
            ("connection.headers={x-api-key: hunter2}", true),
            ("connection={headers: {x-api-key: hunter2}}", true),
            ("connection={ca: ca.pem, key: own.pem}", false),
            ("connection.key=own.pem", false),
            ("connection.admin_token=hunter2", true),
            ("connection.admin_token=null", false),
            ("connection.subprotocols.0=openai-insecure-api-key.hunter2", true),
            ("counters.connection.headers.Authorization=hunter2", true),
            ("counters.url=http://a.example/metrics?token=hunter2", true),
            ("target=[{address: 'ws://a.example/?key=hunter2'}]", true),
            ("routing.policy=key_hash", false),
            ("scenarios.talk.sessions=50", false),
            ("nonsense", false),
        ] {
            assert_eq!(other_shown_secrets(None, &[set.to_owned()]), Vec::from_iter(told.then_some("--set")), "{set}");
        }
    }

    #[test]
    fn wrong_flags_are_told_without_their_values() {
        for (flag, complaint) in [
            ("--header=hunter2", "NAME: VALUE"),
            ("--header=X Y: hunter2", "no name of an HTTP header"),
            ("--header=Host: hunter2", "set by the driver itself"),
            ("--header=Sec-WebSocket-Protocol: hunter2", "connection.subprotocols"),
            ("--header=X: hunter2\n", ""),
            ("--header=X: hunter2\nY: z", "cannot be sent"),
            ("--header=X: ${hunter2", "environment variable"),
            ("--query=hunter2", "NAME=VALUE"),
            ("--admin-token=${hunter2", "one word"),
            ("--subprotocol=hunter2, b", "one word"),
        ] {
            match applied(&[flag], &mut Connection::default()) {
                Ok(()) => assert_eq!(complaint, "", "{flag}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!complaint.is_empty() && error.contains(complaint) && !error.contains("hunter2"), "{flag}: {error}");
                }
            }
        }
    }
}
