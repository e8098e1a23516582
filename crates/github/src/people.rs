//! People: who approved a pull request, and who may approve. `author_association` is never used for permissions,
//! because private members of an organization look like outsiders there.

use async_trait::async_trait;
use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    client::{Client, PAGE},
    transport::GRAPHQL,
};
use konverge_forge::{
    Environments, People, Permission, Result, ReviewApproval, ReviewEdits, RunApproval, Unsupported, if_found,
};
use konverge_rest::{TokenPermission, User, encoded};

const READ: TokenPermission = TokenPermission("pull-requests: read");
const METADATA: TokenPermission = TokenPermission("metadata: read");
const MEMBERS: TokenPermission = TokenPermission("members: read");

/// The GraphQL query for the last editor of a review.
const EDITOR: &str = "query($id: ID!) { node(id: $id) { ... on PullRequestReview { editor { login } } } }";

#[derive(Deserialize)]
struct EditorAnswer {
    data: Option<EditedNode>,
    #[serde(default)]
    errors: Vec<Value>,
}

#[derive(Deserialize)]
struct EditedNode {
    node: Option<Edited>,
}

#[derive(Deserialize)]
struct Edited {
    editor: Option<User>,
}

#[async_trait]
impl People for Client {
    async fn approvals(&self, pr: u64) -> Result<Vec<ReviewApproval>> {
        #[derive(Deserialize)]
        struct Review {
            user: Option<User>,
            state: String,
            commit_id: Option<String>,
            submitted_at: Option<Timestamp>,
            body: Option<String>,
            #[serde(default)]
            node_id: String,
        }
        let path = self.path(&format!("/pulls/{pr}/reviews?per_page={PAGE}"));
        let reviews: Vec<Review> = self.rest.list(&path, READ).await?;
        let mut approvals: Vec<ReviewApproval> = Vec::new();
        for review in reviews {
            let Some(user) = review.user else { continue };
            // A review that only comments does not withdraw an approval. GitHub returns the oldest review first.
            if review.state == "COMMENTED" || review.state == "PENDING" {
                continue;
            }
            approvals.retain(|a| a.reviewer != user.login);
            let commit = review.commit_id.and_then(|sha| sha.parse().ok());
            if let ("APPROVED", Some(commit)) = (review.state.as_str(), commit) {
                approvals.push(ReviewApproval {
                    reviewer: user.login,
                    commit,
                    given: review.submitted_at,
                    said: review.body.unwrap_or_default(),
                    node: review.node_id,
                });
            }
        }
        Ok(approvals)
    }

    async fn permission(&self, user: &str) -> Result<Permission> {
        #[derive(Deserialize)]
        struct PermissionAnswer {
            permission: String,
        }
        let path = self.path(&format!("/collaborators/{}/permission", encoded(user)));
        let answer = if_found(self.rest.get::<PermissionAnswer>(&path, METADATA).await)?;
        // GitHub reports the role `maintain` as `write`, and `triage` as `read`.
        Ok(match answer.as_ref().map(|answer| answer.permission.as_str()) {
            Some("admin") => Permission::Admin,
            Some("write" | "maintain") => Permission::Write,
            Some("read" | "triage") => Permission::Read,
            _ => Permission::None,
        })
    }

    fn code_owners(&self) -> Result<(), Unsupported> {
        Ok(())
    }

    async fn is_team_member(&self, org: &str, team: &str, user: &str) -> Result<bool> {
        #[derive(Deserialize)]
        struct Membership {
            state: String,
        }
        // GITHUB_TOKEN may not read memberships; this needs an App's token with `members: read`.
        let path = format!(
            "/orgs/{}/teams/{}/memberships/{}",
            encoded(org),
            encoded(team),
            encoded(user)
        );
        if let Some(membership) = if_found(self.rest.get::<Membership>(&path, MEMBERS).await)? {
            return Ok(membership.state == "active");
        }
        // 404 means either "no member" or "the token cannot see the team". The list of the team's members
        // distinguishes the two, because the second must not count as "no member".
        let path = format!(
            "/orgs/{}/teams/{}/members?per_page=1",
            encoded(org),
            encoded(team)
        );
        let _: Value = self.rest.get(&path, MEMBERS).await?;
        Ok(false)
    }
}

#[async_trait]
impl Environments for Client {
    async fn run_approvals(&self, run: u64, environment: &str) -> Result<Vec<RunApproval>> {
        #[derive(Deserialize)]
        struct Review {
            user: Option<User>,
            state: String,
            environments: Vec<Environment>,
            comment: Option<String>,
        }
        #[derive(Deserialize)]
        struct Environment {
            name: String,
        }
        let path = self.path(&format!("/actions/runs/{run}/approvals"));
        let reviews: Vec<Review> = self.rest.get(&path, TokenPermission("actions: read")).await?;
        // Names of environments are case-insensitive.
        let here = |of: &Environment| of.name.to_lowercase() == environment.to_lowercase();
        let approved = reviews
            .into_iter()
            .filter(|review| review.state == "approved" && review.environments.iter().any(here));
        let approvals = approved.filter_map(|review| {
            Some(RunApproval {
                reviewer: review.user?.login,
                said: review.comment.unwrap_or_default(),
            })
        });
        let mut approvals: Vec<_> = approvals.collect();
        approvals.sort();
        approvals.dedup_by(|a, b| a.reviewer == b.reviewer);
        Ok(approvals)
    }
}

#[async_trait]
impl ReviewEdits for Client {
    async fn review_editor(&self, review: &ReviewApproval) -> Result<Option<String>> {
        let query = json!({"query": EDITOR, "variables": {"id": review.node}});
        let answer: EditorAnswer = self.rest.set(Method::POST, GRAPHQL, &query, READ).await?;
        match answer.data.and_then(|data| data.node) {
            Some(edited) if answer.errors.is_empty() => Ok(edited.editor.map(|user| user.login)),
            _ => {
                let said = answer.errors.iter().filter_map(|error| error["message"].as_str());
                let said = said.collect::<Vec<_>>().join("; ");
                let cause = format!(
                    "it does not say who edited the review of {}: {said}",
                    review.reviewer
                );
                Err(self.rest.malformed(format!("POST {GRAPHQL}"), cause))
            }
        }
    }
}
