//! [`SettingChange`]: a configuration key whose effect on some stacks changes with a merge.

use serde::Serialize;

use super::StackId;

/// A configuration key whose effect on stacks changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SettingChange {
    /// The key in `konverge.yaml` (`kcl.version`), or the name of another file at the root.
    pub key: String,
    /// The effect of the key on a stack after the merge, as a sentence without a full stop.
    pub effect: String,
    /// The stacks for which the effect changes.
    pub stacks: Vec<StackId>,
}
