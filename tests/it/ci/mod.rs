//! `konverge ci` on events of the fake GitHub.

pub mod action;
pub mod app_configurations;
pub mod apply_records;
pub mod authority;
pub mod cancellation;
pub mod comment;
pub mod container_job;
pub mod deployments;
pub mod drift_job;
pub mod event_payloads;
pub mod event_results;
pub mod feedback;
pub mod github;
pub mod github_faults;
pub mod main_job;
pub mod matrix;
pub mod notifications;
pub mod permissions;
pub mod policy;
pub mod request_counts;
pub mod reviews;
pub mod run_summary;
pub mod shards;
pub mod unreadable_stacks;
pub mod workflows;
