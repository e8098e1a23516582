//! GitHub: what the runner says, what the API is told and asked. Knows nothing of what stands in a plan.
//!
//! - [`Runner`] and [`Event`]: which run this is and what started it
//! - [`Client`]: the comment, statuses, check runs, branches, commits, pull requests, issues, deployments, other runs
//! - [`workflow`]: outputs, annotations, text that the runner must not obey

mod branches;
mod checks;
mod client;
mod comments;
mod contributions;
mod deployments;
mod error;
mod event;
mod authenticated_user;
mod issues;
mod response;
mod shutdown_budget;
mod pull_requests;
mod runner;
mod workflow_runs;
mod statuses;
pub mod workflow_commands;

pub use branches::DefaultBranch;
pub use checks::MOST as MOST_CHECKS;
pub use client::{Client, User};
pub use comments::{BUDGETS, Upsert};
pub use contributions::{Contribution, Movement};
pub use deployments::DeploymentState;
pub use error::GithubError;
pub use event::{Event, PullRequestEvent, PushEvent, WorkflowRunEvent, other_branch};
pub use issues::{Issue, IssueChange};
pub use pull_requests::{Approval, Permission, PullRequest};
pub use runner::Runner;
pub use workflow_runs::RunPage;
pub use statuses::{APPLY, Status, StatusState, preview_of};
