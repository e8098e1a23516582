//! Opens a revision of the monorepo with its files, its configuration and its stacks.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

use crate::{RunContext, StackSelector, app_stacks::AppStacks, caches, secret_files::SecretFiles};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, RepoPath, StackId,
        file_source::{BlobId, FileKind, Listing, Source, TreeId, WrittenPaths},
        stack::Stack,
        text::with_rest,
    },
    sync::lock,
};
use konverge_config::Config;
use konverge_repo::{
    affected::{Analysis, ScanCache, Snapshot},
    git::Repository,
    konfig::{Changes, FileTreeView, Layout, LayoutReader, LayoutRules},
};
use konverge_state::{IndexedStates, Proven};

/// The revision to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevisionSpec {
    /// The working tree.
    Worktree,
    /// The content of the next commit: the git index, or another index file (`GIT_INDEX_FILE`).
    Staged(Option<PathBuf>),
    /// A commit of the repository.
    Commit(CommitId),
}

/// One opened revision of the monorepo.
pub struct OpenRevision {
    /// The files of the revision.
    pub source: Arc<dyn Source>,
    /// The `konverge.yaml` of the revision; in `ci` the effective configuration.
    pub config: Config,
    /// The projects and stacks of the revision.
    pub layout: Arc<Layout>,
    /// The inputs of each stack.
    pub analysis: Arc<Analysis>,
    /// The inputs from which stacks of AppConfigurations are generated.
    pub apps: AppStacks,
    /// The scan results of single files, by content.
    pub scans: Arc<ScanCache>,
}

/// The analysis cache: scan results by content, and opened revisions. All revisions of a run share it, and later runs
/// read it again.
pub struct AnalysisCache {
    index: Arc<ScanCache>,
    reader: LayoutReader,
    /// The revision that an earlier run saved, followed by the revisions of this run.
    revisions: Mutex<Vec<CachedRevision>>,
    /// The tree of the revision that is saved or being saved.
    saved: Mutex<Option<TreeId>>,
    /// The paths of the saved scan results and of the saved revision; `None` if no cache folder can be trusted.
    files: Option<(PathBuf, PathBuf)>,
    writers: Mutex<Vec<JoinHandle<()>>>,
}

/// An opened revision, from which another one can be derived faster.
#[derive(Clone)]
struct CachedRevision {
    /// True if an earlier run saved this revision.
    is_earlier: bool,
    rules: LayoutRules,
    analysis: Arc<Analysis>,
}

impl CachedRevision {
    fn listing(&self) -> Option<Listing> {
        self.analysis.tree().source().listing()
    }
}

impl AnalysisCache {
    /// Opens the cache that earlier runs left for a repository; empty if there is no cache folder.
    pub fn open(run: &RunContext, repository: &Repository) -> Self {
        let root = repository.root();
        let files = caches::trusted_folder(run)
            .and_then(|caches| ScanCache::location(&caches, root).zip(Snapshot::location(&caches, root)));
        let kept = files.as_ref().and_then(|(_, snapshot)| Snapshot::load(snapshot));
        let index = files.as_ref().map(|(scans, _)| ScanCache::load(scans));
        Self {
            index: Arc::new(index.unwrap_or_default()),
            reader: LayoutReader::new(),
            saved: Mutex::new(kept.as_ref().map(|kept| kept.listing().tree)),
            revisions: Mutex::new(
                kept.map(|kept| CachedRevision::restore(kept, repository))
                    .into_iter()
                    .collect(),
            ),
            files,
            writers: Mutex::default(),
        }
    }

    /// Saves a revision for the next run, which probably opens a similar one. The file is written in the background, at
    /// the latest when this cache is dropped. A failure only makes the next run slower.
    pub fn save(&self, workspace: &OpenRevision) {
        let Some((_, snapshot)) = self.files.clone() else {
            return;
        };
        let Some(fresh) = Snapshot::take(&workspace.analysis, workspace.config.layout_rules()) else {
            return;
        };
        if lock(&self.saved).replace(fresh.listing().tree) != Some(fresh.listing().tree) {
            self.write(move || fresh.save(&snapshot));
        }
    }

