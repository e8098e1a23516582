//! [`SettingChange`]: a key of the configuration that means something else for some stacks after a merge.

use serde::Serialize;

use super::StackId;

/// A key whose effect on stacks differs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SettingChange {
    /// The key in `konverge.yaml` (`kcl.version`), or the name of another file at the root.
    pub key: String,
    /// The effect of the key on a stack, as a sentence without a full stop.
    pub effect: String,
    /// The stacks for which it differs, by identity.
    pub stacks: Vec<StackId>,
}
