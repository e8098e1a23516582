//! The responses of the fake, with GitHub's wording.

use serde_json::{Value, json};

use super::world::{Comment, HERE, Issue, Pull};

pub(super) type Answer = (u16, Value);

pub(super) fn forbidden(needs: &str) -> Answer {
    let mut body = json!({"message": "Resource not accessible by integration"});
    if !needs.is_empty() {
        body["x-needs"] = json!(needs);
    }
    (403, body)
}

pub(super) fn not_found() -> Answer {
    (404, json!({"message": "Not Found"}))
}

pub(super) fn invalid(message: &str) -> Answer {
    (
        422,
        json!({"message": "Validation Failed", "errors": [{"message": message, "code": "custom"}]}),
    )
}

/// Refuses a text of more than 65,536 characters, the documented limit.
pub(super) fn too_long(body: &Value) -> Option<Answer> {
    let long = body["body"]
        .as_str()
        .is_some_and(|text| text.chars().count() > 65_536);
    long.then(|| invalid("Body is too long (maximum is 65536 characters)"))
}

pub(super) fn comment_json(comment: &Comment) -> Value {
    json!({
        "id": comment.id, "body": comment.body, "user": {"login": comment.login},
        "html_url": format!("https://github.com/acme/konfig/pull/{}#issuecomment-{}", comment.issue, comment.id),
        "created_at": "2026-11-01T10:00:00Z", "updated_at": comment.updated,
    })
}

pub(super) fn issue_json(issue: &Issue) -> Value {
    let labels: Vec<_> = issue.labels.iter().map(|name| json!({"name": name})).collect();
    json!({
        "number": issue.number, "title": issue.title, "body": issue.body, "state": issue.state, "labels": labels,
        "user": {"login": issue.login}, "html_url": format!("https://github.com/acme/konfig/issues/{}", issue.number),
        "created_at": "2026-11-01T10:00:00Z",
    })
}

/// Returns the commit of the test merge, which GitHub names before a merge. It is on no branch.
fn test_merge(head: &str) -> String {
    blake3::hash(head.as_bytes()).to_hex()[..40].to_owned()
}

/// Formats a commit status. Fields that were not set are null.
pub(super) fn status_json(status: &Value) -> Value {
    let mut answer = json!({"description": null, "target_url": null});
    for (field, value) in status.as_object().into_iter().flatten() {
        answer[field] = value.clone();
    }
    answer
}

/// Formats a check run. GitHub returns only the number of its annotations.
pub(super) fn check_json(check: &Value) -> Value {
    let mut answer = check.clone();
    if let Some(output) = answer["output"].as_object_mut() {
        let annotations = output.remove("annotations").unwrap_or_default();
        let count = annotations.as_array().map_or(0, Vec::len);
        output.insert("annotations_count".into(), json!(count));
    }
    answer
}

/// Formats a deployment or its status, without fields that only the request has.
pub(super) fn deployment_json(deployment: &Value) -> Value {
    let mut answer = deployment.clone();
    if let Some(fields) = answer.as_object_mut() {
        fields
            .retain(|name, _| !["auto_merge", "required_contexts", "auto_inactive"].contains(&name.as_str()));
    }
    answer
}

/// Formats a review, without fields that only GraphQL returns.
pub(super) fn review_json(review: &Value) -> Value {
    let mut answer = review.clone();
    if let Some(fields) = answer.as_object_mut() {
        fields.remove("editor");
    }
    answer
}

pub(super) fn pull_json(pull: &Pull) -> Value {
    json!({
        "number": pull.number, "state": pull.state(), "user": {"login": "ada"},
        "title": pull.title, "body": pull.body, "node_id": format!("PR_{}", pull.number),
        "html_url": format!("https://github.com/acme/konfig/pull/{}", pull.number),
        "merged_at": pull.merged_at, "merge_commit_sha": pull.merge_commit.clone().unwrap_or_else(|| test_merge(&pull.head)),
        "head": {"ref": pull.branch, "sha": pull.head, "repo": pull.head_repository.as_ref().map(|name| json!({"full_name": name}))},
        "base": {"ref": pull.base, "sha": "0".repeat(40), "repo": {"full_name": HERE}},
    })
}
