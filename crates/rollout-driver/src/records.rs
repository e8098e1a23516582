//! [`RolloutRecords`]: the records as a run read them, and the lines about rollouts whose next step is overdue. Every run
//! reports these.

use std::collections::BTreeMap;

use konverge_base::{
    error::UserError,
    model::{StackId, rollout::RolloutRecord},
};
use konverge_config::Config;
use konverge_report::escape;
use konverge_rollout::overdue_warning;
use konverge_run::{StateBackend, Target};
use konverge_state::StoredRollout;

/// The records of rollouts. They are read before the pending stacks of a run are listed. If a record later has a higher
/// number, another run may have applied some of these stacks.
pub struct RolloutRecords(pub(super) Result<BTreeMap<String, StoredRollout>, UserError>);

impl RolloutRecords {
    /// Reads the records, if rollouts are configured.
    pub async fn load(backend: &StateBackend, config: &Config) -> Self {
        Self(if config.rollouts.is_empty() {
            Ok(BTreeMap::new())
        } else {
            backend.states.rollouts().await.map_err(UserError::from)
        })
    }

    /// Adds the records of earlier rollouts if the configuration has no rollouts any more and stacks are pending,
    /// because a rollout that is under way still holds its stacks.
    pub async fn with_earlier(self, backend: &StateBackend, config: &Config, pending: &[Target]) -> Self {
        if config.rollouts.is_empty() && !pending.is_empty() {
            return Self(backend.states.rollouts().await.map_err(UserError::from));
        }
        self
    }

    /// Returns the rollout under way, other than `rollout`, that has a stack in one of its waves. `None` also if the
    /// records cannot be read: that error is in the outcomes of the rollouts.
    pub(super) fn under_way(&self, stack: &StackId, rollout: Option<&str>) -> Option<&RolloutRecord> {
        let records = self.0.iter().flat_map(BTreeMap::values);
        let mut running = records
            .map(|stored| &stored.record)
            .filter(|record| !record.phase.is_over() && Some(record.rollout.as_str()) != rollout);
        running.find(|record| record.stacks().any(|(_, id, _)| id == stack))
    }

    /// Returns one line for each overdue rollout, sorted by name.
    pub fn overdue(&self, config: &Config) -> Vec<String> {
        match &self.0 {
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
}

/// Returns one line for each overdue rollout. Sends no request if the configuration has no `rollouts`.
pub async fn overdue_rollouts(config: &Config, backend: &StateBackend) -> Vec<String> {
    RolloutRecords::load(backend, config).await.overdue(config)
}
