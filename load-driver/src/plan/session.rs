//! One session with everything drawn: a pure function of (profile, seed, index).

use std::{sync::Arc, time::Duration};

use proto::{ids::PlanIndex, time::Micros};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{ActTemplate, Claim, EndKind, Resumption, ScenarioPlan, TurnTemplate, WaitTemplate, first_leg, index};
use crate::audio::Utterance;

/// One session of the plan; everything in it follows from (profile, seed, index).
#[derive(Debug, Clone)]
pub struct SessionPlan {
    /// Names it.
    pub index: PlanIndex,
    /// Run time at which it should begin.
    pub start: Micros,
    /// The scenario it belongs to.
    pub scenario: Arc<ScenarioPlan>,
    /// Of the plan.
    pub seed: u64,
    /// Index into the scenario's conversations.
    pub conversation: usize,
    /// Drawn.
    pub length: Option<Duration>,
    /// Drawn.
    pub end: EndKind,
    /// Sent to the backend: `run-index`.
    pub client_ref: String,
    /// Where it takes up the conversation of a session before it.
    pub resumes: Option<Arc<Resumption>>,
}

/// A turn with its times drawn.
#[derive(Debug, Clone)]
pub struct TurnPlan {
    /// When it begins.
    pub wait: Wait,
    /// What the user says.
    pub says: Option<Arc<Utterance>>,
    /// What is special.
    pub act: Act,
    /// Length of the answer asked for.
    pub response_ms: Option<u32>,
    /// Keys that are pressed when it begins.
    pub dtmf: Arc<str>,
}

/// As [`WaitTemplate`], drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// So long after the previous turn's end; the first turn: after acceptance.
    After(Duration),
    /// At this time of the run; at once when it is past.
    At(Micros),
    /// So long after the *begin* of the previous turn (its intended begin, so that delays do not add up), or when that turn's answer is
    /// over if that is later.
    Cycle(Duration),
}

/// As [`ActTemplate`], drawn.
#[derive(Debug, Clone)]
pub enum Act {
    /// Listen to the answer.
    Listen,
    /// Interrupt.
    BargeIn {
        /// From the first agent frame.
        after: Duration,
        /// By message, not by speech.
        explicit: bool,
        /// What is claimed to have been heard; none: the truth.
        heard: Option<Claim>,
        /// What is said over the agent.
        says: Option<Arc<Utterance>>,
    },
    /// Speak again, whether the agent has begun or not.
    SpeakAgain {
        /// From the end of the user's speech.
        after: Duration,
        /// What is said.
        says: Option<Arc<Utterance>>,
    },
    /// Cancel.
    Cancel {
        /// From the first agent frame.
        after: Duration,
    },
    /// Expect and answer a tool call.
    Tool {
        /// Its name.
        name: String,
        /// Caller's time.
        takes: Duration,
    },
}

/// `ChaCha8` words of a session's own draws, and of each turn: far more than any takes.
const WORDS: u128 = 1 << 16;

/// The stream of `index` at the block of turn `n`; the session's own block is `None`.
fn stream(seed: u64, index: PlanIndex, turn: Option<u32>) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(index.0);
    if let Some(turn) = turn {
        rng.set_word_pos(WORDS * (u128::from(turn) + 1));
    }
    rng
}

/// A session's own draws, without what belongs to a scenario or to the wire: small enough to keep millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    /// Names the session.
    pub index: PlanIndex,
    /// Index into the scenario's conversations.
    pub conversation: usize,
    /// How long it lasts, where the scenario says so.
    pub length: Option<Duration>,
    /// How it ends.
    pub end: EndKind,
}

impl ScenarioPlan {
    /// Draws session `iteration` of a lane. Pure.
    pub fn draw(&self, seed: u64, lane: u32, iteration: u32) -> Draw {
        let index = index(self.number, lane, iteration);
        let mut rng = stream(seed, index, None);
        let conversation = pick(&mut rng, self.conversations.iter().map(|conversation| conversation.weight));
        let end = pick(&mut rng, self.ends.iter().map(|(weight, _)| *weight));
        let end = self.ends.get(end).map_or(EndKind::Graceful, |(_, kind)| *kind);
        let length = self.session_length.as_ref().map(|length| length.sample(&mut rng));
        Draw { index, conversation, length, end }
    }

