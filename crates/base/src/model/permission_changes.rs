//! How a merge would change the permissions of Konverge, as the comment on the pull request shows it.

use super::StackId;

/// The key of changed code owners: the name of the file.
pub const CODEOWNERS: &str = "CODEOWNERS";

/// One configuration key that grants permissions, before and after a merge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PowerChange {
    /// The key in `konverge.yaml` (`policy.approvals`), or the file that grants the permission.
    pub key: String,
    /// The value on the default branch as compact JSON; `None` if it is not set.
    pub from: Option<String>,
    /// The value after the merge.
    pub to: Option<String>,
    /// The stacks concerned; `None` for all stacks.
    pub stacks: Option<Vec<StackId>>,
}

impl PowerChange {
    /// The file that grants the permission.
    pub fn file(&self) -> &'static str {
        if self.key == CODEOWNERS {
            CODEOWNERS
        } else {
            "konverge.yaml"
        }
    }
}
