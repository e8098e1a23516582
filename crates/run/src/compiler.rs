//! Compiles stacks to Specs: from the cache if possible, otherwise with the KCL workers. Appends the CRDs of the
//! project.
//! One [`Compilers`] holds everything that the compilations of a run share. A [`Compiler`] belongs to one revision,
//! which alone determines the version of the KCL core and the cache keys.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{StreamExt, stream};
use tempfile::TempDir;
use tokio::sync::{OnceCell, Semaphore};

pub use crate::compile_error::CompileError;
use crate::{
    OpenRevision, RunContext, StateBackend, StepCounter, caches, core_lookup,
    module_runner::{ModuleRunner, ModuleTrust},
    package_locks,
    remote_cache::RemoteCache,
    sandbox_rule::{self, CodeOrigin},
    unset_options,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        Digest, RepoPath, StackId,
        digest::DigestBuilder,
        event::Step,
        file_source::{BlobId, FileKind, Source},
        note::Note,
        spec::{Sharing, Spec},
        stack::Stack,
    },
    sync::lock,
    variables,
};
use konverge_config::Config;
use konverge_engine::spec;
use konverge_kcl::{
    Bounds, Cache, CacheAccess, CompileRequest, Compiled, KclError, KnownPackages, PackageFetcher,
    PackageTrust, Pool, PoolOptions, ResolvedPackage, SharedCache, UnlockedPackages, VerifiedPackages,
};
use konverge_repo::affected::Analysis;
use konverge_report::errors;
use konverge_secrets::{mask_object, mask_resource};

/// The shared state of all compilations of a run. The workers of a core start with the first stack that needs them;
/// dropping this value ends them.
pub struct Compilers {
    run: RunContext,
    /// The configuration of the sandbox and the limits. The version of the core comes from each revision.
    config: Config,
    /// The cache folder of this machine, if it can be trusted.
    caches: Option<PathBuf>,
    executable: Option<PathBuf>,
    /// True if a core other than the one in `KONVERGE_KCL` may be needed, because an earlier revision is compiled.
    past: bool,
    shared: Option<Arc<dyn SharedCache>>,
    access: CacheAccess,
    asker: PackageTrust,
    /// The trust in the code that uses modules.
    module_trust: ModuleTrust,
    /// The workers, by the version of their core.
    cores: Mutex<HashMap<String, Arc<OnceCell<Arc<StartedCore>>>>>,
    packages: OnceCell<PackageFolder>,
    compiled: AtomicUsize,
    cached: AtomicUsize,
    /// One permit per worker, so that a compilation with a permit never waits for a worker.
    turns: Semaphore,
    /// The cache keys of the Specs that were requested so far. A repeated request is not counted again, and its
    /// warnings are not printed again.
    seen: Mutex<HashSet<Digest>>,
    /// The warnings about unpinned packages that were printed so far.
    unlocked: Mutex<HashSet<String>>,
}

/// Compiles the stacks of one revision.
#[derive(Clone, Copy)]
pub struct Compiler<'a> {
    all: &'a Compilers,
    revision: &'a OpenRevision,
}

/// The number of Specs from each source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompileCounts {
    /// The number of stacks that KCL compiled or rejected.
    pub compiled: usize,
    /// The number of stacks whose Spec or error came from the cache.
    pub cached: usize,
}

/// The maximum number of output lines of a KCL program that are shown.
const MOST_SAID: usize = 100;

/// The parts of a core that are started when the first stack must be compiled with it.
struct StartedCore {
    pool: Pool,
    /// The workers that validate data files; they start with the first data file.
    validators: OnceCell<Pool>,
    packages: PackageFetcher,
    modules: ModuleRunner,
}

/// The folder of packages that the workers of every core read.
struct PackageFolder {
    path: PathBuf,
    verified: VerifiedPackages,
    unlocked: UnlockedPackages,
    /// Keeps a temporary folder until the run ends.
    _passing: Option<TempDir>,
}

/// File paths with the contents of the files.
pub type FileContents = Vec<(RepoPath, Arc<[u8]>)>;

