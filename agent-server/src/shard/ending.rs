//! What lets a stream be given up whose client does not take the last words of its session.

use std::{sync::Arc, task::Context};

use parking_lot::Mutex;

use super::Slot;

/// Seen by the task that carries a stream: what the stream's conversation has come to. HTTP/2 asks a stream for more only when its client
/// has room, so that the conversation itself would never learn that nobody takes its end.
#[derive(Debug, Clone, Default)]
pub struct Ending(Arc<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    /// No session, none refused, or all is over.
    #[default]
    Idle,
    Open(Arc<Slot>),
    Refused,
}

impl Ending {
    pub(super) fn open(&self, slot: &Arc<Slot>) {
        *self.0.lock() = State::Open(Arc::clone(slot));
    }

    pub(super) fn refuse(&self) {
        *self.0.lock() = State::Refused;
    }

    pub(super) fn leave(&self) {
        *self.0.lock() = State::Idle;
    }

    /// Only last words are left; if not, wakes when that comes.
    pub fn closing(&self, cx: &mut Context<'_>) -> bool {
        match &*self.0.lock() {
            State::Idle => false,
            State::Refused => true,
            State::Open(slot) => {
                let mut state = slot.state.lock();
                let closing = state.closing().is_some();
                if !closing {
                    state.wake(cx);
                }
                closing
            }
        }
    }
}