    /// Opens and saves the commit that is checked out, because a working tree is derived from this commit and cannot be
    /// saved itself. Does nothing if an earlier run saved the commit, this run opened a commit, or the cache cannot be
    /// written. A failure only makes this run and the next one slower.
    fn save_checked_out(&self, repository: &Repository, config: &Config) {
        let Ok(commit) = repository.resolve("HEAD") else {
            return;
        };
        let is_saved = repository.tree(&commit).ok() == *lock(&self.saved);
        let can_write = |(_, snapshot): &(PathBuf, PathBuf)| caches::is_writable(snapshot);
        if is_saved || self.has_opened_commit() || !self.files.as_ref().is_some_and(can_write) {
            return;
        }
        match OpenRevision::open_knowing(self, repository, &RevisionSpec::Commit(commit), Some(config)) {
            Ok(revision) => self.save(&revision),
            Err(error) => tracing::debug!(%error, "the commit that is checked out could not be opened"),
        }
    }

    fn has_opened_commit(&self) -> bool {
        let of_this_run = |known: &CachedRevision| !known.is_earlier && known.listing().is_some();
        lock(&self.revisions).iter().any(of_this_run)
    }

    /// Saves the scan results of single files, in the same way as [`AnalysisCache::save`].
    pub fn save_scans(&self) {
        let Some((scans, _)) = self.files.clone() else {
            return;
        };
        if self.index.has_grown() {
            let known = lock(&self.revisions);
            let revisions: Vec<_> = known.iter().filter_map(CachedRevision::listing).collect();
            drop(known);
            let index = Arc::clone(&self.index);
            self.write(move || {
                index.drop_unused(&revisions);
                index.save(&scans)
            });
        }
    }

    /// Waits until everything is written, including results that were added after the last save.
    pub fn wait_until_saved(&self) {
        self.wait();
        self.save_scans();
        self.wait();
    }

    fn wait(&self) {
        let writers = std::mem::take(&mut *lock(&self.writers));
        for writer in writers {
            if writer.join().is_err() {
                tracing::debug!("the import index could not be saved");
            }
        }
    }

    fn write(&self, write: impl FnOnce() -> std::io::Result<()> + Send + 'static) {
        let writer = std::thread::spawn(move || {
            if let Err(error) = write() {
                tracing::debug!(%error, "the import index could not be saved");
            }
        });
        lock(&self.writers).push(writer);
    }

    /// Returns the cached revision to derive from: the one with the same tree, or else the one that was opened last.
    fn nearest(&self, tree: Option<TreeId>) -> Option<CachedRevision> {
        let revisions = lock(&self.revisions);
        let same =
            |known: &&CachedRevision| tree.is_some() && known.listing().map(|listing| listing.tree) == tree;
        revisions.iter().find(same).or(revisions.last()).cloned()
    }

    fn remember(&self, rules: LayoutRules, analysis: &Arc<Analysis>) {
        let analysis = Arc::clone(analysis);
        lock(&self.revisions).push(CachedRevision {
            is_earlier: false,
            rules,
            analysis,
        });
    }

    /// Drops all revisions but the last one, because a long run (an editor, `watch`) opens many.
    pub fn forget_earlier(&self) {
        let mut revisions = lock(&self.revisions);
        let last = revisions.pop();
        revisions.clear();
        revisions.extend(last);
    }
}

impl Drop for AnalysisCache {
    fn drop(&mut self) {
        self.wait_until_saved();
    }
}

impl CachedRevision {
    fn restore(kept: Snapshot, repository: &Repository) -> Self {
        let source = repository.source_from_listing(kept.commit(), kept.listing());
        Self {
            is_earlier: true,
            rules: kept.layout_rules().clone(),
            analysis: Arc::new(kept.into_analysis(source)),
        }
    }
}

impl OpenRevision {
    /// Opens a revision with its own configuration.
    ///
    /// # Errors
    /// The revision cannot be read, or its `konverge.yaml` is invalid.
    pub fn open(run: &RunContext, repository: &Repository, at: &RevisionSpec) -> Result<Self, UserError> {
        Self::open_alone(run, repository, at, |source| Ok(Config::load(source)?))
    }

    /// Opens a revision with the configuration of another one: that of the default branch, or that of the head for its
    /// base.
    ///
    /// # Errors
    /// The revision cannot be read.
    pub fn open_under(
        run: &RunContext,
        repository: &Repository,
        at: &RevisionSpec,
        config: &Config,
    ) -> Result<Self, UserError> {
        Self::open_alone(run, repository, at, |_| Ok(config.clone()))
    }

