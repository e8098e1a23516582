//! Files, findings and outcomes, in one form for all rule languages.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use konverge_base::model::{FieldPath, ResourceId, plan_document::DocumentResource};

/// The wall-clock time for one Rego rule on one input. This limit exists so that the message can name the slow
/// rule; the worker process has a limit for everything, which also holds on a busy machine.
pub(super) const RULE_TIME: Duration = Duration::from_secs(2);
/// The rule name in the finding about a set that cannot be parsed.
pub(super) const UNREADABLE: &str = "load";
/// The rule name in the finding about a set whose evaluation was stopped.
pub(super) const ENDED: &str = "limits";
/// The maximum length of a message in characters, after masking.
const LONGEST_MESSAGE: usize = 1_000;
/// The maximum length of a message before masking. It is larger, because a secret that is cut in two would not be
/// masked.
const LONGEST_UNMASKED: usize = 4 * LONGEST_MESSAGE;
/// The maximum number of additional fields of a finding.
pub(super) const MOST_DETAILS: usize = 20;
/// The maximum number of findings of one rule for one input.
pub(super) const MOST_FINDINGS: usize = 200;

/// A file of a policy set: rules or data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFile {
    /// The path of the file in the repository.
    pub path: String,
    /// The content of the file.
    pub text: String,
}

/// A test of a policy set that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTest {
    /// The path of the file with the test.
    pub file: String,
    /// The name of the test.
    pub name: String,
    /// The reason of the failure.
    pub why: String,
}

impl FailedTest {
    pub(super) fn new(file: &str, name: &str, why: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            name: name.to_owned(),
            why: why.into(),
        }
    }
}

/// The severity that a rule gives its findings. The set's `enforce` decides about the effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    Deny,
    Warn,
}

/// A finding of a rule on one input.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RuleFinding {
    /// The name of the rule in its set.
    pub rule: String,
    pub severity: Severity,
    pub message: String,
    /// The resource that the rule names.
    pub resource: Option<String>,
    /// The path that the rule names.
    pub path: Option<String>,
    /// Other fields of the finding, by name.
    pub details: BTreeMap<String, String>,
}

/// A finding of a rule, or the fact that an unknown value prevents a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleOutcome {
    /// A finding of the rule.
    Found(RuleFinding),
    /// The rule may read unknown values of the resource, so it is undecided.
    Unknown {
        /// Name of the rule.
        rule: String,
        /// The severity of the rule's findings.
        severity: Severity,
        /// The resource on which the rule was evaluated.
        resource: ResourceId,
        /// The paths of the unknown values.
        paths: Vec<FieldPath>,
        /// True if the values become known before the resource is written; the rule is evaluated again then.
        later: bool,
    },
}

/// Reasons why a set has no outcomes for a stack. Both deny, and nobody can override them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoOutcomes {
    /// The set cannot be parsed.
    Unreadable(String),
    /// The evaluation was stopped, or failed.
    Ended(String),
}

impl RuleOutcome {
    /// Creates the outcome of a rule that may read these unknown values of a resource.
    pub(super) fn unknown(
        rule: &str,
        severity: Severity,
        resource: &DocumentResource,
        paths: Vec<FieldPath>,
    ) -> Self {
        Self::Unknown {
            rule: rule.to_owned(),
            severity,
            resource: resource.id.clone(),
            paths,
            later: resource.known_before_write,
        }
    }
}

impl RuleFinding {
    /// Creates a finding about a resource.
    pub(super) fn about(
        resource: &DocumentResource,
        rule: String,
        severity: Severity,
        message: &str,
    ) -> Self {
        Self {
            rule,
            severity,
            message: bound(message),
            resource: Some(resource.id.to_string()),
            path: None,
            details: BTreeMap::new(),
        }
    }

    /// Creates the finding of a rule that could not be evaluated, which denies.
    pub fn error(rule: &str, why: &str) -> Self {
        Self {
            rule: rule.to_owned(),
            severity: Severity::Deny,
            message: bound(&format!("the rule could not be evaluated: {why}")),
            resource: None,
            path: None,
            details: BTreeMap::new(),
        }
    }
}

/// Shortens a message to its maximum length.
pub(super) fn shorten(message: &str) -> String {
    cut(message, LONGEST_MESSAGE)
}

/// Shortens a message that is not masked yet.
pub(super) fn bound(message: &str) -> String {
    cut(message, LONGEST_UNMASKED)
}

fn cut(message: &str, longest: usize) -> String {
    match message.char_indices().nth(longest) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}…", &message[..end]),
    }
}
