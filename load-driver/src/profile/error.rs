//! What is wrong with a profile: where, the line itself, and what to do.

use std::{fmt, path::PathBuf, sync::Arc};

use super::masked::{masked, masked_override};

/// Where a value of the profile comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Line and column of the file, from 1.
    File {
        /// From 1.
        line: u32,
        /// From 1, in characters.
        column: u32,
    },
    /// An override, as it was given: `--set seed=x` or `LOAD_DRIVER_SEED=x`.
    Override(Arc<str>),
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong.
    pub message: String,
    /// What to do, if there is more to say.
    pub help: Option<String>,
    /// The profile's name for people: a path, or `shipped profile NAME`.
    pub file: Arc<str>,
    /// Where in it.
    pub place: Place,
    /// The line itself; empty when the place is not in the file.
    pub line: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.place {
            Place::File { line, column } => {
                let number = line.to_string();
                let gutter = " ".repeat(number.len());
                // Tabs stay tabs, so that the caret stands under its character whatever their width.
                let indent: String = self.line.chars().take(*column as usize - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
                write!(f, "\n{gutter}--> {}:{line}:{column}", self.file)?;
                write!(f, "\n{gutter} |\n{number} | {}\n{gutter} | {indent}^", masked(&self.line))?;
                if let Some(help) = &self.help {
                    write!(f, "\n{gutter} = help: {help}")?;
                }
            }
            Place::Override(text) => {
                write!(f, "\n --> {}  (over {})", masked_override(text), self.file)?;
                if let Some(help) = &self.help {
                    write!(f, "\n  = help: {help}")?;
                }
            }
        }
        Ok(())
    }
}

/// A profile that cannot be run. The exit code is 104.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Neither a file nor a shipped profile.
    #[error("there is no profile `{name}`: it is no file, and the shipped ones are {shipped}")]
    Unknown {
        /// As given.
        name: String,
        /// Names of those that exist.
        shipped: String,
    },
    /// The file cannot be read.
    #[error("failed to read the profile {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An override that is not `path=value`.
    #[error("`--set {text}` is not path=value: write for example --set scenarios.talk.sessions=20")]
    Override {
        /// As given.
        text: String,
    },
    /// A flag about the connection, with a variable that is not set.
    #[error("{0}")]
    Connection(String),
    /// The file does not say what a profile says.
    #[error("{}", render(.0))]
    Invalid(Vec<Diagnostic>),
}

fn render(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n")
}

/// The candidate that `given` was probably meant to be.
pub(crate) fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&plain(given), &plain(candidate)), candidate))
        .filter(|(likeness, _)| *likeness > 0.83)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// `time_unit` and `timeUnit` are the same to a person.
fn plain(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}