    /// Opens a revision with the permissions of another configuration, that of the default branch. Its stacks, their
    /// identities and the settings that its Specs depend on come from its own file, unless that file is invalid.
    ///
    /// # Errors
    /// The revision cannot be read.
    pub fn open_with_permissions_of(
        run: &RunContext,
        repository: &Repository,
        at: &RevisionSpec,
        protected: &Config,
    ) -> Result<Self, UserError> {
        Self::open_alone(run, repository, at, |source| {
            Ok(with_own_spec_keys(protected, source))
        })
    }

    fn open_alone(
        run: &RunContext,
        repository: &Repository,
        at: &RevisionSpec,
        choose: impl FnOnce(&dyn Source) -> Result<Config, UserError>,
    ) -> Result<Self, UserError> {
        let known = AnalysisCache::open(run, repository);
        let workspace = Self::open_choosing(&known, repository, at, choose)?;
        known.save(&workspace);
        Ok(workspace)
    }

    /// Opens one of several revisions, using the cached results of the others. The caller saves the new results with
    /// [`AnalysisCache::save`].
    ///
    /// # Errors
    /// The revision cannot be read, or, without a given configuration, its `konverge.yaml` is invalid.
    pub fn open_knowing(
        known: &AnalysisCache,
        repository: &Repository,
        at: &RevisionSpec,
        config: Option<&Config>,
    ) -> Result<Self, UserError> {
        Self::open_choosing(known, repository, at, |source| match config {
            Some(config) => Ok(config.clone()),
            None => Ok(Config::load(source)?),
        })
    }

    /// Opens one of several revisions with the configuration that `choose` makes of its files.
    ///
    /// # Errors
    /// The revision cannot be read, or errors of `choose`.
    pub(crate) fn open_choosing(
        known: &AnalysisCache,
        repository: &Repository,
        at: &RevisionSpec,
        choose: impl FnOnce(&dyn Source) -> Result<Config, UserError>,
    ) -> Result<Self, UserError> {
        let (source, near) = source(known, repository, at)?;
        let config = choose(source.as_ref())?;
        let near = match at {
            RevisionSpec::Commit(_) => near,
            RevisionSpec::Worktree | RevisionSpec::Staged(_) => {
                known.save_checked_out(repository, &config);
                known.nearest(None)
            }
        };
        Self::analyze(known, source, near, config)
    }

    /// Returns the working tree after files were written, derived from an earlier revision of it.
    ///
    /// # Errors
    /// The working tree cannot be read, or its `konverge.yaml` is invalid.
    pub fn after_writes(
        &self,
        known: &AnalysisCache,
        repository: &Repository,
        written: &WrittenPaths,
    ) -> Result<Self, UserError> {
        let source = repository.worktree_after(self.source.as_ref(), written)?;
        let config = Config::load(source.as_ref())?;
        Self::analyze(known, source, Some(self.as_known()), config)
    }

    /// Returns this revision with the contents of another source, which differs only in a few files.
    pub(crate) fn with_source(
        &self,
        known: &AnalysisCache,
        source: Arc<dyn Source>,
    ) -> Result<Self, UserError> {
        Self::analyze(known, source, Some(self.as_known()), self.config.clone())
    }

    /// Returns this revision as a cached one, from which another one is derived.
    fn as_known(&self) -> CachedRevision {
        CachedRevision {
            is_earlier: false,
            rules: self.config.layout_rules(),
            analysis: Arc::clone(&self.analysis),
        }
    }

    fn analyze(
        known: &AnalysisCache,
        source: Arc<dyn Source>,
        near: Option<CachedRevision>,
        config: Config,
    ) -> Result<Self, UserError> {
        let (core, layout_rules) = (config.kcl.core(), config.layout_rules());
        let tree = FileTreeView::new(source.clone());
        let analysis = match near.filter(|near| near.rules == layout_rules) {
            Some(CachedRevision { analysis: near, .. }) => {
                let changes = Changes::compute(near.tree(), &tree);
                let layout = known
                    .reader
                    .layout_after(near.layout(), &changes, &tree, &layout_rules)?;
                Analysis::after(&near, &changes, tree, layout, core, &known.index)?
            }
            None => {
                let files = kcl_files(source.as_ref());
                known
                    .index
                    .learn_beside(source.as_ref(), &files, || -> Result<_, UserError> {
                        let layout = known.reader.layout(&tree, &layout_rules)?;
                        Ok(Analysis::analyze(tree, layout, core, &known.index)?)
                    })?
            }
        };
        let revision = Self::from_analysis(analysis, source, config, Arc::clone(&known.index));
        known.remember(layout_rules, &revision.analysis);
        Ok(revision)
    }

