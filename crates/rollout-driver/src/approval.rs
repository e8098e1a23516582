//! The approval of the next wave of a rollout, bound to the present plans of its stacks. A job plans the stacks of its
//! own environment; the rollout record has the plans of other jobs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{carried_commit::CarriedCommit, job::RolloutJob, reviews::GateDigest};
use konverge_base::{
    error::UserError,
    model::{
        Digest, StackId,
        rollout::{ClockReading, RolloutRecord},
    },
};
use konverge_config::GateApproval;
use konverge_rollout::{GateReading, NextPlans};
use konverge_run::{PlanStart, Planner, StackSecrets, Target, apply, environments::EnvironmentScope};
use konverge_secrets::{Secrets, redact};

/// The plans of the next wave that this run made at a gate. Each is made once per run; the apply plans again.
pub(super) struct OwnPlans {
    wave: usize,
    since: ClockReading,
    pub digests: BTreeMap<StackId, Digest>,
    /// The error if a plan could not be made.
    failure: Option<String>,
}

impl OwnPlans {
    /// Plans those stacks of the next wave that this job applies.
    pub(super) async fn make(
        carried: CarriedCommit<'_>,
        scope: &EnvironmentScope<'_>,
        record: &RolloutRecord,
    ) -> Self {
        let mut own = Self {
            wave: record.wave,
            since: record.since,
            digests: BTreeMap::new(),
            failure: None,
        };
        for (id, stack) in record.waves.get(record.wave + 1).into_iter().flatten() {
            let target = carried.target(id, &stack.folder);
            if !scope.covers(&target) {
                continue;
            }
            match plan_digest(carried.planning, &target).await {
                Ok(digest) => {
                    own.digests.insert(id.clone(), digest);
                }
                Err(failure) => {
                    own.failure = Some(format!("{id}: {}", masked(&failure, carried.planning.secrets())));
                }
            }
        }
        own
    }

    /// Returns true if the plans were made at the gate of this record.
    pub(super) fn belongs_to(&self, record: &RolloutRecord) -> bool {
        (self.wave, self.since) == (record.wave, record.since)
    }
}

/// A gate that needs an approval.
pub(super) struct ApprovalGate<'a> {
    pub job: &'a RolloutJob<'a>,
    pub carried: CarriedCommit<'a>,
    pub record: &'a RolloutRecord,
    pub name: &'a str,
    pub approval: &'a GateApproval,
    /// The plans that this run made for the next wave.
    pub own: &'a OwnPlans,
}

impl ApprovalGate<'_> {
    /// Returns the reading of the gate, and the digest that was given for it.
    pub(super) async fn reading(&self) -> (GateReading, Option<Digest>) {
        match self.decide().await {
            Ok(reading) => reading,
            Err(failure) => {
                let why = masked(&failure, self.carried.planning.secrets());
                (GateReading::Unapproved(why), None)
            }
        }
    }

    async fn decide(&self) -> Result<(GateReading, Option<Digest>), UserError> {
        if let Some(failure) = &self.own.failure {
            return Ok((GateReading::Unapproved(failure.clone()), None));
        }
        // The digest is known only when every stack of the wave has a plan, from this job or from others.
        let plans = NextPlans::new(self.record, Some(&self.own.digests));
        let Some(digest) = plans.approval(self.record, self.name) else {
            return Ok((GateReading::Unclear(self.not_planned(&plans.missing)), None));
        };
        let by = self.approval.by.join(", ");
        if !self.job.given.contains(&digest) {
            let what = format!("{by} must approve: start the workflow with `approve: {digest}`");
            return Ok((GateReading::Unapproved(what), None));
        }
        // The digest was given. It counts if the gate names a person who gave it, and this person did not contribute to
        // the change.
        let wave: Vec<_> = self.targets().collect();
        let reviews = self.carried.reviews;
        let judged = reviews.judge_gate_digest(self.carried.planning, self.approval, &wave);
        let reading = match judged.await? {
            GateDigest::Counts => GateReading::Approved(digest),
            GateDigest::ByNobody {
                unreadable: Some((team, why)),
            } => GateReading::Unapproved(format!("the members of {team} cannot be read: {why}")),
            GateDigest::ByNobody { unreadable: None } => GateReading::Unapproved(format!(
                "the digest was approved by nobody of {by} who is not an author of the change"
            )),
        };
        Ok((reading, Some(digest)))
    }

    /// Returns the stacks of the next wave.
    fn targets(&self) -> impl Iterator<Item = Target> {
        let next = self.record.waves.get(self.record.wave + 1).into_iter().flatten();
        next.map(|(id, stack)| self.carried.target(id, &stack.folder))
    }

    /// Names the jobs that must plan their stacks before the wave can be approved.
    fn not_planned(&self, missing: &BTreeSet<StackId>) -> String {
        let mut stacks: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
        for target in self.targets().filter(|target| missing.contains(&target.id)) {
            let of_environment = stacks.entry(self.job.scope.environment(&target)).or_default();
            of_environment.push(target.id.to_string());
        }
        let jobs = stacks.into_iter().map(|(environment, stacks)| {
            let stacks = stacks.join(", ");
            match environment {
                Some(name) => format!(
                    "the job of the environment {} must plan {stacks}",
                    name.escape_debug()
                ),
                None => format!("a job without `for-environment` must plan {stacks}"),
            }
        });
        let jobs = jobs.collect::<Vec<_>>().join(", and ");
        format!("{jobs} before wave {} can be approved", self.record.wave + 2)
    }
}

/// Returns the message of an error with masked secrets, because the record stores it where everybody can read it.
fn masked(failure: &UserError, secrets: &Secrets) -> String {
    redact::failure(failure, secrets).message
}

/// Returns the digest of the plan of a stack, as an apply would compute it. The plan has the values of secrets, because
/// the plan of the apply has them, too: otherwise the digests would differ. A plan that an apply would refuse is an
/// error, so that nobody can approve it.
async fn plan_digest(planning: &Planner, target: &Target) -> Result<Digest, UserError> {
    let prior = planning.stored(&target.id).await?;
    let serial = prior.as_ref().map_or(0, |prior| prior.serial);
    let state = prior.map(|prior| prior.state);
    let state = state.unwrap_or_else(|| target.empty_state());
    let wanted = planning.spec(target).await?;
    let secrets = StackSecrets::new(Arc::clone(&planning.references), target);
    let secrets = secrets.with_values(&wanted).await?;
    let start = PlanStart {
        state: &state,
        serial: Some(serial),
        secrets: Some(&secrets),
    };
    let plan = apply::plan_live(planning, target, wanted, start).await?;
    Ok(plan.public.digest)
}

#[cfg(test)]
mod tests {
    use konverge_base::error::ErrorKind;
    use konverge_secrets::HashKey;

    use super::*;

    #[test]
    fn what_the_record_says_of_a_plan_has_no_secret() {
        let secrets = Secrets::new(HashKey::random());
        secrets.learn("correct-horse-battery");
        let failure = UserError::new(ErrorKind::Kubernetes, "refused: correct-horse-battery");
        let said = masked(&failure, &secrets);
        assert!(said.starts_with("refused: ") && !said.contains("horse"), "{said}");
    }
}
