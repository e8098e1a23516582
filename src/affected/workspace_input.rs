//! [`WorkspaceInput`]: the part of a workspace that concerns a stack, as an input of its digest.

use crate::model::{Digest, RepoPath};

/// The part of a workspace that concerns a stack. Other parts of the file are no input of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceInput {
    /// The file of the workspace; `None` if the stack has none.
    pub file: Option<RepoPath>,
    /// The digest of the part, merged for the stack.
    pub digest: Digest,
}
