//! From a profile to a plan.

use std::{sync::Arc, time::Duration};

use proto::{audio::AudioFormat, dist::Distribution, time::Micros};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{ActTemplate, Conversation, EndKind, FaultKind, Plan, ScenarioPlan, TurnTemplate, WaitTemplate, index};
use crate::{
    arrival::ArrivalError,
    audio::{AudioError, Library, Utterance, synthesise},
    profile::{self, BargeInFrom, Profile, Say, Says, Scenario, Turn},
};

/// Lane whose stream is the scenario's own: above every lane that an executor may make.
const SCENARIO_LANE: u32 = (1 << 24) - 1;
/// Synthetic clips of one length that is drawn, and of one that is not.
const VARIANTS: (usize, usize) = (16, 4);
/// Shortest and longest synthetic clip, microseconds: a detector needs the one, memory the other.
const SYNTH_US: (u64, u64) = (200_000, 60_000_000);

/// A session that was told of a drain may end so much later than the drain itself.
const DRAIN_SLACK: Duration = Duration::from_secs(2);

/// A profile that cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A clip cannot be spoken.
    #[error(transparent)]
    Audio(#[from] AudioError),
    /// More arrivals than a plan can hold.
    #[error("scenario `{scenario}`: {error}")]
    Arrivals {
        /// Its name.
        scenario: String,
        /// What is too much.
        error: ArrivalError,
    },
    /// A run that tests nothing must not pass.
    #[error("no session begins in this run: raise a rate or a duration")]
    NoSessions,
}

impl Plan {
    /// Plans a run of a checked profile. `run_id` names it on both sides (8 hex digits, another for every run); all its workers
    /// must be given the same.
    pub fn build(profile: &Profile, run_id: &str) -> Result<Self, PlanError> {
        let mut library = profile.library();
        let scenarios = profile
            .scenarios
            .iter()
            .enumerate()
            .map(|(number, (name, scenario))| plan_scenario(number as u16, name, scenario, profile, &mut library).map(Arc::new))
            .collect::<Result<Vec<Arc<ScenarioPlan>>, _>>()?;
        if scenarios.iter().all(|scenario| scenario.lanes.is_empty()) {
            return Err(PlanError::NoSessions);
        }
        let mut plan = Self {
            run_id: run_id.to_owned(),
            seed: profile.seed,
            warmup: profile.warmup.0,
            faults: Vec::new(),
            first_iteration: 0,
            scenarios,
        };
        plan.faults = profile.timeline(plan.stops_at());
        for scenario in &mut plan.scenarios {
            let drains = plan.faults.iter().filter(|fault| matches!(fault.kind, FaultKind::Drain));
            let of = drains.filter(|fault| fault.target.scenario.is_none_or(|number| number == scenario.number));
            let drains = of.map(|fault| (fault.at, fault.at + fault.duration + DRAIN_SLACK)).collect();
            let alone = plan.faults.iter().any(|fault| fault.takes_connection() && fault.concerns(scenario));
            let scenario = Arc::make_mut(scenario);
            scenario.drains = drains;
            scenario.own_connection |= alone;
        }
        Ok(plan)
    }
}

fn plan_scenario(number: u16, name: &str, from: &Scenario, profile: &Profile, library: &mut Library) -> Result<ScenarioPlan, PlanError> {
    let mut rng = ChaCha8Rng::seed_from_u64(profile.seed);
    rng.set_stream(index(number, SCENARIO_LANE, 0).0);
    let (executor, schedule) = (from.executor.executor(), from.schedule());
    executor.check(&schedule).map_err(|error| PlanError::Arrivals { scenario: name.to_owned(), error })?;
    let service = from.service(profile.connection.clone());
    let lanes = executor.lanes(&schedule, &mut rng);
    rng.set_stream(index(number, SCENARIO_LANE, 1).0);
    let mut speaker = Speaker { format: service.input, library, rng };
    let conversations = from.conversations.iter().map(|one| speaker.conversation(one, from.speaking_ratio)).collect::<Result<_, _>>()?;
    let own = |kind: EndKind| kind.needs_own_connection();
    Ok(ScenarioPlan {
        number,
        name: name.to_owned(),
        protocol: from.protocol(),
        service: Arc::new(service),
        lanes,
        conversations,
        session_length: from.session_length.as_ref().map(|length| length.0.clone()),
        ends: from.end.0.iter().map(|end| (end.weight, end.kind)).collect(),
        kill_at: from.kill_at.map(|at| Micros(at.micros())),
        backend: from.backend,
        own_connection: from.own_connection || from.end.0.iter().any(|end| own(end.kind)),
        speaking_ratio: from.speaking_ratio,
        send_silence: from.send_silence,
        markers: from.markers,
        ack_every: from.ack_every,
        response_timeout: from.response_timeout.0,
        start_timeout: from.start_timeout.0,
        expect: from.expect,
        drains: Vec::new(),
    })
}

