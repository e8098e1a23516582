//! GitHub deployments of an apply: one per environment, which starts before its first stack is changed and ends with
//! the run. After an error of GitHub, which is reported once, no further request is sent. The deployments of stacks
//! that wait for their rollout are in `queued_deployments.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{job::Job, policy::review_gate::ReviewGate, trust::authority::ApplyTarget};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, StackId,
        apply_result::{ApplyReport, StackOutcome, StackResult},
        plan::StackPlan,
    },
};
use konverge_config::Config;
use konverge_forge::{Deployment, DeploymentState, Forge, ForgeError};
use konverge_run::{
    RunContext, Target,
    apply::{ApprovedPlan, Approver, PriorState, ProposedPlan, Refusal},
};

/// The maximum number of environments with a deployment in a run, because each needs three writes and GitHub allows 80
/// per minute.
pub(super) const MOST: usize = 20;
/// The number of recent deployments in which the last successful one is searched.
const LOOKED_AT: usize = 5;

/// The deployments of one run.
pub(super) struct Deployments {
    pub(super) client: Arc<dyn Forge>,
    pub(super) run: RunContext,
    attempt: u32,
    pub(super) head: CommitId,
    keys: BTreeMap<StackId, DeploymentKey>,
    made: Mutex<DeploymentIds>,
}

/// The key of a deployment of a commit. The deployment of a rollout lasts over all runs that carry the commit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeploymentKey {
    /// The environment that a rule names, or else the identity of the stack.
    pub environment: String,
    /// The rollout of the stacks, if they are in one.
    pub rollout: Option<String>,
}

#[derive(Default)]
pub(super) struct DeploymentIds {
    pub ids: BTreeMap<DeploymentKey, u64>,
    pub left_out: BTreeSet<String>,
    pub refused: bool,
}

impl Deployments {
    /// Creates the deployments of a run; `None` if they are not configured.
    ///
    /// # Errors
    /// Deployments are configured but the forge has none, so a store that was restored from a backup would not be
    /// noticed.
    pub(crate) fn new(
        job: &Job,
        ApplyTarget { head, upstream, .. }: &ApplyTarget,
        config: &Config,
        targets: &[Target],
    ) -> Result<Option<Arc<Self>>, UserError> {
        if !config.apply.deployments {
            return Ok(None);
        }
        let client = Arc::clone(&upstream.client);
        if let Err(unsupported) = client.deployments() {
            let failure = UserError::from(unsupported);
            return Err(
                failure.hint("set `apply.deployments: false` in konverge.yaml to apply without deployments")
            );
        }
        let matcher = config.rollout_matcher();
        let keys = targets.iter().map(|target| {
            let rules = config.for_place(&target.id, target.folder());
            let rollout = matcher.wave_of(target.folder()).ok().flatten();
            let key = DeploymentKey {
                environment: rules.environment.unwrap_or_else(|| target.id.to_string()),
                rollout: rollout.map(|(name, _)| name.to_owned()),
            };
            (target.id.clone(), key)
        });
        Ok(Some(Arc::new(Self {
            client,
            run: job.run.clone(),
            attempt: job.runner.info().run_attempt,
            head: head.clone(),
            keys: keys.collect(),
            made: Mutex::default(),
        })))
    }

    /// Creates the deployment of a stack, if it has none yet. Called before the stack is changed.
    async fn begin(&self, plan: &StackPlan) {
        let key = self.key_of(&plan.id);
        // The lock is held during the request, because two stacks may share the deployment of their environment.
        let mut made = self.made.lock().await;
        if made.refused || made.ids.contains_key(&key) {
            return;
        }
        if made.ids.len() >= MOST {
            made.left_out.insert(key.environment);
            return;
        }
        match self.create(&key, plan).await {
            Ok(id) => {
                made.ids.insert(key, id);
            }
            Err(error) => {
                made.refused = true;
                self.warn_without(error);
            }
        }
    }

    fn warn_without(&self, error: ForgeError) {
        let forge = self.client.kind();
        self.run
            .warn(&format!("{forge} has no deployment of this apply"), error);
    }