impl Compilers {
    /// Creates the compilers, with the sandbox and the limits of the effective configuration.
    pub fn new(run: &RunContext, config: &Config) -> Self {
        Self {
            turns: Semaphore::new(workers(config)),
            seen: Mutex::default(),
            unlocked: Mutex::default(),
            caches: caches::trusted_folder(run),
            run: run.clone(),
            config: config.clone(),
            executable: None,
            past: false,
            shared: None,
            access: CacheAccess::ReadWrite,
            asker: PackageTrust::Own,
            module_trust: ModuleTrust::Own,
            cores: Mutex::default(),
            packages: OnceCell::new(),
            compiled: AtomicUsize::new(0),
            cached: AtomicUsize::new(0),
        }
    }

    /// Returns how many Specs were compiled or cached so far.
    pub fn counts(&self) -> CompileCounts {
        CompileCounts {
            compiled: self.compiled.load(Ordering::Relaxed),
            cached: self.cached.load(Ordering::Relaxed),
        }
    }

    /// Allows the configuration of an earlier revision, which may need another core than the one in `KONVERGE_KCL`.
    #[must_use]
    pub fn for_past_revision(mut self) -> Self {
        self.past = true;
        self
    }

    /// Returns the compiler of a revision.
    pub fn for_revision<'a>(&'a self, revision: &'a OpenRevision) -> Compiler<'a> {
        Compiler { all: self, revision }
    }

    /// Returns the workers of a core, for its other tools.
    ///
    /// # Errors
    /// The core is not available, or its workers do not start.
    pub async fn pool(&self, version: &str) -> Result<Pool, UserError> {
        Ok(self.core(version).await?.pool.clone())
    }

    /// Sets another `konverge` binary for the workers.
    #[must_use]
    pub fn with_executable(mut self, executable: PathBuf) -> Self {
        self.executable = Some(executable);
        self
    }

    /// Shares compiled values with other machines through the store of the states, if this run has the key of the
    /// cache.
    ///
    /// # Errors
    /// The key of the cache is damaged.
    pub fn sharing(mut self, backend: &StateBackend) -> Result<Self, UserError> {
        let shared = RemoteCache::open(&backend.states, &self.run)?;
        self.shared = shared.map(|shared| Arc::new(shared) as Arc<dyn SharedCache>);
        Ok(self)
    }

    /// Prepares for code from a fork: its results are not stored in caches that other runs read.
    #[must_use]
    pub fn without_writing_caches(mut self) -> Self {
        self.access = CacheAccess::ReadOnly;
        self
    }

    /// Prepares for code from outside the repository. Only the packages of `base`, a revision of the default branch,
    /// are fetched, without credentials, and packages from earlier fetches are not visible. Only module binaries of
    /// `base` are run.
    ///
    /// # Errors
    /// A lock file of `base` cannot be read.
    pub fn for_untrusted_code(mut self, base: Option<&OpenRevision>) -> Result<Self, UserError> {
        let mut known = KnownPackages::default();
        let stacks = base
            .iter()
            .flat_map(|base| base.layout.stacks.iter().map(move |stack| (base, stack)));
        let mut modules = HashSet::new();
        for (base, stack) in stacks {
            let Ok(setup) = &stack.compile else { continue };
            known.add_wanted(&setup.remote_packages);
            if modules.insert(&setup.module_root) {
                known.add_lock(&package_locks::read(base, setup)?);
            }
        }
        self.asker = PackageTrust::Outside(known);
        let binaries = base.map(|base| base.apps.known_binaries(base.source.as_ref()));
        self.module_trust = ModuleTrust::Outside(binaries.transpose()?.unwrap_or_default());
        Ok(self)
    }

    /// Drops a compilation as soon as the run is interrupted; its worker ends with it.
    async fn unless_interrupted<T>(&self, work: impl Future<Output = T>) -> Result<T, UserError> {
        let interrupted = || self.run.check_interrupted().expect_err("asked only when it was");
        tokio::select! {
            biased;
            () = self.run.cancel.cancelled() => Err(interrupted()),
            done = work => Ok(done),
        }
    }

