//! Rollouts that should have gone on long ago, for every run to say so.

use jiff::Timestamp;
use konverge_config::Config;
use konverge_policy::rollout::{RolloutRules, overdue_from};
use konverge_report::escape;
use konverge_state::StoredRollout;

use crate::StateBackend;

/// One line for each rollout that is overdue. No request for a configuration without `rollouts`.
pub async fn overdue_rollouts(config: &Config, backend: &StateBackend) -> Vec<String> {
    if config.rollouts.is_empty() {
        return Vec::new();
    }
    match backend.states.rollouts().await {
        Ok(stored) => stored
            .values()
            .filter_map(|stored| overdue(config, stored))
            .collect(),
        Err(error) => vec![format!(
            "warning: how far the rollouts are is unknown: {}",
            escape::log(&error.to_string())
        )],
    }
}

/// The line about a rollout, if it is overdue.
pub fn overdue(config: &Config, stored: &StoredRollout) -> Option<String> {
    let record = &stored.record;
    let mut rollouts = config.rollouts.iter();
    let rollout = rollouts.find(|rollout| rollout.name == record.rollout)?;
    let from = overdue_from(record, &RolloutRules::from_config(rollout, &config.gates))?;
    (Timestamp::now() > from).then(|| {
        format!(
            "warning: the rollout `{}` is overdue: {} is {} since {:.0}, and no run has moved it on since; start the workflow by `repository_dispatch` of the type `konverge-continue`",
            record.rollout,
            record.wave_title(),
            record.phase,
            record.since.local
        )
    })
}
