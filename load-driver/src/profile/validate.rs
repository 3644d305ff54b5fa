//! Walks the typed profile beside its document, so that what is wrong with a value points at its line.

use super::{
    document::Document,
    error::{Diagnostic, Place, ProfileError},
    units::Span,
};

/// Nobody reads more; each holds its line.
const KEPT: usize = 1_000;

/// Collects what is wrong, with the path that it is wrong at.
pub(super) struct Checker<'a> {
    document: &'a Document,
    path: Vec<String>,
    found: Vec<Diagnostic>,
}

impl<'a> Checker<'a> {
    /// At the root.
    pub(super) fn new(document: &'a Document) -> Self {
        Self { document, path: Vec::new(), found: Vec::new() }
    }

    /// Checks what is below a key or list item.
    #[expect(clippy::needless_pass_by_value, reason = "a name or a number, whichever is at hand")]
    pub(super) fn within<R>(&mut self, key: impl ToString, check: impl FnOnce(&mut Self) -> R) -> R {
        self.path.push(key.to_string());
        let result = check(self);
        self.path.pop();
        result
    }

    /// Something is wrong with the value of a key.
    pub(super) fn error(&mut self, key: &str, message: impl Into<String>, help: impl Into<String>) {
        self.within(key, |c| c.here(message, help));
    }

    /// Something is wrong with the value that is being checked.
    pub(super) fn here(&mut self, message: impl Into<String>, help: impl Into<String>) {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        self.at(self.document.locate(&path), message, Some(help.into()));
    }

    /// The word of the file that YAML took for true or false, where it is neither.
    pub(super) fn unquoted(&self, key: &str) -> Option<String> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).chain([key]).collect();
        self.document.word_at(&self.document.locate(&path)).filter(|word| !matches!(word.to_ascii_lowercase().as_str(), "true" | "false"))
    }

    /// Something is wrong at a place.
    pub(super) fn at(&mut self, place: Place, message: impl Into<String>, help: Option<String>) {
        if self.found.len() >= KEPT {
            return;
        }
        let diagnostic = self.document.diagnostic(place, message, help);
        if !self.found.contains(&diagnostic) {
            self.found.push(diagnostic);
        }
    }

    /// A time that may not be zero.
    pub(super) fn positive(&mut self, key: &str, span: Span) {
        if span == Span::default() {
            self.error(key, format!("`{key}` is zero"), "write a time above 0, such as 10s");
        }
    }

    /// Relative weights: none negative or infinite, and not all zero.
    pub(super) fn weights(&mut self, weights: &[f64]) {
        for (at, weight) in weights.iter().enumerate() {
            if !weight.is_finite() || *weight < 0.0 {
                self.within(at, |c| {
                    c.error("weight", format!("the weight {weight} is not 0 or more"), "write how often, relative to the others");
                });
            }
        }
        if !weights.is_empty() && weights.iter().all(|weight| *weight == 0.0) {
            self.here("the weights sum to zero, so that none can be drawn", "give at least one a weight above 0");
        }
        if weights.iter().all(|weight| weight.is_finite()) && !weights.iter().sum::<f64>().is_finite() {
            self.here(
                "the weights sum to more than a number can be, so that none can be drawn",
                "write how often, relative to the others: 3 and 1",
            );
        }
    }

    /// Nothing is wrong so far.
    pub(super) fn is_clean(&self) -> bool {
        self.found.is_empty()
    }

    /// All that was found.
    pub(super) fn finish(self) -> Result<(), ProfileError> {
        if self.found.is_empty() { Ok(()) } else { Err(ProfileError::Invalid(self.found)) }
    }
}
