//! Gitea, and what is made of it, behind the door of `konverge-forge`. This room knows nothing about the content of a plan.
//!
//! - [`Client`]: the API
//! - [`Environment`]: the variables that name a repository and a token
//!
//! What Gitea cannot say is [`Unsupported`], never *no*. Its feed of activities, for one, does not say who pushed: it leaves out
//! who keeps activities private, names the owner for a deploy key, and is deleted after some time.

mod answers;
mod changes;
mod client;
mod environment;
mod pages;
mod people;
mod proposals;
mod publishing;
mod runs;
mod title;
mod version;

pub use client::Client;
pub use environment::{Environment, GIT_USER};

use konverge_forge::{
    BranchActivity, Checks, Deployments, Environments, Forge, ForgeKind, ReviewEdits, Unsupported,
};

impl Forge for Client {
    fn kind(&self) -> ForgeKind {
        ForgeKind::Gitea
    }

    fn checks(&self) -> Result<&dyn Checks, Unsupported> {
        Err(without("check runs"))
    }

    fn deployments(&self) -> Result<&dyn Deployments, Unsupported> {
        Err(without("deployments"))
    }

    fn environments(&self) -> Result<&dyn Environments, Unsupported> {
        Err(without("environments with reviewers"))
    }

    fn review_edits(&self) -> Result<&dyn ReviewEdits, Unsupported> {
        Err(without("editors of reviews"))
    }

    fn branch_activity(&self) -> Result<&dyn BranchActivity, Unsupported> {
        Err(without("record of who pushed what"))
    }
}

fn without(what: &'static str) -> Unsupported {
    Unsupported {
        forge: ForgeKind::Gitea,
        what,
    }
}
