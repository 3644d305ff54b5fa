//! What is wrong with a profile: where, the line itself, and what to do.

use std::{fmt, path::PathBuf, sync::Arc};

use super::masked::{masked, masked_override};

/// A line that is no longer is shown whole, characters.
const WHOLE: usize = 300;
/// Shown of a longer one before the place in question, and from there on.
const AROUND: (usize, usize) = (100, 120);
/// A line that is longer is not even searched for secrets, and not shown.
pub(super) const SEARCHED: usize = 4_096;
/// Longest text beside it.
const TEXT: usize = 1_000;
/// Complaints that are shown.
const SHOWN: usize = 50;

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
        let (message, help) = (cut(&self.message), self.help.as_deref().map(cut));
        write!(f, "error: {message}")?;
        match &self.place {
            Place::File { line, column } => {
                let number = line.to_string();
                let gutter = " ".repeat(number.len());
                let (shown, indent) = excerpt(&self.line, *column as usize - 1);
                write!(f, "\n{gutter}--> {}:{line}:{column}", self.file)?;
                write!(f, "\n{gutter} |\n{number} | {shown}\n{gutter} | {indent}^")?;
                if let Some(help) = &help {
                    write!(f, "\n{gutter} = help: {help}")?;
                }
            }
            Place::Override(text) => {
                write!(f, "\n --> {}  (over {})", cut(&masked_override(text)), self.file)?;
                if let Some(help) = &help {
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
    let mut all: Vec<String> = diagnostics.iter().take(SHOWN).map(ToString::to_string).collect();
    if diagnostics.len() > SHOWN {
        all.push("and more like these".to_owned());
    }
    all.join("\n\n")
}

/// The line as it may be shown, and what stands before the caret.
fn excerpt(line: &str, before: usize) -> (String, String) {
    let length = line.chars().count();
    if length > SEARCHED {
        return (format!("(a line of more than {SEARCHED} characters)"), String::new());
    }
    let line = masked(line);
    let (from, to) = if length <= WHOLE { (0, length) } else { (before.saturating_sub(AROUND.0), before.saturating_add(AROUND.1)) };
    let (left, right) = (if from > 0 { "..." } else { "" }, if to < length { "..." } else { "" });
    let shown: String = line.chars().skip(from).take(to - from).collect();
    // Tabs stay tabs, so that the caret stands under its character whatever their width.
    let indent = left.chars().map(|_| ' ').chain(shown.chars().take(before - from).map(|c| if c == '\t' { '\t' } else { ' ' }));
    let indent = indent.collect();
    (format!("{left}{shown}{right}"), indent)
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str, column: u32, message: &str) -> String {
        let place = Place::File { line: 7, column };
        Diagnostic { message: message.to_owned(), help: None, file: "p.yaml".into(), place, line: line.to_owned() }.to_string()
    }

    #[test]
    fn a_long_line_is_shown_around_the_place_and_a_very_long_one_is_not() {
        let at = 2_001;
        let line = format!("token: hunter2hunter2, {}\u{e9}rror: {}", "a".repeat(at - 24), "b".repeat(1_000));
        let text = told(&line, at as u32, "wrong");
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[1], " --> p.yaml:7:2001");
        assert!(rows[3].starts_with("7 | ...aaa") && rows[3].ends_with("bbb...") && rows[3].chars().count() < 250, "{text}");
        let caret = rows[4].chars().position(|c| c == '^').unwrap();
        assert_eq!(rows[3].chars().nth(caret), Some('\u{e9}'), "{text}");
        // From the begin to the place, a secret of it is masked.
        let first = told(&line, 24, "wrong");
        assert!(first.contains("7 | token: **************, aaa") && !first.contains("hunter2"), "{first}");
        let huge = told(&"x: ".repeat(900_000), 9_000, &"m".repeat(90_000));
        assert!(huge.contains("(a line of more than 4096 characters)") && huge.contains(":7:9000") && huge.len() < 1_300, "{}", huge.len());
    }

    #[test]
    fn of_many_complaints_the_first_are_shown() {
        let one =
            Diagnostic { message: "m".into(), help: None, file: "p".into(), place: Place::Override("a=b".into()), line: String::new() };
        let text = ProfileError::Invalid(vec![one; 70]).to_string();
        assert_eq!(text.matches("error: m").count(), 50);
        assert!(text.ends_with("and more like these"), "{text}");
    }
}
