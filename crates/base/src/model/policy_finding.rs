//! The findings of policies in a plan.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Digest, ResourceId, StackId};

/// The result of one policy rule: of a setting in `policy`, or of a rule in a policy set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyFinding {
    /// The enforcement, by which findings are sorted: the strictest first.
    pub verdict: Enforcement,
    /// The rule: its key in `konverge.yaml`, such as `policy.freeze`, or `SET/RULE` for a rule of a policy set.
    pub rule: String,
    /// The stack that the finding concerns; `None` for the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackId>,
    /// The message, one sentence: what is not allowed and why.
    pub message: String,
    /// The hint that says how to satisfy the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The location of the finding, if a rule of a policy set found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<SetPlace>,
}

/// The location of a finding of a policy set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetPlace {
    /// The name of the policy set.
    pub set: String,
    /// The resource, if the rule names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceId>,
    /// The path in the resource, if the rule names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Further details of the rule: conftest's metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
    /// The digest over set, rule, stack, resource, path and message.
    pub digest: Digest,
    /// The exception or the override that lets a denial pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_by: Option<PassedBy>,
}

/// The reason why a denial may pass.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PassedBy {
    /// An exception in `policy.exceptions`.
    Exception {
        /// The end of the exception, as in the configuration.
        until: String,
        /// The reason in the configuration.
        reason: String,
    },
    /// An override by these people.
    Override(Vec<String>),
}

/// The effect of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// The stack is not applied.
    Deny,
    /// The rule reads a value that is known only after apply. It is evaluated again before the write.
    Undecided,
    /// The finding is only shown.
    Warn,
    /// The rule was evaluated and is satisfied.
    Pass,
}