    /// Completes an analysis with the configuration of its stacks.
    fn from_analysis(
        analysis: Analysis,
        source: Arc<dyn Source>,
        config: Config,
        scans: Arc<ScanCache>,
    ) -> Self {
        let rules = config.rules();
        let apps = AppStacks::read(analysis.tree(), analysis.layout(), &config);
        let secret_files = SecretFiles::select(&config.secrets, source.as_ref());
        let analysis = analysis
            .with_config(|stack| rules.digest(stack))
            .with_workspaces(|stack| secret_files.added_to(apps.workspace_input(stack), stack));
        let analysis = Arc::new(analysis);
        Self {
            layout: Arc::clone(analysis.layout()),
            source,
            config,
            analysis,
            apps,
            scans,
        }
    }

    /// Returns the same files and configuration with other stacks, for example variants with other options.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn with_stacks(&self, mut stacks: Vec<Stack>) -> Result<Self, UserError> {
        stacks.sort_by(|a, b| a.folder.cmp(&b.folder));
        let layout = Layout {
            stacks,
            ..Layout::clone(&self.layout)
        };
        let tree = FileTreeView::new(Arc::clone(&self.source));
        let unchanged = Changes::compute(self.analysis.tree(), &tree);
        let (layout, core) = (Arc::new(layout), self.config.kcl.core());
        let analysis = Analysis::after(&self.analysis, &unchanged, tree, layout, core, &self.scans)?;
        Ok(Self::from_analysis(
            analysis,
            Arc::clone(&self.source),
            self.config.clone(),
            Arc::clone(&self.scans),
        ))
    }

    /// Prints notes about unusual properties of the stacks of this revision.
    pub fn note_layout(&self, run: &RunContext) {
        let notes = [
            self.layout.empty_note(),
            self.layout.clash_note(),
            self.layout.package_note(),
        ];
        for note in notes.into_iter().flatten() {
            run.notes.note(&note);
        }
        for pattern in self.config.rules().unmatched(&self.layout.stacks) {
            run.notes.warning(&format!(
                "konverge.yaml: `match: {}` under `stacks` matches no stack; a glob is for a folder or an identity, such as `appops/*/prod`",
                pattern.escape_debug()
            ));
        }
    }

    /// Returns true if the root of the repository has this file.
    pub fn has_root_file(&self, name: &str) -> bool {
        let file = RepoPath::root().child(name);
        self.source.files().contains_key(&file)
    }

    /// Returns the commit; `None` for the working tree.
    pub fn commit(&self) -> Option<&CommitId> {
        self.source.commit()
    }

    /// Returns the stacks whose recorded inputs differ from the current ones, or are unknown.
    ///
    /// # Errors
    /// An input digest is unknown.
    pub fn changed_stacks(&self, known: &Proven<IndexedStates>) -> Result<Vec<&Stack>, UserError> {
        let mut changed = Vec::new();
        for stack in &self.layout.stacks {
            let recorded = known.entries.get(&stack.id);
            let moved = recorded.is_some_and(|entry| entry.reads_moved(&known.entries));
            let recorded = recorded.and_then(|entry| entry.settled_digest());
            if moved || recorded != Some(self.analysis.input_digest(stack)?) {
                changed.push(stack);
            }
        }
        // Stacks that read outputs of the changed stacks are applied after them, and may get other values.
        let readers = self.layout.readers();
        let mut seen: HashSet<&StackId> = changed.iter().map(|stack| &stack.id).collect();
        let mut at = 0;
        while at < changed.len() {
            let readers = readers.get(&changed[at].id).into_iter().flatten();
            changed.extend(readers.filter(|reader| seen.insert(&reader.id)).copied());
            at += 1;
        }
        Ok(changed)
    }

    /// Returns the stacks that selectors match, relative to the current folder or to the root, sorted by folder.
    ///
    /// # Errors
    /// A selector matches no stack; the error suggests the most similar name.
    pub fn find_stacks(
        &self,
        run: &RunContext,
        root: &Path,
        selectors: &[StackSelector],
    ) -> Result<Vec<Stack>, UserError> {
        let here = run.dir.canonicalize().ok();
        let here = here.and_then(|dir| RepoPath::normalize(dir.strip_prefix(root).ok()?.to_str()?));
        let here = here.unwrap_or_default();
        let mut found = BTreeMap::new();
        for selector in selectors {
            let stacks = selector.select(&self.layout, &here);
            if stacks.is_empty() {
                return Err(self.unknown(selector));
            }
            found.extend(stacks.into_iter().map(|stack| (&stack.folder, stack)));
        }
        Ok(found.into_values().cloned().collect())
    }

    fn unknown(&self, selector: &StackSelector) -> UserError {
        const LIST: &str = "`konverge list` shows every stack";
        let name = selector.as_str();
        let layout = &self.layout;
        let ambiguous = selector.select_ambiguous(layout);
        if !ambiguous.is_empty() {
            return not_unique(name, &ambiguous);
        }
        let failure = UserError::new(
            ErrorKind::Usage,
            format!("there is no stack `{}`", name.escape_debug()),
        );
        if RepoPath::normalize(name).is_some_and(|folder| layout.leaves_out(&folder)) {
            return failure.hint(
                "its folder holds a stack.yaml, but it is excluded by konverge.yaml or lies in a package; \
                 `exclude: ['!GLOB']` takes it in",
            );
        }
        let projects = layout.projects.iter().map(|project| project.name.as_str());
        let stacks = layout.stacks.iter();
        let all = stacks.flat_map(|stack| [stack.folder.as_str(), stack.id.as_str()]);
        let nearest = all
            .chain(projects)
            .map(|known| (strsim::damerau_levenshtein(known, name), known))
            .min();
        match nearest {
            Some((distance, known)) if distance <= name.len() / 2 => {
                failure.hint(format!("did you mean `{known}`?")).hint(LIST)
            }
            Some(_) => failure.hint(LIST),
            None => {
                failure.hint("there is no folder with a stack.yaml below a project.yaml in this revision")
            }
        }
    }
}

