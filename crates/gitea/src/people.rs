//! People: who approved a pull request, and who may approve.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use konverge_forge::{
    ForgeError, ForgeKind, People, Permission, Result, ReviewApproval, Unsupported, if_found,
};
use konverge_rest::{TokenPermission, User, encoded};
use serde::Deserialize;
use serde_json::Value;

use crate::{client::Client, without};

const READ: TokenPermission = TokenPermission("read:repository");

/// The permission to read the permissions of others: only administrators of the repository have it.
const ADMIN: TokenPermission = TokenPermission("read:repository, of an administrator of the repository");

/// The permission to read the members of a team: only its members and owners of the organisation have it.
const ORGANISATION: TokenPermission =
    TokenPermission("read:organization, of a member of the team or an owner of the organisation");

#[derive(Deserialize)]
struct Review {
    id: u64,
    user: Option<User>,
    state: String,
    #[serde(default)]
    commit_id: String,
    #[serde(default)]
    official: bool,
    #[serde(default)]
    dismissed: bool,
    submitted_at: Option<Timestamp>,
    #[serde(default)]
    body: String,
}

#[derive(Deserialize)]
struct Team {
    id: u64,
    name: String,
    /// The team's permission for each unit of a repository, such as code or issues.
    units_map: Option<BTreeMap<String, String>>,
}

impl Team {
    fn may_push(&self) -> bool {
        let units = self.units_map.as_ref();
        let code = units.and_then(|units| units.get("repo.code"));
        code.is_some_and(|may| matches!(may.as_str(), "write" | "admin" | "owner"))
    }
}

#[async_trait]
impl People for Client {
    async fn approvals(&self, pr: u64) -> Result<Vec<ReviewApproval>> {
        let path = self.path(&format!("/pulls/{pr}/reviews"));
        // Gitea lists the oldest review first, so a later one replaces an earlier one.
        Ok(current(self.list(&path, READ).await?))
    }

    async fn permission(&self, user: &str) -> Result<Permission> {
        #[derive(Deserialize)]
        struct Answer {
            permission: String,
        }
        let path = self.path(&format!("/collaborators/{}/permission", encoded(user)));
        let Some(answer) = if_found(self.rest.get::<Answer>(&path, ADMIN).await)? else {
            return Ok(Permission::None);
        };
        let own = match answer.permission.as_str() {
            "owner" | "admin" => Permission::Admin,
            "write" => Permission::Write,
            "read" => Permission::Read,
            _ => Permission::None,
        };
        // This response ignores teams that are not administrators of the repository, so the teams are checked too.
        if own < Permission::Write && self.writes_by_team(user).await? {
            return Ok(Permission::Write);
        }
        Ok(own)
    }

    fn code_owners(&self) -> Result<(), Unsupported> {
        // Lines of Gitea's CODEOWNERS are regular expressions, and they only request reviews.
        Err(without("CODEOWNERS with patterns of paths"))
    }

    async fn is_team_member(&self, org: &str, team: &str, user: &str) -> Result<bool> {
        // Gitea's search returns only the teams of the token's owner, so all teams are listed.
        let path = format!("/orgs/{}/teams", encoded(org));
        let teams: Vec<Team> = self.list(&path, ORGANISATION).await?;
        let Some(found) = teams.iter().find(|one| one.name.eq_ignore_ascii_case(team)) else {
            return Err(ForgeError::NotFound {
                forge: ForgeKind::Gitea,
                operation: format!("GET {path}, a team `{}`", team.escape_debug()),
                permission: ORGANISATION.0.to_owned(),
            });
        };
        // An account that may list the teams is a member of the organisation. For a team that it may not see, Gitea
        // responds with 403 and not 404, so "not a member" is certain.
        self.is_in_team(found, user).await
    }
}

impl Client {
    /// Returns true if a user is in a team with write access to the repository.
    async fn writes_by_team(&self, user: &str) -> Result<bool> {
        let teams: Vec<Team> = match self.rest.get(&self.path("/teams"), READ).await {
            Ok(teams) => teams,
            // A repository of a person has no teams.
            Err(ForgeError::Refused { status: 405, .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut refused = None;
        for team in teams.iter().filter(|team| team.may_push()) {
            match self.is_in_team(team, user).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                // Remember the error: another team may still give the permission.
                Err(error @ ForgeError::Forbidden { .. }) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        refused.map_or(Ok(false), Err)
    }

    async fn is_in_team(&self, team: &Team, user: &str) -> Result<bool> {
        let path = format!("/teams/{}/members/{}", team.id, encoded(user));
        Ok(if_found(self.rest.get::<Value>(&path, ORGANISATION).await)?.is_some())
    }
}

/// Returns the latest review of each reviewer, if it approves. A comment or a new request for a review does not
/// withdraw an approval. An approval that the branch rule does not count as official is ignored.
fn current(reviews: Vec<Review>) -> Vec<ReviewApproval> {
    let mut approvals: Vec<ReviewApproval> = Vec::new();
    for review in reviews {
        let Some(user) = review.user else { continue };
        if matches!(review.state.as_str(), "COMMENT" | "PENDING" | "REQUEST_REVIEW") {
            continue;
        }
        approvals.retain(|approval| approval.reviewer != user.login);
        let counts = review.state == "APPROVED" && review.official && !review.dismissed;
        let (true, Ok(commit)) = (counts, review.commit_id.parse()) else {
            continue;
        };
        approvals.push(ReviewApproval {
            reviewer: user.login,
            commit,
            given: review.submitted_at,
            said: review.body,
            node: review.id.to_string(),
        });
    }
    approvals
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_approval_counts_while_it_is_official_and_the_last_word() {
        let head = "a".repeat(40);
        let review = |login: &str, state: &str, more: Value| {
            let mut review = json!({
                "id": 1, "user": {"login": login}, "state": state, "body": "", "commit_id": head,
                "official": true, "dismissed": false, "stale": false, "submitted_at": "2026-11-29T10:00:00Z",
            });
            for (key, value) in more.as_object().unwrap() {
                review[key] = value.clone();
            }
            review
        };
        let reviewers = |reviews: Vec<Value>| -> Vec<String> {
            let reviews = reviews
                .into_iter()
                .map(|one| serde_json::from_value(one).unwrap());
            let approvals = current(reviews.collect()).into_iter();
            approvals.map(|approval| approval.reviewer).collect()
        };
        let approves = |login| review(login, "APPROVED", json!({}));
        assert_eq!(reviewers(vec![approves("ada"), approves("bob")]), ["ada", "bob"]);
        for after in ["COMMENT", "PENDING", "REQUEST_REVIEW"] {
            let after = review("ada", after, json!({}));
            assert_eq!(reviewers(vec![approves("ada"), after]), ["ada"]);
        }
        // A state that nobody knows yet does not keep an approval.
        for after in ["REQUEST_CHANGES", "SOMETHING_NEW"] {
            let after = review("ada", after, json!({}));
            assert!(reviewers(vec![approves("ada"), after]).is_empty());
        }
        for lacking in [
            json!({"official": false}),
            json!({"dismissed": true}),
            json!({"commit_id": ""}),
        ] {
            assert!(reviewers(vec![review("ada", "APPROVED", lacking)]).is_empty());
        }
    }
}
