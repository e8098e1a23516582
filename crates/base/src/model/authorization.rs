//! [`Authorization`]: the people and the rules that allowed an apply.

use serde::{Deserialize, Serialize};

use super::{
    CommitId, Digest,
    policy_finding::{Enforcement, PolicyFinding},
};

/// The authorization of an apply. Empty if a person applied at a terminal: the envelope names that person.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// The merged pull requests whose previews showed parts of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_requests: Vec<ReviewedPull>,
    /// The users who approved exactly this plan, by its digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agreed_by: Vec<String>,
    /// The reason that the approvers gave. It is free text, so it is escaped where it is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The findings of policy sets that were overridden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<PolicyOverride>,
    /// The findings of policy sets in the plan.
    #[serde(default, skip_serializing_if = "RecordedFindings::is_empty")]
    pub findings: RecordedFindings,
    /// True if the apply restored what was applied before, as `drift.reconcile` on the default branch allows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reconciled: bool,
}

/// A finding of a policy set that was overridden.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyOverride {
    /// The digest of the finding.
    pub finding: Digest,
    /// The rule, as `SET/RULE`.
    pub rule: String,
    /// The message of the rule.
    pub message: String,
    /// The users who overrode the finding.
    pub by: Vec<String>,
    /// The reason that the approvers gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl PolicyOverride {
    /// Returns the users who overrode the finding, with their reason.
    pub fn giver(&self) -> String {
        let by = self.by.join(", ");
        match &self.why {
            Some(why) => format!("{by} ({why})"),
            None => format!("{by} (no reason given)"),
        }
    }
}

/// The findings of policy sets in a plan that was applied: warnings, undecided findings, and denials that an exception
/// or an override let pass.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecordedFindings {
    /// The recorded findings; those that an exception or an override let pass come first.
    pub shown: Vec<PolicyFinding>,
    /// The number of findings that are left out of `shown`.
    #[serde(default, skip_serializing_if = "super::json_parts::is_default")]
    pub more: usize,
}

impl RecordedFindings {
    /// The maximum number of findings in an apply record.
    const MOST: usize = 50;

    /// Records the first findings and counts the others.
    pub fn from_findings(findings: &[PolicyFinding]) -> Self {
        let of_sets = findings
            .iter()
            .filter(|f| f.place.is_some() && f.verdict != Enforcement::Deny);
        let mut shown: Vec<_> = of_sets.cloned().collect();
        shown.sort_by_key(|finding| finding.verdict != Enforcement::Pass);
        let more = shown.len().saturating_sub(Self::MOST);
        shown.truncate(Self::MOST);
        Self { shown, more }
    }

    /// Returns true if there are no findings.
    pub fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }
}

/// A merged pull request that authorizes a part of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewedPull {
    /// Number of the pull request.
    pub number: u64,
    /// The last head of the pull request; only the preview of this head counts as reviewed.
    pub head: CommitId,
    /// The users who approved that head; `None` if GitHub could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviewers: Option<Vec<String>>,
}

impl Authorization {
    /// Returns true if nothing is recorded.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl std::fmt::Display for Authorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words: Vec<_> = self.pull_requests.iter().map(ReviewedPull::to_string).collect();
        if !self.agreed_by.is_empty() {
            let why = self.why.iter().map(|why| format!(" ({why})")).collect::<String>();
            words.push(format!("digest approved by {}{why}", self.agreed_by.join(", ")));
        }
        for overridden in &self.overrides {
            words.push(format!(
                "{} overridden by {}",
                overridden.rule,
                overridden.giver()
            ));
        }
        if self.reconciled {
            words.push("restored".to_owned());
        }
        f.write_str(&words.join("; "))
    }
}

impl std::fmt::Display for ReviewedPull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.number)?;
        match self.reviewers.as_deref() {
            Some([]) => f.write_str(", no approvals"),
            Some(reviewers) => write!(f, ", approved by {}", reviewers.join(", ")),
            None => Ok(()),
        }
    }
}
