//! State documents, leases and the `state` command.

pub mod commands;
pub mod documents;
pub mod import;
pub mod lease_wait;
pub mod model;
pub mod processes;
pub mod rollback;
