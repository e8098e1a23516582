//! `state rollback`: compiles the commit of a serial with the KCL core of that time, and applies the result as a plan
//! of its own.
//!
//! The location of the states, the clusters and the policies come from the current configuration. Only the rules for
//! reading settings files come from the old commit, because its Specs depend on them.

use std::{collections::BTreeSet, sync::Arc};

use super::read::show;
use crate::{
    KeyUse, OpenRevision, Planner, RevisionSpec, RunBuilder, RunContext, SpecSource, StateBackend, Target,
    apply::{self, ApplyOptions, Approver},
    cluster_selection::{GivenCluster, Live},
    manual_policy_sets::WithPolicySets,
    policy_set_loader, state_backend,
};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::{
        CommitId, Digest, StackId, apply_result::ApplyReport, file_source::Source, plan::StackPlan,
        policy_finding::PolicyFinding, state::StackState,
    },
};
use konverge_config::Config;
use konverge_policy_sets::PolicySets;
use konverge_repo::git::{GitCredentials, GitError, Repository};
use konverge_secrets::redact;

/// A prepared rollback, which can be shown and applied.
pub struct Rollback {
    planning: Planner,
    target: Target,
    commit: CommitId,
    serial: u64,
    sets: PolicySets,
    /// The plan of the rollback.
    pub plan: StackPlan,
}

/// Prepares a rollback to a serial: compiles the recorded commit with the recorded core, and checks that the Spec has
/// the recorded digest.
///
/// # Errors
/// The serial has no commit, or the commit is not available; the core is not installed; the commit compiles to another
/// Spec than the applied one; the stack cannot be planned.
pub async fn rollback(
    run: &RunContext,
    stack: &StackId,
    serial: u64,
    given: GivenCluster,
) -> Result<Rollback, UserError> {
    let repository = Repository::discover(&run.dir)?;
    let files = repository.worktree()?;
    let today = Config::load(files.as_ref())?;
    let at = RevisionSpec::Worktree;
    let backend = state_backend::open_of_checkout(run, &today, Some(&repository), &at, KeyUse::Make).await?;
    let base = RollbackBase {
        run,
        repository: &repository,
        credentials: None,
        files,
        config: today,
        backend,
    };
    rollback_under(base, stack, serial, given).await
}

/// The current inputs of a rollback: the configuration with its files, and the states.
pub struct RollbackBase<'a> {
    /// The run that rolls back.
    pub run: &'a RunContext,
    /// The repository that has the commits.
    pub repository: &'a Repository,
    /// The credentials with which a missing commit is fetched.
    pub credentials: Option<&'a GitCredentials>,
    /// The current files, from which readiness rules and policy sets are read.
    pub files: Arc<dyn Source>,
    /// The current configuration.
    pub config: Config,
    /// The store with the states.
    pub backend: StateBackend,
}

/// Prepares a rollback under a given configuration.
///
/// # Errors
/// See [`rollback`].
pub async fn rollback_under(
    base: RollbackBase<'_>,
    stack: &StackId,
    serial: u64,
    given: GivenCluster,
) -> Result<Rollback, UserError> {
    let RollbackBase {
        run,
        repository,
        credentials,
        files,
        config: today,
        backend,
    } = base;
    let recorded = show(&backend, stack, Some(serial)).await?.state;
    let (commit, digest) = applied(&recorded, stack, serial)?;
    repository
        .ensure(&commit, credentials)
        .await
        .map_err(|error| missing_commit(&error, &commit, serial))?;
    let mut config = today;
    let then = Config::load(repository.revision(&commit)?.as_ref())?;
    // Only these two keys come from the old commit, because its Spec depends on them.
    config.kcl.settings = then.kcl.settings;
    config.kcl.version = recorded.core.clone().or(then.kcl.version);
    let head = OpenRevision::open_under(run, repository, &RevisionSpec::Commit(commit.clone()), &config)?;
    let there = head.layout.stack(stack);
    // The stack may have had another identity at that commit, so its folder is tried too.
    let there = there.or_else(|| head.layout.stack_in_folder(recorded.folder.path()?));
    let there = there.ok_or_else(|| {
        UserError::new(
            ErrorKind::State,
            format!("stack `{stack}` does not exist at commit {}", commit.short()),
        )
        .hint(format!("`konverge state history {stack}` shows other serials"))
    })?;
    let given = given.with_stack_clusters(&head.layout.stacks);
    let target = Target {
        id: stack.clone(),
        ..Target::new(there, None)
    };
    let sets = policy_set_loader::load(&config, files.as_ref());
    let builder = RunBuilder {
        live: Live::Required,
        given,
        rule_files: Some(files),
        backend: Some(backend),
        ..RunBuilder::new(run, config)
    };
    let compilers = builder.compilers().for_past_revision();
    let mut planning = builder
        .planner(SpecSource::compiled(compilers, head, None))
        .await?;
    planning.rolls_back = true;
    let spec = planning.spec(&target).await?;
    // The recorded digest proves that the old version is applied again, and not what its commit compiles to today.
    if spec.digest() != digest {
        return Err(UserError::new(
            ErrorKind::State,
            format!(
                "commit {} compiles to another Spec ({}) than was applied at serial {serial} ({}): nothing is rolled back",
                commit.short(),
                spec.digest().short(),
                digest.short()
            ),
        )
        .hint("an input outside the commit has changed, such as a package that is not locked; apply a commit of your own instead"));
    }
    let planned = planning.plan(&target, spec, &BTreeSet::new()).await?;
    let mut plan = planned.public().clone();
    redact::stack(&mut plan, planning.secrets());
    Ok(Rollback {
        planning,
        target,
        commit,
        serial,
        sets,
        plan,
    })
}