/// Returns the error for names that several stacks have, so that the names cannot be an identity.
fn not_unique(names: &str, stacks: &[&Stack]) -> UserError {
    let shown = first_stacks(stacks, |stack| stack.id.as_str());
    let (project, _) = names.rsplit_once('/').unwrap_or_default();
    UserError::new(
        ErrorKind::Layout,
        format!(
            "{} stacks have the names `{names}`, so the names identify none of them: {}",
            stacks.len(),
            shown,
        ),
    )
    .hint(format!(
        "name one stack by its folder, or all of them by their project: `{project}`"
    ))
}

/// Returns the names of the first stacks, and the number of the others.
pub(crate) fn first_stacks(stacks: &[&Stack], name: impl Fn(&Stack) -> &str) -> String {
    const SHOWN: usize = 3;
    let quoted = stacks.iter().map(|stack| format!("`{}`", name(stack)));
    with_rest(quoted, SHOWN).join(", ")
}

/// Returns the contents of all files that can be part of a stack.
fn kcl_files(source: &dyn Source) -> Vec<BlobId> {
    let loaded = |path: &RepoPath| path.as_str().ends_with(".k") && !path.as_str().ends_with("_test.k");
    let files = source.files().iter();
    let files = files.filter(|(path, entry)| entry.kind == FileKind::File && loaded(path));
    files.map(|(_, entry)| entry.blob).collect()
}

/// Returns a configuration with the keys of the revision's own `konverge.yaml` that its Specs depend on; unchanged if that
/// file is invalid.
pub(crate) fn with_own_spec_keys(config: &Config, source: &dyn Source) -> Config {
    Config::load(source).map_or_else(|_| config.clone(), |own| config.with_spec_keys_of(&own))
}

/// Returns the files of a revision, and the cached revision that they are derived from.
fn source(
    known: &AnalysisCache,
    repository: &Repository,
    at: &RevisionSpec,
) -> Result<(Arc<dyn Source>, Option<CachedRevision>), UserError> {
    Ok(match at {
        RevisionSpec::Worktree => (repository.worktree()?, None),
        RevisionSpec::Staged(file) => (repository.staged(file.as_deref())?, None),
        RevisionSpec::Commit(commit) => {
            let near = known.nearest(Some(repository.tree(commit)?));
            let listing = near.as_ref().and_then(CachedRevision::listing);
            (repository.revision_near(commit, listing.as_ref())?, near)
        }
    })
}
