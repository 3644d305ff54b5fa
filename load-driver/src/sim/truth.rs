//! Which backends are overloaded, as it is and not as it is reported; kept while things happen, so that every decision can be judged.

use super::backend::Backend;

/// What is so.
#[derive(Debug)]
pub(super) struct Truth {
    fit: Vec<bool>,
    /// Backends that run, are known, and are not overloaded.
    count: usize,
}

impl Truth {
    pub(super) fn new(backends: usize) -> Self {
        Self { fit: vec![false; backends], count: 0 }
    }

    /// Something about this backend may have changed.
    pub(super) fn judge(&mut self, at: usize, backend: &Backend) {
        let fit = backend.up && backend.joined && !backend.overloaded();
        if let Some(old) = self.fit.get_mut(at)
            && *old != fit
        {
            *old = fit;
            self.count = if fit { self.count + 1 } else { self.count - 1 };
        }
    }

    /// A backend could have been chosen that was not overloaded.
    pub(super) fn any_fit(&self) -> bool {
        self.count > 0
    }
}