    /// Prints the output of the KCL program with masked secrets. Nothing has read the Spec before, so its secrets are
    /// collected here first.
    fn print_output(&self, stack: &Stack, compiled: &Compiled) {
        let secrets = &self.run.secrets;
        match spec::read(&compiled.documents) {
            Ok(spec) => spec
                .resources
                .iter()
                .for_each(|resource| drop(mask_resource(secrets, resource))),
            // An invalid Spec is reported later. Here it is enough to collect the secrets of the raw objects.
            Err(_) => {
                let objects = compiled.documents.iter().filter_map(serde_json::Value::as_object);
                objects.for_each(|object| drop(mask_object(secrets, object)));
            }
        }
        for line in compiled.warnings.iter().take(MOST_SAID) {
            let line = secrets.mask_foreign(line);
            self.run.notes.say(Note::info(line).of(&stack.id));
        }
        let more = compiled.warnings.len().saturating_sub(MOST_SAID);
        if more > 0 {
            let rest = Note::info(format!("… ({more} more lines)"));
            self.run.notes.say(rest.of(&stack.id));
        }
    }

    fn cache(&self) -> Cache {
        let wanted = self.run.var(variables::KONVERGE_CACHE) != Some("off");
        let caches = self.caches.as_ref().filter(|_| wanted);
        let folder = caches.map(|caches| caches.join("compile"));
        Cache::new(folder, self.shared.clone(), self.access)
    }

    async fn core(&self, version: &str) -> Result<Arc<StartedCore>, CompileError> {
        let core = {
            let mut cores = lock(&self.cores);
            Arc::clone(cores.entry(version.to_owned()).or_default())
        };
        Ok(Arc::clone(core.get_or_try_init(|| self.start(version)).await?))
    }

    fn say_where_nothing_is_kept(&self) {
        if let (None, Ok(folder)) = (&self.caches, caches::folder(&self.run)) {
            self.run.notes.warning(&format!(
                "the cache is disabled: {} is in the repository, where a pull request could place its own files\n  hint: set XDG_CACHE_HOME to a folder outside of the checkout",
                folder.display()
            ));
        }
    }

    async fn start(&self, version: &str) -> Result<Arc<StartedCore>, CompileError> {
        let kcl = &self.config.kcl;
        // In a job, a pull request may use another core than `KONVERGE_KCL`, which may still name the core of the
        // default branch.
        let past = self.past || version != kcl.core() || self.run.in_ci();
        let core = core_lookup::find(&self.run, version, kcl.install, past).await?;
        let internal = |error: std::io::Error| UserError::from_error(ErrorKind::Internal, error);
        let executable = match &self.executable {
            Some(path) => path.clone(),
            None => std::env::current_exe().map_err(internal)?,
        };
        let folder = self
            .packages
            .get_or_try_init(async || self.package_folder())
            .await?;
        let sandbox = sandbox_rule::mode(kcl.sandbox, self.origin());
        let packages = PackageFetcher {
            folder: folder.path.clone(),
            offline: self.run.var(variables::KONVERGE_OFFLINE).is_some(),
            core: core.clone(),
            executable: executable.clone(),
            sandbox,
            bounds: Bounds::default(),
            environment: self.run.env.clone(),
            whole: Arc::clone(&folder.verified),
            unlocked: Arc::clone(&folder.unlocked),
            asker: self.asker.clone(),
            checkout: self.run.checkout(),
        };
        let modules = ModuleRunner::new(&self.run, executable.clone(), sandbox, self.module_trust.clone())?;
        let mut options = PoolOptions::new(core, executable);
        options.packages = Some(folder.path.clone());
        options.workers = workers(&self.config);
        options.sandbox = sandbox;
        if let Some(limit) = kcl.memory_mib {
            options.memory_limit = limit << 20;
        }
        if let Some(limit) = kcl.timeout {
            options.deadline = limit.duration();
        }
        let pool = Pool::start(options).await?;
        if let Some(warning) = pool.warning() {
            self.run.notes.warning(warning);
        }
        Ok(Arc::new(StartedCore {
            pool,
            validators: OnceCell::new(),
            packages,
            modules,
        }))
    }

