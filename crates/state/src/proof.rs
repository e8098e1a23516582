//! [`Proven`]: a value from the store that may decide something.
//!
//! Where `state.encrypt_to` is set, documents carry the mark of a private key. One without a mark is not read: nothing
//! of its content leaves `document_format.rs`. Without the setting nothing is marked, and whoever writes to the store
//! decides.

use std::ops::Deref;

/// A value whose writer is known: each of its documents had the mark of a holder of a key, where documents are marked.
///
/// Code that grants a permission, chooses a cloud identity, shows a stack or decides that there is nothing to do takes
/// this type. Only this crate makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven<T>(T);

impl<T> Proven<T> {
    pub(super) fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the value to a caller that changes it, which makes it unproven.
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
