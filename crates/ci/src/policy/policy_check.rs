//! Evaluates the policies in `konverge.yaml` of the default branch, and reads exactly the facts from the forge that the
//! rules need.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use crate::{
    job::Job,
    policy::{
        active_policies::{Archive, CommitPolicy, ReviewedPolicies},
        overrides,
        plan_approvals::PlanApprovals,
        policy_refusal,
        pull_head::PullHead,
    },
    trust::{
        authority::{ApplyTarget, DispatchApprovers, Task},
        reviewers::Reviewers,
    },
};
use konverge_base::{
    error::UserError,
    model::{
        CommitId,
        authorization::{Authorization, ReviewedPull},
        plan::StackPlan,
        plan_document::StackDocument,
        policy_finding::{Enforcement, PolicyFinding},
    },
};
use konverge_config::{DriftPolicy, Rotation};
use konverge_policy::{self as policy, CodeOwners, EffectivePolicy, PolicyFacts, Role, Stage};
use konverge_policy_sets::PolicySets;
use konverge_run::{
    RunContext,
    apply::{ApprovedPlan, Decisions, LateApprover, PriorState, ProposedPlan, Refusal},
    rule_evaluator::RuleEvaluator,
    stack_policy_sets::ActiveSets,
};
use konverge_secrets::Secrets;

/// The policies of a run, with the source of facts about people.
pub(crate) struct PolicyCheck {
    pub(crate) stage: Stage,
    pub(crate) actor: String,
    /// True if the actor pushed the applied commit in this attempt, so that GitHub has checked the permission.
    pub(crate) pushed: bool,
    pub(crate) run: RunContext,
    pub(crate) run_id: u64,
    pub(crate) environment: Option<String>,
    /// True if the default branch is protected at the forge.
    pub(crate) protected: bool,
    /// The default branch and the applied commit, if there is one.
    pub(crate) applied: Option<(String, CommitId)>,
    pub(crate) people: Reviewers,
    /// The authors of pull requests. The approval of a pull request by its author does not count.
    pub(crate) authors: BTreeMap<u64, String>,
    /// The policy of the default branch.
    pub(crate) own: Arc<CommitPolicy>,
    /// The policies under which pull requests were reviewed, which must be satisfied too.
    pub(crate) reviewed: ReviewedPolicies,
    pub(crate) archive: Archive,
    /// Limits the check to freezes and the size of the plan: an earlier apply is restored, whose pull request was
    /// approved at that time.
    pub(crate) restoring: bool,
    /// The people whose approvals of digests count.
    pub(crate) agreeing: DispatchApprovers,
    pub(crate) evaluator: RuleEvaluator,
}

impl PolicyCheck {
    /// Creates the check with the policy of the default branch. The findings are masked with `secrets`.
    pub(crate) fn new(job: &Job, own: CommitPolicy, stage: Stage, secrets: &Secrets) -> Self {
        let authority = &job.authority;
        Self {
            stage,
            actor: authority.actor.clone(),
            pushed: authority.pushed,
            run: job.run.clone(),
            run_id: job.runner.info().run_id,
            environment: job.options.environment.clone(),
            protected: authority.branch().is_some_and(|branch| branch.protected),
            applied: match &authority.task {
                Task::Apply(ApplyTarget { head, upstream, .. }) => {
                    Some((upstream.branch.name.clone(), head.clone()))
                }
                Task::Restore { upstream, .. } => {
                    Some((upstream.branch.name.clone(), upstream.branch.tip.clone()))
                }
                _ => None,
            },
            people: Reviewers::new(job.client.clone()),
            authors: BTreeMap::new(),
            own: Arc::new(own),
            reviewed: ReviewedPolicies::default(),
            archive: Archive::new(job),
            restoring: false,
            agreeing: DispatchApprovers::Environment,
            evaluator: RuleEvaluator::new(secrets),
        }
    }

    /// Returns true if an apply also writes a version of a secret that is newer than the reviewed one.
    pub(crate) fn follows_rotation(&self) -> bool {
        self.own.config.secrets.rotation != Rotation::Stop
    }