    /// Returns an error if the last successful deployment of a stack is newer than its state and has a commit that the
    /// state does not contain. Then the store was restored from a backup, and the apply would create existing objects
    /// again. Only the forge can show this, because the restored store lost its own record.
    async fn check_last(&self, plan: &StackPlan, past: &PriorState) -> Result<(), UserError> {
        let key = self.key_of(&plan.id);
        let mut made = self.made.lock().await;
        // If the forge refuses requests, this additional check is skipped with one warning, and the apply goes on.
        if made.refused {
            return Ok(());
        }
        let last = match self.last_success(&key, &plan.id).await {
            Ok(last) => last,
            Err(error) => {
                made.refused = true;
                self.warn_without(error);
                return Ok(());
            }
        };
        let Some((sha, created)) = last.and_then(|last| Some((last.sha, last.created_at?))) else {
            return Ok(());
        };
        // A state that has the deployed commit, or was written later, is not an older one from a backup.
        let is_known = past.commits.iter().any(|commit| commit.as_str() == sha);
        if is_known || past.written.is_some_and(|written| written >= created) {
            return Ok(());
        }
        let what = format!(
            "{} was deployed from {} after its state was written: the store may have been restored from a backup",
            plan.id,
            sha.get(..7).unwrap_or(&sha).escape_debug()
        );
        Err(UserError::new(ErrorKind::Policy, what)
            .hint("restore the newest documents below `stacks/` from the bucket's versions")
            .hint(format!(
                "if the state is right, start the workflow manually with `approve: {}`",
                plan.digest
            )))
    }

    /// Returns the newest successful deployment of a stack, among the last [`LOOKED_AT`].
    async fn last_success(
        &self,
        key: &DeploymentKey,
        stack: &StackId,
    ) -> Result<Option<Deployment>, ForgeError> {
        let forge = self.client.deployments()?;
        let all = forge.list_deployments(&key.environment, None).await?;
        // The deployment of a rollout names no stack. But in an environment with the name of this stack, it can only
        // belong to this stack.
        let is_alone = key.environment == stack.as_str();
        let own = all
            .into_iter()
            .filter(|made| match made.payload["stack"].as_str() {
                Some(named) => named == stack.as_str(),
                None => is_alone && made.payload["rollout"].is_string(),
            });
        for deployment in own.take(LOOKED_AT) {
            if forge.deployment_state(deployment.id).await? == Some(DeploymentState::Success) {
                return Ok(Some(deployment));
            }
        }
        Ok(None)
    }

    async fn create(&self, key: &DeploymentKey, plan: &StackPlan) -> Result<u64, ForgeError> {
        let description = format!("{}: plan {}", plan.id, plan.digest.short());
        let (known, receipt) = match &key.rollout {
            Some(rollout) => (self.find(key, rollout).await?, receipt(rollout)),
            None => {
                let receipt = json!({
                    "version": 1, "run": self.run.url(), "attempt": self.attempt, "stack": plan.id, "digest": plan.digest,
                });
                (None, receipt)
            }
        };
        let id = match known {
            Some(id) => id,
            None => self.create_deployment(key, &description, &receipt).await?,
        };
        self.set_state(id, DeploymentState::InProgress, &description)
            .await?;
        Ok(id)
    }

    /// Creates a deployment of this commit for an environment.
    pub(super) async fn create_deployment(
        &self,
        key: &DeploymentKey,
        description: &str,
        receipt: &Value,
    ) -> Result<u64, ForgeError> {
        let forge = self.client.deployments()?;
        forge
            .create_deployment(&self.head, &key.environment, description, receipt)
            .await
    }

    /// Sets the final state of each deployment, at the end of the run. `carried` has the commits that rollouts carry,
    /// if this is the newest commit.
    pub(crate) async fn end(&self, report: &ApplyReport, carried: Option<&BTreeSet<CommitId>>) {
        let mut made = self.made.lock().await;
        self.end_waiting(report, carried, &mut made).await;
        if !made.left_out.is_empty() {
            self.run.notes.note(&format!(
                "{} environments have no deployment, because one run creates at most {MOST}: {}\n  hint: let stacks share one by `stacks[].environment`",
                made.left_out.len(),
                made.left_out.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
            ));
        }
        for (key, id) in &made.ids {
            let stacks = report.stacks.iter();
            let stacks: Vec<_> = stacks.filter(|stack| self.key_of(&stack.id) == *key).collect();
            let (state, description) = final_state(&stacks, self.run.cancel.is_cancelled());
            if let Err(error) = self.set_state(*id, state, &description).await {
                return self
                    .run
                    .warn("failed to set the final state of a deployment", error);
            }
        }
    }

