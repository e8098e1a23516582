//! The deployments of stacks that wait for their rollout: `queued` until a run applies the first of them. A later run of the
//! same commit continues with the same deployment.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::deployments::{DeploymentIds, DeploymentPlace, Deployments, MOST, final_state};
use konverge_base::model::{
    CommitId,
    apply_result::{ApplyReport, StackOutcome, StackResult},
};
use konverge_forge::{Deployment, DeploymentState, ForgeError};

/// What is stored with the deployment of a rollout in an environment: the same in each run.
fn receipt(rollout: &str) -> Value {
    json!({"version": 1, "rollout": rollout})
}

impl Deployments {
    /// The deployment of this commit in an environment of a rollout, from this run or an earlier one.
    pub(super) async fn find(
        &self,
        place: &DeploymentPlace,
        rollout: &str,
    ) -> Result<Option<u64>, ForgeError> {
        let all = self
            .client
            .deployments()?
            .list_deployments(&place.environment, Some(&self.head))
            .await?;
        let own = all.into_iter().find(|made| made.payload == receipt(rollout));
        Ok(own.map(|own| own.id))
    }

    /// Creates it.
    pub(super) async fn create_of_rollout(
        &self,
        place: &DeploymentPlace,
        rollout: &str,
        description: &str,
    ) -> Result<u64, ForgeError> {
        let receipt = receipt(rollout);
        self.client
            .deployments()?
            .create_deployment(&self.head, &place.environment, description, &receipt)
            .await
    }

    /// The one before it is not applied any more, if it is still queued and no rollout carries its commit.
    async fn retire_earlier(
        &self,
        place: &DeploymentPlace,
        rollout: &str,
        carried: &BTreeSet<CommitId>,
    ) -> Result<(), ForgeError> {
        let receipt = receipt(rollout);
        let is_earlier = |made: &Deployment| made.payload == receipt && made.sha != self.head.as_str();
        let forge = self.client.deployments()?;
        let all = forge.list_deployments(&place.environment, None).await?;
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

    /// The stacks of rollouts that this run did not apply: those that wait have a queued deployment, and what became of the
    /// others is told.
    pub(super) async fn end_waiting(
        &self,
        report: &ApplyReport,
        carried: Option<&BTreeSet<CommitId>>,
        made: &mut DeploymentIds,
    ) {
        let mut places: BTreeMap<DeploymentPlace, Vec<&StackOutcome>> = BTreeMap::new();
        for stack in &report.stacks {
            let place = self.place(&stack.id);
            if place.rollout.is_some() && !made.ids.contains_key(&place) {
                places.entry(place).or_default().push(stack);
            }
        }
        for (number, (place, stacks)) in (made.ids.len() + 1..).zip(places) {
            if made.refused {
                return;
            }
            if number > MOST {
                made.left_out.insert(place.environment);
                continue;
            }
            if let Err(error) = self.end_place(&place, &stacks, carried).await {
                made.refused = true;
                let forge = self.client.kind();
                self.run
                    .warn(&format!("{forge} has no deployment of what waits"), error);
            }
        }
    }

    async fn end_place(
        &self,
        place: &DeploymentPlace,
        stacks: &[&StackOutcome],
        carried: Option<&BTreeSet<CommitId>>,
    ) -> Result<(), ForgeError> {
        let Some(rollout) = &place.rollout else {
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
        match (self.find(place, rollout).await?, state) {
            (None, DeploymentState::Queued) => {
                let id = self.create_of_rollout(place, rollout, &description).await?;
                self.set_state(id, state, &description).await?;
                match carried {
                    Some(carried) => self.retire_earlier(place, rollout, carried).await,
                    None => Ok(()),
                }
            }
            (None, _) => Ok(()),
            (Some(id), wanted) => {
                let now = self.client.deployments()?.deployment_state(id).await?;
                let is_told = now == Some(wanted)
                    || (now, wanted) == (Some(DeploymentState::InProgress), DeploymentState::Queued);
                if is_told {
                    Ok(())
                } else {
                    self.set_state(id, wanted, &description).await
                }
            }
        }
    }
}
