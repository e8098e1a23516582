//! State documents, leases and the `state` command.

pub mod documents;
mod fixture;
pub mod forgery;
pub mod leases;
pub mod processes;
pub mod review_records;
pub mod sealing;
pub mod simulated_runs;
