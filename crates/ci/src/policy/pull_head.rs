//! The reviewed revision of a pull request.

use konverge_base::model::{CommitId, review::ReviewRecord};

/// A pull request at the commit that its preview showed and that was reviewed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PullHead {
    /// The number of the pull request.
    pub number: u64,
    /// The last head of the pull request.
    pub head: CommitId,
}

impl PullHead {
    /// Returns the pull request and head of a review record.
    pub(crate) fn from_record(record: &ReviewRecord) -> Self {
        Self {
            number: record.pull_request,
            head: record.head.clone(),
        }
    }
}
