//! Rollouts that should have continued long ago. Every run reports them.

use std::collections::BTreeMap;

use konverge_base::error::UserError;
use konverge_config::Config;
use konverge_report::escape;
use konverge_rollout::overdue_warning;
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

/// Returns one line for each overdue rollout, from records that a run has read already, by the names of the rollouts.
pub fn overdue_records(
    config: &Config,
    stored: &Result<BTreeMap<String, StoredRollout>, UserError>,
) -> Vec<String> {
    match stored {
        Ok(stored) => stored
            .values()
            .filter_map(|stored| overdue_warning(config, &stored.record))
            .collect(),
        Err(failure) => vec![format!(
            "could not read the rollouts: {}",
            escape::log(&failure.message)
        )],
    }
}
