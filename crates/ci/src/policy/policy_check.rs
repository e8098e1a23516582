//! Evaluates the policies of `konverge.yaml` (the default branch's), and looks up exactly the facts that the
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
    },
    trust::{
        authority::{DispatchApprovers, Task},
        reviewers::Reviewers,
    },
};
use konverge_base::{
    error::UserError,
    model::{
        CommitId, Digest,
        authorization::{Authorization, PolicyOverride, ReviewedPull},
        plan::StackPlan,
        plan_document::StackDocument,
        policy_finding::{Enforcement, PolicyFinding},
        review::ReviewRecord,
    },
    secrets::Secrets,
};
use konverge_config::{DriftPolicy, Rotation};
use konverge_policy::{
    self as policy, CodeOwners, EffectivePolicy, PolicyFacts, Role, Stage, sets::PolicySets,
};
use konverge_run::{
    RunContext, apply::ProposedPlan, rule_evaluator::RuleEvaluator, stack_policy_sets::ActiveSets,
};

/// A plan whose digest was given to the run, by the commits that the digest covers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreed<'a> {
    /// The commit before them, if it is recorded: for a plan the last one that was applied to the stack.
    pub since: Option<&'a CommitId>,
    /// The last one of them: for a difference that is restored the applied commit, `None` for a plan of the head.
    pub until: Option<&'a CommitId>,
}

/// The digests that were given to a run, and what reviewers saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GivenDigests<'a> {
    pub digests: &'a BTreeSet<Digest>,
    /// What was shown to the reviewers of the pull requests.
    pub records: &'a [&'a ReviewRecord],
    /// The commits that a digest of the plan covers.
    pub covered: Agreed<'a>,
    /// What was overridden when the same was applied before.
    pub earlier: &'a [PolicyOverride],
}

/// The rules of a run, and the source of facts.
pub(crate) struct PolicyCheck {
    pub(super) stage: Stage,
    pub(crate) actor: String,
    /// True if the actor pushed what is applied, in this attempt: then GitHub allowed them.
    pub(super) pushed: bool,
    pub(crate) run: RunContext,
    pub(crate) run_id: u64,
    pub(crate) environment: Option<String>,
    /// True if GitHub protects the default branch.
    pub(super) protected: bool,
    /// The default branch and the applied commit, if there is one.
    pub(crate) applied: Option<(String, CommitId)>,
    pub(crate) people: Reviewers,
    pub(crate) authors: BTreeMap<u64, String>,
    /// The policy of the default branch.
    pub(super) own: Arc<CommitPolicy>,
    /// The policies under which pull requests were reviewed.
    pub(super) reviewed: ReviewedPolicies,
    pub(super) archive: Archive,
    pub(super) restoring: bool,
    pub(crate) agreeing: DispatchApprovers,
    pub(super) evaluator: RuleEvaluator,
}

