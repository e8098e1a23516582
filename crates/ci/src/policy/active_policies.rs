//! The policies that apply to a plan: the current one of the default branch, and those under which its changes were
//! reviewed. The plan must satisfy every rule of each policy.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{job::Job, policy::policy_config};
use konverge_base::{
    error::UserError,
    model::{CommitId, RepoPath, StackId, file_source::Source, plan::StackPlan},
};
use konverge_config::{Config, DriftPolicy};
use konverge_policy::{CodeOwners, EffectivePolicy};
use konverge_policy_sets::PolicySets;
use konverge_repo::git::{GitCredentials, Repository};
use konverge_run::policy_set_loader;

/// The policy of one commit: its configuration, its CODEOWNERS file and its policy sets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommitPolicy {
    /// The configuration that contains the rules.
    pub config: Config,
    /// The text of the CODEOWNERS file, if there is one.
    pub codeowners: Option<String>,
    /// The policy sets.
    pub sets: PolicySets,
}

impl CommitPolicy {
    /// Joins a configuration with the CODEOWNERS file and the policy sets of a revision.
    pub(crate) fn from_config(config: &Config, source: Option<&dyn Source>) -> Self {
        Self {
            config: config.clone(),
            codeowners: source.and_then(codeowners),
            sets: source.map_or_else(PolicySets::default, |source| {
                policy_set_loader::load(config, source)
            }),
        }
    }

    /// Returns the rules for a stack's plan, all of which must be satisfied. Only the names of the stack are used, so
    /// that a removed stack, which only the state has, keeps its rules.
    ///
    /// # Errors
    /// An invalid time in `policy.freeze`.
    pub(crate) fn rules(&self, plan: &StackPlan) -> Result<Vec<EffectivePolicy>, UserError> {
        policy_config::effective_policies(&self.config, &plan.id, &plan.stack, &plan.known_as)
    }

    /// Removes the freezes that are also in `proposal`. For these, only the current version of the branch counts,
    /// because they may have been lifted since. A freeze that the proposal itself removes still applies to it.
    #[must_use]
    pub(crate) fn without_freezes_of(&self, proposal: &CommitPolicy) -> Self {
        let mut policy = self.clone();
        let theirs = &proposal.config;
        policy
            .config
            .policy
            .freeze
            .retain(|freeze| !theirs.policy.freeze.contains(freeze));
        for rule in &mut policy.config.stacks {
            let kept = theirs.stacks.iter().filter(|other| other.pattern == rule.pattern);
            let kept: Vec<_> = kept
                .flat_map(|other| other.policy.iter().flat_map(|policy| &policy.freeze))
                .collect();
            if let Some(own) = &mut rule.policy {
                own.freeze.retain(|freeze| !kept.contains(&freeze));
            }
        }
        policy
    }

    /// Returns true if the policy has freezes.
    pub(crate) fn has_freezes(&self) -> bool {
        let own = self.config.stacks.iter().filter_map(|rule| rule.policy.as_ref());
        !self.config.policy.freeze.is_empty() || own.into_iter().any(|policy| !policy.freeze.is_empty())
    }

    /// Returns true if `policy.drift` is `stop`.
    pub(crate) fn stops_at_drift(&self) -> bool {
        self.config.policy.drift == DriftPolicy::Stop
    }
}

/// The policies under which pull requests were reviewed. Each shard of a preview has its own policy, because the shards
/// may start at different times.
#[derive(Clone, Default)]
pub(crate) struct ReviewedPolicies(BTreeMap<u64, Vec<(ReviewScope, Arc<CommitPolicy>)>>);

/// The stacks that a review shows.
#[derive(Clone)]
pub(crate) enum ReviewScope {
    /// All stacks of the pull request.
    All,
    /// The stacks of one review record.
    These(BTreeSet<StackId>),
}

