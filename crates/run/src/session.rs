//! Opens a session: its repository, revisions, stacks, states and infrastructure.

use std::sync::Arc;

use std::{collections::BTreeMap, path::Path};

use crate::{
    CloneHistory, ComparedRevisions, KeyUse, NewerCommits, OpenRevision, PendingStacks, Planner,
    RevisionSpec, RunBuilder, RunContext, Selection, SpecSource, StateBackend, Target, adoption,
    affected::{BEFORE, find, is_part},
    apply::NewerCommitCheck,
    cluster_selection::{GivenCluster, Live},
    compiler, policy_set_loader, setting_changes,
    stack_claims::StackClaims,
    stack_lookup::{self, NamedStacks},
    state_backend,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, RepoPath, Shard, StackFolder, StackId, affected::Affected, setting_change::SettingChange,
        spec::Spec, stack::Stack,
    },
};
use konverge_config::Config;
use konverge_policy_sets::PolicySets;
use konverge_repo::git::Repository;

/// The options of a session, from the command line.
#[derive(Debug, Clone, Default)]
pub struct OpenRequest {
    /// The selected stacks.
    pub selection: Selection,
    /// True if the name of a project or a glob also selects stacks that only the states have.
    pub recorded: bool,
    /// True if a change that adds `konverge.yaml` affects every stack, to show which of them compile.
    pub introduction: bool,
    /// True to select only stacks with pending changes. Then no base is compared with.
    pub pending: bool,
    /// The shard that this process plans; `None` for all stacks.
    pub shard: Option<Shard>,
    /// The revision to open; `None` for the working tree.
    pub rev: Option<String>,
    /// The revision to compare with; `None` for the merge base with the default branch.
    pub base: Option<String>,
    /// The setting that decides if plans query the live infrastructure.
    pub live: Live,
    /// True to open no store, so that no credentials are needed. Specs are compared with Specs, and hashes of secrets
    /// use a key that only this run has.
    pub without_states: bool,
    /// A cluster from the command line.
    pub given: GivenCluster,
    /// True if an apply does not wait for readiness.
    pub no_wait: bool,
    /// Stacks that need no deleted object of another stack, as the user confirms, although their Specs do not compile.
    pub without: Vec<StackId>,
}

impl OpenRequest {
    /// Creates the builder for the run of this request.
    fn builder<'a>(
        &self,
        run: &'a RunContext,
        config: Config,
        backend: Option<StateBackend>,
    ) -> RunBuilder<'a> {
        RunBuilder {
            live: self.live,
            given: self.given.clone(),
            backend,
            waits: !self.no_wait,
            claims: StackClaims::without(self.without.iter().cloned()),
            ..RunBuilder::new(run, config)
        }
    }

    /// Opens the states, unless the request excludes them.
    async fn backend(
        &self,
        run: &RunContext,
        config: &Config,
        repository: Option<&Repository>,
        at: &RevisionSpec,
        key: KeyUse,
    ) -> Result<Option<StateBackend>, UserError> {
        if self.without_states {
            return Ok(None);
        }
        let backend = state_backend::open_of_checkout(run, config, repository, at, key).await?;
        Ok(Some(backend))
    }
}

/// An opened session.
pub struct Session {
    /// Plans the targets of the session.
    pub planning: Planner,
    /// The stacks, sorted by folder; removed ones that are pending come last.
    pub targets: Vec<Target>,
    /// The stacks that differ from the base; empty for a Spec from a file.
    pub affected: Affected,
    /// The policy sets of the head.
    pub sets: PolicySets,
    /// The changed keys of `konverge.yaml` that affect stacks.
    pub settings: Vec<SettingChange>,
    /// True if every stack is a target because the change adds `konverge.yaml`.
    pub introduces: bool,
    /// The pending stacks that were skipped because of a newer commit; `None` unless only pending stacks were selected.
    pub newer: Option<Arc<NewerCommits>>,
}

impl Session {
    /// Returns the check for newer commits, which an apply makes under the lease of each stack.
    pub fn newer_commits(&self) -> Option<Arc<dyn NewerCommitCheck>> {
        let newer = self.newer.clone()?;
        Some(newer)
    }

    /// Returns the commit of the head. For a working tree, this is the checked-out commit if no file differs from it.
    ///
    /// # Errors
    /// The repository cannot be read.
    pub fn commit(&self) -> Result<Option<CommitId>, UserError> {
        let Some(head) = self.planning.wanted.head() else {
            return Ok(None);
        };
        if let Some(commit) = head.commit() {
            return Ok(Some(commit.clone()));
        }
        let repository = Repository::discover(&self.planning.run.dir)?;
        // A repository without commits has no `HEAD`.
        let Ok(commit) = repository.resolve("HEAD") else {
            return Ok(None);
        };
        let committed = repository.revision(&commit)?;
        Ok((committed.files() == head.source.files()).then_some(commit))
    }
}

