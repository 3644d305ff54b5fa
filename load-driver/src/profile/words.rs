//! What a dialect has no word for.

use super::{Scenario, conversation::Turn, validate::Checker};
use crate::plan::{Capabilities, TurnDetection};

impl Scenario {
    /// What can be said: of `custom`, what there are templates for.
    fn capabilities(&self) -> Capabilities {
        let capabilities = self.dialect.capabilities(self.agent.turn_detection);
        let Some(send) = self.custom.as_ref().map(|custom| &custom.send) else { return capabilities };
        Capabilities {
            commit: send.commit.is_some(),
            interrupt: send.interrupt.is_some(),
            cancel: send.interrupt.is_some(),
            heard_ms: send.interrupt.as_ref().is_some_and(|template| template.contains("${heard_ms}")),
            markers: send.speech_start.is_some() && send.speech_stop.is_some(),
            ..capabilities
        }
    }

    /// What this scenario says must have a word on the wire.
    /// Keys of `agent` that the dialect would not send are slips of the pen.
    pub(super) fn check_agent(&self, c: &mut Checker<'_>) {
        let (name, known, agent) = (self.dialect.name(), self.dialect.agent_keys(), &self.agent);
        let given = [
            ("model", agent.model.is_some()),
            ("id", agent.id.is_some()),
            ("voice", agent.voice.is_some()),
            ("instructions", agent.instructions.is_some()),
            ("beta", agent.beta),
            ("without_rtvi", agent.without_rtvi),
        ];
        c.within("agent", |c| {
            for (key, _) in given.iter().filter(|(key, given)| *given && !known.contains(key)) {
                let keys: Vec<String> = known.iter().chain(&["greets"]).map(|key| format!("`{key}`")).collect();
                let help = format!("drop it; the keys of `agent` here: {}", keys.join(", "));
                c.error(key, format!("`{key}` means nothing to the dialect `{name}`"), help);
            }
            if agent.turn_detection == TurnDetection::SemanticVad && !self.dialect.detects_by_meaning() {
                let message = format!("the dialect `{name}` does not choose how the backend finds turns");
                c.error("turn_detection", message, "drop it: `semantic_vad` is for openai_realtime");
            }
        });
    }

    pub(super) fn check_words(&self, c: &mut Checker<'_>) {
        let name = self.dialect.name();
        let can = self.capabilities();
        let manual = self.agent.turn_detection == TurnDetection::None;
        if manual && !can.commit && !(self.markers && can.markers) {
            c.within("agent", |c| {
                let message = format!("the dialect `{name}` has no word for the end of a turn");
                let or = match (self.custom.is_some(), can.markers) {
                    (true, _) => ", or give `custom.send.commit`",
                    (false, true) => ", or mark the speech: `markers: true`",
                    (false, false) => "",
                };
                c.error("turn_detection", message, format!("let the backend find it{or}"));
            });
        }
        if self.agent.resume && !can.resume {
            c.within("agent", |c| {
                let message = format!("the dialect `{name}` has no word for a session that goes on from another");
                c.error("resume", message, "drop `resume`, or set `dialect` to gemini_live");
            });
        }
        if self.markers && !can.markers {
            let with = if self.dialect.capabilities(TurnDetection::None).markers {
                ("where the server finds the turns", "drop `markers`, or set `agent: {turn_detection: none}`")
            } else {
                ("", "drop `markers`")
            };
            let message = format!("the dialect `{name}` has no words for speech that begins and ends {}", with.0);
            c.error("markers", message.trim_end().to_owned(), with.1);
        }
        c.within("conversations", |c| {
            for (at, conversation) in self.conversations.iter().enumerate() {
                c.within(at, |c| {
                    c.within("turns", |c| {
                        for (at, turn) in conversation.turns.iter().enumerate() {
                            c.within(at, |c| turn.check_words(c, name, can, manual && !self.markers));
                        }
                    });
                });
            }
        });
    }
}

impl Turn {
    /// `commits`: interruptions by speech are told as well.
    fn check_words(&self, c: &mut Checker<'_>, name: &str, can: Capabilities, commits: bool) {
        let help = "interrupt by speech: barge_in: {after: 500ms, say: stop.wav}";
        if self.dtmf.is_some() && !can.dtmf {
            c.error("dtmf", format!("the dialect `{name}` has no keys"), "drop `dtmf`, or set `dialect` to twilio, pipecat or ces");
        }
        if self.cancel.is_some() && !can.cancel {
            c.error("cancel", format!("the dialect `{name}` has no message that cancels an answer"), help);
        }
        if let Some(barge_in) = &self.barge_in {
            c.within("barge_in", |c| {
                if barge_in.explicit && !can.interrupt {
                    c.error("explicit", format!("the dialect `{name}` has no message that interrupts"), help);
                }
                if barge_in.heard.is_none() {
                    return;
                }
                if !can.heard_ms {
                    c.error("heard", format!("the dialect `{name}` has no word for what was heard of an answer"), "drop `heard`");
                } else if !barge_in.explicit && !commits {
                    c.error("heard", "an interruption by speech claims nothing", "add `explicit: true`");
                }
            });
        }
        if self.tool.is_some() && !can.tools {
            let message = format!("the dialect `{name}` tells nothing of tools");
            c.error("tool", message, "drop `tool`: what the bot calls behind it is not seen");
        }
    }
}
