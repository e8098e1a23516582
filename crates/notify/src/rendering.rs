//! How a message is rendered for a receiver.

use konverge_base::model::NotifyLanguage;

/// How a message is rendered for a receiver.
pub(crate) struct Rendering<'a> {
    /// The language.
    pub(crate) language: NotifyLanguage,
    /// Who is mentioned in this message.
    pub(crate) mention: &'a [String],
    /// Masks secrets in a name.
    pub(crate) mask: &'a (dyn Fn(&str) -> String + Sync),
}
