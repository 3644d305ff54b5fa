//! Where the summary of a run lies, and the summary itself, read back.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Summary, summary::SCHEMA_VERSION};

/// Of a run that is over.
pub const SUMMARY: &str = "summary.json";
/// Of a run that is not, or that was cut off: the same layout.
pub const CHECKPOINT: &str = "checkpoint.json";

/// A file of results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The summary or the checkpoint.
    pub file: PathBuf,
    /// What else lies beside it.
    pub folder: PathBuf,
    /// It is a checkpoint.
    pub unfinished: bool,
}

/// No results, or not such as this program reads.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// Nothing there.
    #[error("no results in {}: there is neither {SUMMARY} nor {CHECKPOINT}{hint}", path.display())]
    None {
        /// Where.
        path: PathBuf,
        /// What to do.
        hint: String,
    },
    /// It cannot be read.
    #[error("failed to read {}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Of another version, or nothing of load-driver's.
    #[error("{} is no summary of this version of load-driver (schema {SCHEMA_VERSION}): {reason}", path.display())]
    NoSummary {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// The summary of a folder of results, or the file itself. A checkpoint counts only while there is no summary.
pub fn find(path: &Path) -> Result<Found, ResultsError> {
    if path.is_file() {
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
        let unfinished = path.file_name().is_some_and(|name| name == CHECKPOINT);
        return Ok(Found { file: path.to_owned(), folder, unfinished });
    }
    for (name, unfinished) in [(SUMMARY, false), (CHECKPOINT, true)] {
        let file = path.join(name);
        if file.is_file() {
            return Ok(Found { file, folder: path.to_owned(), unfinished });
        }
    }
    Err(ResultsError::None { path: path.to_owned(), hint: hint(path) })
}

/// The folder of all runs was given, most likely.
fn hint(path: &Path) -> String {
    let Ok(entries) = fs::read_dir(path) else { return String::new() };
    let mut runs: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|folder| folder.join(SUMMARY).is_file()).collect();
    runs.sort();
    runs.first().map_or_else(String::new, |run| format!("; there is one in {}", run.display()))
}

/// Reads a summary back. One of a checkpoint says that it is unfinished, whatever it says itself.
pub fn read(path: &Path) -> Result<(Found, Summary), ResultsError> {
    let found = find(path)?;
    let text = fs::read_to_string(&found.file).map_err(|source| ResultsError::Unreadable { path: found.file.clone(), source })?;
    let wrong = |reason: String| ResultsError::NoSummary { path: found.file.clone(), reason };
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    match value.get("schema_version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(SCHEMA_VERSION) => {}
        Some(version) => return Err(wrong(format!("its schema is {version}"))),
        None => return Err(wrong("it has no schema_version".to_owned())),
    }
    let mut summary: Summary = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    summary.unfinished |= found.unfinished;
    Ok((found, summary))
}
