//! People: who approved a merge request, and who may approve.

use async_trait::async_trait;
use jiff::Timestamp;
use konverge_base::model::CommitId;
use konverge_forge::{
    ForgeError, ForgeKind, People, Permission, Result, ReviewApproval, Unsupported, if_found,
};
use konverge_rest::{RestClient, TokenPermission, encoded};
use serde::Deserialize;

use crate::{
    changes::READ,
    client::{Client, User},
    without,
};

/// The permission to read the members of a private group: only its members have it.
const GROUP: TokenPermission = TokenPermission("the scope `api` and membership of the group");

/// The first version of GitLab that reports the time of an approval.
const APPROVAL_TIMES: &str = "18.5";

/// The minimum access levels of a member who may push, and who may administer.
const DEVELOPER: u32 = 30;
const MAINTAINER: u32 = 40;

/// The access level of a guest, who may read the project. A member with a lower level can only see the group.
const GUEST: u32 = 10;

#[derive(Deserialize)]
struct Approvals {
    approved_by: Vec<Approval>,
}

#[derive(Deserialize)]
struct Approval {
    user: User,
    approved_at: Option<Timestamp>,
}

/// A version of a merge request. Each push creates one.
#[derive(Deserialize)]
struct Version {
    head_commit_sha: Option<String>,
    created_at: Timestamp,
}

#[derive(Deserialize)]
struct Member {
    username: String,
    /// The state of the account, such as `active` or `blocked`.
    state: String,
    access_level: u32,
    /// The state of the membership, such as `active` or `awaiting`. Only shown to some accounts.
    membership_state: Option<String>,
}

impl Member {
    /// Returns true for an active membership of `user`.
    fn is_active(&self, user: &str) -> bool {
        let holds = self
            .membership_state
            .as_deref()
            .is_none_or(|state| state == "active");
        holds && self.state == "active" && self.username.eq_ignore_ascii_case(user)
    }
}

#[async_trait]
impl People for Client {
    async fn approvals(&self, pr: u64) -> Result<Vec<ReviewApproval>> {
        let path = self.path(&format!("/merge_requests/{pr}/approvals"));
        let Approvals { approved_by } = self.rest.get(&path, READ).await?;
        if approved_by.is_empty() {
            return Ok(Vec::new());
        }
        // The time of an approval decides for which head it counts. Without it, an approval of an older head could
        // count.
        if approved_by.iter().any(|approval| approval.approved_at.is_none()) {
            return Err(self.outdated(format!("GET {path}"), APPROVAL_TIMES).await?);
        }
        let of_versions = self.path(&format!("/merge_requests/{pr}/versions"));
        let versions: Vec<Version> = self.list(&of_versions, READ).await?;
        let heads = Heads::read(&self.rest, &of_versions, &versions)?;
        Ok(approved_by
            .into_iter()
            .filter_map(|approval| {
                let given = approval.approved_at?;
                let reviewer = approval.user.username;
                Some(ReviewApproval {
                    commit: heads.at(given)?.clone(),
                    given: Some(given),
                    said: String::new(),
                    node: format!("!{pr} {reviewer}"),
                    reviewer,
                })
            })
            .collect())
    }

    async fn permission(&self, user: &str) -> Result<Permission> {
        let Some(id) = self.user_id(user).await? else {
            return Ok(Permission::None);
        };
        // `all` includes members through a group, also through an invited one.
        let path = self.path(&format!("/members/all/{id}"));
        let Some(member) = if_found(self.rest.get::<Member>(&path, READ).await)? else {
            return Ok(Permission::None);
        };
        Ok(match member.access_level {
            _ if !member.is_active(user) => Permission::None,
            MAINTAINER.. => Permission::Admin,
            DEVELOPER.. => Permission::Write,
            GUEST.. => Permission::Read,
            _ => Permission::None,
        })
    }

    fn code_owners(&self) -> Result<(), Unsupported> {
        // GitLab's CODEOWNERS has sections, each with its own number of approvals and default owners.
        Err(without("CODEOWNERS as GitHub reads it"))
    }