    fn origin(&self) -> CodeOrigin {
        match self.asker {
            PackageTrust::Own if !self.run.in_ci() => CodeOrigin::OwnCheckout,
            PackageTrust::Own | PackageTrust::Outside(_) => CodeOrigin::Others,
        }
    }

    /// Returns the folder of packages that the workers read. The folder is temporary if the job has no writable home,
    /// or for code from outside, which must not read packages that others fetched with their credentials.
    fn package_folder(&self) -> Result<PackageFolder, UserError> {
        self.say_where_nothing_is_kept();
        let found = |path, passing| PackageFolder {
            path,
            verified: VerifiedPackages::default(),
            unlocked: UnlockedPackages::default(),
            _passing: passing,
        };
        let kept = match self.asker {
            PackageTrust::Own => self.caches.as_ref().map(|caches| caches.join("packages")),
            PackageTrust::Outside(_) => None,
        };
        if let Some(kept) = kept.filter(|kept| std::fs::create_dir_all(kept).is_ok()) {
            return Ok(found(kept, None));
        }
        let passing = tempfile::tempdir().map_err(|error| {
            UserError::from_error(ErrorKind::Internal, error)
                .context("there is no folder for packages")
                .hint("set XDG_CACHE_HOME to a folder that may be written, or TMPDIR")
        })?;
        Ok(found(passing.path().to_owned(), Some(passing)))
    }
}

