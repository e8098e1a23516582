//! A revision of the monorepo, opened: its files, its configuration, its stacks.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::Run;
use crate::{
    config::Config,
    error::{ErrorKind, Failure},
    git::Repository,
    konfig::Layout,
    model::{CommitId, RepoPath, StackId, source::Source, stack::Stack},
};

/// Which files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// What lies in the folder now.
    Worktree,
    /// A commit.
    Commit(CommitId),
}

/// One revision of the monorepo.
pub struct Workspace {
    /// Its files.
    pub source: Arc<dyn Source>,
    /// Its `konverge.yaml`, or in `ci` what is in force of it.
    pub config: Config,
    /// Its projects and stacks.
    pub layout: Layout,
}

/// The root of the repository that holds a folder.
///
/// # Errors
/// Not in a repository.
pub fn repository_root(dir: &Path) -> Result<PathBuf, Failure> {
    Ok(Repository::discover(dir)?.root().to_path_buf())
}

impl Workspace {
    /// Opens a revision with the configuration that lies in it.
    ///
    /// # Errors
    /// The revision can not be read, or its `konverge.yaml` is wrong.
    pub fn open(repository: &Repository, at: &At) -> Result<Self, Failure> {
        let source = source(repository, at)?;
        let config = Config::of(source.as_ref())?;
        Self::with(source, config)
    }

    /// Opens a revision under a configuration of another one (the protected branch's).
    ///
    /// # Errors
    /// The revision can not be read.
    pub fn open_under(repository: &Repository, at: &At, config: &Config) -> Result<Self, Failure> {
        Self::with(source(repository, at)?, config.clone())
    }

    fn with(source: Arc<dyn Source>, config: Config) -> Result<Self, Failure> {
        let layout = Layout::read(source.as_ref(), config.kcl.settings);
        Ok(Self { source, config, layout })
    }

    /// A stack by identity.
    pub fn stack(&self, id: &StackId) -> Option<&Stack> {
        self.layout.stacks.iter().find(|stack| stack.id == *id)
    }

    /// The stacks that were named, by folder (relative to where the run was started, or to the root) or identity.
    ///
    /// # Errors
    /// A name that fits no stack; the nearest one is said.
    pub fn named(&self, run: &Run, root: &Path, names: &[String]) -> Result<Vec<Stack>, Failure> {
        let mut found: Vec<Stack> = Vec::new();
        for name in names {
            let stack = self.find(run, root, name).ok_or_else(|| self.unknown(name))?;
            if !found.iter().any(|known| known.id == stack.id) {
                found.push(stack.clone());
            }
        }
        found.sort_by(|a, b| a.folder.cmp(&b.folder));
        Ok(found)
    }

    fn find(&self, run: &Run, root: &Path, name: &str) -> Option<&Stack> {
        let by_id = || self.layout.stacks.iter().find(|stack| stack.id.as_str() == name);
        let by_folder = |folder: RepoPath| self.layout.stacks.iter().find(|stack| stack.folder == folder);
        let here = run.dir.canonicalize().ok().and_then(|dir| dir.strip_prefix(root).ok()?.to_str().map(str::to_owned));
        by_id()
            .or_else(|| RepoPath::normalise(&here?)?.join(name).and_then(by_folder))
            .or_else(|| RepoPath::normalise(name).and_then(by_folder))
    }

    fn unknown(&self, name: &str) -> Failure {
        let all = self.layout.stacks.iter().flat_map(|stack| [stack.folder.as_str(), stack.id.as_str()]);
        let nearest = all.map(|known| (strsim::damerau_levenshtein(known, name), known)).min();
        let failure = Failure::new(ErrorKind::Layout, format!("there is no stack `{}`", name.escape_debug()));
        match nearest {
            Some((distance, known)) if distance <= name.len() / 2 => failure.hint(format!("did you mean `{known}`?")),
            Some(_) => failure.hint("`konverge affected --all` lists every stack"),
            None => failure.hint("there is no folder with a stack.yaml below a project.yaml in this revision"),
        }
    }
}

fn source(repository: &Repository, at: &At) -> Result<Arc<dyn Source>, Failure> {
    Ok(match at {
        At::Worktree => repository.worktree()?,
        At::Commit(commit) => repository.revision(commit)?,
    })
}