    async fn is_team_member(&self, org: &str, team: &str, user: &str) -> Result<bool> {
        #[derive(Deserialize)]
        struct Group {
            full_path: String,
        }
        let name = format!("{org}/{team}");
        let group = format!("/groups/{}", encoded(&name));
        // This request comes first, because an account without access to the group would see nobody as a member.
        let found: Group = self
            .rest
            .get(&format!("{group}?with_projects=false"), GROUP)
            .await?;
        if !found.full_path.eq_ignore_ascii_case(&name) {
            return Err(ForgeError::NotFound {
                forge: ForgeKind::Gitlab,
                operation: format!("GET {group}: the path belongs to another group now"),
                permission: GROUP.0.to_owned(),
            });
        }
        let Some(id) = self.user_id(user).await? else {
            return Ok(false);
        };
        // Without inherited members, because otherwise the owners of parent groups would be in every team.
        let path = format!("{group}/members/{id}");
        let member = if_found(self.rest.get::<Member>(&path, GROUP).await)?;
        Ok(member.is_some_and(|member| member.is_active(user)))
    }
}

impl Client {
    /// Returns the id of an account; `None` if no active account has this name.
    async fn user_id(&self, name: &str) -> Result<Option<u64>> {
        #[derive(Deserialize)]
        struct Found {
            id: u64,
            username: String,
            state: String,
        }
        let path = format!("/users?username={}", encoded(name));
        let found: Vec<Found> = self.rest.get(&path, READ).await?;
        let found = found
            .into_iter()
            .find(|user| user.username.eq_ignore_ascii_case(name) && user.state == "active");
        Ok(found.map(|user| user.id))
    }

    /// Returns the error of a server that is too old for a request.
    pub(super) async fn outdated(&self, operation: String, needed: &str) -> Result<ForgeError> {
        #[derive(Deserialize)]
        struct Answer {
            version: String,
        }
        let Answer { version } = self.rest.get("/version", READ).await?;
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || ".-+".contains(*c);
        Ok(ForgeError::Outdated {
            forge: ForgeKind::Gitlab,
            operation,
            server: format!(
                "GitLab {}",
                version.chars().take_while(is_plain).take(40).collect::<String>()
            ),
            needed: needed.to_owned(),
        })
    }
}

/// The heads of a merge request with the time when GitLab received each, the oldest first. An approval does not
/// name its commit, so it counts for the head at its time.
struct Heads(Vec<(Timestamp, CommitId)>);

impl Heads {
    fn read(rest: &RestClient, path: &str, versions: &[Version]) -> Result<Self> {
        let mut heads = Vec::new();
        for version in versions {
            // A version without a head belongs to a branch that has no commits of its own.
            if let Some(sha) = &version.head_commit_sha {
                heads.push((version.created_at, rest.commit_id(path, sha)?));
            }
        }
        heads.sort_by_key(|(since, _)| *since);
        Ok(Self(heads))
    }

    /// Returns the head at a time. A head with exactly this time may have arrived after the approval, so the one
    /// before it counts.
    fn at(&self, time: Timestamp) -> Option<&CommitId> {
        let mut before = self.0.iter().rev().filter(|(since, _)| *since < time);
        before.next().map(|(_, head)| head)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_approval_is_of_the_head_that_there_was() {
        let version = |sha: char, time: &str| Version {
            head_commit_sha: Some(sha.to_string().repeat(40)),
            created_at: time.parse().unwrap(),
        };
        // GitLab lists the newest version first.
        let versions = [
            version('c', "2026-11-29T12:00:00.500Z"),
            version('b', "2026-11-29T11:00:00Z"),
            version('a', "2026-11-29T10:00:00Z"),
        ];
        let heads = Heads::read(&crate::client::tests::silent().rest, "/x", &versions).unwrap();
        let at = |time: &str| {
            let head = heads.at(time.parse().unwrap());
            head.map(|head| head.to_string().remove(0))
        };
        assert_eq!(at("2026-11-29T09:59:59Z"), None);
        assert_eq!(at("2026-11-29T10:30:00Z"), Some('a'));
        assert_eq!(at("2026-11-29T12:00:00.499Z"), Some('b'));
        assert_eq!(at("2026-11-29T12:00:00.500Z"), Some('b'), "of the same instant");
        assert_eq!(at("2026-11-29T13:00:00Z"), Some('c'));
    }

    #[test]
    fn a_membership_holds_while_the_account_and_it_are_active() {
        let is_active = |state: &str, membership: serde_json::Value| {
            let raw = json!({
                "username": "Ada", "state": state, "access_level": 40, "membership_state": membership,
            });
            serde_json::from_value::<Member>(raw).unwrap().is_active("ada")
        };
        assert!(is_active("active", json!("active")) && is_active("active", json!(null)));
        assert!(!is_active("blocked", json!("active")));
        assert!(!is_active("active", json!("awaiting")));
    }
}
