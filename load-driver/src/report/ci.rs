//! What the CI system that this process runs under wants to be told.

use std::{io, path::PathBuf};

use super::{
    Annotations, Markdown, Reporters,
    annotations::{self, Annotation},
    markdown,
};

/// The file of the summary of a GitHub Actions step.
fn step_summary() -> Option<PathBuf> {
    std::env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The runner of a GitHub Actions workflow reads standard output.
fn annotated() -> bool {
    std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true")
}

/// The sinks of a run.
pub fn add(reporters: &mut Reporters) {
    if let Some(path) = step_summary() {
        reporters.add(Markdown::append(path));
    }
    if annotated() {
        reporters.add(Annotations::new(io::stdout()));
    }
}

/// The same for what is no run: a page, and marks; the text for standard output.
pub fn tell(page: &str, marks: &[Annotation]) -> String {
    if let Some(path) = step_summary()
        && let Err(error) = markdown::append(&path, page)
    {
        tracing::warn!("failed to append to {}: {error}", path.display());
    }
    if annotated() { annotations::render(marks) } else { String::new() }
}
