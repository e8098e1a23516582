//! Compiles what was applied last: the recorded commit must compile to the recorded Spec. If the code has changed
//! since, a drift check compares with that Spec, and a restore applies it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use tokio::sync::Mutex;

use crate::{
    AnalysisCache, OpenRevision, Planner, RevisionSpec, SpecSource, Target, apply::stopped_outcome,
    target::RecordedSpec,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, StackId,
        apply_result::{StackOutcome, StackResult},
        spec::Spec,
        state::StackState,
    },
};
use konverge_config::Config;
use konverge_repo::git::{GitError, Repository};
use konverge_secrets::redact;

/// Replaces the head's Spec of each target by the Spec that was applied last. Returns the targets, and an outcome for
/// each stack whose last Spec is not available.
///
/// # Errors
/// The run was interrupted.
pub async fn recorded_targets(
    planning: &Planner,
    targets: &[Target],
) -> Result<(Vec<Target>, Vec<StackOutcome>), UserError> {
    let applied = AppliedSpec::new(planning);
    let (mut recorded, mut refused) = (Vec::new(), Vec::new());
    for target in targets {
        let found = applied.target(target).await;
        planning.run.check_interrupted()?;
        match found {
            Ok(target) => recorded.push(target),
            Err(failure) => {
                let failure = redact::failure(&failure, planning.secrets());
                refused.push(stopped_outcome(target, StackResult::Failed, &failure));
            }
        }
    }
    Ok((recorded, refused))
}

/// Opens the commits that the states record, each once and on demand.
pub(crate) struct AppliedSpec<'a> {
    planning: &'a Planner,
    opened: Mutex<Option<PastRevisions>>,
}

struct PastRevisions {
    repository: Repository,
    known: AnalysisCache,
    /// The opened revisions, by commit and version of the KCL core.
    revisions: HashMap<(CommitId, String), Result<Arc<OpenRevision>, UserError>>,
    /// The commits that are neither in this clone nor can be fetched, each with its error.
    missing: BTreeMap<CommitId, UserError>,
}

impl<'a> AppliedSpec<'a> {
    pub(crate) fn new(planning: &'a Planner) -> Self {
        Self {
            planning,
            opened: Mutex::new(None),
        }
    }

    /// Returns the target with the Spec that was applied last.
    async fn target(&self, target: &Target) -> Result<Target, UserError> {
        if target.head.is_none() {
            return Err(removed(&target.id));
        }
        let state = self.planning.prior(target).await?;
        let state = state.unwrap_or_else(|| target.empty_state());
        // A head that does not compile must not prevent a restore.
        let head = self.planning.spec(target).await.ok();
        let spec = self.spec(&target.id, head.as_ref(), &state).await?;
        let Some(input_digest) = state.input_digest else {
            return Err(incomplete(&target.id, &state));
        };
        Ok(Target {
            recorded: Some(Arc::new(RecordedSpec {
                spec,
                input_digest,
                commit: state.commit,
                core: state.core,
            })),
            ..target.clone()
        })
    }

    /// Returns the Spec whose digest a state records. If the head's Spec has this digest, it is returned; otherwise the
    /// recorded commit is compiled.
    ///
    /// # Errors
    /// The Spec is not available: the last apply failed or had no commit, the commit cannot be fetched, or the commit
    /// compiles to another Spec both with the core of the head and with the recorded core.
    pub(crate) async fn spec(
        &self,
        stack: &StackId,
        head: Option<&Spec>,
        state: &StackState,
    ) -> Result<Spec, UserError> {
        let complete = state.input_digest.and(state.spec_digest);
        let digest = complete.ok_or_else(|| incomplete(stack, state))?;
        if let Some(head) = head.filter(|head| head.digest() == digest) {
            return Ok(head.clone());
        }
        let commit = state.commit.as_ref().ok_or_else(|| without_commit(stack))?;
        let today = self.planning.core().unwrap_or_default();
        let recorded = state.core.as_deref().filter(|core| *core != today);
        let mut failure = without_commit(stack);
        for core in std::iter::once(today).chain(recorded) {
            failure = match self.compile(stack, state, commit, core).await {
                Ok(spec) if spec.digest() == digest => return Ok(spec),
                Ok(_) => another_spec(stack, commit),
                Err(failure) => failure,
            };
        }
        Err(failure)
    }

    /// Returns one error for each recorded commit that the repository does not have.
    pub(crate) async fn missing_commits(&self) -> Vec<UserError> {
        let opened = self.opened.lock().await;
        let missing = opened.iter().flat_map(|opened| opened.missing.values());
        missing.cloned().collect()
    }

