//! A conversation that goes on in another session.

use std::{sync::Arc, time::Duration};

use proto::time::Micros;

use super::{SessionPlan, next_leg};

/// Where a conversation goes on after a session that its backend gave up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumption {
    /// What the backend knows it by.
    pub handle: String,
    /// The next turn.
    pub turn: u32,
    /// When it is due, if the conversation can go on by then.
    pub at: Micros,
    /// What is left of the session's length, where it has one.
    pub length: Option<Duration>,
}

impl SessionPlan {
    /// It can have a successor.
    pub fn can_be_resumed(&self) -> bool {
        next_leg(self.index).is_some()
    }

    /// The session that goes on with this one's conversation, to begin at `start`: another name, the same draws.
    pub fn successor(&self, resumption: Resumption, start: Micros) -> Option<Self> {
        let index = next_leg(self.index)?;
        let run = self.client_ref.rsplit_once('-').map_or("", |(run, _)| run);
        Some(Self {
            index,
            start,
            client_ref: format!("{run}-{index}"),
            length: resumption.length,
            resumes: Some(Arc::new(resumption)),
            ..self.clone()
        })
    }

    /// The session that begins anew where this one was cut, to begin at `start`: another name, the same draws, what is left of the length.
    pub fn again(&self, start: Micros, length: Option<Duration>) -> Option<Self> {
        let nothing = Resumption { handle: String::new(), turn: 0, at: start, length };
        Some(Self { resumes: None, ..self.successor(nothing, start)? })
    }

    /// Turns from number `turn` on in which something is said; of a conversation that is repeated without end, one.
    pub fn turns_from(&self, turn: u32) -> u64 {
        if self.length.is_some() {
            return 1;
        }
        let own = self.own();
        self.scenario.turns(&own).iter().skip(turn as usize).filter(|turn| !turn.says.is_empty()).count() as u64
    }

    /// Turns that are lost when this session never begins: those that it was to go on with.
    pub fn turns_at_stake(&self) -> u64 {
        self.resumes.as_ref().map_or(0, |resumption| self.turns_from(resumption.turn))
    }
}
