//! The target of a note: a merge request or an issue, which have numbers of their own.

/// The target of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoteTarget {
    /// A merge request.
    MergeRequest,
    /// An issue.
    Issue,
}

impl NoteTarget {
    /// Returns the segment for the target in paths of the API and of pages.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::MergeRequest => "merge_requests",
            Self::Issue => "issues",
        }
    }
}
