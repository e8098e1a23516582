//! The guardrails of `konverge.yaml` (the protected branch's), asked: what they need to know is looked up, and nothing
//! that no rule needs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{Job, people::People, rules::narrowed};
use crate::{
    config::Config,
    error::{ErrorKind, Failure},
    github::Permission,
    model::{
        CommitId, RepoPath,
        finding::{Finding, Verdict},
        plan::StackPlan,
        receipt::{Grounds, ReviewedPull},
    },
    ops::Run,
    policy::{self, Approval, CodeOwners, Facts, Role, Rules, Stage},
};

/// CODEOWNERS as a commit has it, where GitHub looks for it.
pub(super) fn owners(job: &Job, commit: &CommitId) -> Option<String> {
    let source = job.repository.revision(commit).ok()?;
    let places = CodeOwners::PLACES
        .iter()
        .filter_map(|place| RepoPath::normalise(place));
    let bytes = places
        .filter_map(|place| source.read_path(&place).ok().flatten())
        .next()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Who agrees to the digests that a run was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Agreeing {
    /// Whoever started it with them, and where rules ask for more, those who let it go on in its job's environment.
    Starter,
    /// Those alone who let it go on: the run itself found the digests, after it was started.
    Environment,
}

/// The rules of a run, and whom to ask.
pub(super) struct Guardrails {
    stage: Stage,
    actor: String,
    /// Whether the actor pushed what is applied, in the run's first try: then GitHub let them.
    pushed: bool,
    run: Run,
    run_id: u64,
    environment: Option<String>,
    branch: String,
    people: People,
    authors: BTreeMap<u64, String>,
    config: Config,
    restoring: bool,
    codeowners: Option<CodeOwners>,
    agreeing: Agreeing,
}

impl Guardrails {
    /// The rules of a configuration. `owners` is the protected branch's CODEOWNERS.
    pub fn of(job: &Job, config: &Config, stage: Stage, branch: &str, owners: Option<&str>) -> Self {
        Self {
            stage,
            actor: job.runner.actor.clone(),
            pushed: job.runner.event_name == "push" && job.runner.run_attempt == 1,
            run: job.run.clone(),
            run_id: job.runner.run_id,
            environment: job.options.environment.clone(),
            branch: branch.to_owned(),
            people: People::new(job.client.clone()),
            authors: BTreeMap::new(),
            config: config.clone(),
            restoring: false,
            codeowners: owners.map(CodeOwners::read),
            agreeing: Agreeing::Starter,
        }
    }

    /// Who opened which pull request: what they say of their own does not count.
    #[must_use]
    pub fn with_authors(self, authors: BTreeMap<u64, String>) -> Self {
        Self { authors, ..self }
    }

    /// Who agrees to the digests.
    #[must_use]
    pub fn agreed_to_by(self, agreeing: Agreeing) -> Self {
        Self { agreeing, ..self }
    }

    /// For putting back what was applied before: its pull request was approved then, so that only the moment and the
    /// size are asked about.
    #[must_use]
    pub fn for_restoring(self) -> Self {
        Self {
            restoring: true,
            ..self
        }
    }

    /// By identity and folder alone: a stack that was removed, of which only the state knows, keeps its rules.
    fn rules(&self, plan: &StackPlan) -> Result<Rules, Failure> {
        let rules = narrowed(&self.config, &plan.id, &plan.stack)?;
        Ok(match self.restoring {
            true => Rules {
                freeze: rules.freeze,
                max_delete: rules.max_delete,
                ..Rules::default()
            },
            false => rules,
        })
    }

    /// What the rules say of a stack's plan. `pulls` are the pull requests with their last heads whose changes it holds;
    /// each must satisfy the rules. `agreed`: this run was told exactly this plan's digest.
    ///
    /// # Errors
    /// A moment in `policy.freeze` that is none; GitHub can not be asked what a rule needs to know.
    pub async fn findings(
        &self,
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        agreed: bool,
    ) -> Result<Vec<Finding>, Failure> {
        if plan.summary.changed() == 0 {
            return Ok(Vec::new());
        }
        let rules = &self.rules(plan)?;
        let given: Vec<_> = match agreed {
            true => self.agreeing(rules, pulls).await,
            false => Vec::new(),
        };
        let teams = self.teams(rules, plan, pulls, &given).await?;
        let needs_approval = rules.approvals > 0 || !rules.reviewers.is_empty();
        let mut facts = Facts {
            stage: self.stage,
            now: Timestamp::now(),
            actor: &self.actor,
            role: Role::Write,
            author: None,
            approvals: &given,
            teams: &teams,
            protected_branch: Some(true),
            codeowners: self.codeowners.as_ref(),
            consented: false,
        };
        if self.stage == Stage::Apply && (needs_approval || !rules.actors.is_empty()) {
            // An App is no user, of whom GitHub says nothing: what it merges is applied all the same.
            if !self.pushed {
                facts.role = self.role(self.actor.as_str()).await?;
            }
            facts.protected_branch = self.people.is_protected(&self.branch).await;
        }
        if agreed {
            let may_approve = Rules {
                reviewers: rules.reviewers.clone(),
                ..Rules::default()
            };
            let answer = policy::evaluate(&may_approve, plan, &facts);
            let refused = |f: &Finding| f.verdict == Verdict::Deny && f.rule == "policy.reviewers";
            facts.consented = !answer.iter().any(refused);
        }
        if pulls.is_empty() || !needs_approval {
            return Ok(policy::evaluate(rules, plan, &facts));
        }
        let mut findings = BTreeSet::new();
        for (pull, head) in pulls {
            let mut approvals = self.approvals(*pull, head).await?;
            approvals.extend(given.iter().cloned());
            let facts = Facts {
                approvals: &approvals,
                author: self.authors.get(pull).map(String::as_str),
                ..facts.clone()
            };
            findings.extend(policy::evaluate(rules, plan, &facts));
        }
        Ok(findings.into_iter().collect())
    }

    /// Who stands behind a plan that may be applied. Who can not be asked for is left out and told: the apply goes on.
    pub async fn grounds(&self, plan: &StackPlan, pulls: &[(u64, CommitId)], agreed: bool) -> Grounds {
        if plan.summary.changed() == 0 {
            return Grounds::default();
        }
        // The findings were made of them before.
        let rules = &self.rules(plan).unwrap_or_default();
        let mut reviewed = Vec::new();
        for (number, head) in pulls {
            let reviewers = match self.people.approvals(*number).await {
                Ok(approvals) => {
                    let of_head = approvals.into_iter().filter(|approval| approval.commit == *head);
                    Some(of_head.map(|approval| approval.reviewer).collect())
                }
                Err(error) => {
                    self.run
                        .warn(&format!("who approved #{number} is not in the receipt"), error);
                    None
                }
            };
            reviewed.push(ReviewedPull {
                number: *number,
                head: head.clone(),
                reviewers,
            });
        }
        let agreed_by = match agreed {
            true => self.agreeing(rules, &[]).await,
            false => Vec::new(),
        };
        Grounds {
            pull_requests: reviewed,
            agreed_by: agreed_by.into_iter().map(|approval| approval.reviewer).collect(),
            reconciled: false,
        }
    }

    /// Those who agree to the digests that this run was told. Nobody agrees to their own pull request.
    async fn agreeing(&self, rules: &Rules, pulls: &[(u64, CommitId)]) -> Vec<Approval> {
        let (mut logins, asked) = match self.agreeing {
            Agreeing::Starter => (
                vec![self.actor.clone()],
                rules.approvals > 0 || !rules.reviewers.is_empty(),
            ),
            Agreeing::Environment => (Vec::new(), true),
        };
        // Without its name they can not be told from those who let another job of the run go on.
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
            .into_iter()
            .map(|reviewer| Approval {
                reviewer,
                on_last_head: true,
                // GitHub lets only such start a run, or go on with one.
                role: Role::Write,
            })
            .collect()
    }

    /// The findings as the refusal that they are, if they are one.
    pub fn refusal(plan: &StackPlan, findings: &[Finding]) -> Option<Failure> {
        if policy::may_apply(findings, &plan.id) {
            return None;
        }
        let denied = || findings.iter().filter(|f| f.verdict == Verdict::Deny);
        let said: Vec<_> = denied().map(|f| format!("{}: {}", f.rule, f.message)).collect();
        let failure = Failure::new(
            ErrorKind::Policy,
            format!(
                "{} was stopped before anything of it was touched:\n{}",
                plan.id,
                said.join("\n")
            ),
        );
        Some(
            denied()
                .filter_map(|f| f.hint.clone())
                .fold(failure, Failure::hint),
        )
    }

    async fn role(&self, user: &str) -> Result<Role, Failure> {
        Ok(match self.people.permission(user).await? {
            Permission::None => Role::None,
            Permission::Read => Role::Read,
            Permission::Write => Role::Write,
            Permission::Admin => Role::Admin,
        })
    }

    async fn approvals(&self, pull: u64, head: &CommitId) -> Result<Vec<Approval>, Failure> {
        let mut approvals = Vec::new();
        for given in self.people.approvals(pull).await? {
            let on_last_head = given.commit == *head;
            // An older one does not count, whoever gave it.
            let role = match on_last_head {
                true => self.role(&given.reviewer).await?,
                false => Role::None,
            };
            approvals.push(Approval {
                reviewer: given.reviewer,
                on_last_head,
                role,
            });
        }
        Ok(approvals)
    }

    /// Which of the people concerned are in the teams that the rules name. A team that may not be looked up is left
    /// out, and the rule says so.
    async fn teams(
        &self,
        rules: &Rules,
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        agreeing: &[Approval],
    ) -> Result<BTreeMap<String, BTreeSet<String>>, Failure> {
        let file = policy::owned_file(plan);
        let owners = self.codeowners.iter().flat_map(|owners| owners.owners(&file));
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
