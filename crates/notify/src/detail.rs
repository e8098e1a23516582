//! What a notification says besides its stacks.

use konverge_base::model::apply_result::WaitReason;

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
    /// All of the stacks wait for this.
    Waits(WaitReason),
    /// Nothing happened: somebody tests the receiver.
    Sample,
}
