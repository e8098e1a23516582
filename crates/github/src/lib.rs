//! GitHub: the runner's environment and the API. This room knows nothing about the content of a plan.
//!
//! - [`Runner`] and [`GithubEvent`]: the run and the event that started it
//! - [`Client`]: the comment, statuses, check runs, branches, commits, pull requests, issues, deployments,
//!   other runs
//! - [`workflow_commands`]: outputs, annotations, and text that the runner must not obey

mod authenticated_user;
mod authorship;
mod branches;
mod checks;
mod client;
mod comments;
mod contributions;
mod deployments;
mod error;
mod event;
mod issues;
mod proposals;
mod pull_requests;
mod response;
mod runner;
mod statuses;
pub mod workflow_commands;
mod workflow_dispatch;
mod workflow_runs;

pub use branches::DefaultBranch;
pub use checks::MOST as MOST_CHECKS;
pub use client::{Client, User};
pub use comments::{BUDGETS, PreviewComment, Upsert};
pub use contributions::{BranchUpdate, Contribution};
pub use deployments::{Deployment, DeploymentState};
pub use error::GithubError;
pub use event::{GithubEvent, PullRequestEvent, PushEvent, WorkflowRunEvent, other_branch};
pub use issues::{Issue, IssueChange, duplicates as duplicate_issues};
pub use proposals::{BranchMove, ProposedCommit, ProposedPullRequest};
pub use pull_requests::{Permission, PullRequest, ReviewApproval, RunApproval};
pub use runner::Runner;
pub use statuses::{APPLY, CommitStatus, StatusState, apply_of, preview_of};
pub use workflow_dispatch::DispatchedRun;
pub use workflow_runs::RunPage;