    /// Turn `n` of a session of this scenario, or none when the conversation is over. Pure: the same `n` gives the same turn. With a
    /// `length`, the conversation is repeated without end.
    pub fn turn(&self, seed: u64, draw: &Draw, n: u32) -> Option<TurnPlan> {
        let template = self.template(draw, n)?;
        let mut rng = stream(seed, draw.index, Some(n));
        let says = one_of(&mut rng, &template.says).cloned();
        let act = match &template.act {
            ActTemplate::Listen => Act::Listen,
            ActTemplate::BargeIn { after, explicit, heard, says } => {
                Act::BargeIn { says: one_of(&mut rng, says).cloned(), after: after.sample(&mut rng), explicit: *explicit, heard: *heard }
            }
            ActTemplate::SpeakAgain { after, says } => {
                Act::SpeakAgain { says: one_of(&mut rng, says).cloned(), after: after.sample(&mut rng) }
            }
            ActTemplate::Cancel { after } => Act::Cancel { after: after.sample(&mut rng) },
            ActTemplate::Tool { name, takes } => Act::Tool { name: name.clone(), takes: takes.sample(&mut rng) },
        };
        let response_ms = template.response.as_ref().map(|length| u32::try_from(length.sample(&mut rng).as_millis()).unwrap_or(u32::MAX));
        let wait = match &template.wait {
            WaitTemplate::After(silence) => Wait::After(silence.sample(&mut rng)),
            WaitTemplate::At(time) => Wait::At(*time),
            WaitTemplate::Ratio(ratio) => match n.checked_sub(1) {
                Some(previous) => Wait::Cycle(self.cycle(seed, draw, previous, *ratio)),
                // Anywhere in a cycle: then any moment is like any other, and the share holds from the start.
                None => Wait::After(self.cycle(seed, draw, 0, *ratio).mul_f64(rng.random())),
            },
        };
        Some(TurnPlan { wait, says, act, response_ms, dtmf: Arc::clone(&template.dtmf) })
    }

    /// Turns of a conversation.
    pub(super) fn turns(&self, draw: &Draw) -> &[TurnTemplate] {
        self.conversations.get(draw.conversation).map_or(&[], |conversation| &conversation.turns)
    }

    fn template(&self, draw: &Draw, n: u32) -> Option<&TurnTemplate> {
        let turns = self.turns(draw);
        let at = if draw.length.is_some() { (n as usize).checked_rem(turns.len())? } else { n as usize };
        turns.get(at)
    }

    /// From the begin of turn `n` to that of the next.
    fn cycle(&self, seed: u64, draw: &Draw, n: u32, ratio: f64) -> Duration {
        let Some(template) = self.template(draw, n) else { return Duration::ZERO };
        // The same draws, in the same order, as the turn itself makes.
        let mut rng = stream(seed, draw.index, Some(n));
        let mut speech = one_of(&mut rng, &template.says).map_or(0, |says| says.speech_us());
        if let ActTemplate::BargeIn { says, .. } | ActTemplate::SpeakAgain { says, .. } = &template.act {
            speech += one_of(&mut rng, says).map_or(0, |says| says.speech_us());
        }
        Duration::from_micros((speech as f64 / ratio) as u64)
    }
}

impl SessionPlan {
    pub(super) fn new(draw: Draw, seed: u64, start: Micros, scenario: Arc<ScenarioPlan>, client_ref: String) -> Self {
        let Draw { index, conversation, length, end } = draw;
        Self { index, start, scenario, seed, conversation, length, end, client_ref, resumes: None }
    }

    /// Turn `n`, or none when the conversation is over: see [`ScenarioPlan::turn`].
    pub fn turn(&self, n: u32) -> Option<TurnPlan> {
        self.scenario.turn(self.seed, &self.own(), n)
    }

    /// Tools to declare at the start: those of the conversation, sorted.
    pub fn tools(&self) -> Vec<String> {
        self.scenario.tools(self.conversation)
    }

    pub(super) fn own(&self) -> Draw {
        Draw { index: first_leg(self.index), conversation: self.conversation, length: self.length, end: self.end }
    }
}

impl ScenarioPlan {
    /// Tools that sessions of a conversation declare at their start: sorted.
    pub fn tools(&self, conversation: usize) -> Vec<String> {
        let turns = self.conversations.get(conversation).map_or(&[][..], |conversation| &conversation.turns);
        let mut tools: Vec<String> = turns
            .iter()
            .filter_map(|turn| match &turn.act {
                ActTemplate::Tool { name, .. } => Some(name.clone()),
                _ => None,
            })
            .collect();
        tools.sort_unstable();
        tools.dedup();
        tools
    }
}

fn one_of<'a>(rng: &mut ChaCha8Rng, all: &'a [Arc<Utterance>]) -> Option<&'a Arc<Utterance>> {
    if all.is_empty() { None } else { all.get(rng.random_range(0..all.len())) }
}

/// Draws by weight; the sum was checked to be above zero.
fn pick(rng: &mut ChaCha8Rng, weights: impl Iterator<Item = f64> + Clone) -> usize {
    let total: f64 = weights.clone().sum();
    let mut left = rng.random::<f64>() * total;
    let mut chosen = 0;
    for (at, weight) in weights.enumerate() {
        if weight > 0.0 {
            chosen = at;
            if left < weight {
                break;
            }
        }
        left -= weight;
    }
    chosen
}
