//! The tool calls that a client was told of.

use std::collections::VecDeque;

/// Calls whose results may still come, late ones too.
const KEPT: usize = 32;

/// Tells the result of a call that was cancelled meanwhile, which crossed the cancel on the wire, from that of one that was never made.
#[derive(Debug, Default)]
pub(super) struct Calls(VecDeque<String>);

impl Calls {
    /// The client is told of this one.
    pub(super) fn made(&mut self, id: String) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(id);
    }

    /// It was made, not too long ago.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.0.iter().any(|made| made == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_known() {
        let mut calls = Calls::default();
        (0..100).for_each(|n| calls.made(n.to_string()));
        assert!(calls.knows("99") && calls.knows("68") && !calls.knows("67") && !calls.knows("100"));
    }
}