impl ReviewedPolicies {
    /// Adds the policy under which stacks of a pull request were reviewed.
    pub(crate) fn add(&mut self, pull_request: u64, shown: ReviewScope, policy: Arc<CommitPolicy>) {
        self.0.entry(pull_request).or_default().push((shown, policy));
    }

    /// Returns the policies under which a stack of a pull request was reviewed.
    pub(crate) fn reviewed_for(
        &self,
        pull_request: u64,
        stack: &StackId,
    ) -> impl Iterator<Item = Arc<CommitPolicy>> + '_ {
        let of_pull = self.0.get(&pull_request).into_iter().flatten();
        let stack = stack.clone();
        of_pull
            .filter(move |(shown, _)| match shown {
                ReviewScope::All => true,
                ReviewScope::These(stacks) => stacks.contains(&stack),
            })
            .map(|(_, policy)| Arc::clone(policy))
    }
}

/// Reads the policies of earlier commits from the repository.
#[derive(Clone)]
pub(crate) struct Archive {
    repository: Repository,
    credentials: Option<GitCredentials>,
}

impl Archive {
    pub(crate) fn new(job: &Job) -> Self {
        Self {
            repository: job.repository.clone(),
            credentials: job.credentials.clone(),
        }
    }

    #[cfg(test)]
    pub(crate) fn in_repository(repository: Repository) -> Self {
        Self {
            repository,
            credentials: None,
        }
    }

    /// Reads the policy of a commit.
    ///
    /// # Errors
    /// The commit cannot be fetched, or its configuration cannot be read, so its policy is unknown.
    pub(crate) async fn policy_at(&self, commit: &CommitId) -> Result<Arc<CommitPolicy>, UserError> {
        self.repository.ensure(commit, self.credentials.as_ref()).await?;
        let source = self.repository.revision(commit)?;
        let config = Config::load(source.as_ref())?;
        Ok(Arc::new(CommitPolicy::from_config(
            &config,
            Some(source.as_ref()),
        )))
    }
}

