//! Opens revisions in a job: commits only, with the permissions of the default branch.

use std::sync::Arc;

use std::collections::{BTreeMap, BTreeSet};

use super::{active_policies, adoption, job::Job, job_trust::Trust};
use konverge_base::{
    error::UserError,
    model::{
        CommitId, RepoPath, Shard, StackId,
        affected::{Affected, AffectedStack},
        file_source::Source,
        permission_changes::{CODEOWNERS, PowerChange},
        stack::Stack,
    },
};
use konverge_config::{Config, FILE_NAME, Sandbox};
use konverge_policy::CodeOwners;
use konverge_run::{
    AnalysisCache, KeyUse, OpenRevision, Planner, Renamed, RevisionSpec, SpecSource, StackClaims,
    StateBackend, Target,
    cluster_selection::{GivenCluster, Live},
    compiler::Compiler,
    health_rules, policy_set_loader,
    runtime_factory::{self, Infrastructure},
    session, state_backend,
};

/// Two opened revisions, with the input for planning their difference.
pub(super) struct OpenedChange {
    pub planning: Planner,
    pub targets: Vec<Target>,
    pub affected: Affected,
    pub stacks_in_repository: usize,
    /// The proposed configuration.
    pub proposed: Config,
    /// How the proposal changes permissions.
    pub power: Vec<PowerChange>,
    /// How much the job trusts it: less than granted if the default branch's configuration is unusable.
    pub trust: Trust,
    /// True if the proposal adds `konverge.yaml`: then every stack is a target, to see how many compile.
    pub introduces: bool,
    /// The targets that the proposal takes over as they run, although it does not affect them.
    pub adopts: BTreeSet<StackId>,
}

