//! Implements the interface of `konverge-forge` with GitLab's API. This crate knows nothing about the content of a
//! plan.
//!
//! - [`Client`]: the API
//! - [`Environment`]: the variables with the project and the token
//! - [`PipelineJob`]: the job, and the event that started its pipeline
//!
//! A fact that GitLab does not provide, or only in a paid tier, is [`Unsupported`], never "no". For example, its
//! push events are written after the push, do not name a person who pushed several branches at once, and are
//! deleted after some years.

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
        // GitLab's deployments belong to jobs with an environment, and cannot store the data of an apply.
        Err(without("deployments with a payload"))
    }

    fn environments(&self) -> Result<&dyn Environments, Unsupported> {
        // GitLab has such approvals only in a paid tier, and for each deployment separately.
        Err(without("environments with reviewers in every tier"))
    }

    fn review_edits(&self) -> Result<&dyn ReviewEdits, Unsupported> {
        // GitLab's approvals have no text.
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
