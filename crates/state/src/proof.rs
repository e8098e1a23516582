//! [`Proven`]: a value from the store on which decisions may depend.
//!
//! If `state.encrypt_to` is set, each document has the mark of a private key, and the content of a document
//! without a mark never leaves `document_format.rs`. Without that setting nothing is marked, so everybody
//! with write access to the store is trusted.

use std::ops::Deref;

/// A value from verified documents: each had the mark of a known key, if documents are marked.
///
/// Code that grants a permission, chooses a cloud identity, shows a stack or decides that there is nothing to
/// do takes this type. Only this crate can create it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven<T>(T);

impl<T> Proven<T> {
    pub(super) fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the value to a caller that changes it. The result is no longer proven.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Proven<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
