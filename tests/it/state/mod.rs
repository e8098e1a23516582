//! State documents, leases and the `state` command.

pub mod commands;
pub mod documents;
mod fixture;
pub mod import;
pub mod kusion_releases;
pub mod lease_wait;
pub mod leases;
pub mod processes;
pub mod review_records;
pub mod rollback;
pub mod sealing;
pub mod simulated_runs;
