//! Files, findings and outcomes that the languages of rules share.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use konverge_base::model::{ResourceId, plan_document::DocumentResource};

/// The time on the clock that one rule in Rego may take for one input: it is named then. The limit that holds for all
/// rules, and on a busy machine, is the worker's.
pub(super) const RULE_TIME: Duration = Duration::from_secs(2);
/// The rule of a finding of a set that cannot be read.
pub(super) const UNREADABLE: &str = "load";
/// The rule of a finding of a set whose evaluation was ended.
pub(super) const ENDED: &str = "limits";
/// The maximum length of a message in characters, when it leaves.
const LONGEST_MESSAGE: usize = 1_000;
/// The maximum length of a message before it is masked: a secret that is cut in two would not be recognized.
const LONGEST_UNMASKED: usize = 4 * LONGEST_MESSAGE;
/// The maximum number of details of a finding.
pub(super) const MOST_DETAILS: usize = 20;
/// The maximum number of findings of one rule for one input.
pub(super) const MOST_FINDINGS: usize = 200;

/// A file of a policy set: rules or data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFile {
    /// The path in the repository.
    pub path: String,
    /// The content.
    pub text: String,
}

/// A test of a policy set that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTest {
    /// The path of the file with the test.
    pub file: String,
    /// The test.
    pub name: String,
    /// The reason.
    pub why: String,
}

/// Severity that a rule gives its findings. The set decides whether it is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    Deny,
    Warn,
}

/// One finding of a rule for one input.
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

/// A finding of a rule, or that an unknown value keeps it from deciding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleOutcome {
    /// A finding.
    Found(RuleFinding),
    /// The rule may read these paths of the resource.
    Unknown {
        /// Name of the rule.
        rule: String,
        /// Severity of a finding of the rule.
        severity: Severity,
        /// The resource that it was evaluated on.
        resource: ResourceId,
        /// The paths of the unknown values that it may read.
        paths: Vec<String>,
        /// True if they become known before the resource is written.
        later: bool,
    },
}

/// Reasons why a set has no outcomes for a stack. Both deny, and nobody can override them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoOutcomes {
    /// The set cannot be read.
    Unreadable(String),
    /// The evaluation was ended, or failed.
    Ended(String),
}

impl RuleOutcome {
    /// A rule that may read these values of a resource.
    pub(super) fn unknown(
        rule: &str,
        severity: Severity,
        resource: &DocumentResource,
        paths: Vec<String>,
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
    /// Makes a finding about a resource.
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

    /// A rule that could not be evaluated: it denies.
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

/// A message within its maximum length.
pub(super) fn shorten(message: &str) -> String {
    cut(message, LONGEST_MESSAGE)
}

/// A message that is not masked yet, within the length that is kept until then.
pub(super) fn bound(message: &str) -> String {
    cut(message, LONGEST_UNMASKED)
}

fn cut(message: &str, longest: usize) -> String {
    match message.char_indices().nth(longest) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}…", &message[..end]),
    }
}
