//! What a note is on: a merge request or an issue, which have numbers of their own.

/// What a note is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoteTarget {
    /// A merge request.
    MergeRequest,
    /// An issue.
    Issue,
}

impl NoteTarget {
    /// The part of a path and of a page's address.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::MergeRequest => "merge_requests",
            Self::Issue => "issues",
        }
    }
}
