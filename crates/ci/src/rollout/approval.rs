//! The approval of the next wave: it is bound to the plans of its stacks as they are now.

use std::collections::{BTreeMap, BTreeSet};

use super::lane::HeadLane;
use crate::{
    apply_lane::ApplyTarget,
    job::Job,
    policy::policy_check::{Agreed, PolicyCheck},
    policy::pull_head::PullHead,
};
use konverge_base::{
    error::UserError,
    model::{CommitId, Digest, StackId, plan::StackPlan, rollout::RolloutRecord, state::StackState},
};
use konverge_config::GateApproval;
use konverge_policy::rollout::GateReading;
use konverge_run::{PlanStart, Planner, Target};

/// A gate that asks people.
pub(super) struct ApprovalGate<'a> {
    pub job: &'a Job,
    pub tip: &'a ApplyTarget<'a>,
    pub lane: HeadLane<'a>,
    pub record: &'a RolloutRecord,
    pub name: &'a str,
    pub approval: &'a GateApproval,
}

/// The plan of a stack of the next wave, and the commit that it has now.
struct NextPlan {
    plan: StackPlan,
    since: Option<CommitId>,
}

impl ApprovalGate<'_> {
    /// What the gate says, and the digest that was given for it.
    pub(super) async fn reading(&self) -> (GateReading, Option<Digest>) {
        match self.decide().await {
            Ok(reading) => reading,
            Err(failure) => (GateReading::Unapproved(failure.message), None),
        }
    }

    async fn decide(&self) -> Result<(GateReading, Option<Digest>), UserError> {
        let plans = self.plans().await?;
        let digests: BTreeMap<StackId, Digest> = plans
            .iter()
            .map(|next| (next.plan.id.clone(), next.plan.digest))
            .collect();
        let digest = wave_digest(self.record, self.name, &digests);
        let by = self.approval.by.join(", ");
        if !self.tip.approved.digests.contains(&digest) {
            let what = format!("{by} must agree; start the workflow with `approve: {digest}`");
            return Ok((GateReading::Unapproved(what), None));
        }
        let check = self.lane.policy_check(self.job, self.tip)?;
        let mut people: BTreeSet<String> = self.givers(&check, &plans).await?;
        let teams = self.approval.by.iter().map(|name| name.trim_start_matches('@'));
        let teams = teams.filter(|name| name.contains('/'));
        let teams = check.people.teams(teams, &people).await;
        let named = |login: &String| {
            self.approval
                .by
                .iter()
                .any(|name| teams.includes(name.trim_start_matches('@'), login))
        };
        people.retain(named);
        let reading = match (people.is_empty(), teams.unreadable.first_key_value()) {
            (false, _) => GateReading::Approved(digests),
            (true, Some((team, why))) => {
                GateReading::Unapproved(format!("the members of {team} cannot be read: {why}"))
            }
            (true, None) => GateReading::Unapproved(format!(
                "the digest was given by nobody of {by}, or by somebody who took part in the change"
            )),
        };
        Ok((reading, Some(digest)))
    }

    /// Who gave the digest, without those who took part in the change.
    async fn givers(&self, check: &PolicyCheck, plans: &[NextPlan]) -> Result<BTreeSet<String>, UserError> {
        let records = self.lane.reviews.records.iter();
        let records = records.filter(|record| {
            let shows = |next: &NextPlan| record.stacks.iter().any(|stack| stack.id == next.plan.id);
            plans.iter().any(shows)
        });
        let pulls: BTreeSet<_> = records.map(PullHead::of_record).collect();
        let pulls: Vec<_> = pulls.into_iter().collect();
        let mut people: BTreeSet<String> = check.digest_givers(&pulls, true).await.into_iter().collect();
        for next in plans {
            let covered = Agreed {
                since: next.since.as_ref(),
                until: None,
            };
            people = check
                .without_contributors(people, &next.plan, &pulls, covered)
                .await?;
        }
        Ok(people)
    }

    /// The plans of the next wave, as an apply would make them.
    async fn plans(&self) -> Result<Vec<NextPlan>, UserError> {
        let next = self.record.waves.get(self.record.wave + 1);
        let mut plans = Vec::new();
        for (id, stack) in next.into_iter().flatten() {
            let target = self.lane.target(id, &stack.folder);
            plans.push(plan(self.lane.planning, &target).await?);
        }
        Ok(plans)
    }
}

async fn plan(planning: &Planner, target: &Target) -> Result<NextPlan, UserError> {
    let prior = match &planning.backend {
        Some(backend) => backend.states.load(&target.id).await?,
        None => None,
    };
    let serial = prior.as_ref().map_or(0, |prior| prior.serial);
    let state = prior.map(|prior| prior.state);
    let state = state.unwrap_or_else(|| StackState::empty(target.id.clone(), target.folder.clone()));
    let wanted = planning.spec(target).await?;
    let start = PlanStart {
        state: &state,
        serial: Some(serial),
        secrets: None,
    };
    let plan = planning.plan_from(target, wanted, start).await?;
    Ok(NextPlan {
        plan: plan.public().clone(),
        since: state.commit,
    })
}

/// What somebody approves: this gate, this commit, these plans.
fn wave_digest(record: &RolloutRecord, gate: &str, plans: &BTreeMap<StackId, Digest>) -> Digest {
    Digest::of_json(&serde_json::json!({
        "rollout": record.rollout, "commit": record.commit, "wave": record.wave, "gate": gate,
        "began": record.since, "plans": plans,
    }))
}
