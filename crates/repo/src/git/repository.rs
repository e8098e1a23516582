//! [`Repository`]: resolves names to commits, finds ancestors, and reads the files of a revision.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    GitCredentials, GitError,
    commit_source::CommitSource,
    earlier_files::shallow_boundary,
    fetch::{FetchSpec, fetch},
    index_source::IndexSource,
    normalize_url,
    object_ids::{commit_id, find_commit, oid, tree_id, tree_of},
    pool::RepositoryPool,
    renames::{self, CommitFolder},
    worktree_source::WorktreeSource,
};
use konverge_base::model::{
    CommitId, RepoPath,
    file_source::{Listing, Source, TreeId, WrittenPaths},
};
use konverge_base::variables;

/// A git repository on disk. Clones share their open handles.
#[derive(Clone)]
pub struct Repository {
    root: PathBuf,
    bare: bool,
    handles: Arc<RepositoryPool>,
}

impl Repository {
    /// Finds the repository that contains `dir`.
    ///
    /// A checkout that belongs to another user (usual in a container) is accepted only if it is the runner's
    /// `GITHUB_WORKSPACE`, or if git's `safe.directory` allows it.
    ///
    /// # Errors
    /// There is no repository, or it belongs to another user.
    pub fn discover(dir: &Path) -> Result<Self, GitError> {
        konverge_base::process::accept_partial_clones();
        // libgit2 then trusts objects as git itself does: by the checksums of packs and streams, without
        // hashing each object again when it is read.
        git2::opts::strict_hash_verification(false);
        let (git_dir, work_dir) = match git2::Repository::discover(dir) {
            Ok(found) => (found.path().to_owned(), found.workdir().map(Path::to_owned)),
            Err(error) if error.code() == git2::ErrorCode::Owner => {
                let work_dir =
                    foreign_checkout(dir).ok_or_else(|| GitError::ForeignOwner(dir.display().to_string()))?;
                (work_dir.join(".git"), Some(work_dir))
            }
            Err(error) if error.code() == git2::ErrorCode::NotFound => {
                return Err(GitError::NotARepository(dir.display().to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        let root = work_dir.clone().unwrap_or_else(|| git_dir.clone());
        let handles = RepositoryPool::new(&git_dir, work_dir.as_deref());
        handles.with(|_| Ok(()))?;
        Ok(Self {
            root,
            bare: work_dir.is_none(),
            handles: Arc::new(handles),
        })
    }

    /// Returns the top folder of the working tree; for a bare repository, the repository itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the commit of a branch, a tag, `HEAD~2`, or a full or abbreviated id.
    ///
    /// # Errors
    /// There is no such revision.
    pub fn resolve(&self, name: &str) -> Result<CommitId, GitError> {
        self.handles.with(|git| {
            let commit = git
                .revparse_single(name)
                .and_then(|object| object.peel_to_commit())
                .map_err(|_| {
                    let name = name.escape_debug().to_string();
                    // The revision may exist on the server, but not in this shallow clone.
                    if name.starts_with("HEAD") && is_unborn(git) {
                        GitError::NothingCommitted
                    } else if git.is_shallow() {
                        GitError::Shallow(format!("the fetched commits have no revision `{name}`"))
                    } else {
                        GitError::UnknownRevision(name)
                    }
                })?;
            Ok(commit_id(commit.id()))
        })
    }

    /// Returns the best common ancestor of two commits.
    ///
    /// In a shallow clone the result is returned only if the missing history cannot change it.
    ///
    /// # Errors
    /// There is no common ancestor, or the local history does not determine it ([`GitError::Shallow`]).
    pub fn merge_base(&self, a: &CommitId, b: &CommitId) -> Result<CommitId, GitError> {
        self.handles.with(|git| {
            let (left, right) = (oid(a), oid(b));
            for commit in [a, b] {
                find_commit(git, commit)?;
            }
            let found = git.merge_base(left, right);
            if git.is_shallow() && left != right {
                let certain = match &found {
                    Ok(base) => !cut_off_between(git, left, right, *base)?,
                    Err(_) => false,
                };
                if !certain {
                    return Err(GitError::Shallow(format!(
                        "the common ancestor of {} and {} is missing",
                        a.short(),
                        b.short()
                    )));
                }
            }
            match found {
                Ok(base) => Ok(commit_id(base)),
                Err(error) if error.code() == git2::ErrorCode::NotFound => {
                    Err(GitError::NoMergeBase(a.short().to_owned(), b.short().to_owned()))
                }
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Returns the name of the default branch on the server. In a repository with neither a remote nor a commit, the
    /// name of the checked-out branch. `None` if it is unknown.
    pub fn default_branch_name(&self) -> Option<String> {
        if let Ok(found) = self.default_branch() {
            return Some(found.strip_prefix("origin/").unwrap_or(&found).to_owned());
        }
        let checked_out = self.handles.with(|git| {
            let head = git.find_reference("HEAD")?;
            Ok(head.symbolic_target().ok().flatten().map(str::to_owned))
        });
        let target = checked_out.ok().flatten()?;
        Some(target.strip_prefix("refs/heads/")?.to_owned())
    }

    /// Returns the default branch as a revision for [`Repository::resolve`]: the target of `origin/HEAD`, or else
    /// `main` or `master`, of `origin` or local.
    ///
    /// # Errors
    /// There is no such branch.
    pub fn default_branch(&self) -> Result<String, GitError> {
        self.handles.with(|git| {
            let head = git.find_reference("refs/remotes/origin/HEAD").ok();
            let target = head
                .as_ref()
                .and_then(|head| head.symbolic_target().ok().flatten())
                .filter(|target| git.refname_to_id(target).is_ok())
                .and_then(|target| target.strip_prefix("refs/remotes/"));
            if let Some(branch) = target {
                return Ok(branch.to_owned());
            }
            for name in ["main", "master"] {
                for (prefix, short) in [
                    ("refs/remotes/origin/", format!("origin/{name}")),
                    ("refs/heads/", name.to_owned()),
                ] {
                    if git.refname_to_id(&format!("{prefix}{name}")).is_ok() {
                        return Ok(short);
                    }
                }
            }
            Err(if is_unborn(git) {
                GitError::NothingCommitted
            } else {
                GitError::NoDefaultBranch
            })
        })
    }

    /// Returns the names of all branches and tags, sorted, in the form that [`Repository::resolve`] accepts.
    ///
    /// # Errors
    /// The references cannot be read.
    pub fn branches_and_tags(&self) -> Result<Vec<String>, GitError> {
        self.handles.with(|git| {
            let mut names = Vec::new();
            for reference in git.references()? {
                let reference = reference?;
                if (reference.is_branch() || reference.is_remote() || reference.is_tag())
                    && let Ok(name) = reference.shorthand()
                {
                    names.push(name.to_owned());
                }
            }
            names.sort();
            Ok(names)
        })
    }

    /// Returns the parents of a commit, in order; empty at the start of the history (or where a shallow clone cuts it
    /// off).
    ///
    /// # Errors
    /// There is no such commit.
    pub fn parents(&self, commit: &CommitId) -> Result<Vec<CommitId>, GitError> {
        self.handles.with(|git| {
            let parents = find_commit(git, commit)?.parent_ids().map(commit_id).collect();
            Ok(parents)
        })
    }

    /// Returns the committer time of a commit. For a merge on GitHub, this is the time of the merge.
    ///
    /// # Errors
    /// There is no such commit.
    pub fn commit_time(&self, commit: &CommitId) -> Result<jiff::Timestamp, GitError> {
        self.handles.with(|git| {
            jiff::Timestamp::from_second(find_commit(git, commit)?.time().seconds())
                .map_err(|_| GitError::UnknownRevision(commit.to_string()))
        })
    }

    /// Returns the commits that a tip contains and another commit does not. Both histories must be complete down to
    /// their merge base ([`Repository::merge_base_fetching`]).
    ///
    /// # Errors
    /// A commit is missing here.
    pub fn commits_after(&self, commit: &CommitId, tip: &CommitId) -> Result<BTreeSet<CommitId>, GitError> {
        self.handles.with(|git| {
            let mut walk = git.revwalk()?;
            walk.push(oid(tip))?;
            walk.hide(oid(commit))?;
            walk.map(|found| Ok(commit_id(found?))).collect()
        })
    }

    /// Returns true if git sees a file of one folder renamed into the other one.
    ///
    /// # Errors
    /// A commit is missing here.
    pub fn is_renamed(&self, from: CommitFolder<'_>, to: CommitFolder<'_>) -> Result<bool, GitError> {
        renames::is_renamed(&self.handles, from, to)
    }

    /// Returns true if git ignores a path that it does not know yet. It knows a folder by the files in it.
    pub fn ignores(&self, path: &RepoPath) -> bool {
        let ignored = self.handles.with(|git| {
            let mut index = git.index()?;
            index.read(false)?;
            let is_known = index.get_path(path.as_str().as_ref(), 0).is_some()
                || index.find_prefix(format!("{path}/")).is_ok();
            Ok(!is_known && git.is_path_ignored(path.as_str())?)
        });
        ignored.unwrap_or(false)
    }

    /// Returns the files of a commit.
    ///
    /// # Errors
    /// The commit or one of its trees is missing here, or a tree contains a name that no checkout may
    /// contain.
    pub fn revision(&self, commit: &CommitId) -> Result<Arc<dyn Source>, GitError> {
        self.revision_near(commit, None)
    }

    /// Reads the files of a commit as [`Repository::revision`] does. If the files of another tree are known, only
    /// differing folders are read.
    ///
    /// # Errors
    /// See [`Repository::revision`].
    pub fn revision_near(
        &self,
        commit: &CommitId,
        near: Option<&Listing>,
    ) -> Result<Arc<dyn Source>, GitError> {
        let revision = CommitSource::read(&self.handles, &self.root, commit, near)?;
        Ok(Arc::new(revision))
    }

    /// Returns the tree of a commit.
    ///
    /// # Errors
    /// The commit is missing here.
    pub fn tree(&self, commit: &CommitId) -> Result<TreeId, GitError> {
        self.handles.with(|git| Ok(tree_id(tree_of(git, commit)?)))
    }

    /// Returns the source of a commit whose files are known already.
    pub fn source_from_listing(&self, commit: &CommitId, listing: &Listing) -> Arc<dyn Source> {
        Arc::new(CommitSource::from_listing(&self.handles, commit, listing))
    }

    /// Returns the files of the working tree: tracked files as they are on disk, and untracked files that are not
    /// ignored.
    ///
    /// # Errors
    /// The repository is bare, or a file cannot be read.
    pub fn worktree(&self) -> Result<Arc<dyn Source>, GitError> {
        if self.bare {
            return Err(GitError::Bare(self.root.display().to_string()));
        }
        Ok(Arc::new(WorktreeSource::read(&self.handles, &self.root)?))
    }

    /// Returns the files of the index, which the next commit will contain. `file` names an index to read instead of the
    /// repository's own; its path is relative to [`Repository::root`].
    ///
    /// # Errors
    /// The repository is bare, or its index cannot be read or has a conflict.
    pub fn staged(&self, file: Option<&Path>) -> Result<Arc<dyn Source>, GitError> {
        if self.bare {
            return Err(GitError::Bare(self.root.display().to_string()));
        }
        Ok(Arc::new(IndexSource::read(&self.handles, &self.root, file)?))
    }

    /// Returns the files of the working tree, derived from an earlier state and the paths that were written since. Only
    /// the written files are read, if no other file can differ.
    ///
    /// # Errors
    /// See [`Repository::worktree`].
    pub fn worktree_after(
        &self,
        earlier: &dyn Source,
        written: &WrittenPaths,
    ) -> Result<Arc<dyn Source>, GitError> {
        let derived = match written {
            WrittenPaths::Known(paths) => earlier.after_writes(paths),
            WrittenPaths::Unknown => None,
        };
        derived.map_or_else(|| self.worktree(), Ok)
    }

    /// Returns true if the working tree differs from `HEAD`, including untracked files.
    ///
    /// # Errors
    /// The index or a file cannot be read.
    pub fn is_dirty(&self) -> Result<bool, GitError> {
        if self.bare {
            return Ok(false);
        }
        self.handles.with(|git| {
            let mut options = git2::StatusOptions::new();
            options
                .include_untracked(true)
                .include_ignored(false)
                .exclude_submodules(true);
            Ok(!git.statuses(Some(&mut options))?.is_empty())
        })
    }

    /// Returns true if the history is cut off.
    ///
    /// # Errors
    /// The repository can no longer be opened.
    pub fn is_shallow(&self) -> Result<bool, GitError> {
        self.handles.with(|git| Ok(git.is_shallow()))
    }

    /// Returns the URL of `origin`, normalized and without credentials.
    pub fn origin_url(&self) -> Option<String> {
        self.raw_origin().map(|url| normalize_url(&url))
    }

    /// Ensures that the tree of a commit is here. A shallow clone fetches it without its history; a full clone with it,
    /// because `--depth` would make the clone shallow. Does nothing if the tree is here.
    ///
    /// # Errors
    /// The tree cannot be fetched.
    pub async fn ensure(
        &self,
        commit: &CommitId,
        credentials: Option<&GitCredentials>,
    ) -> Result<(), GitError> {
        if self.has(commit)? {
            return Ok(());
        }
        let want = if self.is_shallow()? {
            FetchSpec::Commit(commit.as_str())
        } else {
            FetchSpec::History(commit.as_str())
        };
        self.fetch(&want, credentials).await?;
        if self.has(commit)? {
            return Ok(());
        }
        Err(GitError::UnknownRevision(commit.to_string()))
    }

    /// Finds the common ancestor as [`Repository::merge_base`] does, and deepens a shallow clone as far as that needs.
    ///
    /// # Errors
    /// See [`Repository::merge_base`]; also if the history cannot be fetched.
    pub async fn merge_base_fetching(
        &self,
        a: &CommitId,
        b: &CommitId,
        credentials: Option<&GitCredentials>,
    ) -> Result<CommitId, GitError> {
        for commit in [a, b] {
            self.ensure(commit, credentials).await?;
        }
        // Most branches are short, so the clone is deepened step by step before the whole history is fetched.
        for commits in [32, 256, 2048] {
            match self.merge_base(a, b) {
                Err(GitError::Shallow(_)) => self.fetch(&FetchSpec::Deeper(commits), credentials).await?,
                answer => return answer,
            }
        }
        if self.is_shallow()? {
            self.fetch(&FetchSpec::Everything, credentials).await?;
        }
        self.merge_base(a, b)
    }

    async fn fetch(
        &self,
        want: &FetchSpec<'_>,
        credentials: Option<&GitCredentials>,
    ) -> Result<(), GitError> {
        fetch(&self.root, self.raw_origin().as_deref(), want, credentials).await
    }

    fn has(&self, commit: &CommitId) -> Result<bool, GitError> {
        self.handles.with(|git| {
            // `git fetch` ran in another process, so libgit2 must look for new packs.
            git.odb()?.refresh()?;
            Ok(git.find_commit(oid(commit)).and_then(|c| c.tree()).is_ok())
        })
    }

    fn raw_origin(&self) -> Option<String> {
        self.handles
            .with(|git| Ok(git.find_remote("origin")?.url()?.to_owned()))
            .ok()
    }
}

/// Returns true if the current branch has no commit yet.
fn is_unborn(git: &git2::Repository) -> bool {
    git.head()
        .is_err_and(|error| error.code() == git2::ErrorCode::UnbornBranch)
}

/// Returns true if history reachable from the two commits but not from their base ends at a shallow boundary:
/// then a nearer base may be behind it.
fn cut_off_between(
    git: &git2::Repository,
    left: git2::Oid,
    right: git2::Oid,
    base: git2::Oid,
) -> Result<bool, GitError> {
    let boundary = shallow_boundary(git);
    let mut walk = git.revwalk()?;
    walk.push(left)?;
    walk.push(right)?;
    walk.hide(base)?;
    for commit in walk {
        if boundary.contains(&commit?.to_string()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the checkout at or above `dir`, if it was made for this job: the runner's workspace, or what
/// `actions/checkout` put below it (`path:`).
fn foreign_checkout(dir: &Path) -> Option<PathBuf> {
    let workspace = std::env::var_os(variables::GITHUB_WORKSPACE)?;
    let workspace = Path::new(&workspace).canonicalize().ok()?;
    let top = dir.canonicalize().ok()?;
    let top = top.ancestors().find(|folder| folder.join(".git").is_dir())?;
    top.starts_with(&workspace).then(|| top.to_owned())
}
