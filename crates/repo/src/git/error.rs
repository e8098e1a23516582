//! The errors of git operations, with hints.

use konverge_base::{
    checkout::Untrusted,
    error::{ErrorKind, UserError, chain},
    process::ProcessError,
};

/// The error for a repository, a revision or an object that cannot be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum GitError {
    /// There is no repository at or above the folder.
    #[error("`{0}` is not in a git repository")]
    NotARepository(String),
    /// The checkout belongs to another user, so git does not trust it.
    #[error("the repository at `{0}` belongs to another user")]
    ForeignOwner(String),
    /// There is no such branch, tag or commit.
    #[error("there is no revision `{0}` in this repository")]
    UnknownRevision(String),
    /// The repository has no commit.
    #[error("nothing is committed in this repository yet")]
    NothingCommitted,
    /// The clone is shallow, and the missing history could change the result.
    #[error("the checkout is shallow: {0}")]
    Shallow(String),
    /// The two commits have no common ancestor.
    #[error("{0} and {1} have no common ancestor")]
    NoMergeBase(String, String),
    /// There is neither `origin/HEAD` nor `main` nor `master`.
    #[error("the default branch is unknown: there is no origin/HEAD, main or master")]
    NoDefaultBranch,
    /// The operation needs a working tree, but the repository is bare.
    #[error("the repository at `{0}` is bare: it has no working tree")]
    Bare(String),
    /// `GIT_INDEX_FILE` names a file that is not an index of this repository.
    #[error("GIT_INDEX_FILE names `{0}`, which is not a file in the git folder of this repository")]
    OtherIndex(String),
    /// The index has a conflict of a merge or rebase, which must be resolved before anything can be committed.
    #[error("`{0}` has a conflict that is not resolved")]
    Conflict(String),
    /// A tree contains a name that no checkout may contain.
    #[error("the tree of {revision} holds the name `{name}` in `{folder}`, which no checkout may hold")]
    HostileName {
        revision: String,
        folder: String,
        /// The name, with hidden characters escaped.
        name: String,
    },
    /// `git fetch` succeeded, but the commit is still missing.
    #[error("commit {commit} could not be fetched from origin: {why}")]
    Fetch {
        /// The requested commit.
        commit: String,
        /// The last lines of git's own message, without credentials.
        why: String,
    },
    /// No trusted `git` program was found.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file of the working tree cannot be read.
    #[error("could not read `{path}`")]
    Io { path: String, source: std::io::Error },
    /// Any other error of libgit2.
    #[error("git: {0}")]
    Library(String),
}

impl From<git2::Error> for GitError {
    fn from(error: git2::Error) -> Self {
        Self::Library(plain(error.message()))
    }
}

/// The hint to make a complete clone.
const EVERYTHING: &str =
    "or check out everything: under `uses: actions/checkout@v5`, `with:`, `  fetch-depth: 0`";

/// Corrects a misleading message: libgit2 reports a file without read permission as locked.
fn plain(message: &str) -> String {
    match message
        .strip_prefix("failed open - ")
        .and_then(|rest| rest.split_once(" is locked: "))
    {
        Some((file, why)) => format!("{file} cannot be opened: {why}"),
        None => message.to_owned(),
    }
}

impl From<GitError> for UserError {
    fn from(error: GitError) -> Self {
        let failure = UserError::new(ErrorKind::Git, chain(&error));
        match &error {
            GitError::NotARepository(_) => failure.hint("run the command inside the monorepo, or name the folder: `--repo DIR`"),
            GitError::ForeignOwner(path) => failure.hint(format!(
                "if you trust this repository: `git config --global --add safe.directory {path}`"
            )),
            GitError::UnknownRevision(name) => failure
                .hint("`git branch --all` and `git tag` list the branches and tags")
                // The local name of a remote branch begins with the name of the remote; its name on the server does
                // not.
                .hint(format!(
                    "if only the server has the commit: `git fetch origin {}`",
                    name.strip_prefix("origin/").unwrap_or(name)
                )),
            GitError::NothingCommitted => failure.hint("commit first: `git add -A && git commit`"),
            GitError::Shallow(_) => failure
                .hint("in the workflow, under `uses: actions/checkout@v5`, add the lines `with:` and `  fetch-depth: 0`")
                .hint("on your machine: `git fetch --unshallow`"),
            GitError::NoMergeBase(..) => failure.hint("name the commit to compare with: `--base REV`"),
            GitError::NoDefaultBranch => failure
                .hint("name the commit to compare with: `--base REV`")
                .hint("or let git find the default branch: `git remote set-head origin --auto`"),
            GitError::Bare(_) => failure
                .hint("read a commit instead: leave `--worktree` or `--staged` out, or name the commit: `--rev REV`"),
            GitError::Conflict(_) => failure.hint("resolve the conflict, and stage the file: `git add`"),
            GitError::Fetch { .. } => failure
                .hint("check that the token may read the repository (`permissions: contents: read`)")
                .hint(EVERYTHING),
            GitError::Untrusted(_) | GitError::Process(_) => failure
                .hint("`git` must be installed and in PATH to fetch missing commits")
                .hint(EVERYTHING),
            GitError::OtherIndex(_) => failure.hint("leave `--repo` out in a hook of git, or unset the variable"),
            GitError::Library(why) if why.contains("unsupported mandatory extension") => failure
                .hint("the index has a form that is not read: `git update-index --no-split-index`")
                .hint("or, if it is sparse: `git sparse-checkout reapply --no-sparse-index`"),
            GitError::Library(why) if why.contains("Permission denied") => {
                failure.hint("let the user of this run read the file: `ls -l` shows who may")
            }
            GitError::HostileName { .. } | GitError::Io { .. } | GitError::Library(_) => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_may_not_be_read_is_not_called_locked() {
        let said = plain("failed open - '/repo/konverge.yaml' is locked: Permission denied");
        assert_eq!(said, "'/repo/konverge.yaml' cannot be opened: Permission denied");
        assert_eq!(plain("object not found"), "object not found");
        let failure = UserError::from(GitError::Library(said));
        assert!(failure.hints[0].contains("ls -l"), "{failure:?}");
    }
}