impl<'a> Compiler<'a> {
    /// Returns the revision whose stacks are compiled.
    pub fn revision(self) -> &'a OpenRevision {
        self.revision
    }

    /// Compiles one stack.
    ///
    /// # Errors
    /// The definition of the stack is invalid, KCL rejects it, or its output is not a Spec.
    pub async fn spec(self, stack: &Stack) -> Result<Spec, CompileError> {
        let compiled = self.all.unless_interrupted(self.compile(stack)).await?;
        compiled.map_err(|error| error.in_stack(&stack.id))
    }

    /// Compiles several stacks concurrently, one per worker. Returns the results in the order of `stacks`.
    pub async fn specs(self, stacks: &[Stack]) -> Vec<Result<Spec, CompileError>> {
        let counter = StepCounter::start(&self.all.run, Step::Compile, stacks.len());
        let one = async |stack| {
            let spec = self.spec(stack).await;
            counter.advance();
            spec
        };
        let specs: Vec<_> = stacks.iter().map(one).collect();
        stream::iter(specs)
            .buffered(workers(&self.all.config) * 2)
            .collect()
            .await
    }

    /// Compiles one stack without the CRDs of the project, because golden files contain only the output of KCL.
    ///
    /// # Errors
    /// See [`Compiler::spec`].
    pub async fn compile_for_print(self, stack: &Stack) -> Result<Spec, CompileError> {
        let compiled = self.all.unless_interrupted(self.compile_cached(stack)).await?;
        compiled
            .and_then(|compiled| spec_of(self.revision, stack, &compiled))
            .map_err(|error| error.in_stack(&stack.id))
    }

    async fn compile(self, stack: &Stack) -> Result<Spec, CompileError> {
        let compiled = self.compile_cached(stack).await?;
        let mut spec = spec_of(self.revision, stack, &compiled)?;
        self.all.run.secrets.learn_names(&spec.resources);
        spec::append_crds(&mut spec, &crds(self.revision, &stack.project_folder)?)?;
        Ok(spec)
    }

    /// Returns the cache key of a stack, over everything that the Spec depends on. The input digest covers the files,
    /// the options and the rules of the generators; the version of Konverge covers the code that reads them.
    fn key(self, stack: &Stack) -> Result<Digest, UserError> {
        let analysis = &self.revision.analysis;
        let mut key = DigestBuilder::new("konverge compiled stack 2");
        key.part(env!("CARGO_PKG_VERSION").as_bytes());
        key.part(analysis.core().as_bytes());
        key.part(self.revision.config.kcl.settings.name().as_bytes());
        key.part(analysis.input_digest(stack)?.as_bytes());
        Ok(key.finish())
    }

    async fn compile_cached(self, stack: &Stack) -> Result<Compiled, CompileError> {
        stack.compile.as_ref().map_err(Clone::clone)?;
        let (all, revision) = (self.all, self.revision);
        let cache = all.cache();
        let key = self.key(stack)?;
        let first = lock(&all.seen).insert(key);
        let compiled = match cache.get(&key).await {
            Some(kept) => {
                all.cached.fetch_add(usize::from(first), Ordering::Relaxed);
                kept.map_err(KclError::Code)?
            }
            None => {
                let started = self.core().await?;
                let request = self.request(&revision.analysis, stack).await?;
                let turn = all.turns.acquire().await.expect("it is never closed");
                let (pool, modules) = (&started.pool, &started.modules);
                let source = revision.source.as_ref();
                let result = revision
                    .apps
                    .compile(pool, &request, stack, source, modules)
                    .await;
                drop(turn);
                all.compiled.fetch_add(usize::from(first), Ordering::Relaxed);
                // The input digest does not cover the content of unpinned packages, so such a result must not be
                // reused.
                if request.unlocked.is_empty() {
                    store(&cache, &key, &request, &result).await;
                }
                result?
            }
        };
        if first && !compiled.warnings.is_empty() {
            all.print_output(stack, &compiled);
        }
        Ok(compiled)
    }

    /// Returns the compile request of a program: its files with contents, and its packages. `analysis` must know the
    /// program, which need not be a stack of the revision.
    pub async fn request(self, analysis: &Analysis, stack: &Stack) -> Result<CompileRequest, CompileError> {
        let packages = self.packages(stack).await?;
        let unlocked = packages.iter().filter(|package| package.unlocked.is_some());
        let unlocked = unlocked.map(|package| package.name.clone()).collect();
        let packages = packages.into_iter().map(|package| (package.name, package.folder));
        let closure = analysis.closure(stack).map_err(UserError::from)?;
        let mut request = CompileRequest {
            label: stack.id.to_string(),
            setup: stack.compile.clone()?,
            folders: closure.folders,
            packages: packages.collect(),
            unlocked,
            ..CompileRequest::default()
        };
        for file in closure.files {
            let content = read(self.revision.source.as_ref(), file.blob)?;
            if file.kind == FileKind::Symlink {
                let target = String::from_utf8_lossy(&content).into_owned();
                request.links.push((file.path, target));
            } else {
                request.files.push((file.path, content));
            }
        }
        Ok(request)
    }

    /// Resolves the packages of a stack. Prints one warning for each unpinned package.
    async fn packages(self, stack: &Stack) -> Result<Vec<ResolvedPackage>, CompileError> {
        let run = &self.all.run;
        let setup = stack.compile.clone()?;
        let locked = package_locks::read(self.revision, &setup)?;
        let fetcher = self.fetcher().await?;
        let found = fetcher.resolve(&setup.remote_packages, &locked).await;
        let found = found.map_err(|error| package_locks::explain(run, &setup, error))?;
        for package in &found {
            let Some(unlocked) = &package.unlocked else {
                continue;
            };
            let what = format!("the package `{}` is not locked: {unlocked}", package.name);
            let mut said = lock(&self.all.unlocked);
            let hints = if said.is_empty() {
                package_locks::hints(run, &setup)
            } else {
                String::new()
            };
            if said.insert(what.clone()) {
                run.notes.warning(&format!("{what}{hints}"));
            }
        }
        Ok(found)
    }

    /// Returns the fetcher of packages for this revision.
    pub async fn fetcher(self) -> Result<PackageFetcher, CompileError> {
        Ok(self.core().await?.packages.clone())
    }

    /// Returns the workers, for other tools of the core.
    pub async fn pool(self) -> Result<Pool, UserError> {
        Ok(self.core().await?.pool.clone())
    }

    /// Returns the workers that validate data files. They may write temporary files, so no stack is compiled with them.
    pub async fn validators(self) -> Result<Pool, UserError> {
        let started = self.core().await?;
        let start = || started.pool.start_with_temporary_files();
        Ok(started.validators.get_or_try_init(start).await?.clone())
    }

    async fn core(self) -> Result<Arc<StartedCore>, CompileError> {
        // The version is the one in the input digest, so that equal digests mean the same core.
        self.all.core(self.revision.analysis.core()).await
    }
}

