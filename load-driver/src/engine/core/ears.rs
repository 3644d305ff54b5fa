//! Whether a session's task reads.

use std::{
    cell::{Cell, RefCell},
    task::{Context, Waker},
};

use proto::time::Micros;

/// Shared by a session's slot, which closes them, and its task, which minds them.
#[derive(Debug)]
pub(in crate::engine) struct Ears {
    closed_until: Cell<Micros>,
    waiting: RefCell<Option<Waker>>,
}

impl Default for Ears {
    fn default() -> Self {
        Self { closed_until: Cell::new(Micros::ZERO), waiting: RefCell::default() }
    }
}

impl Ears {
    /// Nothing is read until then.
    pub(super) fn close(&self, until: Micros) {
        self.closed_until.set(self.closed_until.get().max(until));
    }

    /// Reads on, unless they were closed for longer meanwhile.
    pub(super) fn listen(&self, now: Micros) {
        if self.closed_until.get() <= now {
            self.open();
        }
    }

    /// Reads on.
    pub(super) fn open(&self) {
        self.closed_until.set(Micros::ZERO);
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
    }

    /// Nothing is to be read now; who asks is woken when there is again.
    pub(in crate::engine) fn closed(&self, cx: &mut Context<'_>) -> bool {
        let closed = self.closed_until.get() > Micros::ZERO;
        if closed {
            self.waiting.replace(Some(cx.waker().clone()));
        }
        closed
    }
}
