//! [`WorkspaceInput`]: the part of a workspace that concerns a stack, the binaries of its modules, and the encrypted
//! files that it may refer to, as an input of its digest.

use konverge_base::model::{Digest, RepoPath};

/// What concerns a stack besides its program: a part of a workspace, and encrypted files. Other parts of the file are no input of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceInput {
    /// The file of the workspace, if the stack has one, and the binaries of modules in the repository.
    pub files: Vec<RepoPath>,
    /// The encrypted files that the stack may refer to.
    pub secret_files: Vec<RepoPath>,
    /// The digest of the part, merged for the stack, and of those files.
    pub digest: Digest,
}
