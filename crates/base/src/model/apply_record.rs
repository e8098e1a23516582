//! The record of an apply: which plan was executed, who authorized it, and the result.
//!
//! The record contains names, numbers and digests only. The envelope of the document that contains the record says who
//! wrote it, in which run and when.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{CommitId, Digest, apply_result::StackResult, authorization::Authorization};

/// The record of an apply, stored with the state that the apply wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplyRecord {
    /// Digest of the stack's inputs at this apply.
    pub digest: Digest,
    /// The applied commit, if a commit was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The commit time of `commit`, if a job applied that commit after a merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<Timestamp>,
    /// The result of the apply.
    pub result: StackResult,
    /// The reviews and approvals that allowed the apply.
    #[serde(flatten)]
    pub grounds: Authorization,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::authorization::ReviewedPull;

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
            merged: None,
            result: StackResult::Applied,
            grounds: Authorization {
                pull_requests: vec![
                    pull(7, Some(&["ada", "grace"])),
                    pull(8, Some(&[])),
                    pull(9, None),
                ],
                agreed_by: vec!["dev".to_owned()],
                why: Some("read by me".to_owned()),
                ..Authorization::default()
            },
        };
        assert_eq!(
            receipt.grounds.to_string(),
            "#7, approved by ada, grace; #8, no approvals; #9; digest approved by dev (read by me)"
        );
        let json = serde_json::to_value(&receipt).unwrap();
        assert_eq!(serde_json::from_value::<ApplyRecord>(json).unwrap(), receipt);
        assert!(Authorization::default().is_empty() && Authorization::default().to_string().is_empty());
    }
}