/// Returns the commit and the Spec digest of a serial.
fn applied(recorded: &StackState, stack: &StackId, serial: u64) -> Result<(CommitId, Digest), UserError> {
    match (&recorded.commit, recorded.spec_digest) {
        (Some(commit), Some(digest)) => Ok((commit.clone(), digest)),
        _ => Err(UserError::new(
            ErrorKind::State,
            format!("serial {serial} of `{stack}` was not a complete apply of one commit"),
        )
        .hint(format!(
            "`konverge state history {stack}` shows which serials can be restored"
        ))),
    }
}

fn missing_commit(error: &GitError, commit: &CommitId, serial: u64) -> UserError {
    UserError::new(
        ErrorKind::Git,
        format!(
            "commit {commit}, which serial {serial} recorded, is not in this clone: {}",
            chain(error)
        ),
    )
    .hint(format!(
        "fetch the commit from a clone that has it: `git fetch REMOTE {commit}`"
    ))
    .hint("if the clone is shallow: `git fetch --unshallow`")
}

impl Rollback {
    /// Applies the plan, if `approver` approves the plan that is made under the lease. Returns the result, with the
    /// findings of the policy sets.
    ///
    /// # Errors
    /// See [`apply::run`].
    pub async fn apply(
        &self,
        approver: Arc<dyn Approver>,
    ) -> Result<(ApplyReport, Vec<PolicyFinding>), UserError> {
        let sets = self.sets.clone();
        let options = ApplyOptions {
            commit: Some(self.commit.clone()),
            rolled_back_to: Some(self.serial),
            workflows: None,
            ..ApplyOptions::new(Arc::new(WithPolicySets::new(
                approver,
                sets,
                self.planning.secrets(),
            )))
        };
        let ended = apply::run(&self.planning, std::slice::from_ref(&self.target), &options).await?;
        let mut findings = ended.decisions.findings_by_stack();
        redact::findings(&mut findings, self.planning.secrets());
        Ok((ended.report, findings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{id, state};

    #[test]
    fn only_a_complete_apply_of_one_commit_can_be_brought_back() {
        let whole = StackState {
            commit: Some("a".repeat(40).parse().unwrap()),
            spec_digest: Some(Digest::of_bytes(b"spec")),
            ..state("shop/prod", &["web"])
        };
        let prod = id("shop/prod");
        let (commit, digest) = applied(&whole, &prod, 7).unwrap();
        assert_eq!(
            (Some(commit), Some(digest)),
            (whole.commit.clone(), whole.spec_digest)
        );
        let uncommitted = StackState {
            commit: None,
            ..whole.clone()
        };
        let failed = StackState {
            spec_digest: None,
            ..whole
        };
        for incomplete in [uncommitted, failed] {
            let refused = applied(&incomplete, &prod, 7).unwrap_err();
            assert!(
                refused.message.starts_with("serial 7 of `shop/prod`"),
                "{refused}"
            );
            assert!(
                refused.hints[0].contains("konverge state history shop/prod"),
                "{refused:?}"
            );
        }
    }
}
