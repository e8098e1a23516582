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
    konfig::{Layout, Reader, Tree},
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

/// What is known of files by content, shared by the revisions of a run; the import index is kept between runs.
pub struct Knowledge {
    index: Index,
    place: Option<PathBuf>,
    reader: Reader,
}

impl Knowledge {
    /// What earlier runs left of a repository; nothing where there is no place to keep it.
    pub fn of(repository: &Repository) -> Self {
        let place = Index::location(repository.root());
        Self {
            index: place.as_deref().map_or_else(Index::new, Index::load),
            place,
            reader: Reader::new(),
        }
    }

    /// Keeps it for the next run. A failure costs the next run time and nothing else.
    fn keep(&self) {
        if let Some(place) = &self.place
            && let Err(error) = self.index.save(place)
        {
            tracing::debug!(%error, path = %place.display(), "the import index was not kept");
        }
    }
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
        Self::open_knowing(&Knowledge::of(repository), repository, at, None)
    }

    /// Opens a revision under a configuration of another one (the protected branch's, or the head's for its base).
    ///
    /// # Errors
    /// The revision can not be read.
    pub fn open_under(repository: &Repository, at: &At, config: &Config) -> Result<Self, Failure> {
        Self::open_knowing(&Knowledge::of(repository), repository, at, Some(config))
    }

    /// Opens one of several revisions: what is known of a file's content serves all of them.
    ///
    /// # Errors
    /// The revision can not be read, or without a configuration given its `konverge.yaml` is wrong.
    pub fn open_knowing(
        known: &Knowledge,
        repository: &Repository,
        at: &At,
        config: Option<&Config>,
    ) -> Result<Self, Failure> {
        let source = source(repository, at)?;
        let config = match config {
            Some(config) => config.clone(),
            None => Config::of(source.as_ref())?,
        };
        let tree = Tree::new(source.clone());
        let layout = Arc::new(known.reader.layout(&tree, config.kcl.settings)?);
        let analysis = Analysis::of_tree(tree, layout.clone(), config.kcl.core(), &known.index)?
            .with_config(|stack| config.for_stack(stack).digest());
        known.keep();
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
