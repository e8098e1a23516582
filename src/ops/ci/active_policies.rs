//! The policy that a commit of the default branch puts in force. A plan is judged by several: its own, which the default
//! branch has now, and those under which its changes were reviewed. Each rule of each has to be satisfied.

use std::sync::Arc;

use super::Job;
use crate::{
    config::{Config, DriftPolicy},
    error::UserError,
    git::{GitCredentials, Repository},
    model::{CommitId, RepoPath, StackId, file_source::Source},
    policy::{CodeOwners, EffectivePolicy},
};

/// A policy with the people that it names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct InForce {
    /// The configuration that holds its rules.
    pub config: Config,
    /// The text of CODEOWNERS beside it.
    pub codeowners: Option<String>,
}

impl InForce {
    /// A configuration with the CODEOWNERS of a revision.
    pub fn of(config: &Config, source: Option<&dyn Source>) -> Self {
        Self {
            config: config.clone(),
            codeowners: source.and_then(codeowners),
        }
    }

    /// The rules for a stack, by identity and folder alone: one that was removed, of which only the state knows, keeps
    /// its rules.
    ///
    /// # Errors
    /// A moment in `policy.freeze` that is none.
    pub fn rules(&self, id: &StackId, folder: &RepoPath) -> Result<EffectivePolicy, UserError> {
        super::policy_config::effective_policy(&self.config, id, folder)
    }

    /// Without the freezes that the proposal left in place: whoever ends one of those later decides for the branch.
    /// What the proposal itself took out still holds for it.
    #[must_use]
    pub fn without_freezes_of(&self, proposal: &InForce) -> Self {
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

    /// Whether there is a time in which nothing is applied.
    pub fn has_freezes(&self) -> bool {
        let own = self.config.stacks.iter().filter_map(|rule| rule.policy.as_ref());
        !self.config.policy.freeze.is_empty() || own.into_iter().any(|policy| !policy.freeze.is_empty())
    }

    /// Whether drift stops a stack.
    pub fn stops_at_drift(&self) -> bool {
        self.config.policy.drift == DriftPolicy::Stop
    }
}

/// Where earlier policies are read from.
#[derive(Clone)]
pub(super) struct Archive {
    repository: Repository,
    credentials: Option<GitCredentials>,
}

impl Archive {
    pub fn of(job: &Job) -> Self {
        Self {
            repository: job.repository.clone(),
            credentials: job.credentials.clone(),
        }
    }

    /// The policy of a commit.
    ///
    /// # Errors
    /// The commit cannot be fetched, its configuration cannot be read: then nobody knows what was in force.
    pub async fn at(&self, commit: &CommitId) -> Result<Arc<InForce>, UserError> {
        self.repository.ensure(commit, self.credentials.as_ref()).await?;
        let source = self.repository.revision(commit)?;
        let config = Config::load(source.as_ref())?;
        Ok(Arc::new(InForce::of(&config, Some(source.as_ref()))))
    }
}

/// CODEOWNERS of a revision, where GitHub looks for it.
fn codeowners(source: &dyn Source) -> Option<String> {
    let places = CodeOwners::PLACES
        .iter()
        .filter_map(|place| RepoPath::normalise(place));
    let bytes = places
        .filter_map(|place| source.read_path(&place).ok().flatten())
        .next()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
