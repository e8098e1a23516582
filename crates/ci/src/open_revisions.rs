//! Opens revisions in a job: commits only, with the permissions of the default branch.

use std::collections::BTreeSet;

use crate::{
    adoption, job::Job, permission_changes::permission_changes, trust::job_trust::Trust, workflow_coverage,
};
use konverge_base::{
    error::UserError,
    model::{
        CommitId, RepoPath, Shard, StackId,
        affected::{Affected, AffectedStack},
        file_source::Source,
        model_change::ModelChange,
        permission_changes::PowerChange,
        setting_change::SettingChange,
    },
};
use konverge_config::{Apply, Config, FILE_NAME, Sandbox};
use konverge_model_sources::model_changes;
use konverge_report::Merging;
use konverge_run::{
    ComparedRevisions, KeyUse, OpenRevision, Planner, RevisionSpec, RunBuilder, SpecSource, StateBackend,
    Target, cluster_selection::Live, compiler::Compilers, core_lookup, health_rules, setting_changes,
    state_backend,
};

/// Two opened revisions, with the input for planning their difference.
pub(super) struct OpenedChange {
    pub planning: Planner,
    pub targets: Vec<Target>,
    pub affected: Affected,
    pub stacks_in_repository: usize,
    /// The configuration in the proposal itself.
    pub proposed: Config,
    /// The permissions that the merge would change.
    pub permission_changes: Vec<PowerChange>,
    /// The changes of `konverge.yaml` that affect stacks.
    pub settings: Vec<SettingChange>,
    /// The changes of generated models.
    pub models: Vec<ModelChange>,
    /// The trust in the proposal. Lower than granted if the configuration of the default branch is unusable.
    pub trust: Trust,
    /// False if the job would record a review but has no key to authenticate it: such a record is ignored by an apply.
    pub can_mark: bool,
    /// True if the proposal adds `konverge.yaml`: then every stack is a target, to show which of them compile.
    pub introduces: bool,
    /// The targets that the proposal adopts without a change, although their inputs do not change.
    pub adopts: BTreeSet<StackId>,
    /// True if there are targets whose inputs the proposal does not change.
    pub adds_targets: bool,
}

impl OpenedChange {
    /// Keeps only the stacks of a shard.
    pub(super) fn select_shard(&mut self, share: Shard) {
        if self.adds_targets {
            share.keep(&mut self.targets);
            let targets = &self.targets;
            let is_target = |stack: &AffectedStack| targets.iter().any(|target| target.id == stack.id);
            return self.affected.stacks.retain(is_target);
        }
        share.keep(&mut self.affected.stacks);
        let own = &self.affected.stacks;
        self.targets
            .retain(|target| own.iter().any(|stack| stack.id == target.id));
    }
}

/// The commits of a preview.
pub(super) struct PreviewCommits {
    /// The trusted commit, whose configuration grants the permissions: the tip of the default branch, or the base if
    /// that branch is unknown.
    pub trusted: CommitId,
    /// The commit to compare with.
    pub base: CommitId,
    /// The commit to compile: the test merge, or the head.
    pub content: CommitId,
}

/// The configuration of a proposal.
pub(super) struct EffectiveConfig {
    /// The effective configuration: that of the proposal with the permissions of the default branch.
    pub config: Config,
    /// The configuration in the proposal itself.
    pub proposed: Config,
    /// The configuration of the default branch.
    pub protected: Config,
    /// The trust in the proposal. Lower than granted if `protected` is unusable.
    pub trust: Trust,
}