/// Opens a session on a monorepo.
///
/// # Errors
/// Errors of the repository, the revisions, the configuration, the selected names, the KCL core or the store.
pub async fn open(run: &RunContext, request: &OpenRequest, key: KeyUse) -> Result<Session, UserError> {
    let repository = Repository::discover(&run.dir)?;
    let at = match &request.rev {
        Some(rev) => RevisionSpec::Commit(repository.resolve(rev)?),
        None => RevisionSpec::Worktree,
    };
    let mut revisions = ComparedRevisions::open(run, &repository, &at, None)?;
    // Pending changes are found by the states alone, so no base is needed.
    let base = if request.pending {
        None
    } else {
        base_commit(run, &repository, request, &at).await?
    };
    match base {
        Some(commit) => revisions = revisions.with_base(&repository, commit)?,
        None => revisions.save_head(),
    }
    let affected = revisions.affected();
    let introduces = request.introduction
        && request.selection == Selection::Affected
        && !request.pending
        && revisions.introduces_config();
    let mut targets = targets(request, &revisions, &affected);
    if introduces {
        targets = revisions.with_every_stack(targets);
    }
    let head = &revisions.head;
    let config = head.config.clone();
    let backend = request.backend(run, &config, Some(&repository), &at, key).await?;
    // Named stacks may exist only in the states, so they are looked up after the states are open.
    if let Selection::Named(selectors) = &request.selection {
        let repository = NamedStacks {
            run,
            root: repository.root(),
            revisions: &revisions,
            backend: backend.as_ref(),
            recorded: request.recorded || request.pending,
        };
        targets = repository.find(selectors).await?;
    }
    let mut newer = None;
    if let (true, Some(backend)) = (request.pending, &backend) {
        let pending = find_pending(run, request, &targets, &repository, head, backend, key).await?;
        targets = pending.targets;
        // A user names a stack to take it over on purpose, so a named stack is never left alone.
        if !matches!(request.selection, Selection::Named(_)) {
            adoption::leave_alone(run, head, backend, &mut targets).await?;
        }
        newer = Some(pending.newer);
    } else if let Some(shard) = request.shard {
        shard.keep(&mut targets);
    }
    let settings = setting_changes::find(&config, &revisions);
    // A removed stack may name a kubeconfig that only the base has.
    let removed = revisions.base.iter().flat_map(|base| &base.layout.stacks);
    let given = request.given.clone();
    let given = given.with_stack_clusters(head.layout.stacks.iter().chain(removed));
    let sets = policy_set_loader::load(&config, head.source.as_ref());
    let builder = RunBuilder {
        given,
        rule_files: Some(Arc::clone(&head.source)),
        ..request.builder(run, config, backend)
    };
    let (source, _known) = revisions.into_source(builder.compilers());
    let planning = builder.planner(source).await?;
    Ok(Session {
        planning,
        targets,
        affected,
        sets,
        settings,
        introduces,
        newer,
    })
}

/// Returns the selected stacks that have pending changes at a revision. `named` has the stacks that the request names.
async fn find_pending(
    run: &RunContext,
    request: &OpenRequest,
    named: &[Target],
    repository: &Repository,
    head: &OpenRevision,
    backend: &StateBackend,
    key: KeyUse,
) -> Result<PendingStacks, UserError> {
    if !backend.is_shared {
        run.notes.note(
            "`state.url` is not set, so only the states on this machine decide which changes are pending",
        );
    }
    if key == KeyUse::Make {
        let known = backend.states.known().await?;
        backend.states.maintain_index(known).await?;
    }
    let commit = match head.commit() {
        Some(commit) => Some(commit.clone()),
        None => repository.resolve("HEAD").ok(),
    };
    let history = Box::new(CloneHistory::new(run, repository, commit));
    let is_selected = |target: &Target| match &request.selection {
        Selection::Named(_) => named.iter().any(|named| named.id == target.id),
        Selection::All | Selection::Affected => true,
    };
    // Shards are assigned by the identity of a stack and not by its position in the list: the list becomes shorter as
    // other shards apply their stacks.
    let is_of_shard = |target: &Target| request.shard.is_none_or(|shard| shard.has_stack(&target.id));
    let keep = |target: &Target| is_selected(target) && is_of_shard(target);
    let pending = PendingStacks::find(run, head, backend, history, keep).await?;
    if pending.targets.is_empty() && pending.newer.superseded_stacks().is_empty() {
        run.notes.note(match (&request.selection, request.shard) {
            (_, Some(_)) => "this shard has no stack with pending changes",
            (Selection::Named(_), None) => "none of these stacks has pending changes",
            _ => "no stack has pending changes",
        });
    }
    Ok(pending)
}

