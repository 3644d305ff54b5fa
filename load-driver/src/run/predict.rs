//! Asks the simulator what a run should have measured.

use std::collections::BTreeMap;

use agent_server::fault::Defect;

use super::{RunArgs, RunError};
use crate::{
    balance::{Balance, Prediction},
    profile::Profile,
    report::Exit,
    routing,
    sim::Simulation,
};

/// What the simulator is held to, and what it is asked with.
#[derive(Debug)]
pub(super) struct Predictor {
    profile: Profile,
    defects: Vec<Defect>,
    pub(super) predictions: Vec<Prediction>,
}

impl Predictor {
    /// None when the profile predicts nothing. What cannot be simulated is found here, before anything runs.
    pub(super) fn of(profile: &Profile, args: &RunArgs) -> Result<Option<Self>, RunError> {
        if profile.predictions.is_empty() {
            return Ok(None);
        }
        let invalid = |e: &dyn std::fmt::Display| RunError::new(Exit::InvalidProfile, format!("predictions: {e}"));
        let read =
            |(metric, tolerance)| Prediction::parse(metric, tolerance).map_err(|(message, help)| invalid(&format!("{message}: {help}")));
        let predictions = profile.predictions.iter().map(read).collect::<Result<_, _>>()?;
        let defects = args.defects.iter().map(|text| text.parse().map_err(|e| invalid(&e))).collect::<Result<Vec<Defect>, _>>()?;
        Simulation::new(profile, &defects).map_err(|e| invalid(&e))?;
        Ok(Some(Self { profile: profile.clone(), defects, predictions }))
    }

    /// The figures of these policies, on a thread of its own: signals are heard meanwhile. Only for when no run is on.
    pub(super) async fn ask(&self, policies: Vec<String>) -> Result<BTreeMap<String, Balance>, RunError> {
        let (profile, defects) = (self.profile.clone(), self.defects.clone());
        let asked = tokio::task::spawn_blocking(move || simulate(&profile, &defects, policies)).await;
        let failed = |e: &dyn std::fmt::Display| RunError::new(Exit::InternalFault, format!("failed to simulate what ran: {e}"));
        asked.map_err(|e| failed(&e))?.map_err(|e| failed(&e))
    }
}

fn simulate(profile: &Profile, defects: &[Defect], policies: Vec<String>) -> Result<BTreeMap<String, Balance>, String> {
    let simulation = Simulation::new(profile, defects).map_err(|e| e.to_string())?;
    let one = |policy: String| {
        let made = routing::find(&policy).map_err(|e| e.to_string())?;
        Ok((policy, simulation.run(made).balance))
    };
    policies.into_iter().map(one).collect()
}
