//! What a merge would change of what Konverge may do, as a pull request's comment shows it.

use super::StackId;

/// One key of the configuration that grants power, before and after a merge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PowerChange {
    /// The key as `konverge.yaml` has it (`policy.approvals`), or the file that has the power.
    pub key: String,
    /// Its value on the default branch as compact JSON; `None` if it is not set.
    pub from: Option<String>,
    /// Its value after the merge.
    pub to: Option<String>,
    /// The stacks that it is about; `None` for all of them.
    pub stacks: Option<Vec<StackId>>,
}