/// Opens a session on named stacks, even outside of a monorepo, where only the states have them.
///
/// # Errors
/// See [`open`]; also if no state has a named stack.
pub async fn open_named(run: &RunContext, request: &OpenRequest, key: KeyUse) -> Result<Session, UserError> {
    let repository = Repository::discover(&run.dir).ok();
    let files = repository.as_ref().map(Repository::worktree).transpose()?;
    let is_module = |path: &RepoPath| path.file_name() == "kcl.mod";
    let has_module = files
        .as_ref()
        .is_some_and(|files| files.files().keys().any(is_module));
    let selectors = match &request.selection {
        Selection::Named(selectors) if !has_module => selectors,
        _ => return open(run, request, key).await,
    };
    let mut session = without_code(run, repository.as_ref(), request, key, Spec::default()).await?;
    let mut targets = BTreeMap::new();
    if let Some(backend) = &session.planning.backend {
        let known = backend.states.known().await?;
        for selector in selectors {
            let found = stack_lookup::recorded(backend, known, selector).await?;
            targets.extend(found.into_iter().map(|target| (target.id.clone(), target)));
        }
    }
    session.targets = targets.into_values().collect();
    Ok(session)
}

/// Opens a session on a Spec from a file, as its only target. Needs neither a repository nor KCL.
///
/// # Errors
/// The file is not a Spec; errors of the store.
pub async fn open_file(
    run: &RunContext,
    file: &Path,
    identity: Option<&str>,
    request: &OpenRequest,
    key: KeyUse,
) -> Result<Session, UserError> {
    let spec = compiler::read_spec_file(&run.dir.join(file))?;
    let id = match identity {
        Some(text) => text.parse::<StackId>(),
        None => StackId::new(
            None,
            "spec",
            &file.file_stem().unwrap_or_default().to_string_lossy(),
        ),
    };
    let id = id.map_err(|error| {
        UserError::from_error(ErrorKind::Usage, error)
            .hint("name the state's identity: `--stack <project>/<stack>`")
    })?;
    let repository = Repository::discover(&run.dir).ok();
    let mut session = without_code(run, repository.as_ref(), request, key, spec).await?;
    session.targets = vec![Target {
        stack_folder: StackFolder::none(),
        ..Target::new(&Stack::new(id, RepoPath::root()), None)
    }];
    Ok(session)
}

/// Opens a session without targets, for Specs that need no compilation.
async fn without_code(
    run: &RunContext,
    repository: Option<&Repository>,
    request: &OpenRequest,
    key: KeyUse,
    spec: Spec,
) -> Result<Session, UserError> {
    let files = repository.map(Repository::worktree).transpose()?;
    let config = match &files {
        Some(files) => Config::load(files.as_ref())?,
        None => Config::default(),
    };
    let sets = match &files {
        Some(files) => policy_set_loader::load(&config, files.as_ref()),
        None => PolicySets::default(),
    };
    let at = RevisionSpec::Worktree;
    let backend = request.backend(run, &config, repository, &at, key).await?;
    let mut builder = request.builder(run, config, backend);
    builder.rule_files = files;
    Ok(Session {
        planning: builder.planner(SpecSource::File(spec)).await?,
        targets: Vec::new(),
        affected: Affected::nothing(None),
        sets,
        settings: Vec::new(),
        introduces: false,
        newer: None,
    })
}

/// Returns the commit to compare with. `None` if none was given and the repository has no history; then every stack
/// must be named.
pub async fn base_commit(
    run: &RunContext,
    repository: &Repository,
    request: &OpenRequest,
    at: &RevisionSpec,
) -> Result<Option<CommitId>, UserError> {
    let credentials = run.clone_credentials();
    let credentials = credentials.as_ref();
    if let Some(base) = &request.base {
        return Ok(Some(find(repository, base, credentials).await?));
    }
    let by_change = request.selection == Selection::Affected;
    let found = async || -> Result<CommitId, UserError> {
        let branch = repository.default_branch()?;
        let tip = repository.resolve(&branch)?;
        let head = match at {
            RevisionSpec::Commit(commit) => commit.clone(),
            RevisionSpec::Worktree | RevisionSpec::Staged(_) => repository.resolve("HEAD")?,
        };
        let base = repository.merge_base_fetching(&tip, &head, credentials).await?;
        if base == head && by_change {
            let compared = match at {
                RevisionSpec::Commit(_) => "there is nothing to compare",
                RevisionSpec::Worktree | RevisionSpec::Staged(_) => "only uncommitted changes are compared",
            };
            run.notes.info(&format!(
                "{}: {compared}. {BEFORE}, `--all` takes every stack",
                is_part(&head, &branch)
            ));
        }
        Ok(base)
    };
    match found().await {
        Ok(commit) => Ok(Some(commit)),
        Err(failure) if by_change => Err(failure),
        Err(_) => Ok(None),
    }
}

/// Returns the selected stacks, except for named ones, because only the states have some of those.
fn targets(request: &OpenRequest, revisions: &ComparedRevisions, affected: &Affected) -> Vec<Target> {
    match &request.selection {
        Selection::Named(_) => Vec::new(),
        Selection::All => {
            let stacks = revisions.head.layout.stacks.iter();
            stacks.map(|stack| revisions.target(stack)).collect()
        }
        Selection::Affected => revisions.targets(affected),
    }
}
