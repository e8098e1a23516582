//! The findings of the policies for a plan.

use serde::{Deserialize, Serialize};

use super::StackId;

/// The result of one policy rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyFinding {
    /// The enforcement, the strictest first.
    pub verdict: Enforcement,
    /// The rule as its key in `konverge.yaml`, such as `policy.freeze`.
    pub rule: String,
    /// The stack that the finding concerns; `None` for the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackId>,
    /// One sentence: what is not allowed and why.
    pub message: String,
    /// What would satisfy the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The enforcement of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// The stack is stopped.
    Deny,
    /// The finding is shown only.
    Warn,
    /// The rule was evaluated and is satisfied.
    Pass,
}
