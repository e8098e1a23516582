//! The `affected` use case: opens two revisions and compares their stacks by inputs, and on request by Specs.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    AnalysisCache, ComparedRevisions, OpenRevision, RevisionSpec, RunContext,
    compiler::{Compilers, join_failures},
};
use konverge_base::{
    error::UserError,
    model::{
        CommitId, StackId,
        affected::{Affected, AffectedStack, InputChange, SpecChange},
        file_source::{BlobId, FileTree, Source, SourceError},
    },
};
use konverge_config::Config;
use konverge_repo::{
    affected::{Analysis, ScanCache},
    git::{GitCredentials, GitError, Repository},
    konfig::Layout,
};

/// The revisions to compare, and the kind of comparison.
#[derive(Debug, Clone, Default)]
pub struct AffectedRequest {
    /// The revision to compare with; `None`: the merge base with the default branch.
    pub base: Option<String>,
    /// The revision with the change; `None`: `HEAD`.
    pub head: Option<String>,
    /// Use the working tree as the revision with the change.
    pub worktree: bool,
    /// Select every stack, as if nothing existed before.
    pub all: bool,
    /// Compile the affected stacks of both revisions and compare their Specs.
    pub exact: bool,
}

/// The affected stacks, with the opened revisions.
pub struct AffectedReport {
    /// The affected stacks and why.
    pub affected: Affected,
    /// The opened revisions; without a base with [`AffectedRequest::all`].
    pub revisions: ComparedRevisions,
}

impl AffectedReport {
    /// Waits until the caches are written, then leaks everything else: freeing some hundred thousand allocations takes
    /// a tenth of the time. Call it before the process ends.
    pub fn finish_leaking(self) {
        self.revisions.known.wait_until_saved();
        std::mem::forget(self);
    }
}

/// Compares the two revisions of a request.
///
/// # Errors
/// A revision cannot be found or read, `konverge.yaml` at the head is invalid, or there is no `kcl.mod`.
pub async fn run(run: &RunContext, request: &AffectedRequest) -> Result<AffectedReport, UserError> {
    let repository = Repository::discover(&run.dir)?;
    let credentials = run.clone_credentials();
    let head_name = request.head.as_deref().unwrap_or("HEAD");
    let head_commit = find(&repository, head_name, credentials.as_ref()).await?;
    let base_commit = match (&request.base, request.all) {
        (_, true) => None,
        (Some(name), _) => Some(find(&repository, name, credentials.as_ref()).await?),
        (None, _) => Some(default_base(run, &repository, &head_commit, request, credentials.as_ref()).await?),
    };
    let at = if request.worktree {
        RevisionSpec::Worktree
    } else {
        RevisionSpec::Commit(head_commit)
    };
    let known = AnalysisCache::open(run, &repository);
    // The base is opened first: it is saved for the next run while the head is being opened.
    let base = base_commit.map(|commit| open_base(run, &known, &repository, commit, &at));
    let base = base.transpose()?.inspect(|base| known.save(base));
    let head = OpenRevision::open_knowing(&known, &repository, &at, None)?;
    head.layout.require_module()?;
    head.note_layout(run);
    known.save_scans();
    let mut affected = match &base {
        Some(base) => head.analysis.compare(&base.analysis),
        None => {
            known.save(&head);
            let nothing: Arc<dyn Source> = Arc::new(EmptySource::default());
            let empty = Analysis::new(
                nothing,
                Layout::default(),
                head.config.kcl.core(),
                &ScanCache::new(),
            )?;
            head.analysis.compare(&empty)
        }
    };
    if request.exact
        && let Some(base) = &base
    {
        compare_specs(run, base, &head, &mut affected).await?;
    }
    Ok(AffectedReport {
        affected,
        revisions: ComparedRevisions { known, head, base },
    })
}

/// Resolves a revision, and fetches a full commit id that a shallow clone lacks.
pub async fn find(
    repository: &Repository,
    name: &str,
    credentials: Option<&GitCredentials>,
) -> Result<CommitId, UserError> {
    if let Ok(id) = name.parse::<CommitId>() {
        repository.ensure(&id, credentials).await?;
    }
    match repository.resolve(name) {
        Err(GitError::UnknownRevision(_)) if repository.is_shallow()? => {
            Err(GitError::Shallow(format!("the revision `{}` is missing", name.escape_debug())).into())
        }
        found => Ok(found?),
    }
}

async fn default_base(
    run: &RunContext,
    repository: &Repository,
    head: &CommitId,
    request: &AffectedRequest,
    credentials: Option<&GitCredentials>,
) -> Result<CommitId, UserError> {
    let branch = repository.default_branch()?;
    let tip = repository.resolve(&branch)?;
    let base = repository.merge_base_fetching(&tip, head, credentials).await?;
    if base == *head && !request.worktree {
        run.notes.info(&format!(
            "{}: there is nothing to compare. {BEFORE}, `--worktree` compares uncommitted changes",
            is_part(head, &branch)
        ));
    }
    Ok(base)
}

