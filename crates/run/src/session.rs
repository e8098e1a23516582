//! Opens a request: repository, revisions, stacks, states, infrastructure.

use std::sync::Arc;

use std::{collections::BTreeMap, path::Path};

use crate::{
    CloneHistory, ComparedRevisions, KeyUse, NewerCommits, OpenRevision, PendingStacks, Planner,
    RevisionSpec, RunBuilder, RunContext, Selection, SpecSource, StateBackend, Target, adoption,
    affected::{BEFORE, find, is_part},
    apply::NewerCommitCheck,
    cluster_selection::{GivenCluster, Live},
    compiler,
    other_stack_claims::StackClaims,
    policy_set_loader, setting_changes,
    stack_lookup::{self, NamedStacks},
    state_backend,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, RepoPath, Shard, StackFolder, StackId,
        affected::Affected,
        setting_change::SettingChange,
        spec::Spec,
        stack::{CompileSetup, NamedBy, Stack},
    },
};
use konverge_config::Config;
use konverge_policy_sets::PolicySets;
use konverge_repo::git::Repository;

/// A request.
#[derive(Debug, Clone, Default)]
pub struct OpenRequest {
    /// The selected stacks.
    pub selection: Selection,
    /// True if a project's name or a glob also selects stacks that only the states know.
    pub recorded: bool,
    /// True if a change that adds `konverge.yaml` affects every stack, to see which compile.
    pub introduction: bool,
    /// True to select only stacks with pending changes. Nothing is compared with a base.
    pub pending: bool,
    /// The shard that this process handles; `None`: all.
    pub shard: Option<Shard>,
    /// The revision; `None`: the working tree.
    pub rev: Option<String>,
    /// The revision to compare with; `None`: the merge base with the default branch.
    pub base: Option<String>,
    /// The choice whether the live infrastructure is queried.
    pub live: Live,
    /// True to open no store, so that no credential is needed. Specs are compared with Specs, and the run marks secrets
    /// with a key of its own.
    pub without_states: bool,
    /// A cluster from the command line.
    pub given: GivenCluster,
    /// True if an apply does not wait for readiness.
    pub no_wait: bool,
    /// Stacks that, as the user confirms, claim nothing that others delete, although their Specs do not
    /// compile.
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
        let builder = RunBuilder::new(run, config)
            .live(self.live)
            .claims(StackClaims::without(self.without.iter().cloned()));
        let builder = match backend {
            Some(backend) => builder.states(backend),
            None => builder,
        };
        if self.no_wait {
            builder.without_wait()
        } else {
            builder
        }
    }

    /// The states, unless the request does without them.
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

/// An opened request.
pub struct Session {
    /// The input of all plans.
    pub planning: Planner,
    /// The stacks, sorted by folder; removed ones that are pending come last.
    pub targets: Vec<Target>,
    /// The differences from the base; empty for a Spec from a file.
    pub affected: Affected,
    /// The policy sets of the revision.
    pub sets: PolicySets,
    /// The changed keys of the configuration that have an effect on stacks.
    pub settings: Vec<SettingChange>,
    /// True if every stack is a target because the change adds `konverge.yaml`.
    pub introduces: bool,
    /// The pending stacks with a newer commit, if only pending stacks were selected.
    pub newer: Option<Arc<NewerCommits>>,
}

impl Session {
    /// The check for newer commits that an apply makes under the lease of each stack.
    pub fn newer_commits(&self) -> Option<Arc<dyn NewerCommitCheck>> {
        let newer = self.newer.clone()?;
        Some(newer)
    }

    /// The commit of the head. For a working tree the commit that is checked out, if no file differs from it.
    ///
    /// # Errors
    /// The repository cannot be read.
    pub fn commit(&self) -> Result<Option<CommitId>, UserError> {
        let SpecSource::Compiled { head, .. } = &self.planning.wanted else {
            return Ok(None);
        };
        if let Some(commit) = head.commit() {
            return Ok(Some(commit.clone()));
        }
        let repository = Repository::discover(&self.planning.run.dir)?;
        // A repository without commits has no commit to name.
        let Ok(commit) = repository.resolve("HEAD") else {
            return Ok(None);
        };
        let committed = repository.revision(&commit)?;
        Ok((committed.files() == head.source.files()).then_some(commit))
    }
}

