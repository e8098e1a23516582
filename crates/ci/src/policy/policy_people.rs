//! The people whom policies ask about: who gave a digest, who approved, who is in a team, and who took part in what is
//! applied.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    policy::policy_check::{Agreed, PolicyCheck, needs_approval},
    trust::{authority::DispatchApprovers, contributors::Contributors},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{CommitId, plan::StackPlan},
};
use konverge_github::Permission;
use konverge_policy::{self as policy, Approval, CodeOwners, EffectivePolicy, Role, Teams};

impl PolicyCheck {
    /// Those who may push, and took no part in what is applied: in none of its pull requests, and in no commit
    /// since the last apply. Nobody, if a pull request came from a fork: who pushed there is unknown.
    pub(crate) async fn without_contributors(
        &self,
        mut people: BTreeSet<String>,
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        covered: Agreed<'_>,
    ) -> Result<BTreeSet<String>, UserError> {
        if people.is_empty() {
            return Ok(people);
        }
        let behind = self.contributors(plan, covered).await?;
        people.retain(|login| !behind.contains(login));
        for (pull, _) in pulls {
            let behind = self.people.behind_pull(*pull).await?;
            people.retain(|login| !behind.contains(login));
            if behind.unknown.is_some() {
                people.clear();
                self.run.notes.note(&format!(
                    "note: no override counts for #{pull}: it comes from a fork, and GitHub does not say who pushed there; push \
                     its branch to this repository and open a pull request for it"
                ));
            }
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
    pub(crate) async fn digest_givers(
        &self,
        pulls: &[(u64, CommitId)],
        ask_environment: bool,
    ) -> Vec<String> {
        let (mut logins, asked) = match &self.agreeing {
            DispatchApprovers::Starter { login, .. } => (vec![login.clone()], ask_environment),
            DispatchApprovers::Environment => (Vec::new(), true),
        };
        // Without its name they cannot be distinguished from users who approved another job of the run.
        if let Some(environment) = self.environment.as_ref().filter(|_| asked) {
            match self.people.let_run_go_on(self.run_id, environment).await {
                Ok(approvals) => logins.extend(approvals.into_iter().map(|approval| approval.reviewer)),
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

    /// What the users who gave digests to the run said about them, by login.
    pub(crate) async fn digest_reasons(&self) -> BTreeMap<String, String> {
        let mut reasons = BTreeMap::new();
        if let Some(environment) = &self.environment {
            // It was looked up before, so it is cached.
            let approvals = self.people.let_run_go_on(self.run_id, environment).await;
            let approvals = approvals.unwrap_or_default().into_iter();
            reasons.extend(approvals.map(|approval| (approval.reviewer, approval.said)));
        }
        if let DispatchApprovers::Starter { login, reason } = &self.agreeing {
            reasons.insert(login.clone(), reason.clone());
        }
        reasons
    }

    /// The users who approve a plan by its digest. Nobody approves their own pull request. If approvals are
    /// required, contributors of the covered commits do not count.
    ///
    /// # Errors
    /// GitHub does not know who they are.
    pub(crate) async fn digest_approvals(
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
            .filter(|login| behind.contains(login))
            .cloned()
            .collect();
        for (pull, _) in pulls.iter().filter(|_| needs_approval(rules)) {
            let behind = self.people.behind_pull(*pull).await?;
            own.extend(logins.iter().filter(|login| behind.contains(login)).cloned());
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
    pub(crate) async fn contributors(
        &self,
        plan: &StackPlan,
        agreed: Agreed<'_>,
    ) -> Result<Contributors, UserError> {
        let Some((branch, head)) = &self.applied else {
            return Ok(Contributors::default());
        };
        let head = agreed.until.unwrap_or(head);
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

    pub(crate) async fn role(&self, user: &str) -> Result<Role, UserError> {
        Ok(match self.people.permission(user).await? {
            Permission::None => Role::None,
            Permission::Read => Role::Read,
            Permission::Write => Role::Write,
            Permission::Admin => Role::Admin,
        })
    }

    pub(crate) async fn approvals(&self, pull: u64, head: &CommitId) -> Result<Vec<Approval>, UserError> {
        let mut approvals = Vec::new();
        for given in self.people.approvals(pull).await? {
            let on_last_head = given.commit == *head;
            // An approval of an older head never counts.
            let (role, own) = match on_last_head {
                true => (
                    self.role(&given.reviewer).await?,
                    self.people.behind_pull(pull).await?.contains(&given.reviewer),
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

    /// The members of the teams in the rules, among the people concerned. A rule reports a team that cannot be read.
    pub(crate) async fn teams(
        &self,
        (rules, codeowners): (&EffectivePolicy, Option<&CodeOwners>),
        plan: &StackPlan,
        pulls: &[(u64, CommitId)],
        agreeing: &[Approval],
    ) -> Result<Teams, UserError> {
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
            return Ok(Teams::default());
        }
        let mut people = BTreeSet::from([self.actor.clone()]);
        people.extend(agreeing.iter().map(|approval| approval.reviewer.clone()));
        for (pull, head) in pulls {
            people.extend(self.approvals(*pull, head).await?.into_iter().map(|a| a.reviewer));
        }
        Ok(self.people.teams(names, &people).await)
    }
}
