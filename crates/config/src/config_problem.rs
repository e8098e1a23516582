//! [`Problem`]: what is wrong with a setting, and what to write.

/// A problem of a setting: the message, and a hint.
pub(super) type Problem = (String, String);

/// What is wrong with a setting. [`Wrong::hint`] makes a [`Problem`] of it.
pub(super) struct Wrong(String);

/// Says what is wrong with a setting.
pub(super) fn problem(what: impl Into<String>) -> Wrong {
    Wrong(what.into())
}

impl Wrong {
    /// Says what to write.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Option<Problem> {
        Some((self.0, hint.into()))
    }
}
