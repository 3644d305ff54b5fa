//! `summary.json`.

use std::{fs, io, path::PathBuf};

use super::{Event, Sink, Summary};

/// Writes the summary when the run is over.
#[derive(Debug)]
pub struct Json {
    path: PathBuf,
    name: String,
}

impl Json {
    /// Into this file, whole or not at all.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { name: path.display().to_string(), path }
    }
}

impl Sink for Json {
    fn name(&self) -> &str {
        &self.name
    }

    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        let Event::Finished(summary) = event else { return Ok(()) };
        write_whole(&self.path, render(summary)?.as_bytes())
    }
}

/// As it stands in the file.
pub fn render(summary: &Summary) -> io::Result<String> {
    Ok(serde_json::to_string_pretty(summary)? + "\n")
}

/// The JSON Schema of the file.
pub fn schema() -> String {
    // A schema is plain data: it always serialises.
    serde_json::to_string_pretty(&schemars::schema_for!(Summary)).unwrap_or_default() + "\n"
}

/// Writes beside the file and renames, so that a reader never sees half of it.
pub(crate) fn write_whole(path: &std::path::Path, contents: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let mut file = fs::File::create(&beside)?;
    io::Write::write_all(&mut file, contents)?;
    // Before the name is given: a machine that fails must not leave an empty file under it.
    file.sync_all()?;
    fs::rename(&beside, path)
}
