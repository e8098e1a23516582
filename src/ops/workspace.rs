//! A revision of the monorepo, opened: its files, its configuration, its stacks.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::Run;
use crate::{
    affected::{Analysis, Index},
    config::Config,
    error::{ErrorKind, Failure},
    git::Repository,
    konfig::Layout,
    model::{CommitId, RepoPath, source::Source, stack::Stack},
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
    pub layout: Arc<Layout>,
    /// What each stack is made of.
    pub analysis: Analysis,
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
        Self::with(repository, source, config)
    }

    /// Opens a revision under a configuration of another one (the protected branch's, or the head's for its base).
    ///
    /// # Errors
    /// The revision can not be read.
    pub fn open_under(repository: &Repository, at: &At, config: &Config) -> Result<Self, Failure> {
        Self::with(repository, source(repository, at)?, config.clone())
    }

    fn with(repository: &Repository, source: Arc<dyn Source>, config: Config) -> Result<Self, Failure> {
        let layout = Arc::new(Layout::read(&source, config.kcl.settings)?);
        let cache = Index::location(repository.root());
        let index = cache.as_deref().map_or_else(Index::new, Index::load);
        let analysis = Analysis::new(source.clone(), layout.clone(), config.kcl.core(), &index)?
            .with_config(|stack| config.for_stack(stack).digest());
        if let Some(path) = cache
            && let Err(error) = index.save(&path)
        {
            tracing::debug!(%error, path = %path.display(), "the import index was not kept");
        }
        Ok(Self {
            source,
            config,
            layout,
            analysis,
        })
    }

    /// The commit, or `None` for the working tree.
    pub fn commit(&self) -> Option<&CommitId> {
        self.source.commit()
    }

    /// The stacks that were named: an identity, a stack's folder or a folder above stacks, relative to where the run was
    /// started or to the root. Sorted by folder.
    ///
    /// # Errors
    /// A name that fits no stack; the nearest one is said.
    pub fn named(&self, run: &Run, root: &Path, names: &[String]) -> Result<Vec<Stack>, Failure> {
        let here = run.dir.canonicalize().ok();
        let here = here.and_then(|dir| RepoPath::normalise(dir.strip_prefix(root).ok()?.to_str()?));
        let mut found = BTreeMap::new();
        for name in names {
            let from_here = here.as_ref().and_then(|here| here.join(name));
            let mut stacks = from_here
                .map(|path| self.layout.select(path.as_str()))
                .unwrap_or_default();
            if stacks.is_empty() {
                stacks = self.layout.select(name);
            }
            if stacks.is_empty() {
                return Err(self.unknown(name));
            }
            found.extend(
                stacks
                    .into_iter()
                    .map(|stack| (stack.folder.clone(), stack.clone())),
            );
        }
        Ok(found.into_values().collect())
    }

    fn unknown(&self, name: &str) -> Failure {
        let all = self
            .layout
            .stacks
            .iter()
            .flat_map(|stack| [stack.folder.as_str(), stack.id.as_str()]);
        let nearest = all
            .map(|known| (strsim::damerau_levenshtein(known, name), known))
            .min();
        let failure = Failure::new(
            ErrorKind::Layout,
            format!("there is no stack `{}`", name.escape_debug()),
        );
        match nearest {
            Some((distance, known)) if distance <= name.len() / 2 => {
                failure.hint(format!("did you mean `{known}`?"))
            }
            Some(_) => failure.hint("`konverge affected --all` lists every stack"),
            None => {
                failure.hint("there is no folder with a stack.yaml below a project.yaml in this revision")
            }
        }
    }
}

fn source(repository: &Repository, at: &At) -> Result<Arc<dyn Source>, Failure> {
    Ok(match at {
        At::Worktree => repository.worktree()?,
        At::Commit(commit) => repository.revision(commit)?,
    })
}
