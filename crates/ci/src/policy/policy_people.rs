//! The people that policies need: who gave a digest, who approved, who is in a team, and who contributed to the applied
//! commits.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    policy::{
        active_policies::CommitPolicy,
        overrides::{OverrideReasons, Overrides},
        plan_approvals::{CoveredCommits, PlanApprovals},
        policy_check::{PolicyCheck, needs_approval},
        pull_head::PullHead,
        review_overrides,
    },
    trust::{authority::DispatchApprovers, contributors::Contributors},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{Digest, RepoPath, plan::StackPlan, review::ReviewRecord},
};
use konverge_forge::Permission;
use konverge_policy::{self as policy, Approval, CodeOwners, EffectivePolicy, Role, Teams};

impl PolicyCheck {
    /// Returns the overrides of findings, from given digests and from reviews, without those of contributors to the
    /// change.
    pub(super) async fn overrides(
        &self,
        plan: &StackPlan,
        policies: &[Arc<CommitPolicy>],
        approvals: &PlanApprovals<'_>,
    ) -> Result<Overrides, UserError> {
        let pulls = &approvals.pulls;
        let sets = policies.iter().flat_map(|policy| policy.sets.iter());
        let names: BTreeSet<&str> = sets
            .flat_map(|set| set.overriders())
            .map(|name| name.trim_start_matches('@'))
            .collect();
        let teams: Vec<&str> = names.iter().copied().filter(|name| name.contains('/')).collect();
        if names.is_empty() {
            return Ok(Overrides::default());
        }
        // Collect: any given digest may be that of a finding, and so may the digests in reviews.
        let mut by_digest: BTreeMap<Digest, OverrideReasons> = BTreeMap::new();
        if !approvals.digests.is_empty() {
            let logins = self.digest_givers(pulls, true).await.into_iter();
            let mut said = self.digest_reasons().await;
            let givers = logins.map(|login| {
                let said = said.remove(&login).unwrap_or_default();
                (login, said)
            });
            let givers: OverrideReasons = givers.collect();
            by_digest.extend(approvals.digests.iter().map(|digest| (*digest, givers.clone())));
        }
        let of_plan = |record: &&&ReviewRecord| pulls.contains(&PullHead::from_record(record));
        let mut remarks = BTreeSet::new();
        for record in approvals.records.iter().filter(of_plan) {
            let found = review_overrides::in_reviews(&self.people, record).await?;
            for (digest, reviewers) in found.given {
                by_digest.entry(digest).or_default().extend(reviewers);
            }
            remarks.extend(found.remarks);
        }
        for remark in &remarks {
            self.run.notes.note(remark);
        }
        // Filter: first by the people that the policy sets name, so that the forge is asked only about people who may
        // override.
        let mut people: BTreeSet<String> = by_digest.values().flat_map(BTreeMap::keys).cloned().collect();
        let teams = self.people.teams(teams, &people).await;
        people.retain(|login| names.iter().any(|name| teams.includes(name, login)));
        let people = self
            .without_contributors(people, &plan.stack, pulls, approvals.covered)
            .await?;
        for logins in by_digest.values_mut() {
            logins.retain(|login, _| people.contains(login));
        }
        Ok(Overrides {
            given: by_digest,
            teams,
            remarks,
        })
    }

    /// Removes people who may not push, or who contributed to the applied changes: in one of the pull requests, or in a
    /// commit since the last apply. If a pull request came from a fork, it is unknown who pushed there, so nobody
    /// remains.
    pub(crate) async fn without_contributors(
        &self,
        mut people: BTreeSet<String>,
        folder: &RepoPath,
        pulls: &[PullHead],
        covered: CoveredCommits<'_>,
    ) -> Result<BTreeSet<String>, UserError> {
        if people.is_empty() {
            return Ok(people);
        }
        let behind = self.contributors(folder, covered).await?;
        people.retain(|login| !behind.contains(login));
        for PullHead { number: pull, .. } in pulls {
            let behind = self.people.pull_contributors(*pull).await?;
            people.retain(|login| !behind.contains(login));
            if behind.unknown.is_some() {
                // An unknown user pushed, who may be any of these people.
                people.clear();
                let why = match self.people.knows_pushers() {
                    Ok(()) => {
                        "the pull request comes from a fork, where it is unknown who pushed; push its branch to this \
                               repository and open a pull request for it"
                            .to_owned()
                    }
                    Err(unsupported) => unsupported.to_string(),
                };
                self.run
                    .notes
                    .note(&format!("no override counts for #{pull}: {why}"));
            }
        }
        // Roles are read last and only for the remaining people, because each costs a request.
        let mut allowed = BTreeSet::new();
        for login in people {
            if self.role(&login).await? >= Role::Write {
                allowed.insert(login);
            }
        }
        Ok(allowed)
    }