impl Job {
    /// Opens base and head with the permissions of the trusted commit.
    ///
    /// # Errors
    /// A commit cannot be fetched or read; the configuration, the KCL core or the store is unusable.
    pub(super) async fn open(&self, commits: &PreviewCommits) -> Result<OpenedChange, UserError> {
        let PreviewCommits {
            trusted: at,
            base,
            content: head,
        } = commits;
        let EffectiveConfig {
            config,
            proposed,
            protected,
            trust,
        } = self.effective_config(commits).await?;
        let trusted = self.repository.revision(at)?;
        let grants = trust.grants();
        // Compare the commits. Permissions come from the trusted commit, and stacks and code from the base and the
        // head.
        let at_head = RevisionSpec::Commit(head.clone());
        let revisions = ComparedRevisions::open(&self.run, &self.repository, &at_head, Some(&config))?;
        if grants.clusters && !health_rules::same(&config, trusted.as_ref(), revisions.head.source.as_ref()) {
            self.run.notes.note(
                "the readiness rules differ from the default branch's; until the merge the default branch's rules apply",
            );
        }
        workflow_coverage::warn(self, &proposed, &revisions.head);
        let revisions = revisions.with_base(&self.repository, base.clone())?;
        let affected = revisions.affected();
        let permission_changes = permission_changes(&proposed, revisions.base.as_ref(), &revisions.head);
        let models = model_changes::find(&self.run, revisions.base.as_ref(), &revisions.head, &affected);
        let mut targets = revisions.targets(&affected);
        let introduces = introduces_config(trusted.as_ref(), &revisions);
        if introduces {
            targets = revisions.with_every_stack(targets);
        }
        // Open the store, if the job may. Without a key the store stays closed, because a record without a mark is
        // ignored.
        let can_mark = state_backend::can_mark(&self.run, &protected)?;
        let can_mark = can_mark || !grants.store;
        if !can_mark {
            self.run.notes.warning(
                "this job holds no key of `state.encrypt_to`, so it compares the compiled Specs of both revisions and records no review: after the merge each plan needs an approval by its digest\n  hint: give the job KONVERGE_AGE_IDENTITY, or a key service that it may use",
            );
        }
        let backend = if grants.store && can_mark {
            self.backend(&protected, KeyUse::Make).await?
        } else {
            None
        };
        // Add the stacks that the proposal takes over, and those that it no longer leaves alone. The merge applies them
        // for the first time, so they must be reviewed although none of their inputs changes.
        let mut settings = setting_changes::find(&proposed, &revisions);
        let affected_targets = targets.len();
        let adopts = match (&backend, &revisions.base) {
            (Some(backend), Some(base)) if grants.clusters => {
                let head = &revisions.head;
                adoption::add(&self.run, base, head, backend, &mut targets, &mut settings).await?
            }
            _ => BTreeSet::new(),
        };
        let adds_targets = introduces || targets.len() > affected_targets;
        // Choose between the live infrastructure and a comparison of Specs. A missing cluster is an error only if one
        // is configured.
        let live = match (grants.clusters && can_mark, self.options.live) {
            (false, _) => Live::Never,
            (true, Some(live)) => live,
            (true, None) if protected.clusters.is_empty() => {
                self.run.notes.note(
                    "konverge.yaml on the default branch defines no clusters: this compares the compiled Specs of both revisions",
                );
                Live::Auto
            }
            (true, None) => Live::Required,
        };
        // Create the planner. Policies and readiness rules come from the trusted commit, the code of the stacks from
        // the proposal.
        let stacks_in_repository = revisions.head.layout.stacks.len();
        let mut builder = RunBuilder::new(&self.run, config);
        builder.rule_files = Some(trusted);
        builder.live = live;
        let compilers = compilers(&builder, trust, backend.as_ref(), revisions.base.as_ref())?;
        let (source, _known) = revisions.into_source(compilers);
        builder.backend = backend;
        Ok(OpenedChange {
            planning: builder.planner(source).await?,
            stacks_in_repository,
            targets,
            affected,
            trust,
            can_mark,
            introduces,
            adopts,
            adds_targets,
            settings,
            proposed,
            permission_changes,
            models,
        })
    }

    /// Fetches the commits, and combines the configuration of the proposal with the permissions of the default branch.
    ///
    /// # Errors
    /// A commit cannot be fetched or read, or the proposed configuration is invalid.
    pub(super) async fn effective_config(
        &self,
        commits: &PreviewCommits,
    ) -> Result<EffectiveConfig, UserError> {
        let PreviewCommits {
            trusted: at,
            base,
            content: head,
        } = commits;
        for commit in [at, base, head] {
            self.repository.ensure(commit, self.credentials.as_ref()).await?;
        }
        let trusted = self.repository.revision(at)?;
        let trust = self.authority.trust;
        let proposed = Config::load(self.repository.revision(head)?.as_ref())?;
        let (protected, trust) = match Config::load(trusted.as_ref()) {
            Ok(config) => (config, trust),
            // The configuration of the default branch is broken, and this change may repair it. So it gets a preview,
            // but no permissions.
            Err(error) => {
                self.run.warn(
                    &format!(
                        "konverge.yaml on the default branch ({}) is invalid, so the preview compares Specs only and is not recorded as reviewed",
                        at.short()
                    ),
                    error,
                );
                (Config::default(), trust.without_trusted_config())
            }
        };
        let grants = trust.grants();
        core_lookup::require_pinned(&proposed, &protected)?;
        let mut config = proposed.with_power_from(&protected);
        if !grants.clusters {
            config = without_permissions(&config);
        }
        if self.authority.branch().is_none() && self.authority.elsewhere().is_some() {
            // The setting comes from a branch that is not the default branch, whose writers must not weaken the
            // sandbox.
            config.kcl.sandbox = None;
        }
        if config != proposed && grants.clusters {
            self.run.notes.note(
                "konverge.yaml differs from the default branch's in settings that grant permissions; until the merge the default branch's settings apply",
            );
        }
        // The code is not reviewed yet, so it needs the full sandbox, unless the default branch has another setting.
        config.kcl.sandbox.get_or_insert(Sandbox::Required);
        Ok(EffectiveConfig {
            config,
            proposed,
            protected,
            trust,
        })
    }

