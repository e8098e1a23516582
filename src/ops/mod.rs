//! The use cases, one file each: they connect the rooms. Only this room sees all others.
//!
//! [`RunContext`] is the context of every use case; a [`Session`] opens a request; [`Planner`] plans one
//! target.

pub mod adopt;
pub mod apply_scope;
pub mod check;
pub mod completions;
pub mod demo;
pub mod doctor;
pub mod github_matrix;
pub mod graph;
pub mod health;
pub mod init;
pub mod machine_key;
pub mod manual_approver;
pub mod package_lock_update;
pub mod selected_stacks;
pub mod status;
pub mod toolchains;