    /// Returns the different policies for a plan: that of the default branch, those under which its pull requests were
    /// reviewed, and, for an approved digest of a plan of the head, the policy before the commits that the digest
    /// covers. Restored drift needs no such policy, because it was applied under that policy already.
    async fn policies(
        &self,
        plan: &StackPlan,
        approvals: &PlanApprovals<'_>,
    ) -> Result<Vec<Arc<CommitPolicy>>, UserError> {
        let mut policies = vec![Arc::clone(&self.own)];
        policies.extend(
            approvals
                .pulls
                .iter()
                .flat_map(|pull| self.reviewed.reviewed_for(pull.number, &plan.id)),
        );
        let of_head = approvals.agreed(plan).filter(|agreed| agreed.until.is_none());
        if let (Some(agreed), Some((_, head))) = (of_head, &self.applied) {
            let before = self
                .people
                .before(agreed.since, head, plan.stack.as_str())
                .await?;
            if let Some(before) = before.commit {
                policies.push(self.archive.policy_at(&before).await?);
            }
        }
        // The policies are mostly equal. Each different one is evaluated once, so that no finding is repeated.
        let mut different: Vec<Arc<CommitPolicy>> = Vec::new();
        for policy in policies {
            if !different.contains(&policy) {
                different.push(policy);
            }
        }
        Ok(different)
    }

    /// Returns the findings of the policy sets for a preview: of the default branch's sets, and of the sets after the
    /// merge. A stack without changes has none.
    pub(crate) async fn preview_sets(
        &self,
        document: &Arc<StackDocument>,
        pulls: &[PullHead],
    ) -> Vec<PolicyFinding> {
        let pulls = pulls.iter();
        let proposed = pulls.flat_map(|pull| self.reviewed.reviewed_for(pull.number, &document.stack.id));
        let versions = std::iter::once(Arc::clone(&self.own)).chain(proposed);
        let versions: Vec<_> = versions.map(|policy| policy.sets.clone()).collect();
        self.evaluator.findings(&versions, document).await
    }

    /// Returns the rule for drift in an apply: `stop` if one of the policies has it.
    ///
    /// # Errors
    /// GitHub does not return a needed fact, or an earlier policy cannot be read.
    pub(crate) async fn drift(
        &self,
        plan: &StackPlan,
        approvals: &PlanApprovals<'_>,
    ) -> Result<DriftPolicy, UserError> {
        let policies = self.policies(plan, approvals).await?;
        Ok(if policies.iter().any(|policy| policy.stops_at_drift()) {
            DriftPolicy::Stop
        } else {
            DriftPolicy::Restore
        })
    }

    /// Returns the rules that a plan must satisfy. There is at least one.
    fn rules(&self, policy: &CommitPolicy, plan: &StackPlan) -> Result<Vec<EffectivePolicy>, UserError> {
        let mut rules = policy.rules(plan)?;
        // Only the first policy has freezes and limits, the strictest ones of all names of the stack. The others only
        // require people, whose approvals a restored apply already has.
        if self.restoring {
            rules.truncate(1);
            for rules in &mut rules {
                *rules = EffectivePolicy {
                    freeze: std::mem::take(&mut rules.freeze),
                    max_destructive: rules.max_destructive,
                    ..EffectivePolicy::default()
                };
            }
        }
        Ok(rules)
    }

    /// Returns the findings of the rules for a stack's plan.
    ///
    /// # Errors
    /// A time in `policy.freeze` is invalid; GitHub does not return a needed fact.
    pub(crate) async fn findings(
        &self,
        plan: &StackPlan,
        approvals: &PlanApprovals<'_>,
    ) -> Result<Vec<PolicyFinding>, UserError> {
        if plan.summary.changed() == 0 {
            return Ok(Vec::new());
        }
        let mut findings = BTreeSet::new();
        for policy in self.policies(plan, approvals).await? {
            for rules in self.rules(&policy, plan)? {
                findings.extend(self.judge(&policy, &rules, plan, approvals).await?);
            }
        }
        Ok(findings.into_iter().collect())
    }

