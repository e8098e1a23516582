//! Affected stacks: digests, imports, explanations.

pub mod app_inputs;
pub mod cli_output;
// The tests of the crate use the rest of both.
#[allow(dead_code)]
#[path = "../../../crates/repo/tests/it/affected/core_oracle.rs"]
pub mod core_oracle;
pub mod exact_mode;
pub mod konfig_history;
pub mod linear_chains;
#[allow(dead_code)]
#[path = "../../../crates/repo/tests/it/affected/random_repository.rs"]
pub mod random_repository;
pub mod snapshots;
pub mod stack_inputs;
pub mod workspaces;