    async fn compile(
        &self,
        stack: &StackId,
        state: &StackState,
        commit: &CommitId,
        core: &str,
    ) -> Result<Spec, UserError> {
        let SpecSource::Compiled { compilers, .. } = &self.planning.wanted else {
            return Err(without_commit(stack));
        };
        let past = self.revision(commit, core).await?;
        let layout = &past.layout;
        // The stack may have had another identity at that commit, so its folder is tried too.
        let there = layout
            .stack(stack)
            .or_else(|| layout.stack_in_folder(state.folder.path()?))
            .ok_or_else(|| another_spec(stack, commit))?;
        Ok(compilers.for_revision(&past).spec(there).await?)
    }

    async fn revision(&self, commit: &CommitId, core: &str) -> Result<Arc<OpenRevision>, UserError> {
        let mut opened = self.opened.lock().await;
        let opened = match &mut *opened {
            Some(opened) => opened,
            none => {
                let repository = Repository::discover(&self.planning.run.dir)?;
                none.insert(PastRevisions {
                    known: AnalysisCache::open(&self.planning.run, &repository),
                    repository,
                    revisions: HashMap::new(),
                    missing: BTreeMap::new(),
                })
            }
        };
        let key = (commit.clone(), core.to_owned());
        if let Some(known) = opened.revisions.get(&key) {
            return known.clone();
        }
        let revision = self.open(opened, commit, core).await.map(Arc::new);
        opened.revisions.insert(key, revision.clone());
        revision
    }

    /// Opens a commit with the configuration of the head. Only the rules for reading settings files come from the
    /// commit, because its Specs depend on them.
    async fn open(
        &self,
        opened: &mut PastRevisions,
        commit: &CommitId,
        core: &str,
    ) -> Result<OpenRevision, UserError> {
        let repository = &opened.repository;
        let credentials = self.planning.run.clone_credentials();
        if let Err(error) = repository.ensure(commit, credentials.as_ref()).await {
            let failure = missing_commit(error, commit);
            opened.missing.insert(commit.clone(), failure.clone());
            return Err(failure);
        }
        let mut config = self.planning.config.clone();
        if let Ok(then) = Config::load(repository.revision(commit)?.as_ref()) {
            config.kcl.settings = then.kcl.settings;
        }
        config.kcl.version = Some(core.to_owned());
        let at = RevisionSpec::Commit(commit.clone());
        OpenRevision::open_knowing(&opened.known, repository, &at, Some(&config))
    }
}

/// Returns the error for a stack that the head does not have.
pub(crate) fn removed(stack: &StackId) -> UserError {
    UserError::new(
        ErrorKind::State,
        format!("`{stack}` is not restored: it was removed from the repository"),
    )
    .hint("the next apply of the default branch deletes the stack; to keep the stack, revert its removal")
}

fn incomplete(stack: &StackId, state: &StackState) -> UserError {
    if state.is_blank() {
        return UserError::new(
            ErrorKind::State,
            format!("`{stack}` was never applied: there is nothing to restore"),
        )
        .hint(format!("run `konverge apply {stack}` to apply it"));
    }
    UserError::new(
        ErrorKind::State,
        format!(
            "`{stack}` is not restored: its state records no complete apply, because the last one failed, or the state was imported, moved or edited since"
        ),
    )
    .hint("run the apply of the default branch again: it also applies stacks without a complete apply")
    .hint(format!(
        "to go back instead: `konverge state history {stack}`, then `konverge state rollback {stack} --to SERIAL`"
    ))
}

fn without_commit(stack: &StackId) -> UserError {
    UserError::new(
        ErrorKind::State,
        format!("`{stack}` is not restored: it was applied from uncommitted files"),
    )
    .hint("apply the stack again from these files, or commit and merge the files")
}

fn another_spec(stack: &StackId, commit: &CommitId) -> UserError {
    UserError::new(
        ErrorKind::State,
        format!(
            "`{stack}` is not restored: commit {}, which was applied last, compiles to another Spec now",
            commit.short()
        ),
    )
    .hint("an input outside the commit has changed, such as a package that is not locked; apply a commit of your own instead")
}

fn missing_commit(error: GitError, commit: &CommitId) -> UserError {
    let what = format!(
        "commit {}, which was applied last, cannot be read in this clone",
        commit.short()
    );
    UserError::from_error(ErrorKind::Git, error).context(what).hint(format!(
        "fetch the commit from a clone that has it: `git fetch REMOTE {commit}`; if the clone is shallow: `git fetch --unshallow`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{id, state};

    #[test]
    fn a_stack_that_cannot_be_restored_says_why_and_how_to_go_on() {
        let prod = id("shop/prod");
        let never = incomplete(&prod, &state("shop/prod", &[]));
        assert!(never.message.contains("was never applied"), "{never}");
        assert_eq!(never.hints, ["run `konverge apply shop/prod` to apply it"]);
        let failed = incomplete(&prod, &state("shop/prod", &["web"]));
        assert!(failed.message.contains("records no complete apply"), "{failed}");
        assert!(
            failed.hints[1].contains("konverge state rollback shop/prod"),
            "{failed:?}"
        );
    }
}
