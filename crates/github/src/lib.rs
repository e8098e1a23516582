//! Implements the interface of `konverge-forge` with GitHub's API. This crate knows nothing about the content of a
//! plan.
//!
//! - [`Client`]: the API
//! - [`Environment`]: the variables with the repository and the token

mod app;
mod changes;
mod checks;
mod client;
mod contributions;
mod deployments;
mod environment;
mod login;
mod people;
mod proposals;
mod publishing;
mod response;
mod runs;
mod transport;

pub use client::Client;
pub use environment::{Environment, GIT_USER, Login};

use konverge_forge::{
    BranchActivity, Checks, Deployments, Environments, Forge, ForgeKind, ReviewEdits, Unsupported,
};

impl Forge for Client {
    fn kind(&self) -> ForgeKind {
        ForgeKind::Github
    }

    fn checks(&self) -> Result<&dyn Checks, Unsupported> {
        Ok(self)
    }

    fn deployments(&self) -> Result<&dyn Deployments, Unsupported> {
        Ok(self)
    }

    fn environments(&self) -> Result<&dyn Environments, Unsupported> {
        Ok(self)
    }

    fn review_edits(&self) -> Result<&dyn ReviewEdits, Unsupported> {
        Ok(self)
    }

    fn branch_activity(&self) -> Result<&dyn BranchActivity, Unsupported> {
        Ok(self)
    }
}
