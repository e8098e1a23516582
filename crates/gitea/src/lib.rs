//! Implements the interface of `konverge-forge` for Gitea and its forks such as Forgejo. This crate knows nothing
//! about the content of a plan.
//!
//! - [`Client`]: the API
//! - [`Environment`]: the variables with the repository and the token
//!
//! A fact that Gitea does not provide is [`Unsupported`], never "no". For example, its activity feed does not prove
//! who pushed: it omits people with private activities, names the owner in place of a deploy key, and is deleted
//! after some time.

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
