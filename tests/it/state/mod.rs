//! State documents, leases and the `state` command.

pub mod commands;
pub mod import;
pub mod kusion_releases;
pub mod lease_wait;
pub mod rollback;
