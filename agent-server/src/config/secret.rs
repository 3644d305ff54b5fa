//! Text that nobody may read.

use std::{convert::Infallible, fmt, fs::File, io::Read, path::Path, str::FromStr};

use anyhow::{Context, ensure};
use serde::Deserialize;
use subtle::ConstantTimeEq;

/// A token. It is never printed and never written anywhere.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Whether `given` is it, in a time that depends on lengths alone.
    pub fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }

    /// It can be a header's value, and a word of one.
    pub(super) fn is_word(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|byte| byte.is_ascii_graphic())
    }
}

/// Everybody on this machine can read the arguments of a process: says so where one of them is a token.
pub fn warn_of_shown_tokens(arguments: impl Iterator<Item = String>) {
    for argument in arguments {
        let flag = argument.split('=').next().unwrap_or_default();
        if matches!(flag, "--auth-token" | "--admin-token") {
            let variable = flag.trim_start_matches('-').replace('-', "_").to_uppercase();
            tracing::warn!("{flag} shows its token in the list of processes: set AGENT_SERVER_{variable}, or {flag}-file");
        }
    }
}

/// Longest file of a token, bytes.
const FILE_MAX: u64 = 64 * 1024;

/// A token that is given as it is or by its file; `name` is its setting.
pub(super) fn given(name: &str, token: Option<Secret>, file: Option<&Path>) -> anyhow::Result<Option<Secret>> {
    let Some(file) = file else { return Ok(token) };
    ensure!(token.is_none(), "{name} and {name}_file are both set: drop one of both");
    let failed = || format!("failed to read {name}_file {}", file.display());
    let mut text = String::new();
    // A file need not have an end.
    File::open(file).and_then(|opened| opened.take(FILE_MAX + 1).read_to_string(&mut text)).with_context(failed)?;
    ensure!(text.len() as u64 <= FILE_MAX, "{}: it is longer than 64 KiB, which no token is", failed());
    Ok(Some(Secret(text.trim_end_matches(['\r', '\n']).to_owned())))
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
