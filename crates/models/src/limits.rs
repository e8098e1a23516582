//! What a document may have at most. Beyond it the document is refused; nothing is cut.

/// The maximum number of levels of a schema.
pub(crate) const MOST_LEVELS: usize = 100;

/// The maximum number of properties of all schemas of an import.
pub(crate) const MOST_PROPERTIES: usize = 400_000;
