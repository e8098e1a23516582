//! The changes of a pull request to permissions of Konverge, as its comment shows them.

use super::StackId;

/// The name of the file that defines code owners, as the key of a change.
pub const CODEOWNERS: &str = "CODEOWNERS";

/// One configuration key that grants permissions, before and after a merge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PowerChange {
    /// The key in `konverge.yaml` (`policy.approvals`), or the file that grants the permission.
    pub key: String,
    /// The value on the default branch as compact JSON; `None` if it is not set.
    pub from: Option<String>,
    /// The value after the merge as compact JSON; `None` if it is not set.
    pub to: Option<String>,
    /// The stacks that the change concerns; `None` for all stacks.
    pub stacks: Option<Vec<StackId>>,
}

impl PowerChange {
    /// Returns the name of the file that grants the permission.
    pub fn file(&self) -> &'static str {
        if self.key == CODEOWNERS {
            CODEOWNERS
        } else {
            "konverge.yaml"
        }
    }
}