/// Reads the CODEOWNERS file of a revision, at the first of the paths that GitHub uses.
pub(crate) fn codeowners(source: &dyn Source) -> Option<String> {
    let paths = CodeOwners::PLACES
        .iter()
        .filter_map(|path| RepoPath::normalize(path));
    let bytes = paths
        .filter_map(|path| source.read_path(&path).ok().flatten())
        .next()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::policy_fixture::archive;

    fn policy(text: &str) -> CommitPolicy {
        let config = Config::parse(&format!("version: 1\n{text}")).unwrap();
        CommitPolicy::from_config(&config, None)
    }

    fn freeze(reason: &str) -> String {
        format!("{{from: '2026-12-01T00:00:00Z', until: '2026-12-02T00:00:00Z', reason: {reason}}}")
    }

    /// The reasons of the freezes of the repository, and those of the rules.
    fn reasons(policy: &CommitPolicy) -> (Vec<String>, Vec<String>) {
        let text = |freeze: &konverge_config::FreezeConfig| format!("{:?}", freeze.reason);
        let common = policy.config.policy.freeze.iter().map(text).collect();
        let of_rules = policy.config.stacks.iter().flat_map(|rule| rule.policy.iter());
        (
            common,
            of_rules.flat_map(|own| own.freeze.iter().map(text)).collect(),
        )
    }

    #[test]
    fn only_a_freeze_that_the_proposal_keeps_is_left_to_the_present_policy() {
        let (one, two) = (freeze("one"), freeze("two"));
        let reviewed = policy(&format!(
            "policy: {{freeze: [{one}, {two}]}}\nstacks:\n- match: 'a/**'\n  policy: {{freeze: [{one}, {two}]}}\n\
             - match: 'b/**'\n  policy: {{freeze: [{one}]}}\n"
        ));
        assert!(reviewed.has_freezes());
        // The proposal removed `two` from the repository and from the rule for a, and the rule for b altogether.
        let proposal = policy(&format!(
            "policy: {{freeze: [{one}]}}\nstacks:\n- match: 'a/**'\n  policy: {{freeze: [{one}]}}\n"
        ));
        let (common, of_rules) = reasons(&reviewed.without_freezes_of(&proposal));
        assert!(common.len() == 1 && common[0].contains("two"), "{common:?}");
        // It does not lift its own freeze, wherever it stood.
        assert_eq!(of_rules.len(), 2, "{of_rules:?}");
        assert!(
            of_rules[0].contains("two") && of_rules[1].contains("one"),
            "{of_rules:?}"
        );
        // A proposal that keeps all of them lifts all: the present ones count.
        assert!(!reviewed.without_freezes_of(&reviewed).has_freezes());
        // Another rule with the same freeze keeps nothing.
        let elsewhere = policy(&format!(
            "stacks:\n- match: 'c/**'\n  policy: {{freeze: [{one}, {two}]}}\n"
        ));
        assert_eq!(reasons(&reviewed.without_freezes_of(&elsewhere)).1.len(), 3);
    }

    #[test]
    fn freezes_are_found_in_the_rules_of_stacks_too() {
        let one = freeze("one");
        assert!(!policy("").has_freezes());
        assert!(policy(&format!("policy: {{freeze: [{one}]}}\n")).has_freezes());
        assert!(
            policy(&format!(
                "stacks:\n- match: 'a/**'\n  policy: {{freeze: [{one}]}}\n"
            ))
            .has_freezes()
        );
        assert!(!policy("stacks:\n- match: 'a/**'\n  policy: {approvals: 1}\n").has_freezes());
    }

    #[test]
    fn drift_stops_only_where_the_policy_says_so() {
        assert!(policy("policy: {drift: stop}\n").stops_at_drift());
        assert!(!policy("policy: {drift: restore}\n").stops_at_drift());
        assert!(!policy("").stops_at_drift());
    }

    #[tokio::test]
    async fn a_commit_has_its_own_configuration_and_code_owners() {
        let of = |approvals: u32, owners: &'static [(&'static str, &str)]| {
            let config = format!("version: 1\npolicy: {{approvals: {approvals}}}\n");
            let owners = owners.iter().map(|(path, text)| (*path, (*text).to_owned()));
            std::iter::once(("konverge.yaml", config))
                .chain(owners)
                .collect::<Vec<_>>()
        };
        let (_folder, archive, commits) = archive(&[
            of(1, &[]),
            of(2, &[("docs/CODEOWNERS", "* @docs\n")]),
            of(3, &[("CODEOWNERS", "* @root\n")]),
            of(4, &[(".github/CODEOWNERS", "* @github\n")]),
        ]);
        for (at, owners) in [None, Some("* @docs\n"), Some("* @root\n"), Some("* @github\n")]
            .into_iter()
            .enumerate()
        {
            let policy = archive.policy_at(&commits[at]).await.unwrap();
            assert_eq!(policy.config.policy.approvals, Some(at as u32 + 1));
            assert_eq!(policy.codeowners.as_deref(), owners);
        }
        assert!(archive.policy_at(&"9".repeat(40).parse().unwrap()).await.is_err());
    }

    #[test]
    fn a_policy_counts_for_the_stacks_that_its_review_showed() {
        let (first, second) = (Arc::new(policy("")), Arc::new(policy("policy: {approvals: 2}\n")));
        let (a, b): (StackId, StackId) = ("a/dev".parse().unwrap(), "b/dev".parse().unwrap());
        let mut reviewed = ReviewedPolicies::default();
        reviewed.add(7, ReviewScope::These([a.clone()].into()), Arc::clone(&first));
        reviewed.add(7, ReviewScope::All, Arc::clone(&second));
        let of = |pull, stack: &StackId| reviewed.reviewed_for(pull, stack).collect::<Vec<_>>();
        assert_eq!(of(7, &a), [first, Arc::clone(&second)]);
        assert_eq!(of(7, &b), [second]);
        assert_eq!(of(8, &a), []);
    }
}