    /// Returns the users who gave digests to the run, except the authors of the pull requests.
    pub(crate) async fn digest_givers(&self, pulls: &[PullHead], ask_environment: bool) -> Vec<String> {
        let (mut logins, asked) = match &self.agreeing {
            DispatchApprovers::Starter { login, .. } => (vec![login.clone()], ask_environment),
            DispatchApprovers::Environment => (Vec::new(), true),
        };
        // Without the name of the environment, its approvers cannot be distinguished from those of another job of the
        // run.
        if let Some(environment) = self.environment.as_ref().filter(|_| asked) {
            match self.people.run_approvals(self.run_id, environment).await {
                Ok(approvals) => logins.extend(approvals.into_iter().map(|approval| approval.reviewer)),
                Err(error) => self
                    .run
                    .warn("failed to read who approved this run in its environment, so these approvals do not count", error),
            }
        }
        let authors: Vec<_> = pulls
            .iter()
            .filter_map(|pull| self.authors.get(&pull.number))
            .collect();
        logins.retain(|login| !authors.iter().any(|author| author.eq_ignore_ascii_case(login)));
        logins.sort();
        logins.dedup();
        logins
    }

    /// Returns the reasons of the users who gave digests to the run, by login.
    pub(crate) async fn digest_reasons(&self) -> BTreeMap<String, String> {
        let mut reasons = BTreeMap::new();
        if let Some(environment) = &self.environment {
            // The approvals are cached, so this sends no request.
            let approvals = self.people.run_approvals(self.run_id, environment).await;
            let approvals = approvals.unwrap_or_default().into_iter();
            reasons.extend(approvals.map(|approval| (approval.reviewer, approval.said)));
        }
        if let DispatchApprovers::Starter { login, reason } = &self.agreeing {
            reasons.insert(login.clone(), reason.clone());
        }
        reasons
    }

    /// Returns the users who approve a plan by its digest. Authors of the pull requests are left out. If approvals are
    /// required, those of contributors to the covered commits are marked as `own`, so that they do not count.
    ///
    /// # Errors
    /// The forge does not return the contributors.
    pub(crate) async fn digest_approvals(
        &self,
        rules: &EffectivePolicy,
        plan: &StackPlan,
        pulls: &[PullHead],
        agreed: CoveredCommits<'_>,
    ) -> Result<Vec<Approval>, UserError> {
        let logins = self.digest_givers(pulls, needs_approval(rules)).await;
        let behind = if needs_approval(rules) && !logins.is_empty() {
            self.contributors(&plan.stack, agreed).await?
        } else {
            Contributors::default()
        };
        let mut own: Vec<_> = logins
            .iter()
            .filter(|login| behind.contains(login))
            .cloned()
            .collect();
        for PullHead { number: pull, .. } in pulls.iter().filter(|_| needs_approval(rules)) {
            let behind = self.people.pull_contributors(*pull).await?;
            own.extend(logins.iter().filter(|login| behind.contains(login)).cloned());
        }
        let mut approvals = Vec::new();
        for reviewer in logins {
            approvals.push(Approval {
                on_last_head: true,
                // GitHub lets only users with write access start a run or approve it.
                role: if self.people.starters_may_push() {
                    Role::Write
                } else {
                    self.role(&reviewer).await?
                },
                own: own.contains(&reviewer),
                reviewer,
            });
        }
        Ok(approvals)
    }