/// Makes what the callers of one scenario say.
struct Speaker<'a> {
    format: AudioFormat,
    library: &'a mut Library,
    rng: ChaCha8Rng,
}

impl Speaker<'_> {
    fn conversation(&mut self, from: &profile::Conversation, ratio: Option<f64>) -> Result<Conversation, PlanError> {
        let turns = from.turns.iter().map(|turn| self.turn(turn, ratio)).collect::<Result<_, _>>()?;
        Ok(Conversation { weight: from.weight, turns })
    }

    fn turn(&mut self, from: &Turn, ratio: Option<f64>) -> Result<TurnTemplate, PlanError> {
        let silence = || from.wait.as_ref().map_or(Distribution::Constant(Duration::ZERO), |wait| wait.0.clone());
        let wait = match (from.at, ratio) {
            (Some(at), _) => WaitTemplate::At(Micros(at.micros())),
            (None, Some(ratio)) => WaitTemplate::Ratio(ratio),
            (None, None) => WaitTemplate::After(silence()),
        };
        let act = match (&from.barge_in, &from.cancel, &from.tool) {
            (Some(barge_in), _, _) if barge_in.from == BargeInFrom::SpeechEnd => {
                ActTemplate::SpeakAgain { after: barge_in.after.0.clone(), says: self.says(&barge_in.say)? }
            }
            (Some(barge_in), _, _) => ActTemplate::BargeIn {
                after: barge_in.after.0.clone(),
                explicit: barge_in.explicit,
                heard: barge_in.heard,
                says: self.says(&barge_in.say)?,
            },
            (_, Some(cancel), _) => ActTemplate::Cancel { after: cancel.after.0.clone() },
            (_, _, Some(tool)) => ActTemplate::Tool { name: tool.name.clone(), takes: tool.takes.0.clone() },
            _ => ActTemplate::Listen,
        };
        Ok(TurnTemplate {
            wait,
            says: self.says(&from.say)?,
            act,
            response: from.response.as_ref().map(|length| length.0.clone()),
            dtmf: from.dtmf.as_deref().unwrap_or_default().into(),
        })
    }

    /// Each thing has the same chance, however many variants it has: others are repeated to match.
    fn says(&mut self, from: &Says) -> Result<Vec<Arc<Utterance>>, PlanError> {
        let groups: Vec<Vec<Arc<Utterance>>> = from.0.iter().map(|say| self.say(say)).collect::<Result<_, _>>()?;
        let most = groups.iter().map(Vec::len).max().unwrap_or(0);
        if groups.len() == 1 {
            return Ok(groups.into_iter().flatten().collect());
        }
        // Group sizes are 1, 4 and 16, which divide each other.
        Ok(groups.into_iter().flat_map(|group| group.into_iter().cycle().take(most)).collect())
    }

    fn say(&mut self, say: &Say) -> Result<Vec<Arc<Utterance>>, PlanError> {
        let length = match say {
            Say::Wav(path) => return Ok(vec![self.library.utterance(path, self.format)?]),
            Say::Synth(length) => length,
        };
        let variants = if matches!(length.0, Distribution::Constant(_)) { VARIANTS.1 } else { VARIANTS.0 };
        let speak = |_| {
            let us = u64::try_from(length.0.sample(&mut self.rng).as_micros()).unwrap_or(u64::MAX).clamp(SYNTH_US.0, SYNTH_US.1);
            let samples = synthesise(self.rng.random(), us, self.format.sample_rate());
            Utterance::new(self.format, samples, "synthetic speech").map(Arc::new)
        };
        Ok((0..variants).filter_map(speak).collect())
    }
}
