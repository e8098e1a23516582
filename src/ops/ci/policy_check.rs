//! Evaluates the policies of `konverge.yaml` (the default branch's), and looks up exactly the facts that the
//! rules need.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    active_policies::{Archive, InForce, ReviewedPolicies},
    authority::{DispatchApprovers, Task},
    contributors::Contributors,
    job::Job,
    overrides::{self, Overrides},
    review_overrides,
    reviewers::Reviewers,
};
use crate::{
    config::{DriftPolicy, Rotation},
    error::{ErrorKind, UserError},
    github::Permission,
    model::{
        CommitId, Digest,
        authorization::{Authorization, PolicyOverride, ReviewedPull},
        plan::StackPlan,
        plan_document::StackDocument,
        policy_finding::{Enforcement, PolicyFinding},
        review::ReviewRecord,
    },
    ops::{
        RunContext,
        active_sets::{self, ActiveSets},
        apply::ProposedPlan,
    },
    policy::{self, Approval, CodeOwners, EffectivePolicy, PolicyFacts, Role, Stage, sets::PolicySets},
};

/// A plan whose digest was given to the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed<'a> {
    /// The last commit applied to the stack, if it is recorded: the digest covers everything since.
    pub since: Option<&'a CommitId>,
}

/// The digests that were given to a run, and what reviewers saw.
#[derive(Debug, Clone, Copy)]
pub(super) struct GivenDigests<'a> {
    pub digests: &'a BTreeSet<Digest>,
    /// What was shown to the reviewers of the pull requests.
    pub records: &'a [&'a ReviewRecord],
    /// The last commit applied to the stack, if it is recorded.
    pub since: Option<&'a CommitId>,
}

/// The rules of a run, and the source of facts.
pub(super) struct PolicyCheck {
    stage: Stage,
    actor: String,
    /// True if the actor pushed what is applied, in this attempt: then GitHub allowed them.
    pushed: bool,
    run: RunContext,
    run_id: u64,
    environment: Option<String>,
    /// True if GitHub protects the default branch.
    protected: bool,
    /// The default branch and the applied commit, if there is one.
    applied: Option<(String, CommitId)>,
    people: Reviewers,
    authors: BTreeMap<u64, String>,
    /// The policy of the default branch.
    own: Arc<InForce>,
    /// The policies under which pull requests were reviewed.
    reviewed: ReviewedPolicies,
    archive: Archive,
    restoring: bool,
    agreeing: DispatchApprovers,
}

