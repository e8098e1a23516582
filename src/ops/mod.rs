//! The use cases, one file each: they connect the rooms. Only this room sees all others.
//!
//! [`RunContext`] is the context of every use case; a [`Session`] opens a request; [`Planner`] plans one
//! target.

mod adoption_notes;
pub mod affected;
mod app_stacks;
mod applied_spec;
pub mod apply;
pub mod apply_scope;
pub mod caches;
pub mod check;
mod checkout_addresses;
pub mod ci;
pub mod cluster_selection;
pub mod compiler;
pub mod completions;
mod context;
pub mod demo;
pub mod doctor;
pub mod drift;
pub mod github_matrix;
pub mod graph;
pub mod health;
mod health_rules;
pub mod init;
mod kcl_health;
mod key_services;
mod kusion_releases;
mod lease_wait;
pub mod manual_approver;
pub mod manual_policy_sets;
mod module_binaries;
mod module_runner;
mod object_conflicts;
mod other_stack_claims;
pub mod package_lock_update;
mod package_locks;

pub mod plan_documents;
mod planner;
mod policy_set_loader;
pub mod preview;
pub mod redact;
mod remote_cache;
mod renamed_stacks;
mod rescue_file;
mod revision;
pub mod rule_evaluator;
mod runtime_factory;
mod secret_fetch;
mod secret_files;
mod secret_stores;
pub mod selected_stacks;
pub mod session;
mod skipped_removals;
mod sops_copies;
mod spec_source;
mod stack_lookup;
pub mod stack_order;
mod stack_policy_sets;
pub mod state;
mod state_backend;
pub mod status;
mod target;
pub mod toolchains;

pub use context::{Notes, RunContext, StepCounter, repository_root};
pub use other_stack_claims::StackClaims;
pub use planner::{Planner, TargetPlan};
pub use renamed_stacks::{Renamed, renamed_stacks};
pub use revision::{AnalysisCache, OpenRevision, RevisionSpec};
pub use secret_fetch::SecretReferences;
pub use session::{OpenRequest, Session};
pub use skipped_removals::SkippedRemovals;
pub use spec_source::SpecSource;
pub use state_backend::{KeyUse, StateBackend, repository_id};
pub use target::{Selection, StackSelector, Target};