impl PolicyCheck {
    /// The rules of the default branch. What they say is masked by `secrets`.
    pub(crate) fn new(job: &Job, own: CommitPolicy, stage: Stage, secrets: &Secrets) -> Self {
        let authority = &job.authority;
        Self {
            stage,
            actor: authority.actor.clone(),
            pushed: authority.pushed,
            run: job.run.clone(),
            run_id: job.runner.run_id,
            environment: job.options.environment.clone(),
            protected: authority.branch.as_ref().is_some_and(|branch| branch.protected),
            applied: match (&authority.task, &authority.branch) {
                (Task::Apply { head, .. }, Some(branch)) => Some((branch.name.clone(), head.clone())),
                (Task::Restore { .. }, Some(branch)) => Some((branch.name.clone(), branch.tip.clone())),
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

    /// Returns true if a version of a secret that moved since the review is written as well.
    pub(crate) fn follows_rotation(&self) -> bool {
        self.own.config.secrets.rotation != Rotation::Stop
    }

    /// Sets the authors of pull requests: their approval of their own does not count.
    #[must_use]
    pub(crate) fn with_authors(self, authors: BTreeMap<u64, String>) -> Self {
        Self { authors, ..self }
    }

    /// Sets the policies under which pull requests were reviewed: they must be satisfied too.
    #[must_use]
    pub(crate) fn with_reviewed(self, reviewed: ReviewedPolicies) -> Self {
        Self { reviewed, ..self }
    }

    /// Sets who approves the digests.
    #[must_use]
    pub(crate) fn with_digest_approvers(self, agreeing: DispatchApprovers) -> Self {
        Self { agreeing, ..self }
    }

    /// For restoring what was applied before: its pull request was approved then, so only freezes and the
    /// size are checked.
    #[must_use]
    pub(crate) fn for_restoring(self) -> Self {
        Self {
            restoring: true,
            ..self
        }
    }

    /// The policies for a plan: the default branch's, those under which its pull requests were reviewed, and
    /// for a digest the one before the commits that it covers. What is restored was applied under that one.
    async fn policies(
        &self,
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        agreed: Option<Agreed<'_>>,
    ) -> Result<Vec<Arc<CommitPolicy>>, UserError> {
        let mut policies = vec![Arc::clone(&self.own)];
        policies.extend(
            pulls
                .iter()
                .flat_map(|(pull, _)| self.reviewed.reviewed_for(*pull, &plan.id)),
        );
        let of_head = agreed.filter(|agreed| agreed.until.is_none());
        if let (Some(agreed), Some((_, head))) = (of_head, &self.applied) {
            let before = self
                .people
                .before(agreed.since, head, plan.stack.as_str())
                .await?;
            if let Some(before) = before.commit {
                policies.push(self.archive.at(&before).await?);
            }
        }
        let mut different: Vec<Arc<CommitPolicy>> = Vec::new();
        for policy in policies {
            if !different.contains(&policy) {
                different.push(policy);
            }
        }
        Ok(different)
    }

    /// The policy sets of the default branch.
    pub(crate) fn own_sets(&self) -> &PolicySets {
        &self.own.sets
    }

    /// The findings of the policy sets for a preview: of the default branch's sets, and of those that the merge
    /// creates. An unchanged stack has none.
    pub(crate) async fn preview_sets(
        &self,
        document: &Arc<StackDocument>,
        pulls: &[(u64, CommitId)],
    ) -> Vec<PolicyFinding> {
        let pulls = pulls.iter();
        let proposed = pulls.flat_map(|(pull, _)| self.reviewed.reviewed_for(*pull, &document.stack.id));
        let versions = std::iter::once(Arc::clone(&self.own)).chain(proposed);
        let versions: Vec<_> = versions.map(|policy| policy.sets.clone()).collect();
        self.evaluator.findings(&versions, document).await
    }

    /// What an apply does about drift: it stops the stack if one of the policies says so.
    ///
    /// # Errors
    /// As [`PolicyCheck::findings`].
    pub(crate) async fn drift(
        &self,
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        agreed: Option<Agreed<'_>>,
    ) -> Result<DriftPolicy, UserError> {
        let policies = self.policies(plan, pulls, agreed).await?;
        Ok(match policies.iter().any(|policy| policy.stops_at_drift()) {
            true => DriftPolicy::Stop,
            false => DriftPolicy::Restore,
        })
    }

    fn rules(&self, policy: &CommitPolicy, plan: &StackPlan) -> Result<EffectivePolicy, UserError> {
        let rules = policy.rules(&plan.id, &plan.stack)?;
        Ok(match self.restoring {
            true => EffectivePolicy {
                freeze: rules.freeze,
                max_destructive: rules.max_destructive,
                ..EffectivePolicy::default()
            },
            false => rules,
        })
    }

    /// The findings of the rules for a stack's plan. `pulls` are the pull requests with their last heads
    /// whose changes it contains; each must satisfy the rules.
    ///
    /// # Errors
    /// An invalid time in `policy.freeze`; GitHub cannot be asked for a needed fact.
    pub(crate) async fn findings(
        &self,
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        agreed: Option<Agreed<'_>>,
    ) -> Result<Vec<PolicyFinding>, UserError> {
        if plan.summary.changed() == 0 {
            return Ok(Vec::new());
        }
        let mut findings = BTreeSet::new();
        for policy in self.policies(plan, pulls, agreed).await? {
            findings.extend(self.judge(&policy, plan, pulls, agreed).await?);
        }
        Ok(findings.into_iter().collect())
    }

    /// As [`PolicyCheck::findings`], with those of the policy sets. What they read later comes back: the same
    /// sets evaluate values that become known during the apply.
    ///
    /// # Errors
    /// As [`PolicyCheck::findings`].
    pub(crate) async fn findings_with_sets(
        &self,
        proposed: &ProposedPlan<'_>,
        pulls: &[(u64, CommitId)],
        agreed: Option<Agreed<'_>>,
        given: GivenDigests<'_>,
    ) -> Result<(Vec<PolicyFinding>, ActiveSets), UserError> {
        let plan = proposed.plan;
        let mut findings = self.findings(plan, pulls, agreed).await?;
        let policies = self.policies(plan, pulls, agreed).await?;
        let overrides = self.overrides(plan, pulls, &policies, given).await?;
        let versions = policies.iter().map(|policy| policy.sets.clone()).collect();
        let excuse = |sets: &PolicySets, findings: &mut [PolicyFinding]| {
            let mut excused = overrides.apply_overrides(sets, findings);
            excused.extend(overrides::keep(given.earlier, sets, findings));
            excused
        };
        let sets = ActiveSets::evaluate(&self.evaluator, versions, proposed.document, excuse).await;
        findings.extend(sets.findings().iter().cloned());
        findings.sort();
        findings.dedup();
        Ok((findings, sets))
    }

    /// The policy sets of the default branch for restoring what was applied. What was overridden then stays so,
    /// if the set can still be overridden.
    pub(crate) async fn sets_for_restoring(
        &self,
        proposed: &ProposedPlan<'_>,
        earlier: &[PolicyOverride],
    ) -> ActiveSets {
        let versions = vec![self.own.sets.clone()];
        let keep =
            |sets: &PolicySets, findings: &mut [PolicyFinding]| overrides::keep(earlier, sets, findings);
        ActiveSets::evaluate(&self.evaluator, versions, proposed.document, keep).await
    }

    /// What evaluates the rules.
    pub(crate) fn evaluator(&self) -> &RuleEvaluator {
        &self.evaluator
    }

    /// The findings of one policy.
    async fn judge(
        &self,
        policy: &CommitPolicy,
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        agreed: Option<Agreed<'_>>,
    ) -> Result<Vec<PolicyFinding>, UserError> {
        let rules = &self.rules(policy, plan)?;
        let codeowners = policy.codeowners.as_deref().map(CodeOwners::read);
        let codeowners = codeowners.as_ref();
        let given = match agreed {
            Some(agreed) => self.digest_approvals(rules, plan, pulls, agreed).await?,
            None => Vec::new(),
        };
        let teams = self.teams((rules, codeowners), plan, pulls, &given).await?;
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
            // GitHub has no permission for an App: what it merges is applied nevertheless.
            if !self.pushed {
                facts.role = self.role(self.actor.as_str()).await?;
            }
        }
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
        let mut findings = BTreeSet::new();
        for (pull, head) in pulls {
            let mut approvals = self.approvals(*pull, head).await?;
            approvals.extend(given.iter().cloned());
            let facts = PolicyFacts {
                approvals: &approvals,
                ..facts.clone()
            };
            findings.extend(policy::evaluate(rules, plan, &facts));
        }
        Ok(findings.into_iter().collect())
    }

    /// Who authorized a plan that may be applied. What cannot be looked up is left out with a warning: the
    /// apply continues.
    pub(crate) async fn grounds(
        &self,
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        agreed: Option<Agreed<'_>>,
    ) -> Authorization {
        if plan.summary.changed() == 0 {
            return Authorization::default();
        }
        // The findings used them before.
        let rules = &self.rules(&self.own, plan).unwrap_or_default();
        let mut reviewed = Vec::new();
        for (number, head) in pulls {
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
        // It was looked up before, so it is cached.
        let agreed_by = match agreed {
            Some(agreed) => self
                .digest_approvals(rules, plan, &[], agreed)
                .await
                .unwrap_or_default(),
            None => Vec::new(),
        };
        let others = agreed_by.into_iter().filter(|approval| !approval.own);
        Authorization {
            pull_requests: reviewed,
            agreed_by: others.map(|approval| approval.reviewer).collect(),
            ..Authorization::default()
        }
    }
}

/// Returns true if an approval is required.
pub(crate) fn needs_approval(rules: &EffectivePolicy) -> bool {
    rules.approvals > 0 || !rules.reviewers.is_empty()
}

#[cfg(test)]
mod tests {
    use konverge_base::model::plan::Action;
    use konverge_github::Permission;

    use super::*;
    use crate::{
        policy::{
            active_policies::ReviewScope,
            policy_fixture::{archive, check, commit, plan, policy},
        },
        trust::reviewers::KnownPeople,
    };

    /// The rules that deny.
    async fn denied(check: &PolicyCheck, plan: &StackPlan, pulls: &[(u64, CommitId)]) -> Vec<String> {
        let findings = check.findings(plan, pulls, None).await.unwrap();
        let denied = findings
            .into_iter()
            .filter(|finding| finding.verdict == Enforcement::Deny);
        denied.map(|finding| finding.rule).collect()
    }

    #[tokio::test]
    async fn each_policy_under_which_it_was_reviewed_must_be_satisfied() {
        let deletes = plan(&[Action::Delete, Action::Delete]);
        let free = check("", KnownPeople::default());
        assert!(denied(&free, &deletes, &[]).await.is_empty());
        let strict = Arc::new(policy("policy: {max_destructive: 1, drift: stop}\n"));
        let mut reviewed = ReviewedPolicies::default();
        reviewed.add(7, ReviewScope::All, strict);
        let free = free.with_reviewed(reviewed);
        let pulls = [(7, commit('a'))];
        assert_eq!(denied(&free, &deletes, &pulls).await, ["policy.max_destructive"]);
        // Of another pull request it does not count.
        assert!(denied(&free, &deletes, &[(8, commit('a'))]).await.is_empty());
        assert_eq!(
            free.drift(&deletes, &pulls, None).await.unwrap(),
            DriftPolicy::Stop
        );
        assert_eq!(
            free.drift(&deletes, &[], None).await.unwrap(),
            DriftPolicy::Restore
        );
        let own = check("policy: {drift: stop}\n", KnownPeople::default());
        assert_eq!(own.drift(&deletes, &[], None).await.unwrap(), DriftPolicy::Stop);
    }

    #[tokio::test]
    async fn an_approval_counts_on_the_last_head_by_somebody_else_who_may_write() {
        let update = plan(&[Action::Update]);
        let approved_by = |reviewer, head, may, is_own: bool| {
            let known = KnownPeople {
                permissions: vec![("ada", Permission::Write), (reviewer, may)],
                approvals: vec![(7, reviewer, commit(head))],
                pulls: vec![(7, if is_own { vec![reviewer] } else { vec!["ada"] }, false)],
                ..KnownPeople::default()
            };
            check("policy: {approvals: 1}\n", known)
        };
        let pulls = [(7, commit('a'))];
        for (check, rules) in [
            (approved_by("bob", 'a', Permission::Write, false), vec![]),
            (
                approved_by("bob", 'b', Permission::Write, false),
                vec!["policy.approvals"],
            ),
            (
                approved_by("bob", 'a', Permission::Read, false),
                vec!["policy.approvals"],
            ),
            (
                approved_by("bob", 'a', Permission::Write, true),
                vec!["policy.approvals"],
            ),
        ] {
            assert_eq!(denied(&check, &update, &pulls).await, rules);
        }
        // An unchanged stack needs none.
        let nobody = check("policy: {approvals: 1}\n", KnownPeople::default());
        assert!(denied(&nobody, &plan(&[]), &pulls).await.is_empty());
    }

    #[tokio::test]
    async fn the_record_names_the_reviewers_of_the_last_head_and_who_gave_the_digest() {
        let since = commit('e');
        let agreed = Agreed {
            since: Some(&since),
            until: None,
        };
        let known = || KnownPeople {
            approvals: vec![(7, "bob", commit('a')), (7, "old", commit('b'))],
            approved_run: vec!["carol", "dora"],
            commits: vec![(commit('e'), commit('f'), vec!["dora"], false)],
            ..KnownPeople::default()
        };
        let pulls = [(7, commit('a'))];
        let update = plan(&[Action::Update]);
        let grounds = check("", known()).grounds(&update, &pulls, Some(agreed)).await;
        let [pull] = &grounds.pull_requests[..] else {
            panic!("{grounds:?}")
        };
        assert_eq!((pull.number, &pull.head), (7, &commit('a')));
        assert_eq!(pull.reviewers, Some(vec!["bob".to_owned()]));
        assert_eq!(grounds.agreed_by, ["carol", "dora"]);
        // Where approvals are required, who wrote it approved nothing.
        let strict = check("policy: {approvals: 1}\n", known());
        assert_eq!(
            strict.grounds(&update, &pulls, Some(agreed)).await.agreed_by,
            ["carol"]
        );
        assert!(strict.grounds(&update, &pulls, None).await.agreed_by.is_empty());
        let unchanged = strict.grounds(&plan(&[]), &pulls, Some(agreed)).await;
        assert_eq!(unchanged, Authorization::default());
    }

    /// Nobody loosens the rules for what they bring with the same digest.
    #[tokio::test]
    async fn a_digest_is_judged_by_the_policy_before_its_commits_too() {
        let of = |text: &str| vec![("konverge.yaml", format!("version: 1\n{text}"))];
        let (_folder, archive, commits) = archive(&[of("policy: {drift: stop}\n"), of("")]);
        let known = KnownPeople {
            commits: [&commits[0], &commits[1], &commit('9')]
                .map(|since| (since.clone(), commit('f'), vec!["ada"], false))
                .into(),
            ..KnownPeople::default()
        };
        let check = PolicyCheck {
            archive,
            ..check("", known)
        };
        let update = plan(&[Action::Update]);
        let drift = async |since: &CommitId, until: Option<&CommitId>| {
            let since = Some(since);
            check.drift(&update, &[], Some(Agreed { since, until })).await
        };
        assert_eq!(drift(&commits[0], None).await.unwrap(), DriftPolicy::Stop);
        assert_eq!(drift(&commits[1], None).await.unwrap(), DriftPolicy::Restore);
        // What is restored was applied under that policy.
        let applied = drift(&commits[0], Some(&commits[1])).await;
        assert_eq!(applied.unwrap(), DriftPolicy::Restore);
        assert_eq!(
            check.drift(&update, &[], None).await.unwrap(),
            DriftPolicy::Restore
        );
        // A policy that cannot be read is no free pass.
        assert!(drift(&commit('9'), None).await.is_err());
    }

    #[test]
    fn a_moved_secret_is_written_unless_the_configuration_stops_it() {
        for (text, follows) in [
            ("", true),
            ("secrets: {rotation: follow}\n", true),
            ("secrets: {rotation: stop}\n", false),
        ] {
            assert_eq!(
                check(text, KnownPeople::default()).follows_rotation(),
                follows,
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn whoever_pushed_it_could_write() {
        let update = plan(&[Action::Update]);
        let app = || check("policy: {actors: [ada]}\n", KnownPeople::default());
        // GitHub has no permission for an App.
        assert_eq!(denied(&app(), &update, &[]).await, ["policy.actors"]);
        let pushed = PolicyCheck {
            pushed: true,
            ..app()
        };
        assert!(denied(&pushed, &update, &[]).await.is_empty());
    }

    #[tokio::test]
    async fn restoring_needs_no_second_approval_and_keeps_freezes_and_the_size() {
        let rules = "policy:\n  approvals: 1\n  actors: [eve]\n  max_destructive: 0\n  \
                     freeze: [{from: '2000-01-01T00:00:00Z', until: '2999-01-01T00:00:00Z', reason: always}]\n";
        let deletes = plan(&[Action::Delete]);
        let all = denied(&check(rules, KnownPeople::default()), &deletes, &[]).await;
        assert!(
            all.contains(&"policy.approvals".to_owned()) && all.contains(&"policy.actors".to_owned()),
            "{all:?}"
        );
        let restoring = check(rules, KnownPeople::default()).for_restoring();
        let mut left = denied(&restoring, &deletes, &[]).await;
        left.sort();
        assert_eq!(left, ["policy.freeze", "policy.max_destructive"]);
    }

    #[tokio::test]
    async fn a_given_digest_allows_any_size_if_its_giver_took_no_part() {
        let deletes = plan(&[Action::Delete]);
        let since = commit('e');
        let agreed = Agreed {
            since: Some(&since),
            until: None,
        };
        let denied = async |rules: &str, giver: &'static str, contributor: &'static str| {
            let known = KnownPeople {
                permissions: vec![("ada", Permission::Write)],
                approved_run: vec![giver],
                commits: vec![(commit('e'), commit('f'), vec![contributor], false)],
                ..KnownPeople::default()
            };
            let check = check(rules, known);
            let findings = check
                .judge(&check.own, &deletes, &[], Some(agreed))
                .await
                .unwrap();
            let denied = findings
                .into_iter()
                .filter(|finding| finding.verdict == Enforcement::Deny);
            denied.map(|finding| finding.rule).collect::<Vec<_>>()
        };
        let size = "policy: {max_destructive: 0}\n";
        assert!(denied(size, "bob", "carol").await.is_empty());
        // Without a rule about approvals nobody asks who wrote it.
        assert!(denied(size, "carol", "carol").await.is_empty());
        let both = "policy: {max_destructive: 0, approvals: 1}\n";
        assert!(denied(both, "bob", "carol").await.is_empty());
        let own = denied(both, "carol", "carol").await;
        assert!(own.contains(&"policy.max_destructive".to_owned()), "{own:?}");
        assert!(own.contains(&"policy.approvals".to_owned()), "{own:?}");
        // Somebody whom the rules do not name allows nothing.
        let named = denied(
            "policy: {max_destructive: 0, reviewers: [dora]}\n",
            "bob",
            "carol",
        )
        .await;
        assert!(named.contains(&"policy.max_destructive".to_owned()), "{named:?}");
    }
}