    /// Returns the contributors to the commits that the digest of a stack's plan covers.
    pub(crate) async fn contributors(
        &self,
        folder: &RepoPath,
        agreed: CoveredCommits<'_>,
    ) -> Result<Contributors, UserError> {
        let Some((branch, head)) = &self.applied else {
            return Ok(Contributors::default());
        };
        // The digest of drift covers commits up to the applied one, which may be older than the head.
        let head = agreed.until.unwrap_or(head);
        let behind = self
            .people
            .commit_contributors(branch, agreed.since, head, folder.as_str())
            .await?;
        match &behind.unknown {
            None => Ok(behind),
            Some(commit) => Err(UserError::new(
                ErrorKind::Policy,
                format!(
                    "{} does not say who pushed {}, so the authors of the change are unknown",
                    self.people.forge(),
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

    pub(crate) async fn approvals(&self, pull: &PullHead) -> Result<Vec<Approval>, UserError> {
        let mut approvals = Vec::new();
        for given in self.people.approvals(pull.number).await? {
            let on_last_head = given.commit == pull.head;
            // An approval of an older head never counts, so its reviewer is not looked up.
            let (role, own) = if on_last_head {
                (
                    self.role(&given.reviewer).await?,
                    self.people
                        .pull_contributors(pull.number)
                        .await?
                        .contains(&given.reviewer),
                )
            } else {
                (Role::None, false)
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

    /// Returns which of the actor and the approvers are members of the teams in the rules. A team that cannot be read
    /// is reported by the rule that names it.
    pub(crate) async fn teams(
        &self,
        rules: &EffectivePolicy,
        codeowners: Option<&CodeOwners>,
        plan: &StackPlan,
        pulls: &[PullHead],
        agreeing: &[Approval],
    ) -> Result<Teams, UserError> {
        let file = policy::owned_file(rules, plan);
        let owners = codeowners.iter().flat_map(|owners| owners.owners(&file));
        let by_code = rules.reviewers.iter().any(|name| name == CodeOwners::NAME);
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
        for pull in pulls {
            people.extend(self.approvals(pull).await?.into_iter().map(|a| a.reviewer));
        }
        Ok(self.people.teams(names, &people).await)
    }
}

#[cfg(test)]
mod tests {
    use konverge_base::model::plan::Action;

    use konverge_config::Config;
    use konverge_policy_sets::{PolicySet, PolicySets};

    use super::*;
    use crate::{
        policy::policy_fixture::{check, commit, plan, policy, pull_head},
        trust::reviewers::KnownPeople,
    };

    fn logins(logins: &[&str]) -> BTreeSet<String> {
        logins.iter().map(|login| (*login).to_owned()).collect()
    }

    fn starter(login: &str) -> DispatchApprovers {
        DispatchApprovers::Starter {
            login: login.to_owned(),
            reason: "I said so".to_owned(),
        }
    }

    #[tokio::test]
    async fn digests_are_given_by_the_starter_and_by_who_approved_the_job() {
        let of = |agreeing, environment: Option<&str>, author: Option<&str>| {
            let known = KnownPeople {
                approved_run: vec!["bob", "ada"],
                ..KnownPeople::default()
            };
            let authors = author.map(|author| (7, author.to_owned()));
            PolicyCheck {
                environment: environment.map(str::to_owned),
                agreeing,
                authors: authors.into_iter().collect(),
                ..check("", known)
            }
        };
        let pulls = [pull_head()];
        let (here, job) = (Some("production"), DispatchApprovers::Environment);
        for (check, ask, givers) in [
            (of(starter("ada"), here, None), false, vec!["ada"]),
            (of(starter("ada"), here, None), true, vec!["ada", "bob"]),
            (of(starter("ada"), None, None), true, vec!["ada"]),
            (of(job.clone(), here, None), false, vec!["ada", "bob"]),
            (of(job.clone(), None, None), true, vec![]),
            (of(job.clone(), Some("another"), None), true, vec![]),
            // Nobody approves a pull request of their own.
            (of(job, here, Some("ADA")), true, vec!["bob"]),
            (of(starter("ada"), here, Some("ada")), false, vec![]),
        ] {
            assert_eq!(check.digest_givers(&pulls, ask).await, givers);
        }
        let said = of(starter("ada"), here, None).digest_reasons().await;
        assert_eq!(
            (said["ada"].as_str(), said["bob"].as_str()),
            ("I said so", "bob says so")
        );
    }

    #[tokio::test]
    async fn only_who_may_push_and_took_no_part_is_left() {
        let since = commit('e');
        let covered = CoveredCommits {
            since: Some(&since),
            until: None,
        };
        let left = async |from_fork| {
            let known = KnownPeople {
                permissions: vec![
                    ("ada", Permission::Write),
                    ("bob", Permission::Write),
                    ("carol", Permission::Write),
                    ("dora", Permission::Read),
                    ("eve", Permission::Admin),
                ],
                pulls: vec![(7, vec!["Bob"], from_fork)],
                commits: vec![(commit('e'), commit('f'), vec!["ada"], false)],
                ..KnownPeople::default()
            };
            let check = check("", known);
            let people = logins(&["ada", "bob", "carol", "dora", "eve"]);
            let plan = plan(&[Action::Update]);
            check
                .without_contributors(people, &plan.stack, &[pull_head()], covered)
                .await
                .unwrap()
        };
        assert_eq!(left(false).await, logins(&["carol", "eve"]));
        // Who pushed to a fork is unknown.
        assert_eq!(left(true).await, logins(&[]));
    }

    /// Who overrides what, with the digests that were given to the run.
    async fn overridden(settings: &str, known: KnownPeople, digests: &[Digest]) -> Overrides {
        let text = format!("policy: {{sets: [{{name: s, path: p, {settings}}}]}}\n");
        let config = Config::parse(&text).unwrap();
        let set = PolicySet::broken(&config.policy.sets[0], "gone".to_owned());
        let policy = CommitPolicy {
            sets: PolicySets::new(vec![set], &[]),
            ..policy("")
        };
        let since = commit('e');
        let approvals = PlanApprovals {
            pulls: vec![pull_head()],
            digests: digests.iter().copied().collect(),
            covered: CoveredCommits {
                since: Some(&since),
                until: None,
            },
            ..PlanApprovals::default()
        };
        let check = check("", known);
        let plan = plan(&[Action::Update]);
        check
            .overrides(&plan, &[Arc::new(policy)], &approvals)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn a_digest_overrides_by_who_is_named_may_push_and_took_no_part() {
        let digest = Digest::of_bytes(b"finding");
        let known = || KnownPeople {
            approved_run: vec!["ann", "bob", "carol", "dora", "fay"],
            permissions: ["ann", "bob", "carol", "dora"]
                .map(|login| (login, Permission::Write))
                .into_iter()
                .chain([("fay", Permission::Read)])
                .collect(),
            pulls: vec![(7, vec!["bob"], false)],
            commits: vec![(commit('e'), commit('f'), vec!["carol"], false)],
            teams: ["ann", "bob", "carol", "fay"]
                .map(|login| ("acme/sre", login, true))
                .into_iter()
                .chain([("acme/sre", "dora", false)])
                .collect(),
            ..KnownPeople::default()
        };
        let by = |overrides: &Overrides| {
            let given = overrides.given.get(&digest).cloned().unwrap_or_default();
            given.into_iter().collect::<Vec<_>>()
        };
        let team = "override: {by: [acme/sre]}";
        let found = overridden(team, known(), &[digest]).await;
        // Bob wrote a part of the pull request, carol pushed a commit, dora is in no team, fay may not push.
        assert_eq!(by(&found), [("ann".to_owned(), "ann says so".to_owned())]);
        assert!(found.teams.members["acme/sre"].contains("ann"));
        assert!(overridden(team, known(), &[]).await.given.is_empty());
        // By name, also with an `@`.
        let named = overridden("override: {by: ['@dora']}", known(), &[digest]).await;
        assert_eq!(by(&named)[0].0, "dora");
        assert_eq!(by(&named).len(), 1);
        // Without names in the set, no question goes to GitHub.
        for set in ["enforce: always", "enforce: advise", ""] {
            let none = overridden(set, known(), &[digest]).await;
            assert!(none.given.is_empty() && none.teams == Teams::default(), "{set}");
        }
    }

    #[tokio::test]
    async fn unknown_authors_are_an_error_and_never_nobody() {
        let (since, until) = (commit('d'), commit('c'));
        let plan = plan(&[Action::Update]);
        let known = || KnownPeople {
            commits: vec![
                (commit('e'), commit('f'), vec!["ada"], true),
                (commit('d'), commit('c'), vec!["bob"], false),
            ],
            ..KnownPeople::default()
        };
        let of_plan = commit('e');
        let covered = CoveredCommits {
            since: Some(&of_plan),
            until: None,
        };
        let refusal = check("", known())
            .contributors(&plan.stack, covered)
            .await
            .unwrap_err();
        assert_eq!(refusal.kind, ErrorKind::Policy);
        assert!(refusal.message.contains("who pushed fffffff"), "{refusal}");
        // A difference that is restored ends with the applied commit.
        let restored = CoveredCommits {
            since: Some(&since),
            until: Some(&until),
        };
        let behind = check("", known())
            .contributors(&plan.stack, restored)
            .await
            .unwrap();
        assert!(behind.contains("bob") && !behind.contains("ada"));
        // A preview applies nothing.
        let preview = PolicyCheck {
            applied: None,
            ..check("", known())
        };
        assert_eq!(
            preview.contributors(&plan.stack, covered).await.unwrap(),
            Contributors::default()
        );
    }

    #[tokio::test]
    async fn a_contributor_s_digest_is_own_where_approvals_are_required() {
        let since = commit('e');
        let covered = CoveredCommits {
            since: Some(&since),
            until: None,
        };
        let plan = plan(&[Action::Update]);
        let own = async |rules: EffectivePolicy| {
            let known = KnownPeople {
                approved_run: vec!["ada", "bob", "carol"],
                pulls: vec![(7, vec!["bob"], false)],
                commits: vec![(commit('e'), commit('f'), vec!["ada"], false)],
                ..KnownPeople::default()
            };
            let approvals = check("", known)
                .digest_approvals(&rules, &plan, &[pull_head()], covered)
                .await
                .unwrap();
            assert_eq!(approvals.len(), 3);
            assert!(
                approvals
                    .iter()
                    .all(|approval| approval.on_last_head && approval.role == Role::Write)
            );
            let own = approvals.into_iter().filter(|approval| approval.own);
            own.map(|approval| approval.reviewer).collect::<Vec<_>>()
        };
        assert!(own(EffectivePolicy::default()).await.is_empty());
        let approvals = EffectivePolicy {
            approvals: 1,
            ..EffectivePolicy::default()
        };
        assert_eq!(own(approvals).await, ["ada", "bob"]);
        let reviewers = EffectivePolicy {
            reviewers: vec!["carol".to_owned()],
            ..EffectivePolicy::default()
        };
        assert_eq!(own(reviewers).await, ["ada", "bob"]);
    }

    #[tokio::test]
    async fn an_approval_of_an_older_head_has_no_role() {
        let known = KnownPeople {
            permissions: vec![("bob", Permission::Admin), ("carol", Permission::Write)],
            approvals: vec![(7, "bob", commit('b')), (7, "carol", commit('a'))],
            pulls: vec![(7, vec!["carol", "bob"], false)],
            ..KnownPeople::default()
        };
        let approvals = check("", known).approvals(&pull_head()).await.unwrap();
        let seen: Vec<_> = approvals
            .iter()
            .map(|approval| {
                (
                    approval.reviewer.as_str(),
                    approval.on_last_head,
                    approval.role,
                    approval.own,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("bob", false, Role::None, false),
                ("carol", true, Role::Write, true)
            ]
        );
    }

    #[tokio::test]
    async fn teams_are_looked_up_for_the_people_concerned_and_code_owners_only_if_a_rule_names_them() {
        let known = || KnownPeople {
            approvals: vec![(7, "bob", commit('a'))],
            teams: ["acme/sre", "acme/owners"]
                .into_iter()
                .flat_map(|team| [(team, "ada", false), (team, "bob", true), (team, "carol", true)])
                .collect(),
            ..KnownPeople::default()
        };
        let plan = plan(&[Action::Update]);
        let owners = CodeOwners::read("* @acme/owners ann@example.com\n");
        let given = [Approval {
            reviewer: "carol".to_owned(),
            on_last_head: true,
            role: Role::Write,
            own: false,
        }];
        let found = async |reviewers: &[&str]| {
            let rules = EffectivePolicy {
                reviewers: reviewers.iter().map(|name| (*name).to_owned()).collect(),
                actors: vec!["ada".to_owned()],
                ..EffectivePolicy::default()
            };
            let check = check("", known());
            let pulls = [pull_head()];
            check
                .teams(&rules, Some(&owners), &plan, &pulls, &given)
                .await
                .unwrap()
        };
        assert_eq!(found(&["bob"]).await, Teams::default());
        let both = found(&["@acme/sre", "CODEOWNERS"]).await;
        assert_eq!(both.members["acme/sre"], logins(&["bob", "carol"]));
        assert_eq!(both.members["acme/owners"], logins(&["bob", "carol"]));
        assert_eq!(found(&["acme/sre"]).await.members.len(), 1);
    }
}
