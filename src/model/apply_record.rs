//! The receipt of an apply: which plan was carried out, on what grounds, and how it ended. Names, numbers and digests
//! only; who wrote it, from which run and when, stands in the envelope of the document that it lies in.

use serde::{Deserialize, Serialize};

use super::{CommitId, Digest, apply_result::StackResult};

/// What is kept of an apply beside the state that it made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplyRecord {
    /// The plan's digest.
    pub digest: Digest,
    /// The commit that was applied, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// How it ended.
    pub result: StackResult,
    /// On what grounds it was carried out.
    #[serde(flatten)]
    pub grounds: Authorization,
}

/// Who stands behind a plan. Empty for a person at a terminal, whom the envelope names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// The merged pull requests whose previews showed parts of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_requests: Vec<ReviewedPull>,
    /// Who agreed to exactly this plan, by its digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agreed_by: Vec<String>,
    /// It put back what was applied before: `drift.reconcile` of the protected branch says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reconciled: bool,
}

/// A merged pull request behind a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewedPull {
    /// Its number.
    pub number: u64,
    /// The head whose preview counts: its last.
    pub head: CommitId,
    /// Who approved that head; absent if GitHub could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviewers: Option<Vec<String>>,
}

impl Authorization {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl std::fmt::Display for Authorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words: Vec<_> = self.pull_requests.iter().map(ReviewedPull::to_string).collect();
        if !self.agreed_by.is_empty() {
            words.push(format!("agreed to by {}", self.agreed_by.join(", ")));
        }
        if self.reconciled {
            words.push("put back".to_owned());
        }
        f.write_str(&words.join("; "))
    }
}

impl std::fmt::Display for ReviewedPull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.number)?;
        match self.reviewers.as_deref() {
            Some([]) => f.write_str(", approved by nobody"),
            Some(reviewers) => write!(f, ", approved by {}", reviewers.join(", ")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_reads_as_one_line_and_comes_back_from_json() {
        let pull = |number, reviewers: Option<&[&str]>| ReviewedPull {
            number,
            head: "a".repeat(40).parse().unwrap(),
            reviewers: reviewers.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        };
        let receipt = ApplyRecord {
            digest: Digest::of_bytes(b"plan"),
            commit: None,
            result: StackResult::Applied,
            grounds: Authorization {
                pull_requests: vec![
                    pull(7, Some(&["ada", "grace"])),
                    pull(8, Some(&[])),
                    pull(9, None),
                ],
                agreed_by: vec!["dev".to_owned()],
                reconciled: false,
            },
        };
        assert_eq!(
            receipt.grounds.to_string(),
            "#7, approved by ada, grace; #8, approved by nobody; #9; agreed to by dev"
        );
        let json = serde_json::to_value(&receipt).unwrap();
        assert_eq!(serde_json::from_value::<ApplyRecord>(json).unwrap(), receipt);
        assert!(Authorization::default().is_empty() && Authorization::default().to_string().is_empty());
    }
}