    /// Creates the planner for a commit of the default branch. Configuration and rule files come from `trusted`, the
    /// tip of that branch.
    ///
    /// # Errors
    /// A setting of the infrastructure is invalid.
    pub(super) async fn protected_planning(
        &self,
        config: Config,
        trusted: &CommitId,
        head: OpenRevision,
        backend: StateBackend,
    ) -> Result<Planner, UserError> {
        let mut builder = RunBuilder::new(&self.run, config);
        builder.live = self.options.live.unwrap_or(Live::Required);
        builder.rule_files = Some(self.repository.revision(trusted)?);
        let compilers = compilers(&builder, Trust::Merged, Some(&backend), None)?;
        builder.backend = Some(backend);
        builder.planner(SpecSource::compiled(compilers, head, None)).await
    }

    /// Opens a commit of the default branch with the permissions of a configuration, that of the tip.
    ///
    /// # Errors
    /// The commit cannot be read.
    pub(super) fn open_merged(&self, commit: &CommitId, config: &Config) -> Result<OpenRevision, UserError> {
        let at = RevisionSpec::Commit(commit.clone());
        OpenRevision::open_with_permissions_of(&self.run, &self.repository, &at, config)
    }

    /// Opens the states if a store is configured. A job has no default store, because a folder of the runner is lost
    /// with it.
    ///
    /// # Errors
    /// The store is unusable.
    pub(super) async fn backend(
        &self,
        config: &Config,
        key: KeyUse,
    ) -> Result<Option<StateBackend>, UserError> {
        if config.state.url.is_none() {
            return Ok(None);
        }
        state_backend::open(&self.run, config, Some(&self.repository), key)
            .await
            .map(Some)
    }
}

/// Creates the compilers of a job. Results of less trusted code are not cached, because a later run with more trust
/// would read them.
pub(super) fn compilers(
    builder: &RunBuilder<'_>,
    trust: Trust,
    backend: Option<&StateBackend>,
    base: Option<&OpenRevision>,
) -> Result<Compilers, UserError> {
    let mut compilers = builder.compilers();
    if let Some(backend) = backend {
        compilers = compilers.sharing(backend)?;
    }
    let grants = trust.grants();
    if !grants.caches {
        compilers = compilers.without_writing_caches();
    }
    if !grants.packages {
        compilers = compilers.for_untrusted_code(base)?;
    }
    Ok(compilers)
}

/// Returns true if neither the base nor the default branch has a `konverge.yaml`.
fn introduces_config(trusted: &dyn Source, revisions: &ComparedRevisions) -> bool {
    revisions.introduces_config() && !trusted.files().contains_key(&RepoPath::root().child(FILE_NAME))
}

/// Returns the configuration without permissions. Only the settings for reading and compiling the repository remain.
fn without_permissions(config: &Config) -> Config {
    let config_without = Config {
        version: config.version,
        kcl: config.kcl.clone(),
        // Without live infrastructure no secret store is opened, but the names of the stores are needed to check
        // references.
        secrets: config.secrets.clone(),
        // No hook runs, but the preview shows a hook that an apply would refuse.
        apply: Apply {
            hooks: config.apply.hooks.clone(),
            ..Apply::default()
        },
        ..Config::default()
    };
    config_without.with_spec_keys_of(config)
}

/// The change that a preview shows.
pub(super) struct PreviewTarget {
    /// The pull request; `None` in a merge queue.
    pub number: Option<u64>,
    /// The head, which identifies the change.
    pub head: CommitId,
    /// The compared commits.
    pub commits: PreviewCommits,
    /// The effect of merging the change.
    pub merging: Merging,
    /// The target branch, if it is not the default branch.
    pub into: Option<String>,
}
