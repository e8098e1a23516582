//! Stacks to Specs: each stack's files to the compiler, its answer to the normal form, the project's CRDs appended.

use std::{path::PathBuf, sync::Arc};

use futures::{StreamExt, stream};
use tokio::sync::OnceCell;

use super::{Run, Workspace};
use crate::{
    config::{Config, Sandbox},
    error::{ErrorKind, Failure},
    kcl::{CompileRequest, Core, Pool, PoolOptions, SandboxMode},
    model::{
        RepoPath,
        source::FileKind,
        spec::Spec,
        stack::{CompileSetup, Stack},
    },
    spec,
};

/// Compiles stacks. The workers start with the first stack that needs them; dropping it ends them.
pub struct Compiler {
    run: Run,
    config: Config,
    executable: Option<PathBuf>,
    pool: OnceCell<Pool>,
}

/// Laid-out files: paths and contents.
type Files = Vec<(RepoPath, Arc<[u8]>)>;

impl Compiler {
    /// A compiler under the configuration in force: its core, its sandbox, its limits.
    pub fn new(run: &Run, config: &Config) -> Self {
        Self {
            run: run.clone(),
            config: config.clone(),
            executable: None,
            pool: OnceCell::new(),
        }
    }

    /// Starts workers with another `konverge` than this process.
    #[must_use]
    pub fn with_executable(mut self, executable: PathBuf) -> Self {
        self.executable = Some(executable);
        self
    }

    /// Compiles one stack.
    ///
    /// # Errors
    /// The stack's description is broken, KCL refuses it, or what it prints is no Spec.
    pub async fn spec(&self, workspace: &Workspace, stack: &Stack) -> Result<Spec, Failure> {
        self.run.check_interrupted()?;
        let compiled = self.compile(workspace, stack).await;
        compiled.map_err(|failure| failure.within(format!("stack {}", stack.id)))
    }

    /// Compiles several stacks, as many at once as there are workers; answers in the order given.
    pub async fn specs(&self, workspace: &Workspace, stacks: &[Stack]) -> Vec<Result<Spec, Failure>> {
        stream::iter(stacks)
            .map(|stack| self.spec(workspace, stack))
            .buffered(self.workers() * 2)
            .collect()
            .await
    }

    async fn compile(&self, workspace: &Workspace, stack: &Stack) -> Result<Spec, Failure> {
        let setup = stack.compile.clone().map_err(|error| {
            Failure::new(ErrorKind::Layout, &error.message).at(
                error.file.to_string(),
                error.line,
                error.column,
            )
        })?;
        if let Some(remote) = setup.remote_packages.first() {
            return Err(Failure::new(
                ErrorKind::Kcl,
                format!("the package `{}` is not vendored", remote.name),
            )
            .hint("run `kcl mod vendor` next to kcl.mod and commit the folder `vendor`"));
        }
        let request = CompileRequest {
            label: stack.id.to_string(),
            files: closure(workspace, &setup)?,
            setup,
            ..CompileRequest::default()
        };
        let compiled = self.pool().await?.compile(&request).await?;
        for line in &compiled.warnings {
            self.run.notes.note(&format!("{}: {line}", stack.id));
        }
        let mut spec = spec::read(&compiled.documents)?;
        spec::append_crds(&mut spec, &crds(workspace, stack)?)?;
        Ok(spec)
    }

    fn workers(&self) -> usize {
        match self.config.kcl.workers {
            Some(workers) => workers.max(1) as usize,
            None => std::thread::available_parallelism().map_or(2, usize::from),
        }
    }

    async fn pool(&self) -> Result<&Pool, Failure> {
        self.pool
            .get_or_try_init(|| async {
                let kcl = &self.config.kcl;
                let core = Core::find(kcl.core()).await?;
                let executable = match &self.executable {
                    Some(path) => path.clone(),
                    None => std::env::current_exe().map_err(|error| {
                        Failure::new(ErrorKind::Internal, format!("own executable: {error}"))
                    })?,
                };
                let mut options = PoolOptions::new(core, executable);
                options.workers = self.workers();
                options.sandbox = match kcl.sandbox {
                    Sandbox::Required => SandboxMode::Required,
                    Sandbox::BestEffort => SandboxMode::BestEffort,
                };
                if let Some(limit) = kcl.memory_mib {
                    options.memory_limit = limit << 20;
                }
                if let Some(limit) = kcl.timeout {
                    options.deadline = limit.duration();
                }
                let pool = Pool::start(options).await?;
                if let Some(warning) = pool.warning() {
                    self.run.notes.note(&format!("warning: {warning}"));
                }
                Ok(pool)
            })
            .await
    }
}

/// Every file below the module and the other folders that the setup names.
fn closure(workspace: &Workspace, setup: &CompileSetup) -> Result<Files, Failure> {
    let mut folders = vec![
        setup
            .module_root
            .clone()
            .unwrap_or_else(|| setup.work_dir.clone()),
    ];
    folders.extend(setup.packages.iter().map(|(_, folder)| folder.clone()));
    folders.extend(setup.entries.iter().filter_map(RepoPath::parent));
    read_files(workspace, |path| {
        folders.iter().any(|folder| path.is_within(folder))
    })
}

fn crds(workspace: &Workspace, stack: &Stack) -> Result<Files, Failure> {
    let folder = stack.project_folder.child("crd");
    read_files(workspace, |path| {
        path.is_within(&folder) && spec::is_crd_file(path)
    })
}

fn read_files(workspace: &Workspace, wanted: impl Fn(&RepoPath) -> bool) -> Result<Files, Failure> {
    let source = &workspace.source;
    source
        .files()
        .iter()
        .filter(|(path, entry)| entry.kind == FileKind::File && wanted(path))
        .map(|(path, entry)| {
            let content = source
                .read(entry.blob)
                .map_err(|error| Failure::new(ErrorKind::Git, error.to_string()))?;
            Ok((path.clone(), content))
        })
        .collect()
}
