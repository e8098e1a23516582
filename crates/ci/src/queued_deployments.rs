//! The deployments of stacks that wait for their rollout: `queued` until a run applies the first of these stacks. A
//! later run of the same commit continues with the same deployment.

use std::collections::{BTreeMap, BTreeSet};

use crate::deployments::{DeploymentIds, DeploymentKey, Deployments, MOST, final_state, receipt};
use konverge_base::model::{
    CommitId,
    apply_result::{ApplyReport, StackOutcome, StackResult},
};
use konverge_forge::{Deployment, DeploymentState, ForgeError};

impl Deployments {
    /// Finds the deployment of this commit for an environment of a rollout, from this run or an earlier one.
    pub(super) async fn find(&self, key: &DeploymentKey, rollout: &str) -> Result<Option<u64>, ForgeError> {
        let all = self
            .client
            .deployments()?
            .list_deployments(&key.environment, Some(&self.head))
            .await?;
        let own = all.into_iter().find(|made| made.payload == receipt(rollout));
        Ok(own.map(|own| own.id))
    }

    /// Sets the deployment of an earlier commit to `inactive` if it is still queued and no rollout carries its commit:
    /// that commit will never be applied.
    async fn retire_earlier(
        &self,
        key: &DeploymentKey,
        rollout: &str,
        carried: &BTreeSet<CommitId>,
    ) -> Result<(), ForgeError> {
        let receipt = receipt(rollout);
        let is_earlier = |made: &Deployment| made.payload == receipt && made.sha != self.head.as_str();
        let forge = self.client.deployments()?;
        let all = forge.list_deployments(&key.environment, None).await?;
        let Some(earlier) = all.into_iter().find(is_earlier) else {
            return Ok(());
        };
        let is_carried = carried.iter().any(|commit| commit.as_str() == earlier.sha);
        if is_carried || forge.deployment_state(earlier.id).await? != Some(DeploymentState::Queued) {
            return Ok(());
        }
        let description = format!("{} took its place", self.head.short());
        self.set_state(earlier.id, DeploymentState::Inactive, &description)
            .await
    }

    /// Updates the deployments for stacks of rollouts that this run did not apply. Those that wait get a queued
    /// deployment, and the others their final state.
    pub(super) async fn end_waiting(
        &self,
        report: &ApplyReport,
        carried: Option<&BTreeSet<CommitId>>,
        made: &mut DeploymentIds,
    ) {
        let mut by_key: BTreeMap<DeploymentKey, Vec<&StackOutcome>> = BTreeMap::new();
        for stack in &report.stacks {
            let key = self.key_of(&stack.id);
            if key.rollout.is_some() && !made.ids.contains_key(&key) {
                by_key.entry(key).or_default().push(stack);
            }
        }
        for (number, (key, stacks)) in (made.ids.len() + 1..).zip(by_key) {
            if made.refused {
                return;
            }
            if number > MOST {
                made.left_out.insert(key.environment);
                continue;
            }
            if let Err(error) = self.update_deployment(&key, &stacks, carried).await {
                made.refused = true;
                self.run.warn(
                    "failed to update the deployment of a stack that waits for its rollout",
                    error,
                );
            }
        }
    }

    async fn update_deployment(
        &self,
        key: &DeploymentKey,
        stacks: &[&StackOutcome],
        carried: Option<&BTreeSet<CommitId>>,
    ) -> Result<(), ForgeError> {
        let Some(rollout) = &key.rollout else {
            return Ok(());
        };
        let waits = stacks.iter().any(|stack| stack.result == StackResult::Waiting);
        let (state, description) = match final_state(stacks, false) {
            _ if waits => (
                DeploymentState::Queued,
                format!("waits for the rollout {rollout}"),
            ),
            ended => ended,
        };
        match (self.find(key, rollout).await?, state) {
            (None, DeploymentState::Queued) => {
                let id = self
                    .create_deployment(key, &description, &receipt(rollout))
                    .await?;
                self.set_state(id, state, &description).await?;
                match carried {
                    Some(carried) => self.retire_earlier(key, rollout, carried).await,
                    None => Ok(()),
                }
            }
            (None, _) => Ok(()),
            (Some(id), wanted) => {
                // A wave that has begun stays `in_progress` until all of its stacks have ended, so it is not queued
                // again.
                let now = self.client.deployments()?.deployment_state(id).await?;
                let is_shown = now == Some(wanted)
                    || (now, wanted) == (Some(DeploymentState::InProgress), DeploymentState::Queued);
                if is_shown {
                    Ok(())
                } else {
                    self.set_state(id, wanted, &description).await
                }
            }
        }
    }
}