    pub(super) async fn set_state(
        &self,
        id: u64,
        state: DeploymentState,
        description: &str,
    ) -> Result<(), ForgeError> {
        let description = self.run.secrets.mask_finished(description);
        let url = self.run.url();
        self.client
            .deployments()?
            .set_deployment_status(id, state, &description, Some(&url))
            .await
    }

    pub(super) fn key_of(&self, stack: &StackId) -> DeploymentKey {
        let key = self.keys.get(stack).cloned();
        key.unwrap_or_else(|| DeploymentKey {
            environment: stack.to_string(),
            rollout: None,
        })
    }
}

/// Returns the payload of the deployment of a rollout. It is the same in each run, so that a later run finds the
/// deployment.
pub(super) fn receipt(rollout: &str) -> Value {
    json!({"version": 1, "rollout": rollout})
}

/// Returns the final state for the stacks of an environment, with a description.
pub(super) fn final_state(stacks: &[&StackOutcome], interrupted: bool) -> (DeploymentState, String) {
    let count = |wanted: &[StackResult]| stacks.iter().filter(|s| wanted.contains(&s.result)).count();
    let bad = count(&[StackResult::Failed, StackResult::Stopped, StackResult::HeldBack]);
    let done = count(&[StackResult::Applied]);
    let failed = count(&[StackResult::Failed, StackResult::Stopped]);
    let waiting = count(&[StackResult::Waiting]);
    match (bad, interrupted) {
        _ if failed == 0 && waiting > 0 => (
            DeploymentState::InProgress,
            format!("{done} applied, {waiting} waiting"),
        ),
        (0, _) => (DeploymentState::Success, format!("{done} applied")),
        (_, true) => (DeploymentState::Error, "the run was interrupted".to_owned()),
        (_, false) => (DeploymentState::Failure, format!("{done} applied, {bad} failed")),
    }
}

/// Approves a plan by the review gate, and creates the deployment of an approved stack before it is changed.
pub(super) struct DeploymentApprover {
    pub gate: ReviewGate,
    pub deployments: Arc<Deployments>,
}

#[async_trait]
impl Approver for DeploymentApprover {
    async fn stack(&self, proposed: &ProposedPlan<'_>, past: &PriorState) -> Result<ApprovedPlan, Refusal> {
        // The store is checked before the plan. A given digest skips the check: whoever approves it confirms that the
        // state is right.
        let changes = proposed.plan.summary.changed() > 0;
        if changes && !self.gate.is_given(&proposed.plan.digest) {
            self.deployments.check_last(proposed.plan, past).await?;
        }
        let approval = self.gate.stack(proposed, past).await?;
        if changes {
            self.deployments.begin(proposed.plan).await;
        }
        Ok(approval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{Digest, RepoPath, authorization::Authorization};

    #[test]
    fn one_bad_stack_makes_the_environment_s_deployment_fail() {
        let stack = |result| StackOutcome {
            stack: RepoPath::root(),
            id: "shop/prod".parse().unwrap(),
            result,
            digest: Digest::of_bytes(b""),
            serial: None,
            grounds: Authorization::default(),
            waiting: None,
            resources: Vec::new(),
            error: None,
        };
        let (good, bad) = (stack(StackResult::Applied), stack(StackResult::Failed));
        let all_well = (DeploymentState::Success, "2 applied".to_owned());
        assert_eq!(final_state(&[&good, &good], true), all_well);
        let (state, said) = final_state(&[&good, &bad], false);
        assert_eq!(state, DeploymentState::Failure);
        assert_eq!(said, "1 applied, 1 failed");
        assert_eq!(final_state(&[&bad], true).0, DeploymentState::Error);
    }
}
