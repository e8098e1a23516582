//! People: who approved a pull request, and who may.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{error::ForgeError, kind::Unsupported};
use konverge_base::model::CommitId;

/// The latest approving review of one person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewApproval {
    /// The account that approved.
    pub reviewer: String,
    /// The reviewed head.
    pub commit: CommitId,
    /// When it was given, if the forge says so.
    pub given: Option<Timestamp>,
    /// Its text.
    pub said: String,
    /// Its id, by which the forge knows it.
    pub node: String,
}

/// A user's permission in the repository, from the forge's answer about that user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// No access.
    None,
    /// May read.
    Read,
    /// May push.
    Write,
    /// May administer.
    Admin,
}

/// Reads facts about people. Errors are those of the forge; a decision that needs a fact fails with the error.
#[async_trait]
pub trait People: Send + Sync {
    /// Returns the current approvals of a pull request: each reviewer's latest review, without dismissed and withdrawn ones.
    async fn approvals(&self, pr: u64) -> Result<Vec<ReviewApproval>, ForgeError>;

    /// Returns the permission of a user; [`Permission::None`] for one whom the forge does not know.
    async fn permission(&self, user: &str) -> Result<Permission, ForgeError>;

    /// Returns an error if the forge reads CODEOWNERS in another way than GitHub: as patterns of paths, of which the last match
    /// counts.
    fn code_owners(&self) -> Result<(), Unsupported>;

    /// Returns true if a user is an active member of the team `org/slug`. A job's own token may not be allowed to ask. A team
    /// that the token does not see is an error.
    async fn is_team_member(&self, org: &str, team: &str, user: &str) -> Result<bool, ForgeError>;
}
