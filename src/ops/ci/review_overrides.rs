//! Overrides of policy findings by a review: an approving review of the last head, given after the comment of the
//! preview showed the finding.
//!
//! The store says what the preview found, because anybody who may push can edit a comment. The comment says what the
//! reviewer could read, and GitHub when it was written last: an edit after the review makes it later.

use std::collections::{BTreeMap, BTreeSet};

use super::{overrides::OverrideReasons, reviewers::Reviewers};
use crate::{
    github::{GithubError, PreviewComment, ReviewApproval},
    model::{CommitId, Digest, review::ReviewRecord},
};

/// The reviewers behind each finding that a preview recorded. Whether they may override it is not decided here.
pub(super) async fn reviewers_by_finding(
    people: &Reviewers,
    record: &ReviewRecord,
) -> Result<BTreeMap<Digest, OverrideReasons>, GithubError> {
    if record.findings.is_empty() {
        return Ok(BTreeMap::new());
    }
    let comments = people.preview_comments(record.pull_request).await?;
    let approvals = people.approvals(record.pull_request).await?;
    Ok(matching(&record.head, &record.findings, &comments, &approvals))
}

fn matching(
    head: &CommitId,
    findings: &BTreeSet<Digest>,
    comments: &[PreviewComment],
    approvals: &[ReviewApproval],
) -> BTreeMap<Digest, OverrideReasons> {
    let of_head = || approvals.iter().filter(|approval| approval.commit == *head);
    let mut found = BTreeMap::new();
    for digest in findings {
        let text = digest.to_string();
        let shows = |comment: &&PreviewComment| comment.head == head.as_str() && comment.body.contains(&text);
        // Of several the last one decides.
        let Some(shown) = comments.iter().filter(shows).map(|comment| comment.written).max() else {
            continue;
        };
        // GitHub's times are whole seconds: a review of the same second may have been first.
        let later = of_head().filter(|approval| approval.given.is_some_and(|given| given > shown));
        let reviewers = later.map(|approval| (approval.reviewer.clone(), approval.said.clone()));
        let reviewers: OverrideReasons = reviewers.collect();
        if !reviewers.is_empty() {
            found.insert(*digest, reviewers);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_review_counts_for_what_was_shown_before_it() {
        let head: CommitId = "a".repeat(40).parse().unwrap();
        let digest = Digest::of_bytes(b"finding");
        let comment = |head: &CommitId, body: String, written: &str| PreviewComment {
            head: head.to_string(),
            body,
            written: written.parse().unwrap(),
        };
        let approval = |commit: &CommitId, given: Option<&str>| ReviewApproval {
            reviewer: "grace".to_owned(),
            commit: commit.clone(),
            given: given.map(|given| given.parse().unwrap()),
            said: String::new(),
        };
        let other: CommitId = "b".repeat(40).parse().unwrap();
        let body = format!("approve: {digest}");
        let (early, late) = ("2026-11-21T10:00:00Z", "2026-11-21T10:00:01Z");
        let shown = [comment(&head, body.clone(), early)];
        let given = [approval(&head, Some(late))];
        let names = |comments: &[PreviewComment], approvals: &[ReviewApproval]| {
            let found = matching(&head, &BTreeSet::from([digest]), comments, approvals);
            found.into_values().flatten().count()
        };
        assert_eq!(names(&shown, &given), 1);
        let edited = [shown[0].clone(), comment(&head, body.clone(), late)];
        for (comments, approvals, why) in [
            (
                &shown[..],
                &[approval(&head, Some(early))][..],
                "in the same second",
            ),
            (&shown, &[approval(&head, None)], "at an unknown time"),
            (&shown, &[approval(&other, Some(late))], "of another head"),
            (&[comment(&other, body, early)], &given, "shown for another head"),
            (
                &[comment(&head, "nothing".to_owned(), early)],
                &given,
                "not shown",
            ),
            (&[], &given, "there is no comment"),
            (&edited, &given, "the comment was edited later"),
        ] {
            assert_eq!(names(comments, approvals), 0, "{why}");
        }
        // Nothing that the store does not have.
        assert!(matching(&head, &BTreeSet::new(), &shown, &given).is_empty());
    }
}
