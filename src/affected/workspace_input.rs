//! [`WorkspaceInput`]: the part of a workspace that concerns a stack, and the binaries of its modules, as an input of
//! its digest.

use crate::model::{Digest, RepoPath};

/// The part of a workspace that concerns a stack. Other parts of the file are no input of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceInput {
    /// The file of the workspace, if the stack has one, and the binaries of modules in the repository.
    pub files: Vec<RepoPath>,
    /// The digest of the part, merged for the stack.
    pub digest: Digest,
}