/// Stores the result of a compilation, unless it is an error that may not occur on another machine.
async fn store(
    cache: &Cache,
    key: &Digest,
    request: &CompileRequest,
    result: &Result<Compiled, CompileError>,
) {
    match result {
        Ok(compiled) => cache.put(key, compiled).await,
        Err(error) => {
            let kcl = error.kcl.as_ref();
            if let Some(refusal) = kcl.and_then(|error| error.lasting_refusal(&request.packages)) {
                cache.put_refusal(key, refusal).await;
            }
        }
    }
}

/// Reads the Spec of a compiled stack, with the notes of its generation.
fn spec_of(workspace: &OpenRevision, stack: &Stack, compiled: &Compiled) -> Result<Spec, CompileError> {
    let spec = spec::read(&compiled.documents);
    let mut spec =
        spec.map_err(|error| CompileError::of_stack(unset_options::explain(workspace, stack, error)))?;
    let resources = spec.resources.iter_mut();
    for resource in resources.filter(|resource| compiled.shared.contains(&resource.id)) {
        resource.sharing = Sharing::Project;
    }
    spec.notes.clone_from(&compiled.notes);
    Ok(spec)
}

/// Returns the number of stacks that are compiled at the same time.
fn workers(config: &Config) -> usize {
    match config.kcl.workers {
        Some(workers) => workers.max(1) as usize,
        None => std::thread::available_parallelism().map_or(2, usize::from),
    }
}

/// Merges equal errors of several stacks into one error that names these stacks.
pub fn join_failures<'a, E: Into<UserError>>(
    failures: impl IntoIterator<Item = (&'a StackId, E)>,
) -> Vec<UserError> {
    let failures = failures.into_iter().map(|(id, failure)| (id, failure.into()));
    let failures: Vec<(_, UserError)> = failures.collect();
    let bodies: Vec<_> = failures
        .iter()
        .map(|(id, failure)| (*id, failure.body()))
        .collect();
    let groups = errors::group(bodies.iter().map(|(id, body)| (*id, body)));
    groups
        .into_iter()
        .map(|group| {
            let one = failures.iter().find(|(id, _)| *id == group.stacks[0]);
            let (_, failure) = one.expect("a group is of these stacks");
            match group.stacks.len() {
                1 => failure.clone(),
                count => UserError {
                    message: group.message(),
                    hints: group.error.hints.clone(),
                    ..failure.clone()
                }
                .context(format!("{count} stacks ({})", group.names(str::to_owned))),
            }
        })
        .collect()
}

/// Reads a Spec from a file.
///
/// # Errors
/// The file cannot be read, or is not a Spec.
pub fn read_spec_file(path: &Path) -> Result<Spec, UserError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        UserError::from_error(ErrorKind::Usage, error)
            .context("the Spec cannot be read")
            .at(name.clone(), None, None)
            .hint("give `--spec` a path that starts at the folder where konverge runs")
    })?;
    Ok(spec::read_text(&text, &name)?)
}

/// Returns the files below `crd/` of a project, which are appended to the Specs of its stacks.
pub fn crds(workspace: &OpenRevision, project: &RepoPath) -> Result<FileContents, UserError> {
    let shown = workspace
        .analysis
        .tree()
        .resolve_files(&project.child("crd"), spec::is_crd_file);
    if let Some(link) = shown.nowhere.first() {
        let what = format!("`{link}` leads to no file or folder of this revision");
        return Err(UserError::new(ErrorKind::Layout, what)
            .at(link.to_string(), None, None)
            .hint("CustomResourceDefinitions are read from git: let the link lead to a file in this repository, or put the file there itself"));
    }
    let source = workspace.source.as_ref();
    let files = shown.files.into_iter();
    files
        .map(|file| Ok((file.path, read(source, file.blob)?)))
        .collect()
}

fn read(source: &dyn Source, blob: BlobId) -> Result<Arc<[u8]>, UserError> {
    Ok(source.read(blob)?)
}
