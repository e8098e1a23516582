//! [`PreviewTarget`]: what a preview shows.

use super::open_revisions::PreviewCommits;
use konverge_base::model::CommitId;
use konverge_report::Merging;

/// The target of a preview.
pub(super) struct PreviewTarget {
    /// The pull request; `None` in a merge queue.
    pub number: Option<u64>,
    /// The head, which identifies the change.
    pub head: CommitId,
    /// The compared commits.
    pub sides: PreviewCommits,
    /// What merging it does.
    pub merging: Merging,
    /// The target branch, if it is not the default branch.
    pub into: Option<String>,
}
