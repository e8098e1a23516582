//! People at a forge: who approved a pull request, and who may approve.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{error::Result, kind::Unsupported};
use konverge_base::model::CommitId;

/// The latest approving review of one person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewApproval {
    /// The account that approved.
    pub reviewer: String,
    /// The reviewed head.
    pub commit: CommitId,
    /// The time of the review, if the forge reports it.
    pub given: Option<Timestamp>,
    /// The text of the review.
    pub said: String,
    /// The forge's own id of the review.
    pub node: String,
}

/// A user's permission in the repository, as the forge reports it for that user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// No access.
    #[default]
    None,
    /// May read.
    Read,
    /// May push.
    Write,
    /// May administer.
    Admin,
}

/// Reads facts about people. All errors come from the forge; a decision that needs a fact fails with the error.
#[async_trait]
pub trait People: Send + Sync {
    /// Returns the current approvals of a pull request: the latest review of each reviewer, without dismissed and
    /// withdrawn reviews.
    async fn approvals(&self, pr: u64) -> Result<Vec<ReviewApproval>>;

    /// Returns the permission of a user; [`Permission::None`] for an unknown user.
    async fn permission(&self, user: &str) -> Result<Permission>;

    /// Returns an error if the forge interprets CODEOWNERS differently from GitHub, where each line has a path
    /// pattern and the last matching line counts.
    fn code_owners(&self) -> Result<(), Unsupported>;

    /// Returns true if a user is an active member of the team `org/slug`. The token of a job may not be allowed to
    /// read this. A team that the token cannot see is an error.
    async fn is_team_member(&self, org: &str, team: &str, user: &str) -> Result<bool>;
}
