//! Affected stacks: digests, imports, explanations.

pub mod app_inputs;
pub mod cli_output;
pub mod core_oracle;
pub mod exact_mode;
pub mod git_repositories;
pub mod imports;
pub mod konfig_history;
pub mod linear_chains;
pub mod random_edits;
pub mod random_repository;
pub mod rare_layouts;
pub mod snapshots;
pub mod stack_inputs;
pub mod workspaces;
