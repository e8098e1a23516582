//! [`RolloutRecords`]: the records as a run read them, and the lines about rollouts that should have continued long ago. Every
//! run reports those.

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

/// The records of rollouts. They are read before the pending stacks of a run are listed: a record with a higher number later
/// shows that another run may have applied some of these stacks.
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

    /// Adds the records of earlier rollouts, if the configuration has none any more and stacks are pending: a rollout under way
    /// still holds its stacks.
    pub async fn with_earlier(self, backend: &StateBackend, config: &Config, pending: &[Target]) -> Self {
        if config.rollouts.is_empty() && !pending.is_empty() {
            return Self(backend.states.rollouts().await.map_err(UserError::from));
        }
        self
    }

    /// Returns the rollout under way, other than `rollout`, that has a stack in one of its waves, by the identity of the stack.
    /// `None` if the records cannot be read: that error is in the outcomes of the rollouts.
    pub(super) fn under_way(&self, stack: &StackId, rollout: Option<&str>) -> Option<&RolloutRecord> {
        let records = self.0.iter().flat_map(BTreeMap::values);
        let mut running = records
            .map(|stored| &stored.record)
            .filter(|record| !record.phase.is_over() && Some(record.rollout.as_str()) != rollout);
        running.find(|record| record.stacks().any(|(_, id, _)| id == stack))
    }

    /// Returns the error of records that cannot be read.
    pub(super) fn failure(&self) -> Option<&UserError> {
        self.0.as_ref().err()
    }

    /// Returns one line for each rollout that is overdue.
    pub fn overdue(&self, config: &Config) -> Vec<String> {
        overdue_records(config, &self.0)
    }
}

/// Returns one line for each overdue rollout. Sends no request if the configuration has no `rollouts`.
pub async fn overdue_rollouts(config: &Config, backend: &StateBackend) -> Vec<String> {
    if config.rollouts.is_empty() {
        return Vec::new();
    }
    let stored = backend.states.rollouts().await;
    overdue_records(config, &stored.map_err(UserError::from))
}

/// Returns one line for each overdue rollout, from records that a run has read already, by the names of the rollouts.
fn overdue_records(
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
