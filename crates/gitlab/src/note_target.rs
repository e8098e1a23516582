//! The target of a note: a merge request or an issue. The two are numbered separately.

/// The target of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoteTarget {
    /// A merge request.
    MergeRequest,
    /// An issue of the project.
    Issue,
}

impl NoteTarget {
    /// Returns the path segment of the target in the API and in URLs.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::MergeRequest => "merge_requests",
            Self::Issue => "issues",
        }
    }
}