impl OpenedChange {
    /// Keeps the stacks of a shard, by their order in the list.
    pub(super) fn select_shard(&mut self, share: Shard) {
        if self.introduces || !self.adopts.is_empty() {
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
    /// The commit of the effective configuration: the tip of the default branch; if the job was granted no
    /// permissions, the base.
    pub power: CommitId,
    /// The commit to compare with.
    pub base: CommitId,
    /// The commit to compile: the test merge, or the head.
    pub content: CommitId,
}

impl Job {
    /// Opens base and head with the configuration of the default branch's commit `power`.
    ///
    /// # Errors
    /// A commit cannot be fetched or read; configuration, core or store are unusable.
    pub(super) async fn open(&self, sides: &PreviewCommits) -> Result<OpenedChange, UserError> {
        let PreviewCommits {
            power: at,
            base,
            content: head,
        } = sides;
        for commit in [at, base, head] {
            self.repository.ensure(commit, self.credentials.as_ref()).await?;
        }
        let power = self.repository.revision(at)?;
        let trust = self.authority.trust;
        let proposed = Config::load(self.repository.revision(head)?.as_ref())?;
        let (protected, trust) = match Config::load(power.as_ref()) {
            Ok(config) => (config, trust),
            // This change may fix it and must be previewable: it is, without any permissions.
            Err(error) => {
                self.run.warn(
                    &format!(
                        "konverge.yaml on the default branch ({}) is invalid, so the preview compares Specs only and is not recorded as reviewed",
                        at.short()
                    ),
                    error,
                );
                (Config::default(), trust.without_power())
            }
        };
        let grants = trust.grants();
        let mut config = proposed.with_power_from(&protected);
        if !grants.clusters {
            config = without_power(&config);
        }
        if self.authority.branch.is_none() && self.authority.elsewhere().is_some() {
            // It belongs to another branch, whose writers must not weaken the sandbox.
            config.kcl.sandbox = None;
        }
        if config != proposed && grants.clusters {
            self.run.notes.note(
                "note: konverge.yaml differs from the default branch's in settings that grant permissions; until the merge the default branch's settings apply",
            );
        }
        // This code is not reviewed yet: it is compiled in the full sandbox, unless the default branch says
        // otherwise.
        config.kcl.sandbox.get_or_insert(Sandbox::Required);
        let known = AnalysisCache::open(&self.run, &self.repository);
        let at_head = RevisionSpec::Commit(head.clone());
        let head_side = OpenRevision::open_knowing(&known, &self.repository, &at_head, Some(&config))?;
        head_side.layout.require_module()?;
        head_side.note_layout(&self.run);
        if grants.clusters && !health_rules::same(&config, power.as_ref(), head_side.source.as_ref()) {
            self.run.notes.note(
                "note: the readiness rules differ from the default branch's; until the merge the default branch's rules apply",
            );
        }
        let base_side = session::open_base(&known, &self.repository, base.clone(), &config)?;
        known.keep(&base_side);
        let affected = head_side.analysis.compare(&base_side.analysis);
        let power_changes = difference(&proposed, (&base_side, &head_side));
        let mut targets = session::affected_targets(&affected, Some(&base_side), &head_side);
        let has_config = |side: &dyn Source| side.files().contains_key(&RepoPath::root().child(FILE_NAME));
        let introduces = has_config(head_side.source.as_ref())
            && !has_config(power.as_ref())
            && !has_config(base_side.source.as_ref());
        if introduces {
            targets = with_every_stack(targets, &base_side, &head_side);
        }
        let backend = match grants.store {
            true => self.backend(&protected, KeyUse::Make).await?,
            false => None,
        };
        let adopted = match &backend {
            Some(backend) if grants.clusters => {
                adoption::proposed(&self.run, (&base_side, &head_side), backend, &targets).await?
            }
            _ => Vec::new(),
        };
        let adopts = adopted.iter().map(|target| target.id.clone()).collect();
        if !adopted.is_empty() {
            targets.extend(adopted);
            sort_by_folder(&mut targets);
        }
        let live = match (grants.clusters, self.options.live) {
            (false, _) => Live::Never,
            (true, Some(live)) => live,
            (true, None) if protected.clusters.is_empty() => {
                self.run.notes.note(
                    "note: konverge.yaml on the default branch defines no clusters: this compares the compiled Specs of both revisions",
                );
                Live::Auto
            }
            (true, None) => Live::Required,
        };
        Ok(OpenedChange {
            stacks_in_repository: head_side.layout.stacks.len(),
            planning: self
                .open_planner(
                    config,
                    power.as_ref(),
                    trust,
                    (head_side, Some(base_side)),
                    backend,
                    live,
                )
                .await?,
            targets,
            affected,
            trust,
            introduces,
            adopts,
            proposed,
            power: power_changes,
        })
    }

    /// The input of plans for a commit of the default branch, with the configuration and the files of the
    /// branch's tip, `power`.
    ///
    /// # Errors
    /// As [`Job::planning`].
    pub(super) async fn protected_planning(
        &self,
        config: Config,
        power: &CommitId,
        head: OpenRevision,
        backend: StateBackend,
    ) -> Result<Planner, UserError> {
        let live = self.options.live.unwrap_or(Live::Required);
        let files = self.repository.revision(power)?;
        self.open_planner(
            config,
            files.as_ref(),
            Trust::Merged,
            (head, None),
            Some(backend),
            live,
        )
        .await
    }

    /// The input of plans in this job: head and base, with a configuration and the files that it names from
    /// `power`, a revision of the default branch. What is compiled from code of others is not cached, because
    /// a later run with more trust would read it.
    ///
    /// # Errors
    /// An invalid setting of the infrastructure.
    pub(super) async fn open_planner(
        &self,
        config: Config,
        power: &dyn Source,
        trust: Trust,
        (head, base): (OpenRevision, Option<OpenRevision>),
        backend: Option<StateBackend>,
        live: Live,
    ) -> Result<Planner, UserError> {
        let given = GivenCluster::default();
        let mut compiler = Compiler::new(&self.run, &config);
        if let Some(backend) = &backend {
            compiler = compiler.sharing(backend)?;
        }
        let grants = trust.grants();
        if !grants.caches {
            compiler = compiler.without_writing_caches();
        }
        if !grants.packages {
            compiler = compiler.for_untrusted_code(base.as_ref())?;
        }
        let setup = runtime_factory::RuntimeSetup {
            config: &config,
            files: Some(power),
            head: Some(Arc::clone(&head.source)),
            given: &given,
            live,
            backend: backend.as_ref(),
            wait: true,
        };
        let Infrastructure { runtimes, references } = runtime_factory::open(&self.run, &setup).await?;
        Ok(Planner {
            runtimes,
            references,
            wanted: SpecSource::Compiled {
                compiler: Box::new(compiler),
                head: Box::new(head),
                base: base.map(Box::new),
            },
            run: self.run.clone(),
            config,
            backend,
            live,
            given,
            claims: StackClaims::default(),
            renamed: Renamed::default(),
        })
    }

    /// The states, if a store is configured: a folder of the runner would be lost with it.
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

/// How a proposal changes permissions: keys of `konverge.yaml`, files that it names, CODEOWNERS.
fn difference(proposed: &Config, (base, head): (&OpenRevision, &OpenRevision)) -> Vec<PowerChange> {
    // An unreadable base grants nothing, so everything is new.
    let before = Config::load(base.source.as_ref()).unwrap_or_default();
    let mut pairs: BTreeMap<&StackId, (Option<&Stack>, Option<&Stack>)> = BTreeMap::new();
    for stack in &base.layout.stacks {
        pairs.entry(&stack.id).or_default().0 = Some(stack);
    }
    for stack in &head.layout.stacks {
        pairs.entry(&stack.id).or_default().1 = Some(stack);
    }
    let stacks: Vec<_> = pairs.into_values().collect();
    let mut changes = before.permission_changes(proposed, &stacks);
    let file = |key: &str, stacks| PowerChange {
        key: key.to_owned(),
        from: Some("as it is".to_owned()),
        to: Some("other content".to_owned()),
        stacks,
    };
    if !health_rules::same(proposed, base.source.as_ref(), head.source.as_ref()) {
        let folder = proposed.apply.health_rules.as_deref().unwrap_or_default();
        changes.push(file(&format!("apply.health_rules: {folder}"), None));
    }
    let sets = [base, head].map(|side| policy_set_loader::load(proposed, side.source.as_ref()));
    for name in sets[0].different(&sets[1]) {
        changes.push(file(&format!("policy.sets: {name}"), None));
    }
    let owners = [base, head].map(|side| active_policies::codeowners(side.source.as_ref()));
    if owners[0] != owners[1] {
        let [before, after] = owners.map(|text| CodeOwners::read(text.as_deref().unwrap_or_default()));
        let file_of = |stack: &&Stack| format!("{}/stack.yaml", stack.folder);
        let concerned = head.layout.stacks.iter();
        let concerned =
            concerned.filter(|stack| before.owners(&file_of(stack)) != after.owners(&file_of(stack)));
        changes.push(file(
            CODEOWNERS,
            Some(concerned.map(|stack| stack.id.clone()).collect()),
        ));
    }
    changes
}

/// The targets and all other stacks of the head, by folder.
fn with_every_stack(mut targets: Vec<Target>, base: &OpenRevision, head: &OpenRevision) -> Vec<Target> {
    let others = head.layout.stacks.iter();
    let others: Vec<_> = others
        .filter(|stack| !targets.iter().any(|target| target.id == stack.id))
        .map(|stack| Target::new(stack, base.layout.stack(&stack.id)))
        .collect();
    targets.extend(others);
    sort_by_folder(&mut targets);
    targets
}

fn sort_by_folder(targets: &mut [Target]) {
    targets.sort_by(|a, b| (&a.folder, &a.id).cmp(&(&b.folder, &b.id)));
}

/// The configuration without all permissions: only how the repository is read and compiled remains.
fn without_power(config: &Config) -> Config {
    let config_without = Config {
        version: config.version,
        kcl: config.kcl.clone(),
        // Without a live infrastructure only the names of the stores are used.
        secrets: config.secrets.clone(),
        ..Config::default()
    };
    config_without.with_layout_of(config)
}
