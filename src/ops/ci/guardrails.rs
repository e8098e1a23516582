//! The guardrails of `konverge.yaml` (the protected branch's), asked: what they need to know is looked up, and nothing
//! that no rule needs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Job;
use crate::{
    config::{self, Config},
    error::{ErrorKind, Failure},
    github::{Client, Permission},
    model::{
        CommitId, RepoPath, StackId,
        finding::{Finding, Verdict},
        plan::StackPlan,
        stack::Stack,
    },
    policy::{self, Approval, CodeOwners, Facts, Freeze, Role, Rules, Stage},
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

/// The rules of a run's stacks, and whom to ask.
pub(super) struct Guardrails {
    stage: Stage,
    actor: String,
    branch: String,
    client: Option<Client>,
    rules: BTreeMap<StackId, Rules>,
    common: Rules,
    codeowners: Option<CodeOwners>,
}

impl Guardrails {
    /// Reads the rules. `owners` is the protected branch's CODEOWNERS.
    ///
    /// # Errors
    /// A moment in `policy.freeze` that is none.
    pub fn of(
        job: &Job,
        config: &Config,
        stacks: &[Stack],
        stage: Stage,
        branch: &str,
        owners: Option<&str>,
    ) -> Result<Self, Failure> {
        let mut rules = BTreeMap::new();
        for stack in stacks {
            rules.insert(stack.id.clone(), narrowed(config, Some(stack))?);
        }
        Ok(Self {
            stage,
            actor: job.runner.actor.clone(),
            branch: branch.to_owned(),
            client: job.client.clone(),
            rules,
            common: narrowed(config, None)?,
            codeowners: owners.map(CodeOwners::read),
        })
    }

    /// What the rules say of a stack's plan. `pulls` are the pull requests with their last heads whose changes it holds;
    /// each must satisfy the rules. `agreed`: the actor has named exactly this plan's digest.
    ///
    /// # Errors
    /// GitHub can not be asked what a rule needs to know.
    pub async fn findings(
        &self,
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        agreed: bool,
    ) -> Result<Vec<Finding>, Failure> {
        let rules = self.rules.get(&plan.id).unwrap_or(&self.common);
        let teams = self.teams(rules, pulls).await?;
        let guarded = rules.approvals > 0 || !rules.reviewers.is_empty() || !rules.actors.is_empty();
        let mut facts = Facts {
            stage: self.stage,
            now: Timestamp::now(),
            actor: &self.actor,
            role: Role::Write,
            author: None,
            approvals: &[],
            teams: &teams,
            protected_branch: Some(true),
            codeowners: self.codeowners.as_ref(),
            consented: false,
        };
        if guarded && self.stage == Stage::Apply {
            facts.role = self.role().await?;
            facts.protected_branch = match &self.client {
                Some(client) => client.is_protected(&self.branch).await.ok(),
                None => None,
            };
        }
        // Naming the digest is an approval by the actor, and a consent to its size if they are one who may approve.
        let own = [Approval {
            reviewer: self.actor.clone(),
            on_last_head: true,
        }];
        if agreed {
            facts.approvals = &own;
            let reviewer = policy::evaluate(
                &Rules {
                    reviewers: rules.reviewers.clone(),
                    ..Rules::default()
                },
                plan,
                &facts,
            );
            facts.consented = !reviewer
                .iter()
                .any(|f| f.verdict == Verdict::Deny && f.rule == "policy.reviewers");
            return Ok(policy::evaluate(rules, plan, &facts));
        }
        if pulls.is_empty() || (rules.approvals == 0 && rules.reviewers.is_empty()) {
            return Ok(policy::evaluate(rules, plan, &facts));
        }
        let mut findings = BTreeSet::new();
        for (pull, head) in pulls {
            let approvals = self.approvals(*pull, head).await?;
            let facts = Facts {
                approvals: &approvals,
                ..facts.clone()
            };
            findings.extend(policy::evaluate(rules, plan, &facts));
        }
        Ok(findings.into_iter().collect())
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

    async fn role(&self) -> Result<Role, Failure> {
        let Some(client) = &self.client else {
            return Ok(Role::None);
        };
        Ok(match client.permission(&self.actor).await? {
            Permission::None => Role::None,
            Permission::Read => Role::Read,
            Permission::Write => Role::Write,
            Permission::Admin => Role::Admin,
        })
    }

    async fn approvals(&self, pull: u64, head: &CommitId) -> Result<Vec<Approval>, Failure> {
        let Some(client) = &self.client else {
            return Ok(Vec::new());
        };
        let given = client.approvals(pull).await?;
        Ok(given
            .into_iter()
            .map(|approval| Approval {
                on_last_head: approval.commit == *head,
                reviewer: approval.reviewer,
            })
            .collect())
    }

    /// Which of the people concerned are in the teams that the rules name. A team that may not be looked up is left
    /// out, and the rule says so.
    async fn teams(
        &self,
        rules: &Rules,
        pulls: &[(u64, CommitId)],
    ) -> Result<BTreeMap<String, BTreeSet<String>>, Failure> {
        let mut teams = BTreeMap::new();
        let Some(client) = &self.client else {
            return Ok(teams);
        };
        let owners = self.codeowners.iter().flat_map(CodeOwners::all);
        let by_code = rules.reviewers.iter().any(|name| name == "CODEOWNERS");
        let names: BTreeSet<&str> = rules
            .reviewers
            .iter()
            .chain(&rules.actors)
            .map(|name| name.trim_start_matches('@'))
            .chain(owners.filter(|_| by_code))
            .filter(|name| name.contains('/') && !name.contains('.'))
            .collect();
        if names.is_empty() {
            return Ok(teams);
        }
        let mut people = BTreeSet::from([self.actor.clone()]);
        for (pull, head) in pulls {
            people.extend(self.approvals(*pull, head).await?.into_iter().map(|a| a.reviewer));
        }
        for name in names {
            let Some((org, team)) = name.split_once('/') else {
                continue;
            };
            let mut members = BTreeSet::new();
            let mut known = true;
            for person in &people {
                match client.is_team_member(org, team, person).await {
                    Ok(true) => {
                        members.insert(person.clone());
                    }
                    Ok(false) => {}
                    Err(_) => known = false,
                }
            }
            if known {
                teams.insert(name.to_owned(), members);
            }
        }
        Ok(teams)
    }
}

/// The repository's rules, narrowed by the stack's own: more approvals, its own people, further freezes.
fn narrowed(config: &Config, stack: Option<&Stack>) -> Result<Rules, Failure> {
    let common = &config.policy;
    let own = stack
        .map(|stack| config.for_stack(stack).policy)
        .unwrap_or_default();
    let people = |own: Vec<String>, common: &[String]| if own.is_empty() { common.to_vec() } else { own };
    let freeze = common.freeze.iter().chain(&own.freeze).map(moment);
    Ok(Rules {
        approvals: common.approvals.unwrap_or(0).max(own.approvals.unwrap_or(0)),
        freeze: freeze.collect::<Result<_, _>>()?,
        reviewers: people(own.reviewers, &common.reviewers),
        actors: people(own.actors, &common.actors),
        max_delete: own.max_delete.or(common.max_delete),
    })
}

fn moment(freeze: &config::Freeze) -> Result<Freeze, Failure> {
    let read = |text: &str| {
        text.parse::<Timestamp>().map_err(|error| {
            Failure::new(
                ErrorKind::Config,
                format!("policy.freeze: `{}` is no moment: {error}", text.escape_debug()),
            )
            .hint("write it as RFC 3339: `2026-12-23T00:00:00Z`")
        })
    };
    Ok(Freeze {
        from: read(&freeze.from)?,
        until: read(&freeze.until)?,
        reason: freeze.reason.clone(),
    })
}