impl PolicyCheck {
    /// The rules of the default branch.
    pub fn new(job: &Job, own: InForce, stage: Stage) -> Self {
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
                _ => None,
            },
            people: Reviewers::new(job.client.clone()),
            authors: BTreeMap::new(),
            own: Arc::new(own),
            reviewed: ReviewedPolicies::default(),
            archive: Archive::of(job),
            restoring: false,
            agreeing: DispatchApprovers::Environment,
        }
    }

    /// Returns true if a version of a secret that moved since the review is written as well.
    pub fn follows_rotation(&self) -> bool {
        self.own.config.secrets.rotation != Rotation::Stop
    }

    /// Sets the authors of pull requests: their approval of their own does not count.
    #[must_use]
    pub fn with_authors(self, authors: BTreeMap<u64, String>) -> Self {
        Self { authors, ..self }
    }

    /// Sets the policies under which pull requests were reviewed: they must be satisfied too.
    #[must_use]
    pub fn with_reviewed(self, reviewed: ReviewedPolicies) -> Self {
        Self { reviewed, ..self }
    }

    /// Sets who approves the digests.
    #[must_use]
    pub fn with_digest_approvers(self, agreeing: DispatchApprovers) -> Self {
        Self { agreeing, ..self }
    }

    /// For restoring what was applied before: its pull request was approved then, so only freezes and the
    /// size are checked.
    #[must_use]
    pub fn for_restoring(self) -> Self {
        Self {
            restoring: true,
            ..self
        }
    }

    /// The policies for a plan: the default branch's, those under which its pull requests were reviewed, and
    /// for a digest the one before the commits that it covers.
    async fn policies(
        &self,
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        agreed: Option<Agreed<'_>>,
    ) -> Result<Vec<Arc<InForce>>, UserError> {
        let mut policies = vec![Arc::clone(&self.own)];
        policies.extend(
            pulls
                .iter()
                .flat_map(|(pull, _)| self.reviewed.of(*pull, &plan.id)),
        );
        if let (Some(agreed), Some((_, head))) = (agreed, &self.applied) {
            let before = self
                .people
                .before(agreed.since, head, plan.stack.as_str())
                .await?;
            if let Some(before) = before.commit {
                policies.push(self.archive.at(&before).await?);
            }
        }
        let mut different: Vec<Arc<InForce>> = Vec::new();
        for policy in policies {
            if !different.contains(&policy) {
                different.push(policy);
            }
        }
        Ok(different)
    }

    /// The policy sets of the default branch.
    pub fn own_sets(&self) -> &PolicySets {
        &self.own.sets
    }

    /// The findings of the policy sets for a preview: of the default branch's sets, and of those that the merge
    /// creates. An unchanged stack has none.
    pub fn preview_sets(&self, document: &StackDocument, pulls: &[(u64, CommitId)]) -> Vec<PolicyFinding> {
        let pulls = pulls.iter();
        let proposed = pulls.flat_map(|(pull, _)| self.reviewed.of(*pull, &document.stack.id));
        let versions = std::iter::once(Arc::clone(&self.own)).chain(proposed);
        let versions: Vec<_> = versions.map(|policy| policy.sets.clone()).collect();
        active_sets::findings(&versions, document)
    }

    /// What an apply does about drift: it stops the stack if one of the policies says so.
    ///
    /// # Errors
    /// As [`PolicyCheck::findings`].
    pub async fn drift(
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

    fn rules(&self, policy: &InForce, plan: &StackPlan) -> Result<EffectivePolicy, UserError> {
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
    pub async fn findings(
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
    pub async fn findings_with_sets(
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
        let sets = ActiveSets::evaluate(versions, proposed.document, |sets, findings| {
            overrides.excuse(sets, findings)
        });
        findings.extend(sets.findings().iter().cloned());
        findings.sort();
        findings.dedup();
        Ok((findings, sets))
    }

    /// The policy sets of the default branch for restoring what was applied. What was overridden then stays so,
    /// if the set can still be overridden.
    pub fn sets_for_restoring(&self, proposed: &ProposedPlan<'_>, earlier: &[PolicyOverride]) -> ActiveSets {
        ActiveSets::evaluate(
            vec![self.own.sets.clone()],
            proposed.document,
            |sets, findings| overrides::keep(earlier, sets, findings),
        )
    }

    /// The overrides that the given digests and the reviews may be.
    async fn overrides(
        &self,
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        policies: &[Arc<InForce>],
        given: GivenDigests<'_>,
    ) -> Result<Overrides, UserError> {
        let sets = policies.iter().flat_map(|policy| policy.sets.iter());
        let names: BTreeSet<&str> = sets
            .flat_map(|set| set.overriders())
            .map(|name| name.trim_start_matches('@'))
            .collect();
        let teams: Vec<&str> = names.iter().copied().filter(|name| name.contains('/')).collect();
        if names.is_empty() {
            return Ok(Overrides::default());
        }
        let mut by_digest: BTreeMap<Digest, BTreeSet<String>> = BTreeMap::new();
        if !given.digests.is_empty() {
            let logins: BTreeSet<_> = self.digest_givers(pulls, true).await.into_iter().collect();
            by_digest.extend(given.digests.iter().map(|digest| (*digest, logins.clone())));
        }
        let of_plan = |record: &&&ReviewRecord| pulls.contains(&(record.pull_request, record.head.clone()));
        for record in given.records.iter().filter(of_plan) {
            for (digest, logins) in review_overrides::reviewers_by_finding(&self.people, record).await? {
                by_digest.entry(digest).or_default().extend(logins);
            }
        }
        let mut people: BTreeSet<String> = by_digest.values().flatten().cloned().collect();
        let teams = self.people.teams(teams, &people).await;
        people.retain(|login| names.iter().any(|name| policy::includes(name, login, &teams)));
        let people = self
            .without_contributors(people, plan, pulls, given.since)
            .await?;
        for logins in by_digest.values_mut() {
            logins.retain(|login| people.contains(login));
        }
        Ok(Overrides {
            given: by_digest,
            teams,
        })
    }

    /// Those who may push, and took no part in what is applied: in none of its pull requests, and in no commit
    /// since the last apply.
    async fn without_contributors(
        &self,
        mut people: BTreeSet<String>,
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        since: Option<&CommitId>,
    ) -> Result<BTreeSet<String>, UserError> {
        if people.is_empty() {
            return Ok(people);
        }
        let behind = self.contributors(plan, Agreed { since }).await?;
        people.retain(|login| !behind.hold(login));
        for (pull, _) in pulls {
            let behind = self.people.behind_pull(*pull).await?;
            people.retain(|login| !behind.hold(login));
        }
        let mut allowed = BTreeSet::new();
        for login in people {
            if self.role(&login).await? >= Role::Write {
                allowed.insert(login);
            }
        }
        Ok(allowed)
    }

    /// The users who gave digests to the run, without the authors of the pull requests.
    async fn digest_givers(&self, pulls: &[(u64, CommitId)], ask_environment: bool) -> Vec<String> {
        let (mut logins, asked) = match &self.agreeing {
            DispatchApprovers::Starter(starter) => (vec![starter.clone()], ask_environment),
            DispatchApprovers::Environment => (Vec::new(), true),
        };
        // Without its name they cannot be distinguished from users who approved another job of the run.
        if let Some(environment) = self.environment.as_ref().filter(|_| asked) {
            match self.people.let_run_go_on(self.run_id, environment).await {
                Ok(approvers) => logins.extend(approvers),
                Err(error) => self
                    .run
                    .warn("who approved this run in its environment does not count", error),
            }
        }
        let authors: Vec<_> = pulls
            .iter()
            .filter_map(|(pull, _)| self.authors.get(pull))
            .collect();
        logins.retain(|login| !authors.iter().any(|author| author.eq_ignore_ascii_case(login)));
        logins.sort();
        logins.dedup();
        logins
    }

    /// The findings of one policy.
    async fn judge(
        &self,
        policy: &InForce,
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
    pub async fn grounds(
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

    /// The users who approve a plan by its digest. Nobody approves their own pull request. If approvals are
    /// required, contributors of the covered commits do not count.
    ///
    /// # Errors
    /// GitHub does not know who they are.
    async fn digest_approvals(
        &self,
        rules: &EffectivePolicy,
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        agreed: Agreed<'_>,
    ) -> Result<Vec<Approval>, UserError> {
        let logins = self.digest_givers(pulls, needs_approval(rules)).await;
        let behind = match needs_approval(rules) && !logins.is_empty() {
            true => self.contributors(plan, agreed).await?,
            false => Contributors::default(),
        };
        let mut own: Vec<_> = logins
            .iter()
            .filter(|login| behind.hold(login))
            .cloned()
            .collect();
        for (pull, _) in pulls.iter().filter(|_| needs_approval(rules)) {
            let behind = self.people.behind_pull(*pull).await?;
            own.extend(logins.iter().filter(|login| behind.hold(login)).cloned());
        }
        let approvals = logins.into_iter().map(|reviewer| Approval {
            on_last_head: true,
            // GitHub lets only users with write access start a run or approve it.
            role: Role::Write,
            own: own.contains(&reviewer),
            reviewer,
        });
        Ok(approvals.collect())
    }

    /// The contributors of the commits that a plan's digest covers.
    async fn contributors(&self, plan: &StackPlan, agreed: Agreed<'_>) -> Result<Contributors, UserError> {
        let Some((branch, head)) = &self.applied else {
            return Ok(Contributors::default());
        };
        let behind = self
            .people
            .behind_commits(branch, agreed.since, head, plan.stack.as_str())
            .await?;
        match &behind.unknown {
            None => Ok(behind),
            Some(commit) => Err(UserError::new(
                ErrorKind::Policy,
                format!(
                    "GitHub does not say who pushed {}, so the authors of the change are unknown",
                    commit.short()
                ),
            )
            .hint("open a pull request with the change: its authors and reviewers are known")),
        }
    }

    async fn role(&self, user: &str) -> Result<Role, UserError> {
        Ok(match self.people.permission(user).await? {
            Permission::None => Role::None,
            Permission::Read => Role::Read,
            Permission::Write => Role::Write,
            Permission::Admin => Role::Admin,
        })
    }

    async fn approvals(&self, pull: u64, head: &CommitId) -> Result<Vec<Approval>, UserError> {
        let mut approvals = Vec::new();
        for given in self.people.approvals(pull).await? {
            let on_last_head = given.commit == *head;
            // An approval of an older head never counts.
            let (role, own) = match on_last_head {
                true => (
                    self.role(&given.reviewer).await?,
                    self.people.behind_pull(pull).await?.hold(&given.reviewer),
                ),
                false => (Role::None, false),
            };
            approvals.push(Approval {
                reviewer: given.reviewer,
                on_last_head,
                role,
                own,
            });
        }
        Ok(approvals)
    }

    /// The members of the teams in the rules, among the people concerned. A team that may not be read is left
    /// out, and the rule reports it.
    async fn teams(
        &self,
        (rules, codeowners): (&EffectivePolicy, Option<&CodeOwners>),
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        agreeing: &[Approval],
    ) -> Result<BTreeMap<String, BTreeSet<String>>, UserError> {
        let file = policy::owned_file(plan);
        let owners = codeowners.iter().flat_map(|owners| owners.owners(&file));
        let by_code = rules.reviewers.iter().any(|name| name == "CODEOWNERS");
        let names: BTreeSet<&str> = rules
            .reviewers
            .iter()
            .chain(&rules.actors)
            .map(|name| name.trim_start_matches('@'))
            .chain(owners.map(String::as_str).filter(|_| by_code))
            .filter(|name| name.contains('/') && !name.contains('.'))
            .collect();
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut people = BTreeSet::from([self.actor.clone()]);
        people.extend(agreeing.iter().map(|approval| approval.reviewer.clone()));
        for (pull, head) in pulls {
            people.extend(self.approvals(*pull, head).await?.into_iter().map(|a| a.reviewer));
        }
        Ok(self.people.teams(names, &people).await)
    }
}

/// Returns true if an approval is required.
fn needs_approval(rules: &EffectivePolicy) -> bool {
    rules.approvals > 0 || !rules.reviewers.is_empty()
}
