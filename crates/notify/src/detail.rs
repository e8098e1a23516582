//! What a notification says besides its stacks.

/// What there is to say besides the stacks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NotifyDetail {
    /// Nothing.
    #[default]
    None,
    /// The apply failed before any stack was processed, with an error of this kind.
    NotStarted(String),
    /// So many of the stacks with drift were restored.
    Restored(usize),
    /// So many findings were overridden.
    Findings(usize),
    /// Nothing happened: somebody tests the receiver.
    Sample,
}