/// Opens a request on a monorepo.
///
/// # Errors
/// Errors of the repository, revisions, configuration, names, core or store.
pub async fn open(run: &RunContext, request: &OpenRequest, key: KeyUse) -> Result<Session, UserError> {
    let repository = Repository::discover(&run.dir)?;
    let at = match &request.rev {
        Some(rev) => RevisionSpec::Commit(repository.resolve(rev)?),
        None => RevisionSpec::Worktree,
    };
    let mut revisions = ComparedRevisions::open(run, &repository, &at, None)?;
    // Pending changes are those that the states lack, whatever the base is.
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
    if let Selection::Named(selectors) = &request.selection {
        let repository = NamedStacks {
            run,
            root: repository.root(),
            head,
            base: revisions.base.as_ref(),
            backend: backend.as_ref(),
            recorded: request.recorded || request.pending,
        };
        targets = repository.find(selectors).await?;
    }
    let mut newer = None;
    if let (true, Some(backend)) = (request.pending, &backend) {
        let pending = find_pending(run, request, &targets, &repository, head, backend, key).await?;
        targets = pending.targets;
        if !matches!(request.selection, Selection::Named(_)) {
            adoption::leave_alone(run, head, backend, &mut targets).await?;
        }
        newer = Some(pending.newer);
    } else if let Some(shard) = request.shard {
        shard.keep(&mut targets);
    }
    let settings = setting_changes::find(&config, &revisions);
    let removed = revisions.base.iter().flat_map(|base| &base.layout.stacks);
    let given = request.given.clone();
    let given = given.with_stack_clusters(head.layout.stacks.iter().chain(removed));
    let sets = policy_set_loader::load(&config, head.source.as_ref());
    let builder = request
        .builder(run, config, backend)
        .given_cluster(given)
        .rule_files(Arc::clone(&head.source));
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

/// Returns the selected stacks that have pending changes at a revision. `named` are those that the request names.
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
            "`state.url` is not set: pending is what the states on this machine do not have as applied",
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
    // Select by the stack and not by its place in the list: other shards may have applied stacks already, so the list
    // is shorter.
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

/// Opens stacks by name, also outside a monorepo, where only the states know them.
///
/// # Errors
/// See [`open`]; also if no state knows a name.
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
    let (planning, sets) = without_code(run, repository.as_ref(), request, key, Spec::default()).await?;
    let mut targets = BTreeMap::new();
    if let Some(backend) = &planning.backend {
        let known = backend.states.known().await?;
        for selector in selectors {
            let found = stack_lookup::recorded(backend, known, selector).await?;
            targets.extend(found.into_iter().map(|target| (target.id.clone(), target)));
        }
    }
    Ok(Session {
        planning,
        targets: targets.into_values().collect(),
        affected: nothing_compared(),
        sets,
        settings: Vec::new(),
        introduces: false,
        newer: None,
    })
}

/// Opens a Spec from a file as one target; needs neither a repository nor KCL.
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
    let (planning, sets) = without_code(run, repository.as_ref(), request, key, spec).await?;
    let folder = RepoPath::root();
    let stack = Stack {
        id: id.clone(),
        names: id.clone(),
        earlier_names: None,
        named_by: NamedBy::Names,
        folder: folder.clone(),
        manifest: folder.child("stack.yaml"),
        project_folder: folder,
        compile: Ok(CompileSetup::default()),
        cluster: None,
        kubeconfig: None,
        reads: std::collections::BTreeMap::new(),
    };
    Ok(Session {
        planning,
        targets: vec![Target {
            stack_folder: StackFolder::none(),
            ..Target::new(&stack, None)
        }],
        affected: nothing_compared(),
        sets,
        settings: Vec::new(),
        introduces: false,
        newer: None,
    })
}

/// The input of plans without compilation, and the policy sets: the Spec is given.
async fn without_code(
    run: &RunContext,
    repository: Option<&Repository>,
    request: &OpenRequest,
    key: KeyUse,
    spec: Spec,
) -> Result<(Planner, PolicySets), UserError> {
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
    let mut builder = request
        .builder(run, config, backend)
        .given_cluster(request.given.clone());
    if let Some(files) = files {
        builder = builder.rule_files(files);
    }
    let planning = builder.planner(SpecSource::File(spec)).await?;
    Ok((planning, sets))
}

fn nothing_compared() -> Affected {
    Affected {
        version: 1,
        base: None,
        head: None,
        stacks: Vec::new(),
    }
}

/// The commit to compare with. `None` if it was not given and there is no history; then every stack must be
/// named.
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
                RevisionSpec::Worktree | RevisionSpec::Staged(_) => "only what is not committed is compared",
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

/// Returns the stacks of a request, except for named ones: only the states know some of those.
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
