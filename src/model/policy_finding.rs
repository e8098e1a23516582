//! What a guardrail says of a plan.

use serde::{Deserialize, Serialize};

use super::StackId;

/// One guardrail's answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyFinding {
    /// How much it weighs; the gravest first.
    pub verdict: Enforcement,
    /// The rule by its key in `konverge.yaml`, such as `policy.freeze`.
    pub rule: String,
    /// The stack it is about; `None` for the run as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackId>,
    /// One sentence: what is not allowed and why.
    pub message: String,
    /// What would satisfy the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// It stops the stack.
    Deny,
    /// It is shown.
    Warn,
    /// The rule was looked at and is satisfied.
    Pass,
}