    /// Returns the findings of the rules and of the policy sets. Also returns the policy sets, which check values that
    /// become known during the apply.
    ///
    /// # Errors
    /// See [`PolicyCheck::findings`]; also if GitHub does not return who gave an override.
    pub(crate) async fn findings_with_sets(
        &self,
        proposed: &ProposedPlan<'_>,
        approvals: &PlanApprovals<'_>,
    ) -> Result<(Vec<PolicyFinding>, ActiveSets), UserError> {
        let plan = proposed.plan;
        let mut findings = self.findings(plan, approvals).await?;
        let policies = self.policies(plan, approvals).await?;
        let overrides = self.overrides(plan, &policies, approvals).await?;
        let versions = policies.iter().map(|policy| policy.sets.clone()).collect();
        let excuse = |sets: &PolicySets, findings: &mut [PolicyFinding]| {
            let mut excused = overrides.apply_overrides(sets, findings);
            excused.extend(overrides::reapply(approvals.earlier, sets, findings));
            excused
        };
        let sets = ActiveSets::evaluate(&self.evaluator, versions, proposed.document, excuse).await;
        findings.extend(sets.findings().iter().cloned());
        findings.sort();
        findings.dedup();
        Ok((findings, sets))
    }

    /// Approves a plan that restores the last apply, by the policies and the policy sets of the default branch. A
    /// finding that was overridden at that time stays overridden, if its policy set still allows overrides. `late`
    /// makes the check of values that become known during the apply.
    ///
    /// # Errors
    /// A policy denies the plan, or a fact that the policy needs cannot be read.
    pub(crate) async fn approve_restoring<L: LateApprover + 'static>(
        &self,
        proposed: &ProposedPlan<'_>,
        past: &PriorState,
        late: impl FnOnce(ActiveSets) -> L,
    ) -> Result<ApprovedPlan, Refusal> {
        let findings = self.findings(proposed.plan, &PlanApprovals::default()).await?;
        let refusal = policy_refusal::refusal(proposed.plan, &findings);
        let mut decisions = Decisions::of_findings(findings);
        if let Some(refusal) = refusal {
            return Err(decisions.refuse(refusal));
        }
        let versions = vec![self.own.sets.clone()];
        let keep = |sets: &PolicySets, findings: &mut [PolicyFinding]| {
            overrides::reapply(&past.overridden, sets, findings)
        };
        let sets = ActiveSets::evaluate(&self.evaluator, versions, proposed.document, keep).await;
        decisions.extend(Decisions::of_findings(sets.findings().iter().cloned()));
        if let Some(refusal) = sets.plan_refusal() {
            return Err(decisions.refuse(refusal));
        }
        Ok(ApprovedPlan {
            authorization: Authorization {
                overrides: sets.overridden().to_vec(),
                findings: sets.recorded(),
                ..Authorization::default()
            },
            decisions,
            late: Box::new(late(sets)),
        })
    }

    /// Returns the findings of one set of rules of a policy.
    async fn judge(
        &self,
        policy: &CommitPolicy,
        rules: &EffectivePolicy,
        plan: &StackPlan,
        approvals: &PlanApprovals<'_>,
    ) -> Result<Vec<PolicyFinding>, UserError> {
        let (pulls, agreed) = (&approvals.pulls, approvals.agreed(plan));
        // First stop at rules for which the forge has no data: a missing fact must never decide a rule.
        if rules.reviewers.iter().any(|name| name == CodeOwners::NAME) {
            self.people.code_owners().map_err(|unsupported| {
                UserError::from(unsupported)
                    .hint("name people or teams in `policy.reviewers` of konverge.yaml instead of CODEOWNERS")
            })?;
        }
        let counts_approvals = self.stage == Stage::Apply && needs_approval(rules) && !pulls.is_empty();
        if counts_approvals && !self.own.config.policy.unknown_pushers {
            self.people.knows_pushers().map_err(|unsupported| {
                UserError::from(unsupported).hint(
                    "set `policy.unknown_pushers: true` in konverge.yaml of the default branch to let approvals count without it",
                )
            })?;
        }
        // Read only the facts that these rules need, because each costs a request to the forge.
        let codeowners = policy.codeowners.as_deref().map(CodeOwners::read);
        let codeowners = codeowners.as_ref();
        let given = match agreed {
            Some(agreed) => self.digest_approvals(rules, plan, pulls, agreed).await?,
            None => Vec::new(),
        };
        let teams = self.teams(rules, codeowners, plan, pulls, &given).await?;
        let needs_approval = needs_approval(rules);
        let mut facts = PolicyFacts {
            stage: self.stage,
            now: Timestamp::now(),
            actor: &self.actor,
            role: Role::Write,
            approvals: &given,
            teams: &teams,
            protected_branch: self.protected,
            codeowners,
            consented: false,
        };
        if self.stage == Stage::Apply && (needs_approval || !rules.actors.is_empty()) {
            // A push proves the permission. The role is not requested then, because an App may merge but has no role at
            // GitHub.
            if !self.pushed {
                facts.role = self.role(self.actor.as_str()).await?;
            }
        }
        // A digest approves the plan only if somebody gave it who is a reviewer in the rules, and not only
        // contributors.
        if agreed.is_some() {
            let may_approve = EffectivePolicy {
                reviewers: rules.reviewers.clone(),
                ..EffectivePolicy::default()
            };
            let answer = policy::evaluate(&may_approve, plan, &facts);
            let refused = |f: &PolicyFinding| f.verdict == Enforcement::Deny && f.rule == "policy.reviewers";
            let others = given.iter().any(|approval| !approval.own);
            facts.consented = (others || !needs_approval) && !answer.iter().any(refused);
        }
        if pulls.is_empty() || !needs_approval {
            return Ok(policy::evaluate(rules, plan, &facts));
        }
        // Each pull request needs approvals of its own: an approval of one pull request must not count for another.
        let mut findings = BTreeSet::new();
        for pull in pulls {
            let mut counted = self.approvals(pull).await?;
            counted.extend(given.iter().cloned());
            let facts = PolicyFacts {
                approvals: &counted,
                ..facts.clone()
            };
            findings.extend(policy::evaluate(rules, plan, &facts));
        }
        Ok(findings.into_iter().collect())
    }

    /// Returns who authorized a plan that may be applied, for the apply record. A fact that cannot be read is left out
    /// with a warning, because it must not stop an approved apply.
    pub(crate) async fn authorization(
        &self,
        plan: &StackPlan,
        approvals: &PlanApprovals<'_>,
    ) -> Authorization {
        if plan.summary.changed() == 0 {
            return Authorization::default();
        }
        // The same rules were read for the findings, so an error was already reported.
        let rules = self.rules(&self.own, plan).unwrap_or_default();
        let rules = rules.into_iter().find(needs_approval).unwrap_or_default();
        let mut reviewed = Vec::new();
        for PullHead { number, head } in &approvals.pulls {
            let reviewers = match self.people.approvals(*number).await {
                Ok(approvals) => {
                    let of_head = approvals.into_iter().filter(|approval| approval.commit == *head);
                    Some(of_head.map(|approval| approval.reviewer).collect())
                }
                Err(error) => {
                    self.run.warn(
                        &format!("the approvers of #{number} are missing in the apply record"),
                        error,
                    );
                    None
                }
            };
            reviewed.push(ReviewedPull {
                number: *number,
                head: head.clone(),
                reviewers,
            });
        }
        // The approvals are cached, so this sends no request.
        let agreed_by = match approvals.agreed(plan) {
            Some(agreed) => self
                .digest_approvals(&rules, plan, &[], agreed)
                .await
                .unwrap_or_default(),
            None => Vec::new(),
        };
        let others = agreed_by.into_iter().filter(|approval| !approval.own);
        let agreed_by: Vec<_> = others.map(|approval| approval.reviewer).collect();
        let why = match agreed_by.as_slice() {
            [] => None,
            people => overrides::reason(&self.digest_reasons().await, people),
        };
        Authorization {
            pull_requests: reviewed,
            agreed_by,
            why,
            ..Authorization::default()
        }
    }
}

/// Returns true if the rules require an approval.
pub(crate) fn needs_approval(rules: &EffectivePolicy) -> bool {
    rules.approvals > 0 || !rules.reviewers.is_empty()
}

#[cfg(test)]
#[path = "policy_check_tests.rs"]
mod tests;