/// The hint that shows how to compare with the previous commit.
pub const BEFORE: &str = "`--base HEAD~1` compares with the commit before";

/// Returns the message that a commit is already part of a branch, so that there is no change to show.
pub fn is_part(head: &CommitId, branch: &str) -> String {
    format!("{} is part of {branch}", head.short())
}

/// Opens the base with its own `konverge.yaml`. If that file is invalid, the change may repair it, so the
/// `konverge.yaml` of the head is used.
fn open_base(
    run: &RunContext,
    known: &AnalysisCache,
    repository: &Repository,
    commit: CommitId,
    head: &RevisionSpec,
) -> Result<OpenRevision, UserError> {
    let at = RevisionSpec::Commit(commit);
    OpenRevision::open_choosing(known, repository, &at, |source| match Config::load(source) {
        Ok(config) => Ok(config),
        Err(error) => {
            let config = OpenRevision::open_knowing(known, repository, head, None)?.config;
            run.notes.info(&format!(
                "konverge.yaml of the base is invalid ({}), so that of the head is used for both revisions",
                UserError::from(error)
            ));
            Ok(config)
        }
    })
}

/// Compiles both revisions of every modified stack, and sets [`SpecChange`] to the result of the comparison.
async fn compare_specs(
    run: &RunContext,
    base: &OpenRevision,
    head: &OpenRevision,
    affected: &mut Affected,
) -> Result<(), UserError> {
    let compilers = Compilers::new(run, &head.config);
    let (mut places, mut olds, mut news) = (Vec::new(), Vec::new(), Vec::new());
    for (at, stack) in affected.stacks.iter().enumerate() {
        let after = head.layout.stack_in_folder(&stack.stack);
        let after = after.filter(|_| stack.change == InputChange::Modified);
        let before = after.and_then(|after| head.layout.predecessor_of(&base.layout, after));
        if let (Some(before), Some(after)) = (before, after) {
            places.push((at, before.id.clone(), after.id.clone()));
            olds.push(before.clone());
            news.push(after.clone());
        }
    }
    let news = compilers.for_revision(head).specs(&news).await;
    let olds = compilers.for_revision(base).specs(&olds).await;
    run.check_interrupted()?;
    let mut failures = Vec::new();
    for (((at, old, new), was), is) in places.iter().zip(olds).zip(news) {
        affected.stacks[*at].spec = match (was, is) {
            (Ok(was), Ok(is)) if was.digest() == is.digest() => SpecChange::Same,
            (Ok(_), Ok(_)) => SpecChange::Changed,
            (was, is) => {
                let both = [(old, was.err()), (new, is.err())];
                failures.extend(both.into_iter().filter_map(|(id, failure)| Some((id, failure?))));
                SpecChange::Error
            }
        };
    }
    for failure in join_failures(failures) {
        run.notes.info(&failure.to_string());
    }
    mark_readers(head, affected);
    // A modified stack without a counterpart at the base was not compiled, which must not look like an equal Spec.
    for stack in &mut affected.stacks {
        if stack.change == InputChange::Modified && stack.spec == SpecChange::NotCompiled {
            stack.spec = SpecChange::Error;
        }
    }
    Ok(())
}

/// Marks each stack as changed that reads outputs of a changed stack, even if its own Spec stays the same.
fn mark_readers(head: &OpenRevision, affected: &mut Affected) {
    let changes = |stack: &AffectedStack| match stack.change {
        InputChange::Modified => matches!(stack.spec, SpecChange::Changed | SpecChange::Error),
        _ => true,
    };
    let stacks = affected.stacks.iter().filter(|stack| changes(stack));
    let mut changed: BTreeSet<StackId> = stacks.map(|stack| stack.id.clone()).collect();
    loop {
        let before = changed.len();
        for stack in affected
            .stacks
            .iter_mut()
            .filter(|stack| stack.spec == SpecChange::Same)
        {
            let reads = head.layout.stack(&stack.id).map(|stack| &stack.reads);
            if reads.is_some_and(|reads| reads.values().any(|writer| changed.contains(writer))) {
                stack.spec = SpecChange::Changed;
                changed.insert(stack.id.clone());
            }
        }
        if changed.len() == before {
            return;
        }
    }
}

/// A revision without files.
#[derive(Default)]
struct EmptySource(FileTree);

impl Source for EmptySource {
    fn files(&self) -> &FileTree {
        &self.0
    }

    fn read(&self, blob: BlobId) -> Result<Arc<[u8]>, SourceError> {
        Err(SourceError {
            what: format!("object {blob}"),
            why: "there is nothing here".into(),
        })
    }
}
