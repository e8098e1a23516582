//! Rollouts whose next step is overdue. Every run reports them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use konverge_base::error::UserError;
use konverge_config::Config;
use konverge_policy::rollout::{RolloutRules, overdue_from};
use konverge_report::escape;
use konverge_state::StoredRollout;

use crate::StateBackend;

/// Returns one line for each overdue rollout. Sends no request if the configuration has no `rollouts`.
pub async fn overdue_rollouts(config: &Config, backend: &StateBackend) -> Vec<String> {
    if config.rollouts.is_empty() {
        return Vec::new();
    }
    let stored = backend.states.rollouts().await;
    overdue_records(config, &stored.map_err(UserError::from))
}

/// Returns one line for each overdue rollout, from records that the run has already read, sorted by name.
pub fn overdue_records(
    config: &Config,
    stored: &Result<BTreeMap<String, StoredRollout>, UserError>,
) -> Vec<String> {
    match stored {
        Ok(stored) => stored
            .values()
            .filter_map(|stored| overdue(config, stored))
            .collect(),
        Err(failure) => vec![format!(
            "could not read the rollouts: {}",
            escape::log(&failure.message)
        )],
    }
}

/// Returns the line about a rollout if it is overdue.
pub fn overdue(config: &Config, stored: &StoredRollout) -> Option<String> {
    let record = &stored.record;
    let mut rollouts = config.rollouts.iter();
    let rollout = rollouts.find(|rollout| rollout.name == record.rollout)?;
    let from = overdue_from(record, &RolloutRules::from_config(rollout, &config.gates))?;
    (Timestamp::now() > from).then(|| {
        format!(
            "the rollout `{}` is overdue: {} is {} since {:.0}, and no run has moved it on since; start the workflow by `repository_dispatch` of the type `konverge-continue`",
            record.rollout,
            record.wave_title(),
            record.phase,
            record.since.local
        )
    })
}
