//! The interface to a forge and to its CI jobs. Implementations are in the crates `github`, `gitea` and `gitlab`;
//! nothing here sends a request.
//!
//! - [`Forge`]: the API of a forge, as five traits that every forge implements ([`Changes`], [`People`],
//!   [`Publishing`], [`Runs`], [`Proposals`]), and optional parts, each behind a method that returns the part or
//!   [`Unsupported`]
//! - [`CiJob`]: the job and its runner: event, outputs, summary, annotations, addresses; [`IdentityEndpoint`]:
//!   where the job requests an identity token
//! - [`StickyComments`] and [`KeptIssues`]: comments and issues that are updated in place, with the same code for
//!   every forge
//! - [`DetectedForge`]: the forge that runs the job; [`RepositoryPages`]: the URLs of its pages

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
mod request_options;
mod runs;
mod status_names;
mod sticky_comments;

use std::fmt::Debug;

pub use changes::{Changes, Contribution, DefaultBranch, PullRequest};
pub use ci_job::{CiJob, JobInfo, append_to_job_file};
pub use error::{ForgeError, Result, if_found};
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
pub use request_options::RequestOptions;
pub use runs::{DispatchedRun, Runs};
pub use status_names::{APPLY, apply_of, one_line, preview_of};
pub use sticky_comments::{BUDGETS, FittedComment, OwnComments, PreviewComment, StickyComments, Upsert};

/// The API of one repository at a forge, used with one token. Each optional part has a method that returns it, so
/// no caller can use a part without checking that the forge has it.
pub trait Forge: Changes + People + Publishing + Runs + Proposals + Debug {
    /// Returns the kind of forge.
    fn kind(&self) -> ForgeKind;

    /// Returns the part that creates check reports on a commit, with annotations at lines of files.
    ///
    /// # Errors
    /// The forge has no checks.
    fn checks(&self) -> Result<&dyn Checks, Unsupported>;

    /// Returns the part that records applies in the forge's history of an environment.
    ///
    /// # Errors
    /// The forge has no deployments.
    fn deployments(&self) -> Result<&dyn Deployments, Unsupported>;

    /// Returns the part that reads who approved a run in an environment.
    ///
    /// # Errors
    /// The forge has no environments with reviewers.
    fn environments(&self) -> Result<&dyn Environments, Unsupported>;

    /// Returns the part that reads who edited a review.
    ///
    /// # Errors
    /// The forge does not report edits.
    fn review_edits(&self) -> Result<&dyn ReviewEdits, Unsupported>;

    /// Returns the part that reads the updates of branches: who pushed, and how.
    ///
    /// # Errors
    /// The forge does not report updates.
    fn branch_activity(&self) -> Result<&dyn BranchActivity, Unsupported>;
}
