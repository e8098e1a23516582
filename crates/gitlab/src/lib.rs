//! GitLab behind the door of `konverge-forge`. This room knows nothing about the content of a plan.
//!
//! - [`Client`]: the API
//! - [`Environment`]: the variables that name a project and a token
//! - [`PipelineJob`]: the job, and the event that started its pipeline
//!
//! What GitLab cannot say, or only in a paid tier, is [`Unsupported`], never *no*. Its events of pushes, for one, are written
//! after the push, leave out who pushed several branches at once, and are deleted after some years.

mod answers;
mod changes;
mod client;
mod environment;
mod event;
mod job;
mod note_target;
mod notes;
mod pages;
mod people;
mod proposals;
mod publishing;
mod quick_actions;
mod runs;

pub use client::Client;
pub use environment::{Environment, GIT_USER, OwnJob};
pub use job::PipelineJob;

use konverge_forge::{
    BranchActivity, Checks, Deployments, Environments, Forge, ForgeKind, ReviewEdits, Unsupported,
};

impl Forge for Client {
    fn kind(&self) -> ForgeKind {
        ForgeKind::Gitlab
    }

    fn checks(&self) -> Result<&dyn Checks, Unsupported> {
        Err(without("check runs"))
    }

    fn deployments(&self) -> Result<&dyn Deployments, Unsupported> {
        // Its deployments are those of a job with an environment, and have no place for what an apply records.
        Err(without("deployments with a payload"))
    }

    fn environments(&self) -> Result<&dyn Environments, Unsupported> {
        // Only in a paid tier, and per deployment.
        Err(without("environments with reviewers in every tier"))
    }

    fn review_edits(&self) -> Result<&dyn ReviewEdits, Unsupported> {
        // An approval has no text.
        Err(without("texts of approvals"))
    }

    fn branch_activity(&self) -> Result<&dyn BranchActivity, Unsupported> {
        Err(without("record of who pushed what"))
    }
}

fn without(what: &'static str) -> Unsupported {
    Unsupported {
        forge: ForgeKind::Gitlab,
        what,
    }
}
