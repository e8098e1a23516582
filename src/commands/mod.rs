//! The use cases of single commands, one file each. What several of them and the jobs share is the crate
//! [`konverge_run`]: the context of every use case, the session that opens a request, and the planner of one target.

pub mod adopt;
pub mod apply_scope;
pub mod check;
pub mod completions;
pub mod demo;
pub mod doctor;
pub mod editor;
pub mod export;
mod file_events;
pub mod github_matrix;
pub mod graph;
pub mod health;
pub mod init;
pub mod machine_key;
pub mod manual_approver;
pub mod notify_test;
pub mod package_lock_update;
pub mod rollout;
pub mod selected_stacks;
pub mod spec_difference;
pub mod status;
pub mod toolchains;
pub mod watch;
