//! What a dialect has no word for.

use super::{Scenario, conversation::Turn, validate::Checker};
use crate::plan::{Dialect, TurnDetection};

impl Scenario {
    /// What this scenario says must have a word on the wire.
    pub(super) fn check_words(&self, c: &mut Checker<'_>) {
        let name = self.dialect.name();
        let send = self.custom.as_ref().map(|custom| &custom.send);
        let (commits, interrupts, marks) = match (self.dialect, send) {
            (Dialect::Custom, Some(send)) => {
                (send.commit.is_some(), send.interrupt.is_some(), send.speech_start.is_some() && send.speech_stop.is_some())
            }
            (Dialect::Elevenlabs, _) => (false, false, false),
            (Dialect::Deepgram, _) => (true, false, false),
            _ => return,
        };
        if !commits && self.agent.turn_detection == TurnDetection::None {
            c.within("agent", |c| {
                let message = format!("the dialect `{name}` has no word for the end of a turn");
                let or = if send.is_some() { ", or give `custom.send.commit`" } else { "" };
                c.error("turn_detection", message, format!("let the backend find it{or}"));
            });
        }
        if !marks && self.markers {
            c.error("markers", format!("the dialect `{name}` has no words for speech that begins and ends"), "drop `markers`");
        }
        let explicit = |turn: &Turn| turn.cancel.is_some() || turn.barge_in.as_ref().is_some_and(|barge_in| barge_in.explicit);
        for (at, conversation) in self.conversations.iter().enumerate() {
            for (turn, _) in conversation.turns.iter().enumerate().filter(|(_, turn)| !interrupts && explicit(turn)) {
                c.within("conversations", |c| {
                    c.within(at, |c| {
                        c.within("turns", |c| {
                            c.within(turn, |c| {
                                let message = format!("the dialect `{name}` has no word that stops an answer");
                                c.here(message, "interrupt by speech: barge_in: {after: 500ms, say: stop.wav}");
                            });
                        });
                    });
                });
            }
        }
    }
}
