//! The door to a forge and to its jobs, in the words of what Konverge does. GitHub is behind it; nothing here sends a request.
//!
//! - [`Forge`]: its API, as five traits that every forge implements ([`Changes`], [`People`], [`Publishing`], [`Runs`],
//!   [`Proposals`]) and parts that a forge may lack, each behind a method that returns the part or [`Unsupported`]
//! - [`CiJob`]: the job and its runner: event, outputs, summary, annotations, addresses; [`IdentityEndpoint`]: where it asks
//!   for a token of its identity
//! - [`StickyComments`] and [`KeptIssues`]: what stands once above every forge
//! - [`DetectedForge`]: which forge it is; [`RepositoryPages`]: where its pages are

mod changes;
mod ci_job;
mod error;
mod event;
mod identity;
mod kept_issues;
mod kind;
mod optional_parts;
mod pages;
mod people;
mod proposals;
mod publishing;
mod runs;
mod status_names;
mod sticky_comments;

use std::fmt::Debug;

pub use changes::{Changes, Contribution, DefaultBranch, PullRequest};
pub use ci_job::{CiJob, JobInfo};
pub use error::ForgeError;
pub use event::{JobEvent, PullRequestEvent, PushEvent, WorkflowRunEvent, other_branch};
pub use identity::IdentityEndpoint;
pub use kept_issues::{IssueChange, KeptIssues, duplicates as duplicate_issues};
pub use kind::{DetectedForge, ForgeKind, TwoForges, Unsupported};
pub use optional_parts::{
    BranchActivity, BranchUpdate, Checks, Deployment, DeploymentState, Deployments, Environments,
    ReviewEdits, RunApproval,
};
pub use pages::{RepositoryPages, RunPage, WorkflowPage};
pub use people::{People, Permission, ReviewApproval};
pub use proposals::{CommittedFiles, FilesCommit, Proposals, ProposedPullRequest};
pub use publishing::{Comment, CommentAccess, CommitStatus, Issue, Publishing, StatusState};
pub use runs::{DispatchedRun, Runs};
pub use status_names::{APPLY, apply_of, one_line, preview_of};
pub use sticky_comments::{BUDGETS, FittedComment, OwnComments, PreviewComment, StickyComments, Upsert};

/// The API of a repository at a forge, with a token. What only some forges have is behind a method of its own, so that a
/// caller cannot use it without having asked whether it is there.
pub trait Forge: Changes + People + Publishing + Runs + Proposals + Debug {
    /// Returns the kind of forge.
    fn kind(&self) -> ForgeKind;

    /// Returns the reports at a commit, with annotations at lines of files.
    ///
    /// # Errors
    /// The forge has none.
    fn checks(&self) -> Result<&dyn Checks, Unsupported>;

    /// Returns the history of applies by environment.
    ///
    /// # Errors
    /// The forge has none.
    fn deployments(&self) -> Result<&dyn Deployments, Unsupported>;

    /// Returns the environments whose reviewers approve a run.
    ///
    /// # Errors
    /// The forge has none.
    fn environments(&self) -> Result<&dyn Environments, Unsupported>;

    /// Returns the edits of reviews.
    ///
    /// # Errors
    /// The forge does not say.
    fn review_edits(&self) -> Result<&dyn ReviewEdits, Unsupported>;

    /// Returns the updates of branches: who pushed, and how.
    ///
    /// # Errors
    /// The forge does not say.
    fn branch_activity(&self) -> Result<&dyn BranchActivity, Unsupported>;
}
